"""MixPro and Marvell word for word as published, to show what a top of one layer does to them. Never for real data.

With a top of one layer every gradient is a multiple of one vector w, and the sign of the multiple is the label. Then

* MixPro's cosine with the mean is 1 or −1, and a row at −1 becomes the zero vector: its length is its label;
* Marvell's noise across Δ is the same in all directions, and one class has none of it. Where no gradient lies, only the other
  class is found.

The product's ``mixpro`` and ``marvell`` repair both. :func:`install` names the published forms ``mixpro-literal`` and
``marvell-literal`` for the process that calls it.

Source: arXiv 2305.08328 (FedAds), section 4.2, eq. 9–12; Li et al. 2022 (ICLR), section 5. λ of MixPro is drawn for each row; a
batch of one class passes Marvell as it is, since neither text says anything of it.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from vfl_node.crypto.randomness import Randomness
from vfl_node.privacy.defences.defence import Defence, Leaving, Sender
from vfl_node.privacy.defences.marvell import Classes, solve
from vfl_node.privacy.defences.mixpro import beta_quantiles, project
from vfl_node.settings.defences import DEFENCES, DefenceParams, DefenceSpec, Direction

NAMES = ("mixpro-literal", "marvell-literal")


class LiteralMixProParams(DefenceParams):
    """``{name: mixpro-literal, goal: 0.866, share: 0.6}``."""

    name: Literal["mixpro-literal"]
    goal: float = Field(default=math.sqrt(3) / 2, gt=-1, lt=1, description="φ_goal")
    share: float = Field(default=0.6, gt=0, le=100, description="a of Beta(a, a)")

    def words(self, direction: Direction) -> str:
        """As :meth:`DefenceParams.words`."""
        return f"as published: each gradient is mixed with another and turned to a cosine of at least {self.goal:.3g}"


class LiteralMarvellParams(DefenceParams):
    """``{name: marvell-literal, power: 4}``."""

    name: Literal["marvell-literal"]
    power: float = Field(gt=0, le=1e6, allow_inf_nan=False, description="s: the noise's power is s·‖Δ‖²")

    def words(self, direction: Direction) -> str:
        """As :meth:`DefenceParams.words`."""
        return f"as published: noise of its own for each class, of power {self.power:g} times the distance of both means"


class LiteralMixPro(Defence):
    """Eq. 9 to 12, and nothing for rows that vanish."""

    def __init__(self, params: LiteralMixProParams, sender: Sender, randomness: Randomness) -> None:
        self._goal, self._randomness = params.goal, randomness
        self._quantiles = beta_quantiles(params.share)

    def protect(self, tensor: Tensor, leaving: Leaving) -> Tensor:
        """As :meth:`Defence.protect`."""
        drawn, size = self._randomness.derive(leaving.label), len(tensor)
        partner = torch.from_numpy(drawn.choices(size, size))
        at = drawn.uniform((size,)) * (len(self._quantiles) - 1)
        own = np.interp(at, np.arange(len(self._quantiles)), self._quantiles)
        weight = torch.from_numpy(np.maximum(own, 1 - own)).to(tensor.dtype)[:, None]
        return project(weight * tensor + (1 - weight) * tensor[partner], tensor.mean(dim=0), self._goal)


class LiteralMarvell(Defence):
    """Noise of λ1 along Δ and of λ2 in each of the d − 1 directions across it, by class."""

    def __init__(self, params: LiteralMarvellParams, sender: Sender, randomness: Randomness) -> None:
        self._power, self._randomness = params.power, randomness

    def protect(self, tensor: Tensor, leaving: Leaving) -> Tensor:
        """As :meth:`Defence.protect`."""
        assert leaving.labels is not None
        positive = leaving.labels >= 0.5
        share = positive.double().mean().item()
        if not 0 < share < 1:
            return tensor
        scale = tensor.abs().max().clamp_min(torch.finfo(tensor.dtype).tiny)
        unit = (tensor / scale).double()
        means = torch.stack([unit[~positive].mean(dim=0), unit[positive].mean(dim=0)])
        delta = means[1] - means[0]
        gap = delta.square().sum().item()
        if not gap > 0:
            return tensor
        spread = (unit - means[positive.long()]).square().mean(dim=1)
        own = (spread[~positive].mean().item(), spread[positive].mean().item())  # u and v, of a coordinate
        best = solve(Classes(share, gap, own, own, unit.shape[1] - 1), self._power * gap)
        one, two = (
            torch.tensor(variances, dtype=torch.float64)[positive.long()][:, None] for variances in (best.along, best.across)
        )
        drawn = self._randomness.derive(leaving.label)
        along = torch.from_numpy(drawn.normal((len(unit), 1))) * (one - two).clamp_min(0).sqrt() * delta / math.sqrt(gap)
        everywhere = torch.from_numpy(drawn.normal(tuple(unit.shape))) * two.sqrt()
        return tensor + ((along + everywhere) * scale).to(tensor.dtype)


def install() -> None:
    """Let :func:`~vfl_node.settings.defences.read_params` know both, in this process."""
    for name, place in zip(NAMES, ("MIXPRO", "MARVELL"), strict=True):
        DEFENCES._own[name] = f"{__name__}:{place}"


MIXPRO = DefenceSpec(LiteralMixProParams, frozenset({"gradients"}), f"{__name__}:LiteralMixPro")
MARVELL = DefenceSpec(LiteralMarvellParams, frozenset({"gradients"}), f"{__name__}:LiteralMarvell")
