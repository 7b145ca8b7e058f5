"""Differential privacy of the gradients of a row: each is clipped, and gets normal noise.

    g'_i = clip(g_i, C) + N(0, (σC)² I)

Both gradients that a row may have, with one label or the other, are at most 2C apart. So one release is a Gaussian mechanism of
noise multiplier σ / 2 about the row's own label, given the weights and the other rows. A row has one release in each epoch,
repeat and passive party (:mod:`vfl_node.privacy.defences.dp.budget`).

What is sent is rounded to a grid of about σC / 64, the same for all rows: low bits of a float32 sum would tell of the number
that the noise was added to (Mironov 2012). Rounding what already has its noise takes nothing from the privacy.

Source: Dwork and Roth 2014, appendix A; arXiv 2305.08328 (FedAds), section 5.2, whose σ and C are not stated.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from vfl_node.crypto.randomness import Randomness
from vfl_node.privacy.defences.defence import Defence, Leaving, Sender, noise, normal
from vfl_node.privacy.defences.dp.spec import DpParams

GRID = 64
"""Steps of the grid in a standard deviation of the noise, at least."""


class ClippedNoise(Defence):
    """Clips each row's gradient and adds normal noise. It has no state.

    Cost: 15 ns a number for the noise.
    """

    def __init__(self, params: DpParams, sender: Sender, randomness: Randomness) -> None:
        self._clip, self._sigma, self._randomness = params.clip, params.clip * params.noise, randomness

    def protect(self, tensor: Tensor, leaving: Leaving) -> Tensor:
        """As :meth:`Defence.protect`."""
        clip, sigma = self._clip / leaving.mean_of, self._sigma / leaving.mean_of
        norms = torch.linalg.vector_norm(tensor, dim=1, keepdim=True)
        clipped = tensor * (clip / norms.clamp_min(clip))
        drawn = noise(self._randomness, leaving, tensor)
        step = 2.0 ** math.floor(math.log2(sigma / GRID))  # a power of two: multiples of it are exact
        return torch.round((clipped + sigma * normal(drawn, tensor)) / step) * step
