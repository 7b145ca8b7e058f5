"""Two convolutions over a party's image, then dense layers; a party without an image has dense layers alone.

Source: LeCun et al. 1998 (LeNet-5) in form, with ReLU, max-pooling and 3 × 3 kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from vfl_node.models.bottoms.mlp import MLP
from vfl_node.models.counts import Convolutions
from vfl_node.models.schema import InputSchema
from vfl_node.models.settings import LayerOptions, NetworkSettings

if TYPE_CHECKING:
    from torch import nn

CHANNELS = (16, 32)
"""Of each convolution."""


class CnnBottomKind:
    """A :class:`~vfl_node.models.bottoms.BottomKind` for a party with an image; beside others with tables, if need be.

    What the convolutions give goes into dense layers of the given sizes, beside the party's other columns. Each convolution
    has what the job says of a hidden layer: a norm, dropout.
    """

    @property
    def reads_images(self) -> bool:
        """As :attr:`BottomKind.reads_images`."""
        return True

    @property
    def reads_lists(self) -> bool:
        """As :attr:`BottomKind.reads_lists`."""
        return False

    def wide(self, outputs: int) -> int:
        """As :meth:`BottomKind.wide`."""
        return 0

    def weights(self, schema: InputSchema, sizes: Sequence[int], settings: NetworkSettings) -> int:
        """As :meth:`BottomKind.weights`."""
        dense = MLP.weights(dense_schema(schema), sizes, settings)
        return dense + (Convolutions(schema.image, CHANNELS).weights(LayerOptions.of(settings)) if schema.image else 0)

    def values(self, schema: InputSchema, sizes: Sequence[int], settings: NetworkSettings) -> int:
        """As :meth:`BottomKind.values`."""
        dense = MLP.values(dense_schema(schema), sizes, settings)
        return dense + (Convolutions(schema.image, CHANNELS).values(LayerOptions.of(settings)) if schema.image else 0)

    def build(self, schema: InputSchema, sizes: Sequence[int], settings: NetworkSettings) -> nn.Module:
        """As :meth:`BottomKind.build`."""
        dense = MLP.build(dense_schema(schema), sizes, settings)
        if schema.image is None:
            return dense
        from vfl_node.models.bottoms.cnn_network import CnnBottom

        return CnnBottom(schema.image[0], CHANNELS, dense, LayerOptions.of(settings))


def dense_schema(schema: InputSchema) -> InputSchema:
    """What the dense layers read of rows of ``schema``: its columns, and what the convolutions give."""
    found = Convolutions(schema.image, CHANNELS).outputs if schema.image else 0
    return replace(schema, numeric=schema.numeric + found, image=None)


CNN = CnnBottomKind()
