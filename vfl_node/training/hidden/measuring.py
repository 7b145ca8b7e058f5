"""How good the model is on the held-out shared records, opened as sums only.

Scores of rows are never opened: a multiset of scores with labels tells the active party, who knows its part of each score,
which of its records are shared. So a histogram of scores by label is made in shares (:mod:`vfl_node.crypto.shares.tallies`),
and only what the metrics need of it is opened: the numbers of both labels, the area under the curve as one integer, the sum of
losses, and how many are right.

Source: ours; the area is that of Mann and Whitney, with ties at half.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import gmpy2
import numpy as np

from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.operations import masked, product, revealed, truncated
from vfl_node.crypto.shares.ring import FRACTION, Ring, decode
from vfl_node.crypto.shares.tallies import centres, rows_at_once, tallied
from vfl_node.crypto.shares.values import KnownToOne, Opened, Shared
from vfl_node.training.hidden.network import SharedModel, scores

BINS = 256
"""Of the histogram. With scores that vary by 1 or more the area is within .001."""

STEPS = 1 << 10
"""A sum over n rows is opened in steps of n / STEPS: what a single row adds is lost in them, if rows are many."""

WIDE_BITS, WIDE_BINS = 7, 32
"""Of a second histogram, over ±64, which shows scores that the first one and the sines do not see.

