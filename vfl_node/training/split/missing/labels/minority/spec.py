"""The words of ``minority``."""

from __future__ import annotations

from typing import ClassVar

from vfl_node.training.split.missing.strategies import LabelStrategy


class Minority(LabelStrategy):
    """The least frequent class."""

    implementation: ClassVar[str] = "vfl_node.training.split.missing.labels.minority.labels:minority"
    redrawn: ClassVar[bool] = False

    def words(self) -> str:
        """As the base."""
        return "the rarer class"

    def learnt(self, peer: str) -> str:
        """As the base."""
        return (
            f"a row whose label is not the synthetic class is surely a record that {peer} holds; which of the others {peer} "
            "lacks can be inferred for some"
        )
