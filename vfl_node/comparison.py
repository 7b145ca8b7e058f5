"""With what an active node compares a federated model, beside a network of its own: a part of its settings."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from vfl_node.configuration import Frozen


class Compare(Frozen):
    """Of this nothing crosses the wire."""

    boosted_tree: bool | Literal["auto"] = Field(
        default="auto",
        description="whether scikit-learn, where it is installed, trains a boosted tree on this node's own columns and labels. "
        "auto: unless the job hides numbers of records from the peer, which waits meanwhile and sees how long it takes",
    )
    most_rows: int = Field(
        default=1_000_000, ge=1, le=100_000_000, description="rows that a boosted tree learns from; of more a random part"
    )


NO_TREE = Compare(boosted_tree=False)
