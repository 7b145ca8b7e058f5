"""Optimisers: each is a function of (parameters, settings) → an optimiser of torch."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from vfl_node.models.settings import NetworkSettings


def adam(parameters: Iterable[nn.Parameter], settings: NetworkSettings) -> torch.optim.Optimizer:
    """Adam (Kingma and Ba 2015)."""
    return torch.optim.Adam(parameters, lr=settings.learning_rate)


def sgd(parameters: Iterable[nn.Parameter], settings: NetworkSettings) -> torch.optim.Optimizer:
    """Stochastic gradient descent."""
    return torch.optim.SGD(parameters, lr=settings.learning_rate)
