"""The words of ``smoothed``."""

from __future__ import annotations

from typing import ClassVar

from vfl_node.training.split.missing.strategies import FeatureStrategy


class Smoothed(FeatureStrategy):
    """A draw from the cloud of own rows around a random one."""

    rows: ClassVar[str] = "vfl_node.training.split.missing.features.smoothed.rows:SmoothedRows"

    def words(self) -> str:
        """As the base."""
        return "columns drawn from the cloud of the party's own rows around a random one"

    def learnt(self) -> str:
        """As the base."""
        return "for some or most of them: a made-up row does not fit the label and the receiver's own columns"
