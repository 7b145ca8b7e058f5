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

from vfl_node.errors import UsageError

AT_ONCE = 1 << 16
"""Weights that are drawn at a time."""

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.LayerNorm, nn.GroupNorm)


class Draws(Protocol):
    """Where initial weights come from: a :class:`~vfl_node.crypto.randomness.Randomness`."""

    def uniform(self, shape: tuple[int, ...]) -> NDArray[np.float64]:
        """Numbers in 0 … 1, 1 excluded."""

    def normal(self, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Standard normal numbers."""


def initialise(module: nn.Module, draws: Draws) -> None:
    """Set every parameter of ``module``, which is on the CPU, from ``draws``, in the order of its layers.

    ==========================  =====================================================================================
    layer                       its own parameters (not those of layers inside it)
    ==========================  =====================================================================================
    linear, convolution         uniform within ±1/√fan_in
    recurrent (RNN, LSTM, GRU)  uniform within ±1/√hidden
    embedding, embedding bag    standard normal, except code 0 (missing or never seen), which starts at the mean of
                                the others: zero
    norm                        scale 1, offset 0, and running averages as new; nothing is drawn
    one with ``initialise``     whatever its method ``initialise(draws)`` sets
    any other                   refused
    ==========================  =====================================================================================

    Raises:
        UsageError: a layer with parameters that this function does not know (``E_EXTENSION``).
    """
    for layer in module.modules():
        own = list(layer.parameters(recurse=False))
        if callable(own_way := getattr(layer, "initialise", None)):
            with torch.no_grad():
                own_way(draws)
        elif isinstance(layer, nn.Linear):
            _draw_uniform(own, layer.in_features, draws)
        elif isinstance(layer, CONVOLUTIONS):
            _draw_uniform(own, layer.weight[0].numel(), draws)
        elif isinstance(layer, nn.RNNBase):
            _draw_uniform(own, layer.hidden_size, draws)
        elif isinstance(layer, nn.Embedding | nn.EmbeddingBag):
            for part in _parts(layer.weight):
                part.copy_(torch.from_numpy(draws.normal(tuple(part.shape))))
            layer.weight.detach()[0] = 0
        elif isinstance(layer, NORMS):
            layer.reset_parameters()
        elif own:
            raise UsageError(
                f"no initial weights are defined for a layer of the kind {type(layer).__name__}",
                code="E_EXTENSION",
                hint="give it a method initialise(draws) that sets its own parameters",
                for_peer="it cannot build the model that the job names",
            )


def _draw_uniform(parameters: Sequence[Tensor], width: int, draws: Draws) -> None:
    """Uniform within ±1/√width."""
    bound = max(1, width) ** -0.5
    for parameter in parameters:
        for part in _parts(parameter):
            part.copy_(torch.from_numpy(bound * (2 * draws.uniform(tuple(part.shape)) - 1)))


def _parts(parameter: Tensor) -> Sequence[Tensor]:
    """The numbers of ``parameter``, some at a time: they are drawn at several times the size of a weight."""
    return torch.split(parameter.detach().view(-1), AT_ONCE)
