"""Distances from the similarities of several jobs: averages where noise is drawn again, and exactly where it is the same.

s = (−d − μ0)/σ0 + σ·z. If z is new in each job, averages over jobs lose their noise. If z is the same but σ, or μ0 and σ0, are
not, then two jobs are two equations in d and z. So the coordinator's noise is that of the pair and of *all* terms, and it
keeps μ0 and σ0 (:mod:`vfl_node.alignment.linkage.similarity`): a later job says the same or is a new linkage, and these are
counted (``budgets.linkages`` of a node's policy).

The order of candidates does not protect: the active records of which a passive record is a candidate name it in each job
(:mod:`experiments.linkage.partition`).

Who attacks: the active party, which follows the protocol.

Source: our own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vfl_node.privacy.linkage.space import Floats


@dataclass(frozen=True)
class Release:
    """What the active party has from one job.

    Attributes:
        similarities: of pairs, of the same shape and in the same order in all jobs; NaN where a pair is none.
        mean: μ0.
        deviation: σ0.
        sigma: σ.
    """

    similarities: Floats
    mean: float
    deviation: float
    sigma: float


def average(releases: Sequence[Release]) -> Floats:
    """Distances as the mean of all jobs has them, as if the noise of each were another one; NaN for a pair of no job."""
    distances = np.stack([-(job.deviation * job.similarities + job.mean) for job in releases])
    weights = np.array([1 / max(job.deviation * job.sigma, 1e-9) ** 2 for job in releases])
    weights = np.where(np.isnan(distances), 0.0, weights.reshape(-1, *[1] * (distances.ndim - 1)))
    with np.errstate(invalid="ignore"):
        return np.asarray(np.nansum(distances * weights, axis=0) / weights.sum(axis=0))


def subtract(first: Release, second: Release) -> Floats:
    """Distances from two jobs, as if the noise of a pair were σ·z with the same z in both; NaN for a pair that one lacks.

    Raises:
        ValueError: both have the same μ0, σ0 and σ, so that one says nothing beside the other.
    """
    ratio = second.sigma / first.sigma
    slope = 1 / second.deviation - ratio / first.deviation
    if abs(slope) * second.deviation < 1e-9:
        raise ValueError("the same scale and noise: there is nothing to subtract")
    offset = second.mean / second.deviation - ratio * first.mean / first.deviation
    return np.asarray(-(second.similarities - ratio * first.similarities + offset) / slope)
