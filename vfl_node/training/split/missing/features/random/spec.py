"""The words of ``random``."""

from __future__ import annotations

from typing import ClassVar

from vfl_node.training.split.missing.strategies import FeatureStrategy


class Random(FeatureStrategy):
    """A random embedding with the mean and spread of real ones."""

    embeddings: ClassVar[str] = "vfl_node.training.split.missing.features.random.embeddings:RandomEmbeddings"

    def words(self) -> str:
        """As the base."""
        return "a random embedding with the mean and spread of real ones"

    def learnt(self) -> str:
        """As the base."""
        return "almost surely: an embedding drawn at random stands out"
