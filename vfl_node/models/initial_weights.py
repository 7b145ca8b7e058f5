"""Initial weights, which come from a party's own stream of secret bytes and from nowhere else.

With initial weights that the peer knows, the first embeddings can be inverted to the raw columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

AT_ONCE = 1 << 16
"""Weights that are drawn at a time."""


class Draws(Protocol):
    """Where initial weights come from: a :class:`~vfl_node.crypto.randomness.Randomness`."""

    def uniform(self, shape: tuple[int, ...]) -> NDArray[np.float64]:
        """Numbers in 0 … 1, 1 excluded."""

    def normal(self, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Standard normal numbers."""


def initialise(module: nn.Module, draws: Draws) -> None:
    """Draw every parameter of ``module``, which is on the CPU, from ``draws``, in the order of its layers.

    Linear: uniform within ±1/√fan_in. Embedding: standard normal, except code 0 (missing
    or never seen), which starts at the mean of the others: zero.

    Raises:
        TypeError: a layer with parameters that this function does not know.
    """
    for layer in module.modules():
        own = list(layer.parameters(recurse=False))
        if isinstance(layer, nn.Linear):
            bound = max(1, layer.in_features) ** -0.5
            for parameter in own:
                for part in _parts(parameter):
                    part.copy_(torch.from_numpy(bound * (2 * draws.uniform(tuple(part.shape)) - 1)))
        elif isinstance(layer, nn.Embedding):
            for part in _parts(layer.weight):
                part.copy_(torch.from_numpy(draws.normal(tuple(part.shape))))
            layer.weight.detach()[0] = 0
        elif own:
            raise TypeError(f"no initial weights are defined for {type(layer).__name__}")


def _parts(parameter: Tensor) -> Sequence[Tensor]:
    """The numbers of ``parameter``, some at a time: they are drawn at several times the size of a weight."""
    return torch.split(parameter.detach().view(-1), AT_ONCE)
