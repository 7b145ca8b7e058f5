"""Adam and plain gradient descent, with the same bits as torch's optimisers but without their class.

``torch.optim.Optimizer`` loads the compiler of torch before the first step, which takes a second of CPU time and 60 MiB. Around
each step of a small network it takes longer than the update itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from typing_extensions import override


class ModelOptimiser(Protocol):
    """What training needs of an optimiser; every ``torch.optim.Optimizer`` has it.

    Attributes:
        param_groups: each with ``params`` and ``lr``; a learning rate that is set there holds from the next step on.
    """

    param_groups: list[dict[str, Any]]

    def zero_grad(self) -> None:
        """Leave no gradient."""

    def step(self) -> Any:
        """Change the weights by their gradients."""

    def state_dict(self) -> dict[str, Any]:
        """What it remembers: under ``state``, number of a parameter → name → tensor or number."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any:
        """Remember what :meth:`state_dict` gave."""


class OwnOptimiser(ABC):
    """Base of the optimisers here (an :class:`ModelOptimiser`).

    Args:
        parameters: to update; those without a gradient are left alone in a step.
        rate: the learning rate.
        weight_decay: λ; λ·w is added to the gradient of each weight w.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], *, rate: float, weight_decay: float) -> None:
        self._parameters = list(parameters)
        self.param_groups: list[dict[str, Any]] = [{"params": self._parameters, "lr": rate, "weight_decay": weight_decay}]
        self._state: dict[int, dict[str, Tensor]] = {}

    def zero_grad(self) -> None:
        """Leave no gradient."""
        for parameter in self._parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Change the weights by their gradients."""
        (group,) = self.param_groups
        moved = [number for number, parameter in enumerate(self._parameters) if parameter.grad is not None]
        if moved:
            self._move(moved, group["lr"], group["weight_decay"])

    @abstractmethod
    def _move(self, moved: Sequence[int], rate: float, weight_decay: float) -> None:
        """Change the parameters of the numbers ``moved``, which have gradients."""

    def state_dict(self) -> dict[str, Any]:
        """As :meth:`ModelOptimiser.state_dict`; the tensors are its own."""
        return {"state": self._state}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """As :meth:`ModelOptimiser.load_state_dict`; tensors are moved to where the parameters are."""
        self._state = {
            number: {name: value.to(self._parameters[number].device) for name, value in values.items()}
            for number, values in state_dict["state"].items()
        }


class Adam(OwnOptimiser):
    """Adam (Kingma and Ba 2015), fused: all of a tensor's update in one pass; β₁ = 0.9, β₂ = 0.999, ε = 10⁻⁸."""

    @override
    def _move(self, moved: Sequence[int], rate: float, weight_decay: float) -> None:
        for number in moved:
            if number not in self._state:
                weight = self._parameters[number]
                self._state[number] = {
                    "step": torch.zeros((), dtype=torch.float32, device=weight.device),
                    "exp_avg": torch.zeros_like(weight),
                    "exp_avg_sq": torch.zeros_like(weight),
                }
        alike: defaultdict[tuple[torch.device, torch.dtype], list[int]] = defaultdict(list)  # as one call of the kernel wants
        for number in moved:
            alike[self._parameters[number].device, self._parameters[number].dtype].append(number)
        for numbers in alike.values():
            steps = [self._state[number]["step"] for number in numbers]
            torch._foreach_add_(steps, 1)
            torch._fused_adam_(
                [self._parameters[number] for number in numbers],
                [grad for number in numbers if (grad := self._parameters[number].grad) is not None],
                [self._state[number]["exp_avg"] for number in numbers],
                [self._state[number]["exp_avg_sq"] for number in numbers],
                [],
                steps,
                lr=rate,
                beta1=0.9,
                beta2=0.999,
                weight_decay=weight_decay,
                eps=1e-8,
                amsgrad=False,
                maximize=False,
            )


class Sgd(OwnOptimiser):
    """Stochastic gradient descent; gradients may be sparse where there is no weight decay."""

    @override
    def _move(self, moved: Sequence[int], rate: float, weight_decay: float) -> None:
        for number in moved:
            weight = self._parameters[number]
            gradient = weight.grad
            assert gradient is not None
            weight.add_(gradient.add(weight, alpha=weight_decay) if weight_decay else gradient, alpha=-rate)
