"""What a training in shares begins with: what everybody knows of it, and what one party brings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.shares.ring import Ring
from vfl_node.process import failpoints
from vfl_node.training.hidden.bound import row_norm
from vfl_node.training.hidden.descent import Descent
from vfl_node.training.hidden.layout import BlockLayout
from vfl_node.training.hidden.memory import ROWS_AT_ONCE
from vfl_node.training.hidden.network import MANTISSA_BITS, Form
from vfl_node.training.hidden.rates import Rates
from vfl_node.training.schedule import Schedule
from vfl_node.training.shares.metric_noise import MetricNoise

Positions = NDArray[np.int64]


@dataclass(frozen=True)
class HiddenPlan:
    """What everybody knows of a training, the dealer too.

    Attributes:
        form: of the model.
        rows: length of the shared order, m.
        schedule: of batches.
        training: positions trained on.
        testing: positions measured on; none if nothing is measured.
        descent: how many epochs, how fast, and with how much noise.
        batch_rows: shared rows of a step.
        divisor: of a sum over these: how many of them all parties own, about.
        weight_decay: λ.
        bins: of the histogram.
        reveals: whether weights are opened to their owners.
        metric_noise: of the sums that metrics are made of; None where nothing is measured.
        threshold: probability from which on label 1 is predicted.
        told: whether passive parties get the metrics, too.
        audits: whether some of what the dealer deals is checked.
        at_once: as :func:`~vfl_node.training.hidden.network.step`.
        layout: of rows in blocks, where there is no dealer: ``training`` and ``testing`` are positions in it.
    """

    form: Form
    rows: int
    schedule: Schedule
    training: Positions
    testing: Positions
    descent: Descent
    batch_rows: int
    divisor: float
    weight_decay: float
    bins: int
    reveals: bool
    metric_noise: MetricNoise | None = None
    threshold: float = 0.5
    told: bool = False
    audits: bool = False
    at_once: int = ROWS_AT_ONCE
    layout: BlockLayout | None = None

    @property
    def epochs(self) -> int:
        """How many: with noise each is a step."""
        return self.descent.steps

    def batches(self, epoch: int) -> list[Positions]:
        """Those of an epoch, all of one size; the rows left over wait for the next. With noise there is one, of all rows."""
        if self.layout:
            return self.layout.batches(self.schedule, epoch, self.batch_rows)
        if self.batch_rows == len(self.training):
            failpoints.reach("batches")
            return [self.training]
        batches = self.schedule.batches(0, epoch, self.training, self.batch_rows)
        return [batch for batch in batches if len(batch) == self.batch_rows]

    @property
    def length(self) -> int:
        """How many rows there are in the order that is computed in."""
        return len(self.layout) if self.layout else self.rows

    @property
    def records(self) -> float:
        """How many of the rows trained on all parties own, about."""
        return len(self.training) * self.divisor / self.batch_rows

    @property
    def noise_of_weight(self) -> float | None:
        """Standard deviation that noise gives a weight."""
        noise = self.descent.noise
        return None if noise is None else noise / row_norm(len(self.form.widths))

    @property
    def rates(self) -> Rates:
        """The rates of every step."""
        bits = MANTISSA_BITS[self.form.loss]
        return Rates.from_rate(self.descent.rate, self.divisor, self.descent.momentum, self.weight_decay, bits)


@dataclass(frozen=True, eq=False)
class Own:
    """What one party brings.

    Attributes:
        columns: uint64[m, d], 0 where a row is not its own.
        bits: uint64[m, 1], 1 where it is.
        targets: uint64[m, K] with 2·:data:`FRACTION` fractional bits at the active party, 0 where a row is not its own; zeros
            at others.
    """

    columns: Ring
    bits: Ring
    targets: Ring

    def lay_out(self, layout: BlockLayout) -> Own:
        """The same in blocks."""
        return Own(layout.lay_out(self.columns), layout.lay_out(self.bits), layout.lay_out(self.targets))


@dataclass(frozen=True, eq=False)
class WeightShares:
    """A party's shares of all weights and velocities: what a checkpoint has.

    Attributes:
        weights: in the order of the form's shapes.
        velocity: of each.
        origin: what weights began with, which no checkpoint has; empty: what they are.
    """

    weights: tuple[Ring, ...]
    velocity: tuple[Ring, ...]
    origin: tuple[Ring, ...] = ()
