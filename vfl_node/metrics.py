"""How good predictions are: ranking, calibration, and the interval over repeated splits.

Labels are 0 and 1, scores and probabilities numbers without NaN; all arrays have N entries.
With K classes labels are 0 to K − 1, and scores and probabilities have a column for each.
A metric that is not defined (no rows, or one class only) is None.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

RANGES = 15
"""Ranges of equal mass in ACE and in the calibration curve; the literature leaves R open."""

EPSILON = 1e-7
"""Probabilities are kept this far from 0 and 1 in the NLL, float32's resolution: one certain error costs 16.1 nats."""

Array = NDArray[Any]


def auc(labels: Array, scores: Array) -> float | None:
    """Probability that a random positive has a higher score than a random negative; ties count ½ (Mann–Whitney)."""
    positive = np.asarray(labels) == 1
    positives, negatives = int(np.count_nonzero(positive)), int(np.count_nonzero(~positive))
    if positives == 0 or negatives == 0:
        return None
    _, place, counts = np.unique(_numbers(scores), return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2  # of each distinct score, from 1, the mean over its ties
    return float((ranks[place][positive].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def nll(labels: Array, probabilities: Array) -> float | None:
    """Mean −log p of the true class, p kept within :data:`EPSILON` of 0 and 1."""
    if len(labels) == 0:
        return None
    p = np.clip(_numbers(probabilities), EPSILON, 1 - EPSILON)
    return float(-np.where(np.asarray(labels) == 1, np.log(p), np.log1p(-p)).mean())


def accuracy(labels: Array, probabilities: Array) -> float | None:
    """Share of rows predicted rightly, where p ≥ ½ predicts 1."""
    if len(labels) == 0:
        return None
    return float(((_numbers(probabilities) >= 0.5) == (np.asarray(labels) == 1)).mean())


def ace(labels: Array, probabilities: Array, ranges: int = RANGES) -> float | None:
    """Adaptive calibration error: mean |frequency − confidence| over the ranges of :func:`calibration_curve`.

    For two classes the one class P(y=1) gives the same as both.

    Source: Nixon et al. 2019, Measuring Calibration in Deep Learning.
    """
    curve = calibration_curve(labels, probabilities, ranges)
    return math.fsum(abs(frequency - confidence) for confidence, frequency, _ in curve) / len(curve) if curve else None


def calibration_curve(labels: Array, probabilities: Array, ranges: int = RANGES) -> list[tuple[float, float, int]]:
    """Rows in ranges of equal mass along their prediction.

    Predictions are sorted (stably) and cut into ranges of ⌊N/ranges⌋ rows, the last of which
    takes the rest. Fewer rows than ranges are a range each; predictions that are all equal
    are one range.

    Returns:
        (confidence: mean prediction, frequency: share of positives, rows) of each range.
    """
    p = _numbers(probabilities)
    if len(p) == 0:
        return []
    order = np.argsort(p, kind="stable")
    p, positive = p[order], np.asarray(labels)[order] == 1
    effective = 1 if p[0] == p[-1] else min(ranges, len(p))
    cuts = [*range(0, effective * (len(p) // effective), len(p) // effective), len(p)]
    return [(float(p[a:b].mean()), float(positive[a:b].mean()), b - a) for a, b in pairwise(cuts)]


def multiclass_accuracy(labels: Array, probabilities: Array) -> float | None:
    """Share of the N rows whose class has the highest of the K ``probabilities``, [N, K]; of equal ones the first counts."""
    if len(labels) == 0:
        return None
    return float((_numbers(probabilities).argmax(axis=1) == np.asarray(labels)).mean())


def macro_auc(labels: Array, scores: Array) -> float | None:
    """Mean of each class's :func:`auc` against the rest by its column of ``scores``, [N, K].

    Classes for which it is not defined, since no row or every row is theirs, are left out.
    """
    columns = _numbers(scores).T
    by_class = [auc(np.asarray(labels) == k, column) for k, column in enumerate(columns)]
    defined = [value for value in by_class if value is not None]
    return math.fsum(defined) / len(defined) if defined else None


def multiclass_nll(labels: Array, probabilities: Array) -> float | None:
    """Mean −log of the true class's probability, [N, K], kept within :data:`EPSILON` of 0 and 1."""
    if len(labels) == 0:
        return None
    p = np.clip(_numbers(probabilities), EPSILON, 1 - EPSILON)
    return float(-np.log(p[np.arange(len(p)), np.asarray(labels).astype(np.int64)]).mean())


def multiclass_ace(labels: Array, probabilities: Array) -> float | None:
    """Mean over the K classes of :func:`ace` of each against the rest (Nixon et al. 2019)."""
    columns = _numbers(probabilities).T
    by_class = [ace(np.asarray(labels) == k, column) for k, column in enumerate(columns)]
    defined = [value for value in by_class if value is not None]
    return math.fsum(defined) / len(defined) if defined else None


Metric = Callable[[Array, Array], float | None]

RANKING: dict[str, Metric] = {"auc": auc}
"""Metrics of scores, of which the order alone counts."""

PROBABILISTIC: dict[str, Metric] = {"ace": ace, "nll": nll, "accuracy": accuracy}
"""Metrics of probabilities."""


MULTICLASS: dict[str, Metric] = {
    "auc": macro_auc,
    "ace": multiclass_ace,
    "nll": multiclass_nll,
    "accuracy": multiclass_accuracy,
}
"""The same with a column of probabilities for each class."""


def compute(names: Sequence[str], labels: Array, scores: Array, probabilities: Array) -> dict[str, float | None]:
    """The metrics ``names``: ranking ones of ``scores``, which need no clamping to 0 … 1, the others of ``probabilities``."""
    if np.ndim(probabilities) == 2:
        return {name: MULTICLASS[name](labels, probabilities) for name in names}
    return {
        name: RANKING[name](labels, scores) if name in RANKING else PROBABILISTIC[name](labels, probabilities) for name in names
    }


def interval(values: Sequence[float], train_rows: int, test_rows: int) -> dict[str, float]:
    """Mean, sd and 95 % confidence interval over repeated random splits.

    Training sets of different splits overlap, so results are correlated and the naive
    sd/√R is far too narrow. The corrected variance is sd²·(1/R + test_rows/train_rows).

    Args:
        values: one a split, R ≥ 2.
        train_rows: rows trained on in each.
        test_rows: rows held out in each.

    Returns:
        ``mean``, ``sd`` (with R − 1), ``low`` and ``high``.

    Source: Nadeau and Bengio 2003, Inference for the Generalization Error.
    """
    repeats = len(values)
    if repeats < 2 or train_rows < 1:
        raise ValueError("an interval needs two values and one training row at least")
    mean, sd = float(np.mean(values)), float(np.std(values, ddof=1))
    half = student_t(0.95, repeats - 1) * sd * math.sqrt(1 / repeats + test_rows / train_rows)
    return {"mean": mean, "sd": sd, "low": mean - half, "high": mean + half}


def student_t(confidence: float, degrees: int) -> float:
    """The t with P(|T| ≤ t) = ``confidence`` for Student's T with ``degrees`` ≥ 1 degrees of freedom.

    For whole degrees the probability is a finite series in θ = atan(t/√degrees); θ is found by bisection.

    Source: Abramowitz and Stegun 1964, formulas 26.7.3 and 26.7.4.
    """
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, degrees) < confidence else (low, middle)
    return math.sqrt(degrees) * math.tan(low)


def _within(theta: float, degrees: int) -> float:
    """P(|T| ≤ √degrees·tan θ)."""
    odd = degrees % 2
    term = math.cos(theta) if odd else 1.0
    total = 0.0
    for k in range(2 + odd, degrees + 1, 2):  # cosθ + 2/3·cos³θ + … for odd degrees, 1 + 1/2·cos²θ + … for even ones
        total += term
        term *= (k - 1) / k * math.cos(theta) ** 2
    return 2 / math.pi * (theta + math.sin(theta) * total) if odd else math.sin(theta) * total


def _numbers(values: Array) -> NDArray[np.float64]:
    numbers = np.asarray(values, dtype=np.float64)
    if np.isnan(numbers).any():
        raise ValueError("predictions hold NaN")
    return numbers
