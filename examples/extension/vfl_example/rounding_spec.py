"""The keys and words of the defence ``rounding``. It imports no torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from typing_extensions import override

from vfl_node.settings.defences import DefenceParams, DefenceSpec, Direction


class RoundingParams(DefenceParams):
    """``defences: [{name: rounding, step: 0.25}]`` in a node's settings."""

    name: Literal["rounding"]
    step: float = Field(gt=0, description="every number of an embedding becomes a multiple of it")

    @override
    def words(self, direction: Direction) -> str:
        return f"every number is rounded to a multiple of {self.step:g}"


ROUNDING = DefenceSpec(
    params=RoundingParams, directions=frozenset({"embeddings"}), implementation="vfl_example.rounding:Rounding"
)
