"""Weights of layers, counted from their sizes. Light: this module does not load torch."""

from __future__ import annotations

from collections.abc import Sequence

from vfl_node.models.settings import LayerOptions


def hidden_weights(width: int, sizes: Sequence[int], options: LayerOptions) -> int:
    """Weights of hidden layers behind one another, offsets and norms included.

    Args:
        width: of what the first one reads.
        sizes: width of each layer.
        options: what follows the linear part of each.
    """
    linear = sum(linear_weights(before, after) for before, after in zip([width, *sizes], sizes, strict=False))
    return linear + options.norm_weights * sum(sizes)


def linear_weights(width: int, size: int) -> int:
    """Weights of one linear layer, its offsets included."""
    return (width + 1) * size
