"""How good predictions are: ranking, decisions and calibration.

Labels are 0 and 1, scores and probabilities numbers without NaN; all arrays have N entries.
With K classes labels are 0 to K − 1, and scores and probabilities have a column for each.
A metric that is not defined (no rows, or one class only) is None.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vfl_node.metrics import weighted as weighted_metrics
from vfl_node.metrics.weighted import EPSILON, RANGES, predict_classes

Array = NDArray[Any]


class NotNumbers(ValueError):
    """Scores hold NaN, so that they have no order."""


@dataclass(frozen=True)
class ModelOutput:
    """What a model says of N rows.

    Attributes:
        scores: [N] or [N, K], of which the order counts; may leave 0 … 1.
        probabilities: of the same shape.
    """

    scores: Array
    probabilities: Array

    @classmethod
    def clip(cls, scores: Array) -> ModelOutput:
        """The output of probabilities that may leave 0 … 1, as corrected ones do: ranked as they are, else clipped."""
        return cls(scores, np.clip(scores, 0, 1))

    @classmethod
    def constant(cls, shares: Array, rows: int) -> ModelOutput:
        """The same probability of each class, float64[K], for each of ``rows`` rows; of class 1 alone for two classes."""
        said = np.full(rows, shares[1]) if len(shares) == 2 else np.broadcast_to(shares, (rows, len(shares)))
        return cls(said, said)

    @property
    def columns(self) -> int:
        """Columns that each metric looks at, for the cost of a bootstrap."""
        return self.probabilities.shape[1] if self.probabilities.ndim == 2 else 2

    def take(self, rows: NDArray[np.int64]) -> ModelOutput:
        """The output of these rows alone."""
        return ModelOutput(self.scores[rows], self.probabilities[rows])

    def metrics(self, names: Sequence[str], labels: Array, threshold: float = 0.5) -> dict[str, float | None]:
        """As :func:`compute`."""
        return compute(names, labels, self.scores, self.probabilities, threshold)

    def compute_weighted(self, names: Sequence[str], labels: Array, weights: Array, threshold: float = 0.5) -> dict[str, Array]:
        """As :func:`vfl_node.metrics.weighted.compute`."""
        return {**weighted_metrics.compute(names, labels, self.scores, self.probabilities, weights, threshold)}

    def curve(self, labels: Array) -> list[tuple[float, float, int]]:
        """As :func:`calibration_curve`; none with more than two classes."""
        return [] if self.scores.ndim > 1 else calibration_curve(labels, self.probabilities)

    def confusion(self, labels: Array, threshold: float) -> list[list[int]]:
        """As :func:`confusion`."""
        return confusion(labels, self.probabilities, threshold)


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
    """Mean −log p of the true class, p kept within :data:`~vfl_node.metrics.weighted.EPSILON` of 0 and 1."""
    if len(labels) == 0:
        return None
    p = np.clip(_numbers(probabilities), EPSILON, 1 - EPSILON)
    return float(-np.where(np.asarray(labels) == 1, np.log(p), np.log1p(-p)).mean())


def pr_auc(labels: Array, scores: Array) -> float | None:
    """Average precision; None without positives."""
    return _compute_unweighted(weighted_metrics.pr_auc, labels, scores)


def ks(labels: Array, scores: Array) -> float | None:
    """Kolmogorov–Smirnov: the largest distance between the score distributions of positives and of negatives."""
    return _compute_unweighted(weighted_metrics.ks, labels, scores)


def lift(labels: Array, scores: Array) -> float | None:
    """Share of positives among the tenth of rows with the highest scores, over that among all; None without positives.

    The tenth may end within a row or within ties, of which the expected part counts.
    """
    return _compute_unweighted(weighted_metrics.lift, labels, scores)


def accuracy(labels: Array, probabilities: Array, threshold: float = 0.5) -> float | None:
    """Share of rows predicted rightly, where p ≥ ``threshold`` predicts 1."""
    if len(labels) == 0:
        return None
    return float((predict_classes(_numbers(probabilities), threshold) == (np.asarray(labels) == 1)).mean())


def f1(labels: Array, probabilities: Array, threshold: float = 0.5) -> float | None:
    """Harmonic mean of precision and recall of class 1, where p ≥ ``threshold`` predicts it.

    0 where no positive is found, None where no row is positive or predicted so.
    """
    guessed = predict_classes(_numbers(probabilities), threshold)
    return _one(weighted_metrics.f1(np.asarray(labels), guessed, np.ones((1, len(labels))), 2))


def confusion(labels: Array, probabilities: Array, threshold: float = 0.5) -> list[list[int]]:
    """Number of rows of each class (first index) that were predicted to be of each (second index).

    Class 1 is predicted where p ≥ ``threshold``; with a column for each of K classes, the likeliest is.
    """
    p = _numbers(probabilities)
    classes = p.shape[1] if p.ndim == 2 else 2
    cells = np.asarray(labels).astype(np.int64) * classes + predict_classes(p, threshold)
    counts: list[list[int]] = np.bincount(cells, minlength=classes**2).reshape(classes, classes).tolist()
    return counts


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
    return _one_vs_rest(auc, labels, scores)


def macro_pr_auc(labels: Array, scores: Array) -> float | None:
    """Mean of each class's :func:`pr_auc` against the rest by its column of ``scores``, [N, K], of classes that have rows."""
    return _one_vs_rest(pr_auc, labels, scores)


