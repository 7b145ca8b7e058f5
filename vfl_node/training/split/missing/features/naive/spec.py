"""The words of ``naive``."""

from __future__ import annotations

from typing import ClassVar

from vfl_node.training.split.missing.strategies import FeatureStrategy


class Naive(FeatureStrategy):
    """Each cell by itself, anywhere in its column's range."""

    rows: ClassVar[str] = "vfl_node.training.split.missing.features.naive.rows:NaiveRows"

    def words(self) -> str:
        """As the base."""
        return "values drawn for each column by itself"

    def learnt(self) -> str:
        """As the base."""
        return "for most of them: a row of random values stands out"
