"""The keys and words of the defence ``naive``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from vfl_node.privacy.defences.decoding import DecoderParams
from vfl_node.privacy.defences.spec import DefenceSpec, Direction


class NaiveParams(DecoderParams):
    """``{name: naive, columns: [occupation], strength: 1}``."""

    name: Literal["naive"]
    strength: float = Field(gt=0, allow_inf_nan=False, description="weight of the privacy loss beside the task's (λ)")

    def words(self, direction: Direction) -> str:
        """As :meth:`DefenceParams.words`."""
        return (
            f"in each step of training, and not before, the bottom also learns to let a simulated decoder rebuild "
            f"{self.of_what} less (naive, strength {self.strength:g})"
        )


NAIVE = DefenceSpec(
    params=NaiveParams,
    directions=frozenset({"embeddings"}),
    implementation="vfl_node.privacy.defences.naive.defence:NaiveDefence",
)
