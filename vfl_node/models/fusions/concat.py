"""Embeddings side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vfl_node.models.settings import NetworkSettings

if TYPE_CHECKING:
    from vfl_node.models.fusions.concat_network import Concat


class ConcatKind:
    """A :class:`~vfl_node.models.fusions.FusionKind` without weights."""

    def width(self, widths: Sequence[int], settings: NetworkSettings) -> int:
        """As :meth:`FusionKind.width`."""
        return sum(widths)

    def weights(self, widths: Sequence[int], settings: NetworkSettings) -> int:
        """As :meth:`FusionKind.weights`."""
        return 0

    def build(self, widths: Sequence[int], settings: NetworkSettings) -> Concat:
        """As :meth:`FusionKind.build`."""
        from vfl_node.models.fusions.concat_network import Concat

        return Concat()


CONCAT = ConcatKind()
