"""Weights of layers, counted from their sizes. Light: this module does not load torch."""

from __future__ import annotations

from collections.abc import Sequence


def dense_weights(width: int, sizes: Sequence[int]) -> int:
    """Weights of dense layers behind one another, their offsets included.

    Args:
        width: of what the first one reads.
        sizes: width of each layer.
    """
    return sum((before + 1) * after for before, after in zip([width, *sizes], sizes, strict=False))
