"""How the privacy loss g and the proximal term weigh against each other.

g is the sum over the protected columns. With the mean each column of many would weigh next to nothing beside the proximal term:
of 223 flags (``location30``) all that leaked without a defence leaked with it.
"""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor, nn

LEAST, MOST = 0.3, 3.0
"""Between these a learnt τ stays: the proximal term begins at 0, so τ2 would end at 0 and hold the bottom where it is."""


class Weighting(Protocol):
    """What the bottom descends."""

    def objective(self, losses: Tensor, proximal: Tensor) -> Tensor:
        """Of l of each column, float[c], and the proximal term."""

    def parameters(self) -> list[nn.Parameter]:
        """What is learnt of it."""

    def settle(self) -> None:
        """Keep what is learnt within its bounds, after a step."""

    @property
    def tau(self) -> tuple[float, float]:
        """τ1 and τ2."""

    @property
    def pull(self) -> float:
        """Weight of the proximal term."""


class FixedWeights:
    """τ1·g + τ2·proximal, g = −l."""

    def __init__(self, tau1: float, tau2: float) -> None:
        self.tau = tau1, tau2

    def objective(self, losses: Tensor, proximal: Tensor) -> Tensor:
        """As :class:`Weighting`."""
        return -self.tau[0] * losses.sum() + self.tau[1] * proximal

    def parameters(self) -> list[nn.Parameter]:
        """As :class:`Weighting`."""
        return []

    def settle(self) -> None:
        """As :class:`Weighting`."""

    @property
    def pull(self) -> float:
        """As :class:`Weighting`."""
        return self.tau[1]


class LearntWeights:
    """g/(2·τ1²) + proximal/(2·τ2²) + log τ1 + log τ2, g = exp(−l), whose log τ are learnt (Kendall et al. 2018).

    The paper's Alg. 1 descends τ·g by τ, which would end at ±∞; so this is how its weights are "updated automatically" here.
    """

    def __init__(self, like: Tensor) -> None:
        self.log_tau = nn.Parameter(torch.zeros(2, dtype=like.dtype, device=like.device))

    def objective(self, losses: Tensor, proximal: Tensor) -> Tensor:
        """As :class:`Weighting`."""
        terms = torch.stack([losses.neg().exp().sum(), proximal])
        return (terms / (2 * (2 * self.log_tau).exp()) + self.log_tau).sum()

    def parameters(self) -> list[nn.Parameter]:
        """As :class:`Weighting`."""
        return [self.log_tau]

    @torch.no_grad()
    def settle(self) -> None:
        """As :class:`Weighting`."""
        self.log_tau.clamp_(math.log(LEAST), math.log(MOST))

    @property
    def tau(self) -> tuple[float, float]:
        """As :class:`Weighting`."""
        tau1, tau2 = (min(max(tau, LEAST), MOST) for tau in self.log_tau.detach().exp().tolist())  # rounded, else below
        return tau1, tau2

    @property
    def pull(self) -> float:
        """As :class:`Weighting`."""
        return 1 / (2 * self.tau[1] ** 2)
