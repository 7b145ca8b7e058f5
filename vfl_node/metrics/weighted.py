"""Metrics of rows that count with weights, for many sets of weights at a time.

A bootstrap counts a row as often as it was drawn; a row of which it is known only how likely it is meant counts with that
share. Labels [N] are 0 and 1 (or 0 to K − 1), weights float64[B, N] are 0 or more; a result is float64[B], NaN where the
metric is not defined. With equal weights each is the metric of the same name in :mod:`vfl_node.metrics.classes`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

RANGES = 15
"""Ranges of equal mass in ACE and in the calibration curve; the literature leaves R open."""

EPSILON = 1e-7
"""Probabilities are kept this far from 0 and 1 in the NLL, float32's resolution: one certain error costs 16.1 nats."""

TOP = 0.1
"""The share of rows with the highest scores whose lift is measured."""

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


def auc(positive: Flags, scores: Floats, weights: Floats) -> Floats:
    """Area under the ROC curve; a tie of a positive and a negative counts ½."""
    ups, downs = _cumulative_weights(positive, scores, weights)
    below = np.diff(downs, axis=1, prepend=0)  # negatives of just this score
    middle = ups - np.diff(ups, axis=1, prepend=0) / 2
    return _ratio((below * middle).sum(axis=1), ups[:, -1] * downs[:, -1])


def pr_auc(positive: Flags, scores: Floats, weights: Floats) -> Floats:
    """Average precision: precision at each distinct score, weighted by the recall that it adds."""
    ups, downs = _cumulative_weights(positive, scores, weights)
    precision = _ratio(ups, ups + downs, otherwise=0.0)
    return _ratio((np.diff(ups, axis=1, prepend=0) * precision).sum(axis=1), ups[:, -1])


def ks(positive: Flags, scores: Floats, weights: Floats) -> Floats:
    """Kolmogorov–Smirnov: the largest distance between the score distributions of positives and of negatives."""
    ups, downs = _cumulative_weights(positive, scores, weights)
    return np.abs(_ratio(ups, ups[:, -1:]) - _ratio(downs, downs[:, -1:])).max(axis=1)


def lift(positive: Flags, scores: Floats, weights: Floats) -> Floats:
    """Share of positives among the :data:`TOP` of rows with the highest scores, over that among all rows.

    Of rows with one score that are only in part among the top, that part of their positives counts: the expectation where
    ties are broken at random.
    """
    ups, downs = _cumulative_weights(positive, scores, weights)
    rows = ups + downs
    top = TOP * rows[:, -1:]
    last = (rows < top).sum(axis=1, keepdims=True)  # the score at which the top is full
    of_last = [np.take_along_axis(np.diff(counts, axis=1, prepend=0), last, axis=1) for counts in (ups, rows)]
    ups_there, rows_there = (np.take_along_axis(counts, last, axis=1) for counts in (ups, rows))
    within = ups_there - _ratio((rows_there - top) * of_last[0], of_last[1])
    return _ratio(within, TOP * ups[:, -1:])[:, 0]


def ace(positive: Flags, probabilities: Floats, weights: Floats) -> Floats:
    """Adaptive calibration error over ranges of equal weight; a row is where its middle is."""
    order = np.argsort(probabilities, kind="stable")
    p, weights, draws = probabilities[order], weights[:, order], len(weights)
    ranges = RANGES if p[0] < p[-1] else 1
    middle = _ratio(np.cumsum(weights, axis=1) - weights / 2, weights.sum(axis=1, keepdims=True), otherwise=0.0)
    place = np.minimum((middle * ranges).astype(np.int64), ranges - 1) + ranges * np.arange(draws)[:, None]
    mass, gaps = (
        np.bincount(place.ravel(), amounts.ravel(), draws * ranges).reshape(draws, ranges)
        for amounts in (weights, weights * (positive[order] - p))
    )
    return _ratio(np.abs(_ratio(gaps, mass, otherwise=0.0)).sum(axis=1), (mass > 0).sum(axis=1))


