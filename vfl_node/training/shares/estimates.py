"""Metrics from sums that were opened with noise, and how sure they are: of the noise, and of the rows that were held out.

Everything follows from what was opened, so it tells nothing more. The noise is known exactly but for what ratios make of it
(delta method). What other rows would change is estimated: the area's variance by Hanley and McNeil, a mean's by the sum of
squares.

Source: Hanley and McNeil 1982, The Meaning and Use of the Area under a ROC Curve.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vfl_node.training.intervals import NORMAL, ConfidenceInterval, bounds
from vfl_node.training.shares.measuring import OutputTally
from vfl_node.training.shares.metric_noise import MOST_LOSS, MOST_SQUARE, MetricNoise

MOST_NOISE = 0.1
"""A metric is not said if the noise alone may move it by more, with a probability of 5 %."""

LEAST_DEVIATIONS = 5.0
"""Nor if a number of rows that it is divided by is less than so many standard deviations of its noise."""


@dataclass(frozen=True)
class Estimate:
    """A metric, and how sure it is.

    Attributes:
        value: of these rows.
        noise: standard deviation of what noise makes of it.
        sampling: likewise of what other rows would.
    """

    value: float
    noise: float
    sampling: float

    @property
    def is_said(self) -> bool:
        """Whether the noise leaves something to say (:data:`MOST_NOISE`)."""
        return NORMAL * self.noise <= MOST_NOISE

    def scale(self, factor: float, offset: float = 0.0) -> Estimate:
        """The estimate of ``offset`` + ``factor`` · the metric."""
        return Estimate(offset + factor * self.value, abs(factor) * self.noise, abs(factor) * self.sampling)

    @property
    def root(self) -> Estimate:
        """The estimate of its root."""
        steepest = max(self.value, math.hypot(self.noise, self.sampling))  # not 0, where it has no slope
        slope = 1 / (2 * math.sqrt(steepest)) if steepest else 0.0
        return Estimate(math.sqrt(self.value), slope * self.noise, slope * self.sampling)

    def interval(self, name: str) -> ConfidenceInterval:
        """The interval of the metric ``name``, within its range."""
        sd = math.hypot(self.noise, self.sampling)
        lowest, highest = bounds(name, signed=False)
        low, high = max(lowest, self.value - NORMAL * sd), min(highest, self.value + NORMAL * sd)
        return {"mean": self.value, "sd": sd, "low": low, "high": high, "method": "noised"}


def mean_area(tallies: Sequence[OutputTally], noise: MetricNoise) -> Estimate | None:
    """The mean area under the curve of all outputs; None where a label has too few rows to divide by."""
    areas = [_area(tally, noise) for tally in tallies]
    known = [area for area in areas if area is not None]
    if len(known) < len(areas):
        return None
    count = len(known)
    return Estimate(
        sum(area.value for area in known) / count,
        math.hypot(*(area.noise for area in known)) / count,
        sum(area.sampling for area in known) / count,  # outputs have the same rows, so their errors may all have one sign
    )


def mean_loss(tally: OutputTally, noise: MetricNoise) -> Estimate | None:
    """The mean loss, or squared error in variances of the target, each row's cut; None with too few rows."""
    most = MOST_SQUARE if noise.numbers else MOST_LOSS
    return _mean(tally, noise, "loss", most, tally.sums["squares"])


def share_right(tally: OutputTally, noise: MetricNoise) -> Estimate | None:
    """The accuracy; None with too few rows."""
    return _mean(tally, noise, "right", 1.0, tally.sums["right"])


def _area(tally: OutputTally, noise: MetricNoise) -> Estimate | None:
    negative, positive = tally.counts
    if min(negative, positive) < max(1.0, LEAST_DEVIATIONS * noise.counts):
        return None
    pairs = negative * positive
    area = min(1.0, max(0.0, 0.5 + tally.order / (2 * pairs)))
    of_counts = (area - 0.5) * noise.counts * math.hypot(1 / negative, 1 / positive)
    both_above, both_below = area / (2 - area), 2 * area**2 / (1 + area)
    square = area * (1 - area) + (positive - 1) * (both_above - area**2) + (negative - 1) * (both_below - area**2)
    return Estimate(area, math.hypot(noise.order(tally.reach) / (2 * pairs), of_counts), math.sqrt(max(0.0, square / pairs)))


def _mean(tally: OutputTally, noise: MetricNoise, name: str, most: float, squares: float) -> Estimate | None:
    """The mean over rows of numbers from 0 to ``most``, with the sum of their squares."""
    rows, of_rows = tally.rows, noise.counts * math.sqrt(len(tally.counts))
    if rows < max(1.0, LEAST_DEVIATIONS * of_rows):
        return None
    mean = min(most, max(0.0, tally.sums[name] / rows))
    square = min(most * mean, max(mean**2, squares / rows))  # no other one is possible
    return Estimate(mean, math.hypot(noise.sums[name], mean * of_rows) / rows, math.sqrt((square - mean**2) / rows))
