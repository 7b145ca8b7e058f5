"""Noise and lengths: ``noise``, ``isotropic`` and ``maxnorm``."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from vfl_node.crypto.randomness import Randomness
from vfl_node.privacy.defences.defence import Defence, Leaving, Sender, noise, normal
from vfl_node.privacy.defences.specs import IsotropicParams, MaxNormParams, NoiseParams

# Normal noise on what is sent: the same for every row, whatever it holds.
#
# Within training every step has fresh noise. Under one set of weights, where a row may leave again (held out, then
# predicted), it has the same noise each time: else the mean over requests would take it away.
#
# What it does not do: a row is sent in every epoch, so the mean over epochs has less noise than one message, as far as the
# weights stay alike. Noise adds independently; there is no clipping, so this states no differential privacy.
#
# Source: the Gaussian mechanism of Dwork and Roth 2014 (appendix A) without its clipping; the baseline ``noise`` and
# ``isotropic`` of the literature on split learning.


class Noise(Defence):
    """Adds normal noise. It has no state: the noise follows from the party's secret and the name of the step or row.

    Cost: 15 ns a number in training, and 20 µs more for each row that is held out or predicted.
    """

    def __init__(self, params: NoiseParams, sender: Sender, randomness: Randomness) -> None:
        self._sigma, self._randomness = params.sigma, randomness

    @override
    def protect(self, tensor: Tensor, leaving: Leaving) -> Tensor:
        if self._sigma == 0:
            return tensor
        shape = tuple(tensor.shape)
        if leaving.rows is None:
            normal = self._randomness.derive(leaving.label).normal(shape)
        else:
            normal = np.stack([self._randomness.derive(f"row/{row}").normal(shape[1:]) for row in leaving.rows()])
        return tensor + self._sigma / leaving.mean_of * torch.from_numpy(normal).to(tensor.device)


# Normal noise of the same strength on every row of a batch, in proportion to the batch's longest gradient.
#
#     g'_i = g_i + N(0, (t · max ‖g‖)² / d · I)
#
# Source: Li et al. 2022 (ICLR, "Label leakage and protection in two-party split learning"), the baseline ``iso``.


class Isotropic(Defence):
    """Adds the noise. It has no state. Cost: 15 ns a number."""

    def __init__(self, params: IsotropicParams, sender: Sender, randomness: Randomness) -> None:
        self._ratio, self._randomness = params.noise, randomness

    @override
    def protect(self, tensor: Tensor, leaving: Leaving) -> Tensor:
        if self._ratio == 0:
            return tensor
        longest = torch.linalg.vector_norm(tensor, dim=1).max()
        drawn = noise(self._randomness, leaving, tensor)
        return tensor + self._ratio * longest / math.sqrt(tensor.shape[1]) * normal(drawn, tensor)


# Noise along each row's own gradient, so that all have the batch's largest norm in the mean square.
#
#     g'_i = g_i · (1 + N(0, max ‖g‖² / ‖g_i‖² − 1))
#
# A gradient of length 0 gets normal noise of that length in no special direction. Directions stay but for their sign; that of
# the longest gradient, which is often one of the rare class, stays as it is.
#
# Source: Li et al. 2022 (ICLR), section 4.1, ``max_norm``.


class MaxNorm(Defence):
    """Multiplies each row's gradient by a random number. It has no state. Cost: 15 ns a row."""

    def __init__(self, params: MaxNormParams, sender: Sender, randomness: Randomness) -> None:
        self._randomness = randomness

    @override
    def protect(self, tensor: Tensor, leaving: Leaving) -> Tensor:
        norms = torch.linalg.vector_norm(tensor.double(), dim=1, keepdim=True)
        longest = norms.max()
        drawn = noise(self._randomness, leaving, tensor)
        deviation = ((longest / norms.clamp_min(1e-300)) ** 2 - 1).clamp_min(0).sqrt()
        sent = (tensor * (1 + deviation * normal(drawn, norms))).to(tensor.dtype)
        at_zero = norms[:, 0] <= 1e-12 * longest
        if bool(at_zero.any()):
            rows = tensor[at_zero]
            sent[at_zero] = longest.to(rows.dtype) / math.sqrt(rows.shape[1]) * normal(drawn.derive("zero"), rows)
        return sent
