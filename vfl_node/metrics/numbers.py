"""How good predicted numbers are: errors in the target's unit, the share of its variation that a model explains, and ranks.

Targets and predictions are float64[N] without NaN; weights float64[B, N] are 0 or more. A metric that is not defined (no rows,
or targets that are all the same) is None, or NaN among weighted ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

GROUPS = 15
"""Groups of equal size in :func:`actual_by_prediction`, as many as a calibration plot has."""

LEAST_VARIATION = 1e-14
"""Targets whose variance is below so much of their mean square vary by rounding alone, so R² is not defined."""


@dataclass(frozen=True)
class PredictedNumbers:
    """What a model of numbers says of N rows.

    Attributes:
        values: float64[N], in the target's unit.
    """

    values: Floats

    @classmethod
    def constant(cls, value: float, rows: int) -> PredictedNumbers:
        """``value`` for each of ``rows`` rows."""
        return cls(np.full(rows, value))

    @property
    def columns(self) -> int:
        """Columns that each metric looks at, for the cost of a bootstrap."""
        return 2

    def take(self, rows: NDArray[np.int64]) -> PredictedNumbers:
        """The predictions of these rows alone."""
        return PredictedNumbers(self.values[rows])

    def metrics(self, names: Sequence[str], targets: Floats, threshold: float = 0.5) -> dict[str, float | None]:
        """The metrics ``names``; numbers have no ``threshold``."""
        found = self.compute_weighted(names, targets, np.ones((1, len(targets))))
        return {name: None if np.isnan(value[0]) else float(value[0]) for name, value in found.items()}

    def compute_weighted(
        self, names: Sequence[str], targets: Floats, weights: Floats, threshold: float = 0.5
    ) -> dict[str, Floats]:
        """The metrics ``names`` for each set of ``weights``, float64[B]."""
        if np.isnan(self.values).any():
            raise ValueError("predictions hold NaN")
        if len(targets) == 0:
            return {name: np.full(len(weights), np.nan) for name in names}
        return {name: METRICS[name](targets, self.values, weights) for name in names}

    def curve(self, targets: Floats) -> list[tuple[float, float, int]]:
        """As :func:`actual_by_prediction`."""
        return actual_by_prediction(targets, self.values)

    def confusion(self, targets: Floats, threshold: float) -> None:
        """Numbers are not confused with each other."""


def mse(targets: Floats, predictions: Floats, weights: Floats) -> Floats:
    """Mean squared error."""
    return weighted_mean((predictions - targets) ** 2, weights)


def rmse(targets: Floats, predictions: Floats, weights: Floats) -> Floats:
    """Root of the mean squared error, in the target's unit."""
    return np.sqrt(mse(targets, predictions, weights))


def mae(targets: Floats, predictions: Floats, weights: Floats) -> Floats:
    """Mean absolute error, in the target's unit."""
    return weighted_mean(np.abs(predictions - targets), weights)


def r2(targets: Floats, predictions: Floats, weights: Floats) -> Floats:
    """1 − mean squared error / variance of the targets: 1 is perfect, 0 as good as always saying these rows' own mean."""
    centred = targets - targets.mean()
    variance = weighted_mean(centred**2, weights) - weighted_mean(centred, weights) ** 2
    varies = variance > LEAST_VARIATION * max(float((targets**2).mean()), 1e-300)
    ratio = np.divide(mse(targets, predictions, weights), variance, out=np.full(len(weights), np.nan), where=varies)
    return 1 - ratio


METRICS: dict[str, Callable[[Floats, Floats, Floats], Floats]] = {"rmse": rmse, "mae": mae, "r2": r2, "mse": mse}

RANGE = {"rmse": (0.0, math.inf), "mae": (0.0, math.inf), "r2": (-math.inf, 1.0), "mse": (0.0, math.inf)} | {
    "deviance": (0.0, math.inf),
    "d2": (-math.inf, 1.0),
}
"""Metric → the smallest and the largest value that it can have."""

OF_A_CONSTANT = ("rmse", "mse", "deviance")
"""Metrics that are reported of a model that always says the mean, too; its MAE would be better by the median."""


def actual_by_prediction(targets: Floats, predictions: Floats, groups: int = GROUPS) -> list[tuple[float, float, int]]:
    """Rows in groups of equal size along their prediction.

    Predictions are sorted (stably) and cut into groups of ⌊N/groups⌋ rows, the last of which takes the rest. Predictions that
    are all equal are one group.

    Returns:
        (mean prediction, mean target, rows) of each group.
    """
    if len(predictions) == 0:
        return []
    order = np.argsort(predictions, kind="stable")
    said, actual = predictions[order], targets[order]
    effective = 1 if said[0] == said[-1] else min(groups, len(said))
    cuts = [*range(0, effective * (len(said) // effective), len(said) // effective), len(said)]
    return [(float(said[a:b].mean()), float(actual[a:b].mean()), b - a) for a, b in pairwise(cuts)]


def weighted_mean(values: Floats, weights: Floats) -> Floats:
    """The mean of ``values``, float64[N], by each set of ``weights``, float64[B]; NaN where they are all 0."""
    total = weights.sum(axis=1)
    return np.divide(weights @ values, total, out=np.full(len(weights), np.nan), where=total > 0)


def spearman(first: NDArray[Any], second: NDArray[Any]) -> float | None:
    """Spearman's rank correlation of n pairs of numbers, −1 … 1; None of fewer than two, or where all of one are equal.

    Equal numbers have their mean rank.
    """
    if len(first) < 2:
        return None
    ranks = [_ranks(values) for values in (first, second)]
    spreads = [float(rank.std()) for rank in ranks]
    if not all(spreads):
        return None
    centred = [rank - rank.mean() for rank in ranks]
    return float(np.clip((centred[0] * centred[1]).mean() / (spreads[0] * spreads[1]), -1, 1))


def _ranks(values: NDArray[Any]) -> NDArray[np.float64]:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return ((last - counts + last - 1) / 2)[inverse]
