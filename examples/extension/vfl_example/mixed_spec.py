"""The words of the feature strategy ``mixed``. It imports no torch."""

from __future__ import annotations

from typing import ClassVar

from vfl_node.training.split.missing.strategies import FeatureStrategy


class Mixed(FeatureStrategy):
    """``train: {missing: {features: mixed}}``."""

    rows: ClassVar[str] = "vfl_example.mixed:MixedRows"

    def words(self) -> str:
        """As the base."""
        return "each column from another row of the party's own"

    def learnt(self) -> str:
        """As the base."""
        return "for most of them: what the columns have in common is lost"
