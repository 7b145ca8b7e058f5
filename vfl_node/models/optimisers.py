"""Optimisers: each is a function of (parameters, settings) → an optimiser of torch.

``settings.weight_decay`` λ adds λ·w to the gradient of every weight w, offsets, norms and categories included, as torch does;
each party does so with its own weights, so both together do what one would. It comes after ``settings.clip``.

Those for sparse tables (:mod:`vfl_node.models.updates`) are used only without weight decay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from vfl_node.models.settings import NetworkSettings


def adam(parameters: Iterable[nn.Parameter], settings: NetworkSettings) -> torch.optim.Optimizer:
    """Adam (Kingma and Ba 2015); weight decay enters the gradient, and so its moments (it is not AdamW)."""
    return torch.optim.Adam(parameters, lr=settings.learning_rate, weight_decay=settings.weight_decay)


def sgd(parameters: Iterable[nn.Parameter], settings: NetworkSettings) -> torch.optim.Optimizer:
    """Stochastic gradient descent."""
    return torch.optim.SGD(parameters, lr=settings.learning_rate, weight_decay=settings.weight_decay)


def sparse_adam(parameters: Iterable[nn.Parameter], settings: NetworkSettings) -> torch.optim.Optimizer:
    """Adam for sparse tables: weights and moments of a row change only in steps whose batch has its code."""
    return torch.optim.SparseAdam(list(parameters), lr=settings.learning_rate)


def tensors_of_optimiser(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """What an optimiser remembers, as ``PARAMETER.KEY``; the tensors are its own."""
    state: dict[int, dict[str, Tensor | int]] = optimizer.state_dict()["state"]
    return {f"{index}.{key}": torch.as_tensor(value) for index, of in state.items() for key, value in of.items()}


def restore_optimiser(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Let ``optimizer`` remember what :func:`tensors_of_optimiser` gave of one of the same parameters."""
    state: dict[int, dict[str, Tensor | int]] = {}
    counts = isinstance(optimizer, torch.optim.SparseAdam)  # its steps are a Python number; a tensor would round otherwise
    for name, value in tensors.items():
        index, key = name.split(".")
        state.setdefault(int(index), {})[key] = int(value) if counts and key == "step" else value.clone()
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
