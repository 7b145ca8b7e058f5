"""How sure a metric is: its 95 % confidence interval, over repeated splits or over the held-out rows of one.

Four methods, each named in the report:

- ``repeats``: Student's t over several random splits, corrected for their overlap (Nadeau and Bengio 2003). It takes in that
  another split would give another model.
- ``delong``: the AUC on one split, by DeLong's variance (DeLong et al. 1988; of several classes that of the mean of the
  one-against-the-rest AUCs). The interval is symmetric on the logit scale, where an AUC near 1 is closer to normal.
- ``bootstrap``: other metrics on one split, by the standard deviation over resampled held-out rows.
- ``noised``: metrics of hidden training, from sums that were opened with noise, of that noise and of the rows held out
  (:mod:`vfl_node.training.shares.estimates`).

The last three hold for *this* model: they say how much other held-out rows would change the figure. Differences of two models
are paired: the same rows, the same resamples.

No interval leaves the range of its metric. What lies outside cannot be the true value, so cutting it off loses nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import NormalDist
from typing import Any, Literal, TypedDict

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.randomness import Randomness
from vfl_node.metrics import numbers as regression_metrics
from vfl_node.metrics.classes import UPPER, ModelOutput
from vfl_node.metrics.numbers import PredictedNumbers

DRAWS = 400
"""Resamples of a bootstrap; its standard deviation then errs by 1/√800 = 3.5 %."""

MOST_ROWS = 20_000
"""Rows of a resample at most; with K classes this many times 2/K, since some metrics are computed for each, but not below
:data:`MANY_ROWS`. Of more rows a random part is resampled, and the deviation scaled by √(part/all), as it shrinks with the
root of the rows: this bounds the time."""

MANY_ROWS = 2_000
"""Enough rows for a part of them."""

MOST_CELLS = 1 << 20
"""Rows times resamples computed at a time, so times 8 bytes for each of a few arrays."""

Floats = NDArray[np.float64]

Output = ModelOutput | PredictedNumbers
"""What a model says of rows: of their classes, or numbers."""

RANGE = {name: (0.0, highest) for name, highest in UPPER.items()} | regression_metrics.RANGE
"""Metric → the smallest and the largest value that it can have."""

NORMAL = NormalDist().inv_cdf(0.975)


class ConfidenceInterval(TypedDict):
    """A metric, or a difference of two, with its 95 % interval; ``sd`` is over repeats, else the standard error."""

    mean: float
    sd: float
    low: float
    high: float
    method: Literal["repeats", "delong", "bootstrap", "noised"]


Intervals = dict[str, ConfidenceInterval]
"""Metric → interval; without those that cannot be computed."""


def repeats_interval(
    values: Sequence[float], train_rows: int, test_rows: int, *, lowest: float, highest: float
) -> ConfidenceInterval:
    """Mean, sd and 95 % confidence interval over repeated random splits.

    Training sets of different splits overlap, so results are correlated and the naive
    sd/√R is far too narrow. The corrected variance is sd²·(1/R + test_rows/train_rows).

    Args:
        values: one a split, R ≥ 2.
        train_rows: rows trained on in each.
        test_rows: rows held out in each.
        lowest: the least value that the metric can have.
        highest: the largest.

    Source: Nadeau and Bengio 2003, Inference for the Generalization Error.
    """
    repeats = len(values)
    if repeats < 2 or train_rows < 1:
        raise ValueError("an interval needs two values and one training row at least")
    mean, sd = float(np.mean(values)), float(np.std(values, ddof=1))
    half = student_t(0.95, repeats - 1) * sd * math.sqrt(1 / repeats + test_rows / train_rows)
    low, high = max(lowest, mean - half), min(highest, mean + half)
    return {"mean": mean, "sd": sd, "low": low, "high": high, "method": "repeats"}


def row_intervals(
    names: Sequence[str], labels: NDArray[Any], models: Sequence[Output], threshold: float, randomness: Randomness
) -> tuple[list[Intervals], list[Intervals]]:
    """Intervals of one split, from the rows held out.

    A metric is left out where it is not defined, in half of the resamples or more, or where no resample changes it: rows that
    are all right say nothing about how often others are wrong.

    Args:
        names: of metrics.
        labels: of N rows, or targets.
        models: one or more, on the same rows.
        threshold: see :func:`vfl_node.metrics.classes.compute`.
        randomness: which rows are drawn; the same gives the same intervals.

    Returns:
        The intervals of each model, and those of the first one's difference to each other one.

    Cost: at most two seconds a model (two classes, all metrics) and 30 MB on one core, see :data:`MOST_ROWS`.
    """
    values = [model.metrics(names, labels, threshold) for model in models]
    used = _part(len(labels), models[0], randomness)
    shrink = math.sqrt(len(used) / len(labels)) if len(labels) else 1.0
    defined = [name for name in names if values[0][name] is not None]
    parts = [
        influence(labels, model.scores) if isinstance(model, ModelOutput) and "auc" in defined else None for model in models
    ]
    resampled = [model.take(used) for model in models]
    drawn = _bootstrap([name for name in defined if name != "auc"], labels[used], resampled, threshold, randomness)
    spreads = [({} if part is None else {"auc": part}) | draws for part, draws in zip(parts, drawn, strict=True)]

    def intervals(values: Mapping[str, float | None], spread: Mapping[str, Floats], *, signed: bool = False) -> Intervals:
        errors = ((name, values[name], _deviation(name, draws, shrink)) for name, draws in spread.items())
        return {
            name: _normal(name, value, sd, signed=signed) for name, value, sd in errors if value is not None and sd is not None
        }

    own = [intervals(metrics, spread) for metrics, spread in zip(values, spreads, strict=True)]
    gains = []
    for other, spread in zip(values[1:], spreads[1:], strict=True):
        differences = {name: difference(values[0][name], other[name]) for name in names}
        paired = {name: draws - spread[name] for name, draws in spreads[0].items() if name in spread}
        gains.append(intervals(differences, paired, signed=True))
    return own, gains


def difference(ours: float | None, theirs: float | None) -> float | None:
    """``ours`` − ``theirs``; None where either is not defined."""
    return None if ours is None or theirs is None else ours - theirs


def influence(labels: NDArray[Any], scores: Floats) -> Floats | None:
    """Each row's part in the error of the AUC: the sum of their squares is DeLong's variance; None where it is not defined.

    A positive's part is how much more of the negatives it outranks than the mean positive does (ties count ½), over
    √(P·(P − 1)) for P positives; a negative's likewise. With a column of ``scores`` for each class it is the mean over the
    classes that have rows, each against the rest. Each of them needs two rows within and two outside of it.

    Source: DeLong, DeLong and Clarke-Pearson 1988, Comparing the Areas under Two or More Correlated ROC Curves.
    """
    if scores.ndim == 2:
        parts = [influence(labels == k, column) for k, column in enumerate(scores.T) if (labels == k).any()]
        defined = [part for part in parts if part is not None]
        return np.mean(defined, axis=0) if defined and len(defined) == len(parts) else None
    positive = labels == 1
    of_kind = [np.flatnonzero(positive), np.flatnonzero(~positive)]
    if min(map(len, of_kind)) < 2:
        return None
    _, place = np.unique(scores, return_inverse=True)
    ups, downs = (np.bincount(place, kind, place.max() + 1) for kind in (positive, ~positive))
    below = np.where(positive, (np.cumsum(downs) - downs / 2)[place], len(of_kind[0]) - (np.cumsum(ups) - ups / 2)[place])
    part = np.empty(len(labels))
    for rows, others in (of_kind, of_kind[::-1]):
        share = below[rows] / len(others)
        part[rows] = (share - share.mean()) / math.sqrt(len(rows) * (len(rows) - 1))
    return part


def _bootstrap(
    names: Sequence[str], labels: NDArray[Any], models: Sequence[Output], threshold: float, randomness: Randomness
) -> list[dict[str, Floats]]:
    """Each model's metric → float64[DRAWS], its value on each resample, NaN where it is not defined; all on the same ones."""
    if not names:
        return [{} for _ in models]
    drawn: list[list[dict[str, Floats]]] = [[] for _ in models]
    for counts in _resamples(len(labels), randomness):
        for model, chunks in zip(models, drawn, strict=True):
            chunks.append(model.compute_weighted(names, labels, counts, threshold))
    return [{name: np.concatenate([chunk[name] for chunk in chunks]) for name in names} for chunks in drawn]


