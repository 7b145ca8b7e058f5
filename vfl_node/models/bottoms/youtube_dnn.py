"""Lists of items as the mean of their embeddings, beside numbers and embedded categories, then dense layers.

Source: Covington, Adams and Sargin 2016 (Deep Neural Networks for YouTube Recommendations), section 3.2: watch and search
histories are averaged embeddings, side by side with the other features, below a tower of ReLU layers. What we leave out is the
paper's output, a softmax over all videos: here the cut layer follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from vfl_node.models.bottoms.mlp import MLP
from vfl_node.models.schema import InputSchema
from vfl_node.models.settings import NetworkSettings

if TYPE_CHECKING:
    from torch import nn


class YoutubeDnnBottomKind:
    """A :class:`~vfl_node.models.bottoms.BottomKind` for a party with lists; beside others with tables, if need be."""

    @property
    def reads_images(self) -> bool:
        """As :attr:`BottomKind.reads_images`."""
        return False

    @property
    def reads_lists(self) -> bool:
        """As :attr:`BottomKind.reads_lists`."""
        return True

    def wide(self, outputs: int) -> int:
        """As :meth:`BottomKind.wide`."""
        return 0

    def weights(self, schema: InputSchema, sizes: Sequence[int], settings: NetworkSettings) -> int:
        """As :meth:`BottomKind.weights`."""
        tables = settings.embedding_size * sum(codes for codes, _ in schema.lists)
        return tables + MLP.weights(_pooled(schema, settings), sizes, settings)

    def values(self, schema: InputSchema, sizes: Sequence[int], settings: NetworkSettings) -> int:
        """As :meth:`BottomKind.values`."""
        return sum(length for _, length in schema.lists) + MLP.values(_pooled(schema, settings), sizes, settings)

    def build(self, schema: InputSchema, sizes: Sequence[int], settings: NetworkSettings) -> nn.Module:
        """As :meth:`BottomKind.build`."""
        dense = MLP.build(_pooled(schema, settings), sizes, settings)
        if not schema.lists:
            return dense
        from vfl_node.models.bottoms.youtube_dnn_network import YoutubeDnnBottom

        return YoutubeDnnBottom(schema.lists, settings.embedding_size, dense)


def _pooled(schema: InputSchema, settings: NetworkSettings) -> InputSchema:
    """What the dense layers read of rows of ``schema``: its other columns, and the means."""
    return replace(schema, numeric=schema.numeric + settings.embedding_size * len(schema.lists), lists=())


YOUTUBE_DNN = YoutubeDnnBottomKind()
