"""Dense layers over numbers and embedded categories; ``wide_deep`` has linear coordinates beside them.

Source: Song et al. 2021 (FLORIST), Table 4; Cheng et al. 2016 (Wide & Deep).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vfl_node.models.counts import dense_values, hidden_weights
from vfl_node.models.schema import InputSchema
from vfl_node.models.settings import LayerOptions, NetworkSettings

if TYPE_CHECKING:
    from vfl_node.models.bottoms.mlp_network import MlpBottom


@dataclass(frozen=True)
class MlpBottomKind:
    """A :class:`~vfl_node.models.bottoms.BottomKind` of dense layers.

    Attributes:
        linear: whether linear coordinates follow, one for each logit.
    """

    linear: bool

    @property
    def reads_lists(self) -> bool:
        """As :attr:`BottomKind.reads_lists`."""
        return False

    def wide(self, outputs: int) -> int:
        """As :meth:`BottomKind.wide`."""
        return outputs if self.linear else 0

    def weights(self, schema: InputSchema, sizes: Sequence[int], settings: NetworkSettings) -> int:
        """As :meth:`BottomKind.weights`."""
        codes, wide = sum(schema.cardinalities), self.wide(settings.outputs)
        width = schema.numeric + settings.embedding_size * len(schema.cardinalities)
        hidden = hidden_weights(width, sizes, LayerOptions.of(settings))
        return hidden + settings.embedding_size * codes + wide * (schema.numeric + codes)

    @property
    def reads_images(self) -> bool:
        """As :attr:`BottomKind.reads_images`."""
        return False

    def values(self, schema: InputSchema, sizes: Sequence[int], settings: NetworkSettings) -> int:
        """As :meth:`BottomKind.values`."""
        return dense_values(schema, sizes, settings)

    def build(self, schema: InputSchema, sizes: Sequence[int], settings: NetworkSettings) -> MlpBottom:
        """As :meth:`BottomKind.build`."""
        from vfl_node.models.bottoms.mlp_network import MlpBottom

        wide, options = self.wide(settings.outputs), LayerOptions.of(settings)
        return MlpBottom(schema, sizes, embedding_size=settings.embedding_size, wide=wide, options=options)


MLP = MlpBottomKind(linear=False)
WIDE_DEEP = MlpBottomKind(linear=True)
