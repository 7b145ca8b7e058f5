"""What numbers of records in bins say of a column, in the clear.

The numbers have noise of a known deviation σ (0: none). What noise adds to a figure on average is taken away, about, and a
figure below 0 is 0. Without noise all are the usual ones:

- **weight of evidence** of a bin, ln((n₁ + ½)/N₁) − ln((n₀ + ½)/N₀), of records with label 1 and 0;
- **divergence** of two rows of counts, Σ (p − q)·ln(p/q): of both labels it is the *information value*, of two groups of
  records the *stability index* (in logarithms with ½ more in a bin);
- **KS**, the largest distance of both labels' shares below an end of an interval; categories have no order, and none;
- **χ²** of bins and labels, with one degree of freedom less than there are bins with records.

Bins with fewer records of a label than ``least`` are *pooled*: an interval of numbers with the next ones, rare levels with each
other. Missing values stay by themselves, and say nothing where they are few.

Sources: Good 1950 (weight of evidence); Siddiqi 2006 (information value, stability); χ² with noise in its expected spread:
Gaboardi, Lim, Rogers and Vadhan 2016, section 5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

DIGITS = 6
"""What is kept of a figure: last bits of logarithms depend on the processor."""

_HALF = 0.5
_MARGIN = 3.0  # deviations of the noise that a bin must have at least
_LARGEST = 1.7  # of the variance of each, about what the square of the largest of some sums of noise has


@dataclass(frozen=True, eq=False)
class PooledCounts:
    """Numbers of records in the bins of a column, those with few records together.

    Attributes:
        counts: float64[K, 2], of label 0 and 1.
        bins: float64[K], how many bins each is the sum of; so its noise has so many times the variance.
        place: int64[B], where each bin is; −1: nowhere.
    """

    counts: Floats
    bins: Floats
    place: NDArray[np.int64]


def pool(counts: Floats, least: float, deviation: float, *, ordered: bool) -> PooledCounts:
    """Take together what has few records.

    Args:
        counts: float64[B, 2], of missing values the last.
        least: records of either label that a bin must have.
        deviation: σ of each number.
        ordered: whether bins are intervals, which only those beside them may join.
    """
    needed = max(least, _MARGIN * deviation)
    present = np.arange(len(counts) - 1)
    if not ordered:  # rare levels first, so that they join each other
        present = present[np.argsort((counts[:-1] >= needed).all(axis=1), kind="stable")]
    place, total, groups = np.full(len(counts), -1), np.zeros(2), 0
    for bin_ in present:
        total = total + counts[bin_]
        place[bin_] = groups
        if (total >= needed).all():
            total, groups = np.zeros(2), groups + 1
    place[place == groups] = groups - 1  # what is left joins the last one
    if (counts[-1] >= needed).all():
        place[-1], groups = groups, groups + 1
    inside = place >= 0
    pooled = np.zeros((groups, 2))
    np.add.at(pooled, place[inside], counts[inside])
    return PooledCounts(pooled, np.bincount(place[inside], minlength=groups).astype(np.float64), place)


def find_evidence(pooled: PooledCounts) -> Floats:
    """The weight of evidence of each bin, float64[B]; 0 where it is nowhere."""
    if not len(pooled.counts):
        return np.zeros(len(pooled.place))
    logs = np.log(pooled.counts + _HALF) - np.log(pooled.counts.sum(axis=0))
    return np.round(np.append(logs[:, 1] - logs[:, 0], 0.0)[pooled.place], DIGITS)


def diverge(first: Floats, second: Floats, noise: Floats, noise_of_second: Floats | None = None) -> tuple[float, float]:
    """The divergence of two rows of counts, and the standard deviation that noise gives it; NaN of less than two bins.

    Args:
        first, second: float64[K], of which none is 0 where there is noise.
        noise: float64[K], the variance of the noise of each.
        noise_of_second: likewise, if it is another one.
    """
    if len(first) < 2 or first.sum() <= 0 or second.sum() <= 0:
        return math.nan, math.nan
    p, q = (first + _HALF) / first.sum(), (second + _HALF) / second.sum()
    ratio = np.log(p / q)
    of_first, of_second = noise / first.sum() ** 2, (noise if noise_of_second is None else noise_of_second) / second.sum() ** 2
    bias = of_first @ (1 / p + q / p**2) / 2 + of_second @ (1 / q + p / q**2) / 2
    spread = of_first @ (ratio + 1 - q / p) ** 2 + of_second @ (ratio - 1 + p / q) ** 2
    value = (first / first.sum() - second / second.sum()) @ ratio
    return max(0.0, float(value - bias)), float(np.sqrt(spread))


def measure_distance(pooled: PooledCounts, deviation: float) -> tuple[float, float]:
    """KS of intervals in their order, and the standard deviation that noise gives it; NaN of less than two bins.

    Of its square what noise gives it on average is taken away, about.
    """
    totals = pooled.counts.sum(axis=0)
    if len(pooled.counts) < 2 or (totals <= 0).any():
        return math.nan, math.nan
    apart = np.diff(np.cumsum(pooled.counts / totals, axis=0), axis=1)[:-1, 0]
    below = np.cumsum(pooled.bins)[:-1]
    spread = deviation**2 * (below * (1 - below / pooled.bins.sum())) * (1 / totals**2).sum()
    place = int(np.abs(apart).argmax())
    value = math.sqrt(max(0.0, float(apart[place] ** 2 - _LARGEST * spread[place])))
    return min(1.0, value), math.sqrt(spread[place])


def measure_independence(pooled: PooledCounts, deviation: float) -> tuple[float, int]:
    """χ² of bins and labels, and its degrees of freedom; NaN and 0 of less than two bins.

    The noise counts as spread that would be there by chance.
    """
    totals = pooled.counts.sum(axis=0)
    if len(pooled.counts) < 2 or (totals <= 0).any():
        return math.nan, 0
    share = totals[1] / totals.sum()
    apart = pooled.counts[:, 1] - share * pooled.counts.sum(axis=1)
    noise = pooled.bins * deviation**2 * ((1 - share) ** 2 + share**2)
    return float((apart**2 / (pooled.counts.sum(axis=1) * share * (1 - share) + noise)).sum()), len(pooled.counts) - 1


def promise_area(own: float, bits: float, share: float) -> float:
    """The AUC that a score with the area ``own`` would have, about, with so many more ``bits`` of a label of this ``share``.

    Of two normal classes a distance D between their means is worth D²·share·(1 − share)/2 nats where it is small.
    """
    before = math.sqrt(2) * NormalDist().inv_cdf(min(max(own, 0.5), 0.9999))
    more = 2 * bits * math.log(2) / max(share * (1 - share), 1e-4)
    return NormalDist().cdf(math.sqrt((before**2 + more) / 2))
