"""The words of the feature strategy ``mixed``. It imports no torch."""

from __future__ import annotations

from typing import ClassVar

from typing_extensions import override

from vfl_node.training.split.missing.strategies import FeatureStrategy


class Mixed(FeatureStrategy):
    """``train: {missing: {features: mixed}}``."""

    rows: ClassVar[str] = "vfl_example.mixed:MixedRows"

    @override
    def words(self) -> str:
        return "each column from another row of the party's own"

    @override
    def learnt(self) -> str:
        return "for most of them: what the columns have in common is lost"