A score beyond ±64 falls into the bin of what it is modulo 128, so one of four is missed.
"""


@dataclass(frozen=True)
class OutputTally:
    """What is opened of one output on the rows that all parties own.

    Attributes:
        positive: rows with label 1.
        negative: rows with label 0.
        ordered: twice the number of pairs in order; ties count once.
        loss: sum of −log p of the labels.
        right: rows on the right side of the threshold.
        beyond: rows whose score is beyond ±16, about; they count as if it were within.
    """

    positive: int
    negative: int
    ordered: int
    loss: float
    right: int
    beyond: int = 0

    @property
    def auc(self) -> float | None:
        """None where there is one label only."""
        pairs = self.positive * self.negative
        return self.ordered / (2 * pairs) if pairs else None

    @property
    def nll(self) -> float | None:
        """Mean loss; None without rows."""
        return self.loss / (self.positive + self.negative) if self.positive + self.negative else None

    @property
    def accuracy(self) -> float | None:
        """Share of rows; None without any."""
        return self.right / (self.positive + self.negative) if self.positive + self.negative else None


async def tally(
    machine: ShareMachine,
    model: SharedModel,
    columns: Sequence[KnownToOne],
    targets: Ring,
    both: Opened,
    about: float,
    *,
    bins: int = BINS,
    threshold: float = 0.5,
    to: int | None = None,
) -> list[OutputTally]:
    """Of each output, on held-out rows.

    Args:
        machine: of whoever runs it; the dealer gets nonsense, and so do parties that sums are not opened to.
        model: trained.
        columns: of the held-out rows, party by party.
        targets: uint64[n, K] of 0 and 1 at the active party, zeros at others.
        both: w of the rows.
        about: how many of them all parties own, about.
        bins: of the histogram.
        threshold: probability from which on label 1 is predicted.
        to: place of the only party that sums are opened to; None: all.
    """
    outputs = model.form.outputs
    total = [Shared(np.zeros((bins, 2), np.uint64), 0)] * outputs
    wide = [Shared(np.zeros((WIDE_BINS, 1), np.uint64), 0)] * outputs
    count, at_once = columns[0].part.shape[0], rows_at_once(bins, outputs)
    for first in range(0, count, at_once):
        rows = slice(first, first + at_once)
        z = await scores(machine, model, [of[rows] for of in columns])
        (labels,) = await machine.run(masked(Shared(targets[rows], 0)))
        (positive,) = await machine.run(product(labels, both[rows], "numbers"))
        genuine = _share(machine, both[rows], outputs)
        amounts = [
            Shared(np.stack([of.part[:, k] for of in (genuine - positive, positive)], axis=1), 0) for k in range(outputs)
        ]
        each = [tallied(z[:, k], amounts[k], bins) for k in range(outputs)]
        made = await machine.run(
            *each, *(tallied(z[:, k], genuine[:, k : k + 1], WIDE_BINS, WIDE_BITS) for k in range(outputs))
        )
        total = [one + more for one, more in zip(total, made[:outputs], strict=True)]
        wide = [one + more for one, more in zip(wide, made[outputs:], strict=True)]
    least = float(gmpy2.log(threshold / (1 - threshold)))
    return [await _opened(machine, *of, centres(bins), least, about, to) for of in zip(total, wide, strict=True)]


async def squared_errors(
    machine: ShareMachine,
    model: SharedModel,
    columns: Sequence[KnownToOne],
    targets: Ring,
    both: Opened,
    about: float,
    to: int | None = None,
) -> NumberSums:
    """The sums of a model for numbers on held-out rows.

    Args:
        machine: as for :func:`tally`.
        model: trained.
        columns: of the held-out rows, party by party.
        targets: uint64[n, 1] at the active party, with :data:`FRACTION` fractional bits; zeros at others.
        both: w of the rows.
        about: how many of them all parties own, about.
        to: as for :func:`tally`.
    """
    z = await scores(machine, model, columns)
    y = Shared(targets, FRACTION)
    (cut,) = await machine.run(
        truncated(z - y.times(1 << (z.fraction - FRACTION), z.fraction - FRACTION), z.fraction - FRACTION)
    )
    (error,) = await machine.run(masked(cut))
    (of_error,) = await machine.run(product(error, both, "numbers"))
    (weighed,) = await machine.run(masked(of_error))
    (squares,) = await machine.run(product(error, weighed, "numbers"))
    genuine = _share(machine, both, 1)
    wide = Shared(np.zeros((WIDE_BINS, 1), np.uint64), 0)
    at_once = rows_at_once(WIDE_BINS)
    for first in range(0, z.shape[0], at_once):
        rows = slice(first, first + at_once)
        (some,) = await machine.run(tallied(cut[rows, 0], genuine[rows], WIDE_BINS, WIDE_BITS))
        wide = wide + some
    sums = [genuine.summed(0), await _rounded(machine, squares.summed(0), about), _far(wide)]
    opened = await machine.run(*(revealed(of, to) for of in sums))
    count, errors, beyond = (float(decode(value, of.fraction)[0]) for value, of in zip(opened, sums, strict=True))
    return NumberSums(round(count), errors, round(beyond))


async def _rounded(machine: ShareMachine, total: Shared, about: float) -> Shared:
    """A sum over ``about`` so many rows, in steps of a :data:`STEPS`-th of that, or of 2⁻¹⁰ if that is more."""
    bits = total.fraction - min(10, -math.floor(math.log2(max(about, 1.0) / STEPS)))
    (cut,) = await machine.run(truncated(total, bits))
    return cut


def _far(wide: Shared) -> Shared:
    """How much of a wide histogram, [bins, 1], is beyond ±16: [1]."""
    far = wide[:, 0][np.abs(np.arange(WIDE_BINS) + 1 - WIDE_BINS / 2) > WIDE_BINS / 8]  # by what bins stand for
    return Shared(far.part.sum(keepdims=True, dtype=np.uint64), 0)


@dataclass(frozen=True)
class NumberSums:
    """What is opened of a model for numbers on the rows that all parties own; numbers are scaled targets.

    Attributes:
        rows: how many these are.
        errors: Σ (z − y)², rounded (:data:`STEPS`).
        beyond: rows whose error is beyond ±16, about.
    """

    rows: int
    errors: float
    beyond: int


@cache
def _losses(bins: int) -> tuple[Ring, Ring]:
    """−log p of both labels in each bin: integers, the same on every machine, since they multiply shares."""
    with gmpy2.context(precision=128):
        each = [[gmpy2.log1p(gmpy2.exp(sign * z)) for z in centres(bins).tolist()] for sign in (1, -1)]
        integers = [[int(gmpy2.rint(loss * (1 << FRACTION))) for loss in of] for of in each]
    return np.array(integers[0], np.uint64), np.array(integers[1], np.uint64)


def _share(machine: ShareMachine, opened: Opened, columns: int) -> Shared:
    """An opened value as shares again, repeated so many times side by side."""
    part = opened.mask + opened.difference if machine.place == 0 else opened.mask
    return Shared(np.repeat(part, columns, axis=1) if machine.place >= 0 else np.zeros((len(part), columns), np.uint64), 0)


async def _opened(
    machine: ShareMachine, histogram: Shared, wide: Shared, score: np.ndarray, least: float, about: float, to: int | None
) -> OutputTally:
    """Sums of a histogram whose bins stand for ``score``, and of a wide one; label 1 is predicted above ``least``."""
    negative, positive = histogram[:, 0], histogram[:, 1]
    below = Shared(2 * (np.cumsum(negative.part, dtype=np.uint64) - negative.part) + negative.part, 0)
    left, right = await machine.run(masked(positive), masked(below))
    (pairs,) = await machine.run(product(left, right, "numbers"))
    of_negative, of_positive = _losses(len(score))
    losses = of_negative * negative.part + of_positive * positive.part
    loss = await _rounded(machine, Shared(losses.sum(keepdims=True, dtype=np.uint64), FRACTION), about)
    upper = score > least
    right_side = Shared(positive.part[upper].sum(keepdims=True) + negative.part[~upper].sum(keepdims=True), 0)
    sums = [Shared(of.part.sum(keepdims=True, dtype=np.uint64), 0) for of in (positive, negative, pairs)]
    opened = await machine.run(*(revealed(of, to) for of in (*sums, _far(wide), loss, right_side)))
    plus, minus, ordered, beyond, total, correct = (int(of.view(np.int64)[0]) for of in opened)
    return OutputTally(plus, minus, ordered, total * 2.0**-loss.fraction, correct, beyond)
