"""Numbers of one column as a model reads them: what is fitted, applied to any table, undone, and stored as JSON.

Every transform gives finite numbers, bounded and not decreasing in the value; a missing value becomes 0.

``standard``
    (x − mean) / sd, cut off at ±10.
``quantile``
    the normal score of a value's rank among the fitted ones, Φ⁻¹(mid-rank / n), interpolated between at most 257 values.
    So a heavy tail becomes the tail of a normal distribution, and equal values share their middle rank. Beyond the
    fitted range a value has the score of its end, within ±5.4 for up to 10 million fitted values.
``log``
    sign(x)·log(1 + |x| / unit), then as ``standard``, but no fitted value is cut off: the deviation counts as a tenth of the
    largest distance from the mean at least. The unit is the median of |x| over values that are not 0.
``none``
    x itself, cut off at ±2²⁴: up to there float32 has every whole number.

``auto``
    ``standard``, but for columns in which extreme values would decide the standard deviation, so that most values would be
    squeezed into a small part of the range: an excess kurtosis beyond 5, or a value beyond 10 standard deviations. Of these
    a column takes ``log`` if more than half of its values are the same or it has at most 32 distinct ones, because ranks
    say little there, and else ``quantile``. Two values are a flag and stay ``standard``.

Source: van der Waerden 1952 (normal scores); Gorishniy et al. 2021, section 4, quantile transforms for networks on tables.
"""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import NormalDist
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from vfl_node.configuration.models import Frozen
from vfl_node.job.names import Scaling

Floats = NDArray[np.float64]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]

CLIP = 10.0
"""Standardised values beyond this number of standard deviations are cut off, so that one cell cannot dominate a batch."""

MOST_KNOTS = 257
"""Values that a quantile transform keeps: every 256th part of the fitted ones."""

MOST_UNSCALED = float(1 << 24)

FEW_VALUES = 32
"""So few distinct values, or one in more than half of the rows, are too few for ranks."""

HEAVY = 5.0
"""Excess kurtosis beyond which a column is heavy-tailed: normal 0, Laplace 3, exponential 6, log-normal 111."""

FEW = 0.05
"""The part of a column's values, or one of them, that may make all others look alike (:func:`is_squeezed`)."""

LEAST_SPREAD = 0.1
"""Share of the standard deviation, the least that the others must have, or a model hardly sees how they differ."""

_CONSTANT = 1e-12
"""A standard deviation below this share of the largest absolute value is rounding, not variation."""


class Standard(Frozen):
    """Mean 0 and standard deviation 1."""

    method: Literal["standard"] = "standard"
    mean: Finite
    sd: Positive

    @classmethod
    def fit(cls, present: Floats) -> Standard:
        """The transform of finite numbers float64[n]; a column that is constant becomes 0."""
        mean, sd = moments(present)
        return cls(mean=mean, sd=sd or 1.0)

    def apply(self, values: Floats) -> Floats:
        """Scaled float64[n]; missing: 0."""
        with np.errstate(over="ignore"):  # values that overflow are cut off
            scaled = np.clip((values - self.mean) / self.sd, -CLIP, CLIP)
        return np.where(np.isnan(values), 0.0, scaled)

    def undo(self, scaled: Floats) -> Floats:
        """Values float64[n] that are scaled to ``scaled``; infinite where they overflow."""
        with np.errstate(over="ignore"):
            return scaled * self.sd + self.mean


class Quantile(Frozen):
    """Normal scores: ``scores[k]`` for the value ``knots[k]``, straight lines between; no knots: 0 for every value."""

    method: Literal["quantile"] = "quantile"
    knots: tuple[Finite, ...] = Field(max_length=MOST_KNOTS)
    scores: tuple[Finite, ...] = Field(max_length=MOST_KNOTS)

    @model_validator(mode="after")
    def _ascending(self) -> Quantile:
        if len(self.knots) != len(self.scores):
            raise ValueError("a score for each knot")
        for numbers in (self.knots, self.scores):
            if any(one >= other for one, other in pairwise(numbers)):
                raise ValueError("knots and scores ascend")
        return self

    @classmethod
    def fit(cls, present: Floats) -> Quantile:
        """The transform of finite numbers float64[n]. Cost: a sort."""
        ordered = np.sort(present) + 0.0  # −0 is 0
        if len(ordered) == 0:
            return cls(knots=(), scores=())
        knots = np.unique(ordered[np.linspace(0, len(ordered) - 1, MOST_KNOTS).round().astype(np.int64)])
        few = ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])][: MOST_KNOTS + 1]
        if len(few) <= MOST_KNOTS:
            knots = few
        below, up_to = np.searchsorted(ordered, knots, "left"), np.searchsorted(ordered, knots, "right")
        shares = (below + up_to) / (2 * len(ordered))  # inside 0 … 1
        return cls(knots=tuple(knots.tolist()), scores=tuple(map(NormalDist().inv_cdf, shares.tolist())))

    def apply(self, values: Floats) -> Floats:
        """As :meth:`Standard.apply`."""
        return np.where(np.isnan(values), 0.0, _interpolate(np.nan_to_num(values, nan=0.0), self.knots, self.scores))

    def undo(self, scaled: Floats) -> Floats:
        """As :meth:`Standard.undo`, within the fitted range."""
        return _interpolate(scaled, self.scores, self.knots)


