"""The unit of a regression's target: a model learns deviations from the mean, and predicts in the target's own unit."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vfl_node.errors import DataError

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class TargetScale:
    """Mean and standard deviation of targets. They stay at the party that has the targets.

    Attributes:
        mean: of the targets, in their unit.
        deviation: standard deviation, above 0.
    """

    mean: float
    deviation: float

    @classmethod
    def fit(cls, targets: Floats) -> TargetScale:
        """Mean and deviation of the ``targets`` trained on, at least one.

        Raises:
            DataError: they are all the same (``E_ONE_CLASS``).
        """
        mean, deviation = float(targets.mean()), float(targets.std())
        if not deviation > 1e-12 * max(abs(mean), 1e-100):
            raise DataError(
                "all records that are trained on have the same target",
                code="E_ONE_CLASS",
                hint="a regression needs shared records whose targets differ",
                for_peer="its owner does not go on",
                peer_code="E_STOPPED",
            )
        return cls(mean, deviation)

    @classmethod
    def fit_rate(cls, targets: Floats, exposure: Floats | None) -> TargetScale:
        """The scale in which the mean of ``targets`` from 0, at least one, is 1; with an ``exposure`` their rate.

        Raises:
            DataError: they are all 0 (``E_ONE_CLASS``).
        """
        rate = float(targets.sum() / (len(targets) if exposure is None else exposure.sum()))
        if not 0 < rate < float("inf"):
            raise DataError(
                "all records that are trained on have the target 0",
                code="E_ONE_CLASS",
                hint="a training of counts needs shared records with a target above 0",
                for_peer="its owner does not go on",
                peer_code="E_STOPPED",
            )
        return cls(0.0, rate)

    @classmethod
    def from_range(cls, low: float, high: float) -> TargetScale:
        """The scale of targets that usually lie between two numbers, taken to be two deviations from their mean."""
        return cls((low + high) / 2, (high - low) / 4)

    def apply(self, targets: Floats) -> Floats:
        """``targets`` in standard deviations from the mean."""
        return (targets - self.mean) / self.deviation

    def undo(self, scaled: NDArray[Any]) -> Floats:
        """Scaled numbers in the target's own unit, float64."""
        return self.mean + self.deviation * scaled.astype(np.float64)

    def to_json(self) -> dict[str, float]:
        """JSON values, exact to the last bit."""
        return asdict(self)
