"""``heuristic``: what a job says of it."""

from __future__ import annotations

from typing import ClassVar

from vfl_node.training.unaligned.methods import FillingMethod


class Heuristic(FillingMethod):
    """FedAds' Heuristic: what the same user's aligned rows have."""

    needs_groups: ClassVar[bool] = True
    implementation: ClassVar[str] = "vfl_node.training.unaligned.heuristic.filler:mean_of_group"

    def words(self) -> str:
        """As the base."""
        return "the mean embedding of the aligned rows of its group, or of all where the group has none"
