"""The words of ``mean``."""

from __future__ import annotations

from typing import ClassVar

from vfl_node.roles import Task
from vfl_node.training.split.missing.strategies import LabelStrategy


class MeanLabel(LabelStrategy):
    """The mean of the targets."""

    implementation: ClassVar[str] = "vfl_node.training.split.missing.labels.mean.labels:mean"
    redrawn: ClassVar[bool] = False
    tasks: ClassVar[tuple[Task, ...]] = ("regression",)

    def words(self) -> str:
        """As the base."""
        return "the mean of the targets"

    def learnt(self, peer: str) -> str:
        """As the base."""
        return (
            f"which records {peer} lacks can be inferred for most, by whoever can read targets from gradients: made-up targets "
            "are all the same, and hardly any real one is equal to them"
        )