def f1(labels: NDArray[Any], predicted: NDArray[Any], weights: Floats, classes: int) -> Floats:
    """2·TP / (2·TP + FP + FN) of class 1, or its mean over the classes that have a row or a prediction where there are more.

    Args:
        labels: [N], 0 to ``classes`` − 1.
        predicted: [N], likewise.
        weights: float64[B, N].
        classes: how many there are.
    """
    counted = np.arange(classes) if classes > 2 else np.array([1])
    true, guessed = labels[:, None] == counted, predicted[:, None] == counted  # [N, K]
    hits, sizes = weights @ (true & guessed), weights @ true + weights @ guessed  # [B, K]
    return _mean_of_defined(_ratio(2 * hits, sizes))


def mean(values: NDArray[Any], weights: Floats) -> Floats:
    """Mean of ``values`` [N], of which each counts with its weight."""
    return _ratio(weights @ values.astype(np.float64), weights.sum(axis=1))


def losses(labels: NDArray[Any], probabilities: Floats) -> Floats:
    """−log of each row's true class's probability, [N] or [N, K], kept within :data:`EPSILON` of 0 and 1."""
    p = np.clip(probabilities, EPSILON, 1 - EPSILON)
    if p.ndim == 2:
        return np.asarray(-np.log(p[np.arange(len(p)), labels.astype(np.int64)]))
    return -np.where(labels == 1, np.log(p), np.log1p(-p))


def predict_classes(probabilities: Floats, threshold: float) -> NDArray[np.int64]:
    """The class that probabilities say: 1 from ``threshold`` on, or the likeliest of K (of equal ones the first)."""
    return (probabilities >= threshold).astype(np.int64) if probabilities.ndim == 1 else probabilities.argmax(axis=1)


Ranking = Callable[[Flags, Floats, Floats], Floats]

RANKING: dict[str, Ranking] = {"auc": auc, "pr_auc": pr_auc, "ks": ks, "lift": lift}


def compute(
    names: Sequence[str], labels: NDArray[Any], scores: Floats, probabilities: Floats, weights: Floats, threshold: float
) -> dict[str, Floats]:
    """The metrics ``names``, float64[B] each: ranking ones of ``scores``, the others of ``probabilities``, [N] or [N, K].

    With K columns AUC, average precision and ACE are the mean over the classes for which they are defined, each against the
    rest.
    """
    classes = probabilities.shape[1] if probabilities.ndim == 2 else 2

    def metric(name: str) -> Floats:
        if len(labels) == 0:
            return np.full(len(weights), np.nan)
        if name in RANKING:
            return _one_vs_rest(RANKING[name], labels, scores, weights)
        match name:
            case "ace":
                return _one_vs_rest(ace, labels, probabilities, weights)
            case "nll":
                return mean(losses(labels, probabilities), weights)
            case "accuracy":
                return mean(predict_classes(probabilities, threshold) == labels, weights)
            case "f1":
                return f1(labels, predict_classes(probabilities, threshold), weights, classes)
        raise KeyError(name)

    return {name: metric(name) for name in names}


def _one_vs_rest(metric: Ranking, labels: NDArray[Any], scores: Floats, weights: Floats) -> Floats:
    if scores.ndim == 1:
        return metric(labels == 1, scores, weights)
    by_class = [metric(labels == k, column, weights) for k, column in enumerate(scores.T) if (labels == k).any()]
    return _mean_of_defined(np.stack(by_class, axis=1))


def _cumulative_weights(positive: Flags, scores: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Weight of the positives, and of the negatives, with each distinct score or a higher one: float64[B, D], highest first."""
    order = np.argsort(-scores, kind="stable")
    descending = scores[order]
    last = np.flatnonzero(np.append(descending[1:] != descending[:-1], True))
    ups, downs = (np.cumsum(weights[:, order] * kind[order], axis=1)[:, last] for kind in (positive, ~positive))
    return ups, downs


def _ratio(upper: NDArray[Any], lower: NDArray[Any], otherwise: float = np.nan) -> Floats:
    """``upper`` / ``lower``, and ``otherwise`` where ``lower`` is 0."""
    shape = np.broadcast_shapes(upper.shape, lower.shape)
    return np.divide(upper, lower, out=np.full(shape, otherwise), where=np.broadcast_to(lower != 0, shape))


def _mean_of_defined(values: Floats) -> Floats:
    """Mean over the second axis of those that are not NaN."""
    defined = ~np.isnan(values)
    return _ratio(np.where(defined, values, 0.0).sum(axis=1), defined.sum(axis=1))
