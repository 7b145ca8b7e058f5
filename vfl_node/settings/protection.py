"""What a node's owner does about what tensors tell: ``audit`` and ``defences`` of its settings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from vfl_node.configuration.models import Frozen
from vfl_node.settings.defences import DefenceParams
from vfl_node.settings.table import KeyColumns

ColumnNames = Annotated[tuple[str, ...], Field(min_length=1)]
"""Columns of a party's own table; at least one, since no name would read as no column."""


class FeatureAuditSettings(Frozen):
    """Columns of this party that its node tries to rebuild from what it sends."""

    columns: ColumnNames | Literal["all"] = Field(description="columns of this party's table; all: every one that varies")
    known_share: float = Field(
        default=0.05,
        gt=0,
        le=0.5,
        description="the share of this party's rows whose columns the peer is assumed to know already, with which it learns to "
        "rebuild those of the others",
    )

    @property
    def names(self) -> tuple[str, ...]:
        """The columns; none: all."""
        return () if self.columns == "all" else self.columns


class LinkageAuditSettings(Frozen):
    """A public list by which a coordinator could recognise this party's keys."""

    list: Path = Field(description="a table of public keys, such as names of a register: CSV, Parquet or Arrow, as data.path")
    keys: dict[str, KeyColumns] = Field(
        default={},
        description="columns of the list behind the keys of a job that are not called as the key is, as in data.keys",
    )


class AuditSettings(Frozen):
    """Which attacks this node runs on what it sends itself."""

    membership: bool = Field(
        default=True,
        description="whether it attacks what it sends to see how well its synthetic rows are told from real ones; without, "
        "attacks.rows of the policy cannot be kept",
    )
    labels: bool = Field(
        default=True,
        description="for an active node: whether it attacks the gradients that it sends to see how well its labels are "
        "read from them; without, attacks.labels of the policy cannot be kept",
    )
    features: FeatureAuditSettings | None = Field(
        default=None, description="for a passive node: whether it tries to rebuild columns from the embeddings that it sends"
    )
    linkage: LinkageAuditSettings | None = Field(
        default=None,
        description="for a node with a table: whether it tries, before it sends its keys to the coordinator of a linkage, how "
        "many of them are recognised by a public list",
    )
    wire: bool = Field(
        default=False,
        description="whether every message of a job is counted and hashed by its type, and what is sent is searched for values "
        "of this node's table (vfl-node audit-wire); about 70 ms of one core for each MiB that is sent",
    )


@dataclass(frozen=True)
class Protection:
    """What this node's owner does about what tensors tell that leave in training and predictions.

    Attributes:
        defences: change each tensor before it leaves, in this order.
        membership: whether the attacks on membership run.
        max_attack_auc: training and predictions stop if these attacks do better, folded; None: they go on.
        features: columns that it tries to rebuild from the embeddings that leave; None: none.
        max_feature_gain: training stops if one of them is rebuilt by this much better than by a constant; None: it goes on.
        labels: whether the attacks on labels run.
        max_label_auc: training stops if one of these does better, folded; None: it goes on.
        linkage: a public list by which it tries its own keys before a linkage; None: none.
    """

    defences: tuple[DefenceParams, ...] = ()
    membership: bool = True
    max_attack_auc: float | None = None
    features: FeatureAuditSettings | None = None
    max_feature_gain: float | None = None
    labels: bool = True
    max_label_auc: float | None = None
    linkage: LinkageAuditSettings | None = None


class Compare(Frozen):
    """Comparisons of which nothing crosses the wire."""

    boosted_tree: bool | Literal["auto"] = Field(
        default="auto",
        description="whether scikit-learn, where it is installed, trains a boosted tree on this node's own columns and labels. "
        "auto: unless the job hides numbers of records from the peer, which waits meanwhile and sees how long it takes",
    )
    most_rows: int = Field(
        default=1_000_000, ge=1, le=100_000_000, description="rows that a boosted tree learns from; of more a random part"
    )


NO_TREE = Compare(boosted_tree=False)
