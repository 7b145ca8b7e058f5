"""The words of ``none``."""

from __future__ import annotations

from typing import ClassVar

from vfl_node.roles import Task
from vfl_node.training.split.missing.strategies import LabelStrategy


class NoLabels(LabelStrategy):
    """No synthetic labels: for an alignment whose rows the active party owns."""

    fills: ClassVar[bool] = False
    tasks: ClassVar[tuple[Task, ...]] = ("classification", "regression")

    def words(self) -> str:
        """As the base."""
        return "nothing"
