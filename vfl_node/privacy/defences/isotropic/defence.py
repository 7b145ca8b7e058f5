"""Normal noise of the same strength on every row of a batch, in proportion to the batch's longest gradient.

    g'_i = g_i + N(0, (t · max ‖g‖)² / d · I)

Source: Li et al. 2022 (ICLR, "Label leakage and protection in two-party split learning"), the baseline ``iso``.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from vfl_node.crypto.randomness import Randomness
from vfl_node.privacy.defences.defence import Defence, Leaving, Sender, noise, normal
from vfl_node.privacy.defences.isotropic.spec import IsotropicParams


class Isotropic(Defence):
    """Adds the noise. It has no state. Cost: 15 ns a number."""

    def __init__(self, params: IsotropicParams, sender: Sender, randomness: Randomness) -> None:
        self._ratio, self._randomness = params.noise, randomness

    def protect(self, tensor: Tensor, leaving: Leaving) -> Tensor:
        """As :meth:`Defence.protect`."""
        if self._ratio == 0:
            return tensor
        longest = torch.linalg.vector_norm(tensor, dim=1).max()
        drawn = noise(self._randomness, leaving, tensor)
        return tensor + self._ratio * longest / math.sqrt(tensor.shape[1]) * normal(drawn, tensor)
