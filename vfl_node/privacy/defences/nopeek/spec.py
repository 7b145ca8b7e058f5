"""The keys and words of the defence ``nopeek``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from vfl_node.privacy.defences.decoding import ColumnParams
from vfl_node.privacy.defences.spec import DefenceSpec, Direction


class NoPeekParams(ColumnParams):
    """``{name: nopeek, columns: all, strength: 1}``."""

    name: Literal["nopeek"]
    strength: float = Field(gt=0, allow_inf_nan=False, description="weight of the distance correlation beside the task's loss")

    def words(self, direction: Direction) -> str:
        """As :meth:`DefenceParams.words`."""
        return (
            f"in each step of training the bottom also learns to let embeddings depend less on {self.of_what} (nopeek: "
            f"distance correlation, strength {self.strength:g})"
        )


NOPEEK = DefenceSpec(
    params=NoPeekParams,
    directions=frozenset({"embeddings"}),
    implementation="vfl_node.privacy.defences.nopeek.defence:NoPeek",
)
