"""The words of ``sampling``."""

from __future__ import annotations

from typing import ClassVar

from vfl_node.roles import Task
from vfl_node.training.split.missing.strategies import LabelStrategy


class SampledLabels(LabelStrategy):
    """A target drawn from the distribution of the real ones."""

    implementation: ClassVar[str] = "vfl_node.training.split.missing.labels.sampling.labels:sampled"
    tasks: ClassVar[tuple[Task, ...]] = ("regression",)

    def words(self) -> str:
        """As the base."""
        return "a target drawn once for each row from the distribution of the real ones"

    def learnt(self, peer: str) -> str:
        """As the base."""
        return f"which records {peer} lacks can be inferred for some: their targets fit worse"
