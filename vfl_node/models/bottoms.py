"""Kinds of bottoms: one party's half up to the cut layer. Light: torch is loaded only where one is built."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from typing_extensions import override

from vfl_node.configuration.registry import Registry
from vfl_node.models.counts import Convolutions, dense_values, hidden_weights
from vfl_node.models.schema import InputSchema
from vfl_node.models.settings import LayerOptions, NetworkSettings

if TYPE_CHECKING:
    from torch import nn

CHANNELS = (16, 32)
"""Outputs of each convolution of ``cnn``."""


class BottomKind(Protocol):
    """A :class:`~vfl_node.models.inputs.ModelInput` of B rows → their embedding, float32[B, d + wide]."""

    @property
    def reads_images(self) -> bool:
        """Whether it reads images; else the pixels of a party's image are numeric columns."""
        return False

    @property
    def reads_lists(self) -> bool:
        """Whether it reads lists; else training refuses a table with a column of lists."""
        return False

    def wide(self, outputs: int) -> int:
        """How many linear coordinates follow the d = ``sizes[-1]`` others: 0, or one for each of ``outputs`` logits."""
        return 0

    def weights(self, schema: InputSchema, sizes: Sequence[int], settings: NetworkSettings) -> int:
        """Number of weights, counted without building anything."""

    def values(self, schema: InputSchema, sizes: Sequence[int], settings: NetworkSettings) -> int:
        """How many numbers a row of a batch takes in memory, what it reads included; likewise."""

    def build(self, schema: InputSchema, sizes: Sequence[int], settings: NetworkSettings) -> nn.Module:
        """The module, without initial weights."""


@dataclass(frozen=True)
class MlpBottomKind(BottomKind):
    """Dense layers over numbers and embedded categories; ``wide_deep`` has linear coordinates beside them.

    Source: Song et al. 2021 (FLORIST), Table 4; Cheng et al. 2016 (Wide & Deep).

    Attributes:
        linear: whether linear coordinates follow, one for each logit.
    """

    linear: bool

    @override
    def wide(self, outputs: int) -> int:
        return outputs if self.linear else 0

    @override
    def weights(self, schema: InputSchema, sizes: Sequence[int], settings: NetworkSettings) -> int:
        codes, wide = sum(schema.cardinalities), self.wide(settings.outputs)
        width = schema.numeric + settings.embedding_size * len(schema.cardinalities)
        hidden = hidden_weights(width, sizes, LayerOptions.from_job(settings))
        return hidden + settings.embedding_size * codes + wide * (schema.numeric + codes)

    @override
    def values(self, schema: InputSchema, sizes: Sequence[int], settings: NetworkSettings) -> int:
        return dense_values(schema, sizes, settings)

    @override
    def build(self, schema: InputSchema, sizes: Sequence[int], settings: NetworkSettings) -> nn.Module:
        from vfl_node.models.networks import MlpBottom

        wide, options = self.wide(settings.outputs), LayerOptions.from_job(settings)
        return MlpBottom(schema, sizes, embedding_size=settings.embedding_size, wide=wide, options=options)


MLP = MlpBottomKind(linear=False)
WIDE_DEEP = MlpBottomKind(linear=True)


class CnnBottomKind(BottomKind):
    """Two convolutions over a party's image, then dense layers; a party without an image has dense layers alone.

    What the convolutions give goes into dense layers of the given sizes, beside the party's other columns. Each convolution
    has what the job says of a hidden layer: a norm, dropout.

    Source: LeCun et al. 1998 (LeNet-5) in form, with ReLU, max-pooling and 3 × 3 kernels.
    """

    reads_images = True

    @override
    def weights(self, schema: InputSchema, sizes: Sequence[int], settings: NetworkSettings) -> int:
        dense = MLP.weights(_convolved_schema(schema), sizes, settings)
        return dense + (Convolutions(schema.image, CHANNELS).weights(LayerOptions.from_job(settings)) if schema.image else 0)

    @override
    def values(self, schema: InputSchema, sizes: Sequence[int], settings: NetworkSettings) -> int:
        dense = MLP.values(_convolved_schema(schema), sizes, settings)
        return dense + (Convolutions(schema.image, CHANNELS).values(LayerOptions.from_job(settings)) if schema.image else 0)

    @override
    def build(self, schema: InputSchema, sizes: Sequence[int], settings: NetworkSettings) -> nn.Module:
        dense = MLP.build(_convolved_schema(schema), sizes, settings)
        if schema.image is None:
            return dense
        from vfl_node.models.networks import CnnBottom

        return CnnBottom(schema.image[0], CHANNELS, dense, LayerOptions.from_job(settings))


class YoutubeDnnBottomKind(BottomKind):
    """Lists of items as the mean of their embeddings, beside numbers and embedded categories, then dense layers.

    Source: Covington, Adams and Sargin 2016 (Deep Neural Networks for YouTube Recommendations), section 3.2: watch and search
    histories are averaged embeddings, side by side with the other features, below a tower of ReLU layers. What we leave out is
    the paper's output, a softmax over all videos: here the cut layer follows.
    """

    reads_lists = True

    @override
    def weights(self, schema: InputSchema, sizes: Sequence[int], settings: NetworkSettings) -> int:
        tables = settings.embedding_size * sum(codes for codes, _ in schema.lists)
        return tables + MLP.weights(_pooled_schema(schema, settings), sizes, settings)

    @override
    def values(self, schema: InputSchema, sizes: Sequence[int], settings: NetworkSettings) -> int:
        return sum(length for _, length in schema.lists) + MLP.values(_pooled_schema(schema, settings), sizes, settings)

    @override
    def build(self, schema: InputSchema, sizes: Sequence[int], settings: NetworkSettings) -> nn.Module:
        dense = MLP.build(_pooled_schema(schema, settings), sizes, settings)
        if not schema.lists:
            return dense
        from vfl_node.models.networks import YoutubeDnnBottom

        return YoutubeDnnBottom(schema.lists, settings.embedding_size, dense)


def _convolved_schema(schema: InputSchema) -> InputSchema:
    """What the dense layers read of rows of ``schema``: its columns, and what the convolutions give."""
    found = Convolutions(schema.image, CHANNELS).outputs if schema.image else 0
    return replace(schema, numeric=schema.numeric + found, image=None)


def _pooled_schema(schema: InputSchema, settings: NetworkSettings) -> InputSchema:
    """What the dense layers read of rows of ``schema``: its other columns, and the means."""
    return replace(schema, numeric=schema.numeric + settings.embedding_size * len(schema.lists), lists=())


CNN = CnnBottomKind()
YOUTUBE_DNN = YoutubeDnnBottomKind()

BOTTOMS: Registry[BottomKind] = Registry(
    "vfl_node.bottoms",
    {
        "mlp": "vfl_node.models.bottoms:MLP",
        "wide_deep": "vfl_node.models.bottoms:WIDE_DEEP",
        "cnn": "vfl_node.models.bottoms:CNN",
        "youtube_dnn": "vfl_node.models.bottoms:YOUTUBE_DNN",
    },
)
"""Name → kind of bottom."""
