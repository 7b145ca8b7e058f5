"""The words of ``gaussian``."""

from __future__ import annotations

from typing import ClassVar

from vfl_node.training.split.missing.strategies import FeatureStrategy


class Gaussian(FeatureStrategy):
    """A random embedding, as long as the longest real one of the batch."""

    embeddings: ClassVar[str] = "vfl_node.training.split.missing.features.gaussian.embeddings:GaussianEmbeddings"

    def words(self) -> str:
        """As the base."""
        return "a random embedding, as long as the longest real one of the batch"

    def learnt(self) -> str:
        """As the base."""
        return "almost surely: an embedding drawn at random stands out"