def macro_f1(labels: Array, probabilities: Array) -> float | None:
    """Mean of each class's F1, where the highest of the K ``probabilities`` predicts, [N, K].

    Classes that no row has and none is predicted to have are left out.
    """
    p = _numbers(probabilities)
    return _one(weighted_metrics.f1(np.asarray(labels), predict_classes(p, 0.5), np.ones((1, len(p))), p.shape[1]))


def multiclass_nll(labels: Array, probabilities: Array) -> float | None:
    """Mean −log of the true class's probability, [N, K], kept within :data:`~vfl_node.metrics.weighted.EPSILON` of 0 and 1."""
    if len(labels) == 0:
        return None
    p = np.clip(_numbers(probabilities), EPSILON, 1 - EPSILON)
    return float(-np.log(p[np.arange(len(p)), np.asarray(labels).astype(np.int64)]).mean())


def multiclass_ace(labels: Array, probabilities: Array) -> float | None:
    """Mean over the K classes of :func:`ace` of each against the rest (Nixon et al. 2019)."""
    return _one_vs_rest(ace, labels, probabilities)


Metric = Callable[[Array, Array], float | None]

RANKING: dict[str, Metric] = {"auc": auc, "pr_auc": pr_auc, "ks": ks, "lift": lift}
"""Metrics of scores, of which the order alone counts."""

CALIBRATION: dict[str, Metric] = {"ace": ace, "nll": nll}
"""Metrics of probabilities."""

DECISIONS: dict[str, Callable[[Array, Array, float], float | None]] = {"accuracy": accuracy, "f1": f1}
"""Metrics of probabilities with a threshold."""

MULTICLASS: dict[str, Metric] = {
    "auc": macro_auc,
    "pr_auc": macro_pr_auc,
    "ace": multiclass_ace,
    "nll": multiclass_nll,
    "accuracy": multiclass_accuracy,
    "f1": macro_f1,
}
"""The same with a column of scores or probabilities for each class; the others are for two classes."""

UPPER = dict.fromkeys(("auc", "pr_auc", "ks", "accuracy", "f1", "ace"), 1.0) | {
    "lift": 1 / weighted_metrics.TOP,
    "nll": -math.log(EPSILON),
}
"""Metric → the largest value that it can have; the smallest is 0."""

OF_A_CONSTANT = ("nll",)
"""Metrics that are reported of a constant model, too."""


def compute(
    names: Sequence[str], labels: Array, scores: Array, probabilities: Array, threshold: float = 0.5
) -> dict[str, float | None]:
    """The metrics ``names``: ranking ones of ``scores``, which need no clamping to 0 … 1, the others of ``probabilities``.

    Args:
        names: of metrics.
        labels: of N rows.
        scores: [N], or [N, K] of several classes.
        probabilities: likewise.
        threshold: of :data:`DECISIONS`, from which on class 1 is predicted; of several classes the likeliest is.

    Returns:
        Metric → value; None where it is not defined, or of two classes only.
    """
    if np.ndim(probabilities) == 2:
        return {
            name: MULTICLASS[name](labels, scores if name in RANKING else probabilities) if name in MULTICLASS else None
            for name in names
        }
    return {name: _score_two_classes(name, labels, scores, probabilities, threshold) for name in names}


def _score_two_classes(name: str, labels: Array, scores: Array, probabilities: Array, threshold: float) -> float | None:
    if name in DECISIONS:
        return DECISIONS[name](labels, probabilities, threshold)
    return RANKING[name](labels, scores) if name in RANKING else CALIBRATION[name](labels, probabilities)


def _one_vs_rest(metric: Metric, labels: Array, columns: Array) -> float | None:
    """Mean over the K columns of what ``metric`` says of each class against the rest, where it is defined."""
    by_class = [metric(np.asarray(labels) == k, column) for k, column in enumerate(_numbers(columns).T)]
    defined = [value for value in by_class if value is not None]
    return math.fsum(defined) / len(defined) if defined else None


def _compute_unweighted(metric: weighted_metrics.Ranking, labels: Array, scores: Array) -> float | None:
    positive, numbers = np.asarray(labels) == 1, _numbers(scores)
    return _one(metric(positive, numbers, np.ones((1, len(numbers))))) if positive.any() else None


def _one(values: Array) -> float | None:
    return None if np.isnan(values[0]) else float(values[0])


def _numbers(values: Array) -> NDArray[np.float64]:
    numbers = np.asarray(values, dtype=np.float64)
    if np.isnan(numbers).any():
        raise NotNumbers("predictions hold NaN")
    return numbers
