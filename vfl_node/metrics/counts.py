"""How good predicted counts are: the mean Poisson deviance, the share of it that a model explains, and errors in the unit.

Targets are float64[N] from 0, predictions above 0. Weights and what is not defined: as in :mod:`vfl_node.metrics.numbers`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from vfl_node.metrics.numbers import Floats, PredictedNumbers, weighted_mean

LEAST = 1e-300
"""A prediction below it counts as this number, so that a target above 0 has a deviance."""


@dataclass(frozen=True)
class PredictedCounts(PredictedNumbers):
    """What a model of counts says of N rows.

    Attributes:
        exposure: float64[N], above 0, what the counts of a constant rate are proportional to; None: all alike.
    """

    exposure: Floats | None = None

    @override
    def take(self, rows: NDArray[np.int64]) -> PredictedCounts:
        return PredictedCounts(self.values[rows], None if self.exposure is None else self.exposure[rows])

    @override
    def compute_weighted(
        self, names: Sequence[str], targets: Floats, weights: Floats, threshold: float = 0.5
    ) -> dict[str, Floats]:
        if len(targets) == 0:
            return super().compute_weighted(names, targets, weights)
        others = [name for name in names if name not in ("deviance", "d2")]
        found = super().compute_weighted(others, targets, weights)
        if len(others) < len(names):
            deviance = weighted_mean(deviances(targets, self.values), weights)
            found |= {"deviance": deviance, "d2": 1 - _ratio(deviance, self._deviance_of_rate(targets, weights))}
        return {name: found[name] for name in names}

    def _deviance_of_rate(self, targets: Floats, weights: Floats) -> Floats:
        """Mean deviance, float64[B], of these rows' own constant rate.

        Σ w·2·(y·log(y / (e·r)) − y + e·r) with r = Σ w·y / Σ w·e, of which the last two terms cancel out.
        """
        exposure = np.ones(len(targets)) if self.exposure is None else self.exposure
        rate = _ratio(weights @ targets, weights @ exposure)
        own = targets * np.log(np.where(targets > 0, targets, exposure) / exposure)
        total = weights @ own - (weights @ targets) * np.log(np.where(rate > 0, rate, 1))
        return _ratio(2 * total, weights.sum(axis=1))


def deviances(targets: Floats, predictions: Floats) -> Floats:
    """The Poisson deviance of each row, float64[N]: 2·(y·log(y / μ) − y + μ)."""
    said = np.maximum(predictions, LEAST)
    return 2 * (targets * np.log(np.where(targets > 0, targets, 1) / said) - targets + said)


def _ratio(above: Floats, below: Floats) -> Floats:
    return np.divide(above, below, out=np.full(len(above), np.nan), where=below > 0)
