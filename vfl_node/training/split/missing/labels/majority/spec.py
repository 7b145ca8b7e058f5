"""The words of ``majority``."""

from __future__ import annotations

from typing import ClassVar

from vfl_node.training.split.missing.strategies import LabelStrategy


class Majority(LabelStrategy):
    """The most frequent class."""

    implementation: ClassVar[str] = "vfl_node.training.split.missing.labels.majority.labels:majority"
    redrawn: ClassVar[bool] = False

    def words(self) -> str:
        """As the base."""
        return "the more frequent class"

    def learnt(self, peer: str) -> str:
        """As the base."""
        return (
            f"a row whose label is not the synthetic class is surely a record that {peer} holds; which of the others {peer} "
            "lacks can be inferred for some"
        )
