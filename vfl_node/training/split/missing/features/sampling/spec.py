"""The words of ``sampling``."""

from __future__ import annotations

from vfl_node.training.split.missing.strategies import FeatureStrategy


class Sampling(FeatureStrategy):
    """The columns of a random own row."""

    def words(self) -> str:
        """As the base."""
        return "columns of a random row of the party's own"

    def learnt(self) -> str:
        """As the base."""
        return "for some or most of them: a copied row has a twin, and does not fit the receiver's own columns"
