"""Weights of layers, counted from their sizes, or of a network that is built. Light: torch is loaded only to build one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vfl_node.models.schema import InputSchema
from vfl_node.models.settings import LayerOptions, NetworkSettings

if TYPE_CHECKING:
    from torch import nn


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


def dense_values(schema: InputSchema, sizes: Sequence[int], settings: NetworkSettings) -> int:
    """Numbers that a row takes in memory in hidden layers of these ``sizes`` over columns of ``schema``, these included."""
    columns = schema.numeric + settings.embedding_size * len(schema.cardinalities)
    return columns + LayerOptions.from_job(settings).values * sum(sizes)


def weights(build: Callable[[], nn.Module]) -> int:
    """Number of weights of what ``build`` gives, which takes no memory for them (torch's ``meta`` device)."""
    import torch

    with torch.device("meta"):
        return sum(parameter.numel() for parameter in build().parameters())


@dataclass(frozen=True)
class Convolutions:
    """Convolutions of 3 × 3 behind one another, each followed by a pooling that halves height and width, rounded up.

    Attributes:
        image: channels, height and width of what the first one reads.
        channels: of what each one gives.
    """

    image: tuple[int, int, int]
    channels: tuple[int, ...]

    def weights(self, options: LayerOptions) -> int:
        """Offsets and norms included."""
        return sum(
            (9 * before + 1) * after + options.norm_weights * after
            for before, after in zip([self.image[0], *self.channels], self.channels, strict=False)
        )

    @property
    def outputs(self) -> int:
        """Numbers that the last one gives for an image."""
        height, width = self._sizes[-1]
        return self.channels[-1] * height * width

    def values(self, options: LayerOptions) -> int:
        """Numbers that an image takes in memory: of the image, and of each convolution before and after its pooling."""
        units = sum(
            count * (options.values * height * width + _half(height) * _half(width))
            for count, (height, width) in zip(self.channels, self._sizes, strict=False)
        )
        return math.prod(self.image) + units

    @property
    def _sizes(self) -> list[tuple[int, int]]:
        """Height and width before each convolution, and after the last one."""
        sizes = [self.image[1:]]
        for _ in self.channels:
            height, width = sizes[-1]
            sizes.append((_half(height), _half(width)))
        return sizes


def _half(size: int) -> int:
    """Rounded up."""
    return (size + 1) // 2
