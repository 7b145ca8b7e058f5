"""What everybody knows of a training of trees, the dealer too: shapes, and how many bits numbers have."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import ceil, log2
from typing import Literal

from vfl_node.crypto.shares.functions import Guess
from vfl_node.crypto.shares.ring import FRACTION
from vfl_node.crypto.shares.steps import RANGE_BITS

VALUE_FRACTION = 20
"""Fractional bits of the values of nodes."""

SCORE_FRACTION = FRACTION
"""Fractional bits of scores."""

CURVE_FLOOR = 2.0**-9
"""What is added to each hessian of classes: so the value of a node is never beyond 2⁹, whatever the scores are."""

MOST_LEAF = 1.0
"""Largest value of a leaf of classes, once it is multiplied by η: scores stay where the series is a sigmoid."""

_MOST_VALUE_BITS = 9
PLACE_BITS = 32
"""Scores count modulo 2^PLACE_BITS, and so does what says in which node a row is."""

_MOST_FRACTION = 14
_GAIN_FRACTION = 8
NOISED_BELOW = 1 << 30
"""How far a sum of hessians with noise may be below 0: noise has no sign, nor has the slope of a sum of sines far out."""

_SUM_BITS = 30  # of the sums of gradients
_LEAST_NOISED_FRACTION = 8  # of g with noise: what rounding moves is covered
_OF_NOISE = 8.0  # deviations of the noise, for which sums have room
_STEPS_BITS = 10  # of a gain as large as the number of rows
_SPREAD = 1.05  # what rounding and the series may add to a sum of hessians
_FAR_OFF = 6.0  # deviations of the noise, for which thresholds have room
FAR = 8.0
"""Up to where targets and scores of a regression are apart, in deviations."""


def gain_step_bits(rows: int) -> int:
    """log₂ of a 1,024th of so many rows, about."""
    return ceil(log2(rows * 1.01)) - _STEPS_BITS


@dataclass(frozen=True)
class TreesPlan:
    """The shapes of a training.

    Attributes:
        rows: length of the shared order, n.
        widths: candidates of each party, in the order of the job.
        trees: how many.
        depth: levels of splits of each.
        rate: η.
        l2: λ.
        min_gain: of a split.
        least_rows: shared records that lie on each side of a split at least.
        loss: ``log`` of classes, ``squares`` of numbers in deviations.
        outputs: K, trees of a round: one for two classes and for a number, else one a class.
        at_once: how many of these grow side by side, in the same messages.
        deviation: σ of the noise in the sum of gradients of each leaf (:mod:`.noised`); None: there is none.
    """

    rows: int
    widths: tuple[int, ...]
    trees: int
    depth: int
    rate: float
    l2: float
    min_gain: float
    least_rows: int
    loss: Literal["log", "squares"] = "log"
    outputs: int = 1
    at_once: int = 1
    deviation: float | None = None

    @property
    def groups(self) -> list[slice]:
        """Which trees of a round grow side by side."""
        return [slice(first, min(first + self.at_once, self.outputs)) for first in range(0, self.outputs, self.at_once)]

    @property
    def width(self) -> int:
        """W, candidates of all parties; the place of the dummy that splits nothing."""
        return sum(self.widths)

    @property
    def index_bits(self) -> int:
        """Bits of a candidate's number, the dummy included."""
        return ceil(log2(self.width + 1))

    @property
    def gradient_fraction(self) -> int:
        """Fractional bits of g: as many as let sums over all rows stay below 2³⁰, with noise too.

        With noise they are 8 at least. Noise without room for it could make a leaf wrong, which tells nothing.
        """
        bits = min(_MOST_FRACTION, _SUM_BITS - self._sum_bits - (0 if self.loss == "log" else ceil(log2(FAR))))
        return bits if self.deviation is None else max(_LEAST_NOISED_FRACTION, bits)

    @property
    def hessian_fraction(self) -> int:
        """Fractional bits of h: as many as let sums of ¼ a row stay below 2³⁰. With noise one less: of ½ a row, either way."""
        if self.deviation is not None:
            return min(_MOST_FRACTION, self.gradient_fraction + 1)
        return min(_MOST_FRACTION, _SUM_BITS - self._row_bits + (2 if self.loss == "log" else 0))

    @property
    def gain_fraction(self) -> int:
        """Fractional bits of a gain: as many as let gain and number be compared as one. A gain is below 2⁹·n."""
        return max(0, min(_GAIN_FRACTION, RANGE_BITS - 2 - self._row_bits - _MOST_VALUE_BITS - self.index_bits))

    @property
    def gain_step_bits(self) -> int:
        """log₂ of the steps to which gains of columns are rounded before they are opened."""
        return gain_step_bits(self.rows)

    @property
    def least_hessian(self) -> float:
        """The sum of hessians that proves ``least_rows``: of a row it is ¼ and the floor at most, and of numbers 1."""
        return self.least_rows * self._most_of_row

    @cached_property
    def guess(self) -> Guess:
        """Thresholds of the sums of hessians and λ; below the first one a side has too few rows.

        With noise there is no least number of rows: a sum that noise makes negative is below the first one.
        """
        most = self.rows * self._most_of_row * _SPREAD + self.l2
        if self.deviation is None:
            return Guess.from_range(self.least_hessian + self.l2, most, self.hessian_fraction)
        return Guess.from_range(self.l2, most + _FAR_OFF * self.deviation, self.hessian_fraction, NOISED_BELOW)

    @property
    def _most_of_row(self) -> float:
        return 0.25 + CURVE_FLOOR if self.loss == "log" else 1.0

    @property
    def _row_bits(self) -> int:
        return ceil(log2(self.rows * 1.01))

    @property
    def _sum_bits(self) -> int:
        return ceil(log2(self.rows * 1.01 + _OF_NOISE * (self.deviation or 0.0)))
