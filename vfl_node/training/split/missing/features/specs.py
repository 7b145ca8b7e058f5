"""Keys and words of the strategies for missing columns; light."""

from __future__ import annotations

from typing import ClassVar

from typing_extensions import override

from vfl_node.training.split.missing.strategies import FeatureStrategy


class Gaussian(FeatureStrategy):
    """A random embedding, as long as the longest real one of the batch."""

    embeddings: ClassVar[str] = "vfl_node.training.split.missing.features.embeddings:GaussianEmbeddings"

    @override
    def words(self) -> str:
        return "a random embedding, as long as the longest real one of the batch"

    @override
    def learnt(self) -> str:
        return "almost surely: an embedding drawn at random stands out"


class Naive(FeatureStrategy):
    """Each cell by itself, anywhere in its column's range."""

    rows: ClassVar[str] = "vfl_node.training.split.missing.features.rows:NaiveRows"

    @override
    def words(self) -> str:
        return "values drawn for each column by itself"

    @override
    def learnt(self) -> str:
        return "for most of them: a row of random values stands out"


class NoFeatures(FeatureStrategy):
    """No synthetic columns: for an alignment whose rows every party owns."""

    fills: ClassVar[bool] = False

    @override
    def words(self) -> str:
        return "nothing"


class Random(FeatureStrategy):
    """A random embedding with the mean and spread of real ones."""

    embeddings: ClassVar[str] = "vfl_node.training.split.missing.features.embeddings:RandomEmbeddings"

    @override
    def words(self) -> str:
        return "a random embedding with the mean and spread of real ones"

    @override
    def learnt(self) -> str:
        return "almost surely: an embedding drawn at random stands out"


class Sampling(FeatureStrategy):
    """The columns of a random own row."""

    @override
    def words(self) -> str:
        return "columns of a random row of the party's own"

    @override
    def learnt(self) -> str:
        return "for some or most of them: a copied row has a twin, and does not fit the receiver's own columns"


class Smoothed(FeatureStrategy):
    """A draw from the cloud of own rows around a random one."""

    rows: ClassVar[str] = "vfl_node.training.split.missing.features.smoothed:SmoothedRows"

    @override
    def words(self) -> str:
        return "columns drawn from the cloud of the party's own rows around a random one"

    @override
    def learnt(self) -> str:
        return "for some or most of them: a made-up row does not fit the label and the receiver's own columns"
