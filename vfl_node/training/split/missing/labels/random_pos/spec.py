"""The words of ``random-pos``."""

from __future__ import annotations

from typing import ClassVar

from vfl_node.training.split.missing.strategies import LabelStrategy


class RandomPos(LabelStrategy):
    """A class as frequent as it is among the real labels."""

    implementation: ClassVar[str] = "vfl_node.training.split.missing.labels.random_pos.labels:random_pos"

    def words(self) -> str:
        """As the base."""
        return "a class drawn once for each row, as often as it is among the real labels"

    def learnt(self, peer: str) -> str:
        """As the base."""
        return f"which records {peer} lacks can be inferred for some: their labels fit worse"
