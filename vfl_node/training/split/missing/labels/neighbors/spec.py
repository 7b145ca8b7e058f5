"""The words of ``neighbors``."""

from __future__ import annotations

from typing import ClassVar

from vfl_node.roles import Task
from vfl_node.training.split.missing.strategies import LabelStrategy


class Neighbors(LabelStrategy):
    """The class, or the mean target, of the nearest rows of the batch whose label is real."""

    implementation: ClassVar[str] = "vfl_node.training.split.missing.labels.neighbors.labels:neighbors"
    tasks: ClassVar[tuple[Task, ...]] = ("classification", "regression")

    def words(self) -> str:
        """As the base."""
        return "the class, or mean target, of the nearest rows of the batch"

    def learnt(self, peer: str) -> str:
        """As the base."""
        return f"which records {peer} lacks can be inferred over epochs, for most: their labels change"
