"""The keys and words of the label strategy ``coin``. It imports no torch."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from typing_extensions import override

from vfl_node.training.split.missing.strategies import LabelStrategy


class Coin(LabelStrategy):
    """``train: {missing: {labels: coin, heads: 0.3}}``."""

    implementation: ClassVar[str] = "vfl_example.coin:coin"

    heads: float = Field(default=0.5, ge=0, le=1, description="how often a synthetic label is 1")

    @override
    def words(self) -> str:
        return f"1 with probability {self.heads:g}, drawn once for each row"

    @override
    def learnt(self, peer: str) -> str:
        return f"which records {peer} lacks can be inferred for some: their labels fit worse"