def _part(rows: int, model: Output, randomness: Randomness) -> NDArray[np.int64]:
    """The rows that are resampled: all, or a random part of very many."""
    most = max(min(MANY_ROWS, MOST_ROWS), 2 * MOST_ROWS // model.columns)
    return np.sort(randomness.permutation(rows)[:most]) if rows > most else np.arange(rows)


def _resamples(rows: int, randomness: Randomness) -> Iterator[Floats]:
    """How often each row was drawn in each of :data:`DRAWS` resamples, float64[B, rows], a few at a time."""
    at_once = max(1, MOST_CELLS // rows)
    for start in range(0, DRAWS, at_once):
        draws = min(at_once, DRAWS - start)
        cells = randomness.choices(rows, draws * rows) + np.repeat(rows * np.arange(draws), rows)
        yield np.bincount(cells, minlength=draws * rows).reshape(draws, rows).astype(np.float64)


def _deviation(name: str, deviations: Floats, shrink: float) -> float | None:
    """The standard error: of the AUC from each row's part in it, else from values on resamples; None for none, or too few."""
    if name == "auc":
        sd = math.sqrt(float(deviations @ deviations))
    else:
        defined = deviations[~np.isnan(deviations)]
        if len(defined) <= DRAWS / 2:
            return None
        sd = float(np.std(defined, ddof=1)) * shrink
    least = 1e-12 if math.isfinite(RANGE[name][1]) else 0.0  # a metric with a unit may be as small as its unit makes it
    return sd if sd > least else None


def bounds(name: str, *, signed: bool) -> tuple[float, float]:
    """The range of a metric, or of a difference of two (``signed``)."""
    lowest, highest = RANGE[name]
    return (lowest - highest, highest - lowest) if signed else (lowest, highest)


def _normal(name: str, value: float, sd: float, *, signed: bool) -> ConfidenceInterval:
    """``value`` ± 1.96 standard errors, within the range of the metric, or of a difference of two (``signed``)."""
    half = NORMAL * sd
    if name == "auc" and not signed and 0 < value < 1:
        low, high = _logit_interval(value, half)
    else:
        lowest, highest = bounds(name, signed=signed)
        low, high = max(lowest, value - half), min(highest, value + half)
    return {"mean": value, "sd": sd, "low": low, "high": high, "method": "delong" if name == "auc" else "bootstrap"}


def _logit_interval(value: float, half: float) -> tuple[float, float]:
    """The ends of an interval of this half width around ``value``, 0 … 1, made symmetric in logits by the delta method."""
    logit, step = math.log(value / (1 - value)), half / (value * (1 - value))
    low, high = ((1 + math.tanh((logit + side * step) / 2)) / 2 for side in (-1, 1))
    return low, high


def student_t(confidence: float, degrees: int) -> float:
    """The t with P(|T| ≤ t) = ``confidence`` for Student's T with ``degrees`` ≥ 1 degrees of freedom.

    For whole degrees the probability is a finite series in θ = atan(t/√degrees); θ is found by bisection.

    Source: Abramowitz and Stegun 1964, formulas 26.7.3 and 26.7.4.
    """
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _central_probability(middle, degrees) < confidence else (low, middle)
    return math.sqrt(degrees) * math.tan(low)


def _central_probability(theta: float, degrees: int) -> float:
    """P(|T| ≤ √degrees·tan θ)."""
    odd = degrees % 2
    term = math.cos(theta) if odd else 1.0
    total = 0.0
    for k in range(2 + odd, degrees + 1, 2):  # cosθ + 2/3·cos³θ + … for odd degrees, 1 + 1/2·cos²θ + … for even ones
        total += term
        term *= (k - 1) / k * math.cos(theta) ** 2
    return 2 / math.pi * (theta + math.sin(theta) * total) if odd else math.sin(theta) * total
