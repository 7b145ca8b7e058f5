"""Differential privacy of the gradients of a row: each is clipped, and gets normal noise.

    g'_i = clip(g_i, C) + N(0, (σC)² I)

Both gradients that a row may have, with one label or the other, are at most 2C apart. So one release is a Gaussian mechanism of
noise multiplier σ / 2 about the row's own label, given the weights and the other rows. A row has one release in each epoch,
repeat and passive party (:mod:`vfl_node.privacy.defences.dp`).

What is sent is rounded to a grid of about σC / 64, the same for all rows: low bits of a float32 sum would tell of the number
that the noise was added to (Mironov 2012). Rounding what already has its noise takes nothing from the privacy.

Source: Dwork and Roth 2014, appendix A; arXiv 2305.08328 (FedAds), section 5.2, whose σ and C are not stated.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from typing_extensions import override

from vfl_node.crypto.randomness import Randomness
from vfl_node.privacy.defences.defence import Defence, Leaving, Sender, noise, normal
from vfl_node.privacy.defences.specs import DpParams
from vfl_node.session.memory import Memory, change_total
from vfl_node.settings.defences import DefenceParams

GRID = 64
"""Steps of the grid in a standard deviation of the noise, at least."""


class ClippedNoise(Defence):
    """Clips each row's gradient and adds normal noise. It has no state.

    Cost: 15 ns a number for the noise.
    """

    def __init__(self, params: DpParams, sender: Sender, randomness: Randomness) -> None:
        self._clip, self._sigma = params.max_grad_norm, params.max_grad_norm * params.noise_multiplier
        self._randomness = randomness

    @override
    def protect(self, tensor: Tensor, leaving: Leaving) -> Tensor:
        clip, sigma = self._clip / leaving.mean_of, self._sigma / leaving.mean_of
        norms = torch.linalg.vector_norm(tensor, dim=1, keepdim=True)
        clipped = tensor * (clip / norms.clamp_min(clip))
        drawn = noise(self._randomness, leaving, tensor)
        step = 2.0 ** math.floor(math.log2(sigma / GRID))  # a power of two: multiples of it are exact
        return torch.round((clipped + sigma * normal(drawn, tensor)) / step) * step


# ε of all releases of a row's gradients together, by a maintained accountant (dp-accounting).
#
# A training releases each row's gradient once in every epoch and repeat and to every passive party. Rows are not sampled: each
# takes part in each epoch, at a place of the public schedule, so nothing is amplified. What jobs over one table release to one
# partner adds up.


MOST_EPSILON = 1000.0
"""An ε above this says nothing, and is not computed."""


@dataclass(frozen=True)
class PrivacyBudget:
    """What a row's own label loses at most, whoever combines all gradients of the row: (ε, δ).

    Attributes:
        epsilon: ε; None where it is beyond :data:`MOST_EPSILON`.
        delta: δ.
        releases: gradients of each row.
    """

    epsilon: float | None
    delta: float
    releases: int


def budget(defences: Sequence[DefenceParams], releases: int) -> PrivacyBudget | None:
    """The budget of a training with so many ``releases`` of each row; None where no ``dp`` bounds what a row's gradient tells.

    A defence before ``dp`` may carry one row's gradient into another row (mixing, noise in proportion to the longest), and
    one after it may look at labels anew, so ``dp`` must be the only one.
    """
    if len(defences) != 1 or not isinstance(defences[0], DpParams) or not releases:
        return None
    params = defences[0]
    return PrivacyBudget(epsilon(params.noise_multiplier / 2, params.delta, releases), params.delta, releases)


def total_epsilon(memory: Memory, table: str, job_id: str, params: DpParams, releases: int) -> float | None:
    """ε at this job's δ of all gradients of a row that a partner got, in all jobs with ``dp``; None beyond MOST_EPSILON.

    It counts from when this is called, and a job once.

    Args:
        memory: of the partner.
        table: this party's, by its name in the settings.
        job_id: of this job.
        params: of its defence.
        releases: gradients of each row that the partner gets in it.

    Raises:
        StateError: what earlier jobs released is lost (``E_STATE_LOST``).
    """

    def add_job(data: bytes | None) -> bytes:
        spent: dict[str, float] = json.loads(data or b"{}")
        return json.dumps(spent | {job_id: releases / (params.noise_multiplier / 2) ** 2}, sort_keys=True).encode()

    name = f"dp-{hashlib.sha256(table.encode()).hexdigest()[:32]}"
    spent = json.loads(change_total(memory, name, add_job, what="what gradients with noise have told in earlier jobs"))
    return epsilon(math.fsum(spent.values()) ** -0.5, params.delta, 1)


def epsilon(multiplier: float, delta: float, releases: int) -> float | None:
    """ε at ``delta`` of so many Gaussian releases with noise of ``multiplier`` × sensitivity; None beyond MOST_EPSILON.

    k releases of multiplier z are as one of multiplier z / √k, exactly (Dong, Roth and Su 2019, corollary 3.3).
    """
    combined = multiplier / releases**0.5
    if 1 / (2 * combined**2) > MOST_EPSILON / 2:  # about ε, and always below it
        return None
    from dp_accounting import GaussianDpEvent  # loads scipy
    from dp_accounting.pld import PLDAccountant

    accountant = PLDAccountant(value_discretization_interval=1e-3)
    accountant.compose(GaussianDpEvent(combined))
    return float(accountant.get_epsilon(delta))
