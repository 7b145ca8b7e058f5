"""The words of ``none``."""

from __future__ import annotations

from typing import ClassVar

from vfl_node.training.split.missing.strategies import FeatureStrategy


class NoFeatures(FeatureStrategy):
    """No synthetic columns: for an alignment whose rows every party owns."""

    fills: ClassVar[bool] = False

    def words(self) -> str:
        """As the base."""
        return "nothing"
