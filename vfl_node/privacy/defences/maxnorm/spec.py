"""The keys and words of the defence ``maxnorm``."""

from __future__ import annotations

from typing import Literal

from vfl_node.privacy.defences.spec import DefenceParams, DefenceSpec, Direction


class MaxNormParams(DefenceParams):
    """``{name: maxnorm}``."""

    name: Literal["maxnorm"]

    def words(self, direction: Direction) -> str:
        """As :meth:`DefenceParams.words`."""
        return "each row's gradient is multiplied by a random number, so that all are as long as the batch's longest on average"


MAXNORM = DefenceSpec(
    params=MaxNormParams,
    directions=frozenset({"gradients"}),
    implementation="vfl_node.privacy.defences.maxnorm.defence:MaxNorm",
)