class SignedLog(Frozen):
    """Logarithms that keep the sign, with mean 0 and standard deviation 1."""

    method: Literal["log"] = "log"
    unit: Positive
    mean: Finite
    sd: Positive

    @classmethod
    def fit(cls, present: Floats) -> SignedLog:
        """The transform of finite numbers float64[n]."""
        sizes = np.abs(present[present != 0])
        unit = float(np.sort(sizes)[len(sizes) // 2]) if len(sizes) else 1.0
        logs = _signed_log(present, unit)
        mean, sd = moments(logs)
        farthest = float(np.abs(logs - mean).max(initial=0.0))
        return cls(unit=unit, mean=mean, sd=max(sd, farthest / CLIP) if sd else 1.0)

    def apply(self, values: Floats) -> Floats:
        """As :meth:`Standard.apply`."""
        scaled = np.clip((_signed_log(values, self.unit) - self.mean) / self.sd, -CLIP, CLIP)
        return np.where(np.isnan(values), 0.0, scaled)

    def undo(self, scaled: Floats) -> Floats:
        """As :meth:`Standard.undo`."""
        logs = scaled * self.sd + self.mean
        size = np.abs(logs)
        with np.errstate(over="ignore", divide="ignore"):  # log(exp(size) − 1), which does not overflow
            return np.sign(logs) * np.exp(size + np.log(-np.expm1(-size)) + math.log(self.unit))


class Unscaled(Frozen):
    """The numbers themselves, counted from ``start``."""

    method: Literal["none"] = "none"
    start: Finite = 0.0

    def apply(self, values: Floats) -> Floats:
        """As :meth:`Standard.apply`."""
        with np.errstate(over="ignore"):
            return np.where(np.isnan(values), 0.0, np.clip(values - self.start, -MOST_UNSCALED, MOST_UNSCALED))

    def undo(self, scaled: Floats) -> Floats:
        """As :meth:`Standard.undo`."""
        return scaled + self.start


Transform = Annotated[Standard | Quantile | SignedLog | Unscaled, Field(discriminator="method")]


def fit(values: Floats, scaling: Scaling) -> Standard | Quantile | SignedLog | Unscaled:
    """The transform that ``scaling`` asks for.

    Args:
        values: float64[n], finite or NaN, which is missing and left out.
        scaling: its name; ``auto`` chooses by the values.
    """
    present = values[~np.isnan(values)]
    if scaling == "auto":
        scaling = choose_scaling(present)
    if scaling == "none":
        return Unscaled()
    if scaling == "quantile":
        return Quantile.fit(present)
    return SignedLog.fit(present) if scaling == "log" else Standard.fit(present)


def choose_scaling(present: Floats) -> Literal["standard", "quantile", "log"]:
    """What ``auto`` takes for finite numbers float64[n]. Cost: a few passes, and a sort where there are extreme values."""
    mean, sd = moments(present)
    if sd == 0:
        return "standard"
    with np.errstate(over="ignore"):
        scores = (present - mean) / sd
    if np.abs(scores).max() <= CLIP and float(np.square(np.square(scores)).mean()) - 3 <= HEAVY:
        return "standard"
    counts = np.unique(present, return_counts=True)[1]
    if len(counts) <= 2:
        return "standard"
    return "log" if len(counts) <= FEW_VALUES or 2 * counts.max() > len(present) else "quantile"


def is_squeezed(present: Floats) -> bool:
    """Whether ``standard`` would leave hardly any difference between most finite numbers float64[n], because of a few.

    Not if most numbers are equal anyway, nor where ``auto`` takes ``standard``, as of flags. Cost: a partial sort.
    """
    _, sd = moments(present)
    if sd == 0:
        return False
    with np.errstate(over="ignore"):
        distances = np.abs(present - np.median(present))
    most = len(present) - max(1, int(len(present) * FEW))
    _, spread = moments(present[np.argpartition(distances, most - 1)[:most]])
    return 0 < spread < LEAST_SPREAD * sd and choose_scaling(present) != "standard"


def moments(present: Floats) -> tuple[float, float]:
    """Mean and standard deviation of finite numbers float64[n]; 0 for a deviation that is only rounding."""
    if len(present) == 0:
        return 0.0, 0.0
    peak = float(np.abs(present).max()) or 1.0
    shares = present / peak  # within ±1: squares of huge values would overflow
    mean, sd = float(shares.mean()), float(shares.std())
    return mean * peak, 0.0 if sd <= _CONSTANT else sd * peak


def _signed_log(values: Floats, unit: float) -> Floats:
    """sign(x)·log(1 + |x| / unit), without forming the quotient, which may overflow."""
    with np.errstate(divide="ignore", invalid="ignore"):  # 0, and what is missing
        return np.sign(values) * np.logaddexp(0.0, np.log(np.abs(values)) - math.log(unit))


def _interpolate(values: Floats, knots: tuple[float, ...], levels: tuple[float, ...]) -> Floats:
    """``levels[k]`` at ``knots[k]``, straight lines between, and the level of the nearer end beyond; 0 without knots."""
    if not knots:
        return np.zeros(len(values))
    x, y = np.array(knots), np.array(levels)
    if len(x) == 1:
        return np.full(len(values), y[0])
    k = np.clip(np.searchsorted(x, values, "right") - 1, 0, len(x) - 2)
    with np.errstate(divide="ignore", invalid="ignore"):  # halves: a difference of huge numbers would overflow
        part = np.clip((values / 2 - x[k] / 2) / (x[k + 1] / 2 - x[k] / 2), 0, 1)
    part = np.where(np.isnan(part), 0.0, part)  # knots of the smallest numbers there are, whose halves are equal
    level = y[k] * (1 - part) + y[k + 1] * part
    return np.where(values >= x[-1], y[-1], np.clip(level, y[k], y[k + 1]))
