"""Optimisers: each is a function of (parameters, settings) → a :class:`~vfl_node.models.descent.ModelOptimiser`.

``settings.weight_decay`` λ adds λ·w to the gradient of every weight w, offsets, norms and categories included, as torch does
(``lamb`` adds it to the step); each party does so with its own weights, so both together do what one would. It comes after
``settings.clip``.

Those for sparse tables (:mod:`vfl_node.models.updates`) are used only without weight decay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from vfl_node.models.descent import Adam, ModelOptimiser, Sgd
from vfl_node.models.settings import NetworkSettings


def adam(parameters: Iterable[nn.Parameter], settings: NetworkSettings) -> ModelOptimiser:
    """Adam (Kingma and Ba 2015); weight decay enters the gradient, and so its moments (it is not AdamW).

    Fused: one pass over each tensor instead of ten, in about a third of the time for some ten thousand weights. The result does
    not depend on the number of threads.
    """
    return Adam(parameters, rate=settings.learning_rate, weight_decay=settings.weight_decay)


def sgd(parameters: Iterable[nn.Parameter], settings: NetworkSettings) -> ModelOptimiser:
    """Stochastic gradient descent."""
    return Sgd(parameters, rate=settings.learning_rate, weight_decay=settings.weight_decay)


def lamb(parameters: Iterable[nn.Parameter], settings: NetworkSettings) -> ModelOptimiser:
    """:class:`Lamb`; weight decay is decoupled from the moments, as in AdamW, and counts in the layer's step."""
    return Lamb(parameters, lr=settings.learning_rate, weight_decay=settings.weight_decay)


def sparse_adam(parameters: Iterable[nn.Parameter], settings: NetworkSettings) -> ModelOptimiser:
    """Adam for sparse tables: weights and moments of a row change only in steps whose batch has its code."""
    return torch.optim.SparseAdam(list(parameters), lr=settings.learning_rate)


class Lamb(torch.optim.Optimizer):
    """Adam whose step is as long, for each weight tensor, as the learning rate times the tensor itself.

    For each tensor x with gradient g in its step t, all operations element by element but for the norms::

        m ← β₁·m + (1 − β₁)·g            m̂ = m / (1 − β₁ᵗ)
        v ← β₂·v + (1 − β₂)·g²           v̂ = v / (1 − β₂ᵗ)
        u = m̂ / (√v̂ + ε) + λ·x
        x ← x − η · ‖x‖ / ‖u‖ · u        (1 in place of the quotient where one of the norms is 0)

    Source: You et al. 2020 (Large batch optimization for deep learning), Algorithm 2, with φ(z) = z.

    Args:
        parameters: to update; their gradients are dense.
        lr: η.
        betas: β₁ and β₂.
        eps: ε.
        weight_decay: λ.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        *,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(parameters, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Change the weights by their gradients."""
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self._update(weight, group)

    def _update(self, weight: nn.Parameter, group: Mapping[str, Any]) -> None:
        state, (first, second) = self.state[weight], group["betas"]
        if not state:
            state["step"] = torch.tensor(0.0)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(weight), torch.zeros_like(weight)
        state["step"] += 1
        mean, square, step = state["exp_avg"], state["exp_avg_sq"], state["step"].item()
        mean.mul_(first).add_(weight.grad, alpha=1 - first)
        square.mul_(second).addcmul_(weight.grad, weight.grad, value=1 - second)
        direction = (mean / (1 - first**step)) / ((square / (1 - second**step)).sqrt() + group["eps"])
        direction.add_(weight, alpha=group["weight_decay"])
        length, along = weight.norm(), direction.norm()
        ratio = torch.where((length > 0) & (along > 0), length / along, torch.ones_like(length))
        weight.sub_(group["lr"] * ratio * direction)


def tensors_of_optimiser(optimizer: ModelOptimiser) -> dict[str, Tensor]:
    """What an optimiser remembers, as ``PARAMETER.KEY``; the tensors are its own."""
    state: dict[int, dict[str, Tensor | int]] = optimizer.state_dict()["state"]
    return {f"{index}.{key}": torch.as_tensor(value) for index, values in state.items() for key, value in values.items()}


def restore_optimiser(optimizer: ModelOptimiser, tensors: Mapping[str, Tensor]) -> None:
    """Let ``optimizer`` remember what :func:`tensors_of_optimiser` gave of one of the same parameters."""
    state: dict[int, dict[str, Tensor | int]] = {}
    counts = isinstance(optimizer, torch.optim.SparseAdam)  # its steps are a Python number; a tensor would round otherwise
    for name, value in tensors.items():
        index, key = name.split(".")
        state.setdefault(int(index), {})[key] = int(value) if counts and key == "step" else value.clone()
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
