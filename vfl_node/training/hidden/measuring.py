"""How good the model is on the held-out shared records, opened as sums only.

Scores of rows are never opened: a multiset of scores with labels tells the active party, who knows its part of each score,
which of its records are shared. So a histogram of scores by label is made in shares (:mod:`vfl_node.crypto.shares.tallies`),
and only what the metrics need of it is opened: the numbers of both labels, the area under the curve as one integer, the sum of
losses, how many are right, and how many are far off. The histogram has a bin for every score that there can be: a model whose
scores are large is measured as it is.

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
from vfl_node.crypto.shares.tallies import FAR_BINS, Level, far, rows_at_once, sifted
from vfl_node.crypto.shares.values import KnownToOne, Opened, Shared
from vfl_node.training.hidden.network import SCORE_FRACTION, SharedModel, scores

BINS = 256
"""Of a range of 32, so that bins near 0 are an eighth wide. With scores that vary by 1 or more, the area is within .001."""

STEPS = 1 << 10
"""A sum over n rows is opened in steps of n / STEPS: what a single row adds is lost in them, if rows are many."""

SQUARE_FRACTION = 9
"""Of an error that is squared: with more, a sum of so large ones over some millions of rows would leave the ring."""

OFF = 24.0
"""A score counts as beyond what the sines are good for (:data:`~vfl_node.crypto.shares.sines.VALID`) in a bin that stands for
more: at 24 no row does, at 32 every one, and between them by a coin."""

DIVERGED = 2.0**14
"""A mean loss, or error, of a model whose scores may have left the ring: what was counted is then no metric."""


def score_levels(bins: int) -> tuple[Level, ...]:
    """Of a histogram of scores: bins of 32/``bins`` near 0, beyond ±4 to ±6 of 2, beyond ±16 to ±24 of 8, and so on."""
    return (*far(SCORE_FRACTION), Level(6, FAR_BINS, inner=4.0), Level(4, bins // 2))


ERROR_LEVELS = (*far(SCORE_FRACTION), Level(6, FAR_BINS, inner=16.0))
"""Of errors of a model for numbers, down to ±16 to ±18."""

DISTANT = 4
"""How many of these levels stand for squares, too: within ±1,024 to ±1,536 errors are squared as they are."""


@dataclass(frozen=True)
class OutputTally:
    """What is opened of one output on the rows that all parties own.

    Attributes:
        positive: rows with label 1.
        negative: rows with label 0.
        ordered: twice the number of pairs in order; ties count once.
        loss: sum of −log p of the labels.
        right: rows on the right side of the threshold.
        beyond: rows whose score is beyond ±28, about (:data:`OFF`).
    """

    positive: int
    negative: int
    ordered: int
    loss: float
    right: int
    beyond: int = 0

    @property
    def rows(self) -> int:
        """Of both labels."""
        return self.positive + self.negative

    @property
    def diverged(self) -> bool:
        """Whether scores may have left the ring (:data:`DIVERGED`): then there are no metrics."""
        return not 0 <= self.loss <= DIVERGED * max(self.rows, 1)

    @property
    def auc(self) -> float | None:
        """None where there is one label only."""
        pairs = self.positive * self.negative
        return self.ordered / (2 * pairs) if pairs and not self.diverged else None

    @property
    def nll(self) -> float | None:
        """Mean loss; None without rows."""
        return self.loss / self.rows if self.rows and not self.diverged else None

    @property
    def accuracy(self) -> float | None:
        """Share of rows; None without any."""
        return self.right / self.rows if self.rows and not self.diverged else None


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
    outputs, levels = model.form.outputs, score_levels(bins)
    stands = np.concatenate([level.kept for level in levels])
    total = [Shared(np.zeros((len(stands), 2), np.uint64), 0)] * outputs
    count, at_once = columns[0].part.shape[0], rows_at_once(bins, outputs)
    for first in range(0, count, at_once):
        rows = slice(first, first + at_once)
        z = await scores(machine, model, [of[rows] for of in columns])
        (labels,) = await machine.run(masked(Shared(targets[rows], 0)))
        (positive,) = await machine.run(product(labels, both[rows], "numbers"))
        negative = _share(machine, both[rows], outputs) - positive
        amounts = [Shared(np.stack([of.part[:, k] for of in (negative, positive)], axis=1), 0) for k in range(outputs)]
        found, _ = await sifted(machine, [z[:, k] for k in range(outputs)], amounts, levels)
        total = [one + more for one, more in zip(total, found, strict=True)]
    least = float(gmpy2.log(threshold / (1 - threshold)))
    order = np.argsort(stands, kind="stable")
    return [await _opened(machine, of[order], stands[order], least, about, to) for of in total]


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
    error = z - Shared(targets, FRACTION).times(1 << (z.fraction - FRACTION), z.fraction - FRACTION)
    genuine, distant, near = _share(machine, both, 1), ERROR_LEVELS[:DISTANT], ERROR_LEVELS[DISTANT:]
    squares = np.concatenate([level.kept**2 - level.width**2 / 6 for level in distant])  # less what the coins add
    outside, beyond = Shared(np.zeros((len(squares), 1), np.uint64), 0), Shared(np.zeros(1, np.uint64), 0)
    inside = Shared(np.zeros(1, np.uint64), 2 * SQUARE_FRACTION)
    count, at_once = z.shape[0], rows_at_once(FAR_BINS)
    for first in range(0, count, at_once):
        rows = slice(first, first + at_once)
        (found,), (left,) = await sifted(machine, [error[rows, 0]], [genuine[rows]], distant)
        (nearer,), _ = await sifted(machine, [error[rows, 0]], [left], near)
        (cut,) = await machine.run(truncated(error[rows], error.fraction - SQUARE_FRACTION))
        shown, weights = await machine.run(masked(cut), masked(left))
        (of_error,) = await machine.run(product(shown, weights, "numbers"))
        (weighed,) = await machine.run(masked(of_error))
        (each,) = await machine.run(product(shown, weighed, "numbers"))
        inside, outside, beyond = inside + each.summed(0), outside + found, beyond + found.summed(0) + nearer.summed(0)
    (cut,) = await machine.run(truncated(inside, inside.fraction - _square_bits(count)))
    far_off = _weighed(outside, np.rint(np.ldexp(squares, cut.fraction)).astype(np.uint64), cut.fraction)
    sums = [genuine.summed(0), await _rounded(machine, cut + far_off, about), beyond]
    opened = await machine.run(*(revealed(of, to) for of in sums))
    shared, errors, off = (float(decode(value, of.fraction)[0]) for value, of in zip(opened, sums, strict=True))
    return NumberSums(round(shared), errors, round(off))


def _square_bits(rows: int) -> int:
    """Fractional bits of a sum of so many squares, with which it stays in the ring however large errors are."""
    return max(1, min(12, 24 - rows.bit_length()))


async def _rounded(machine: ShareMachine, total: Shared, about: float) -> Shared:
    """A sum over ``about`` so many rows, in steps of a :data:`STEPS`-th of that; of 2⁻¹⁰, or two of its own, at least."""
    bits = max(1, total.fraction - min(10, -math.floor(math.log2(max(about, 1.0) / STEPS))))
    (cut,) = await machine.run(truncated(total, bits))
    return cut


def _weighed(histogram: Shared, weights: Ring, fraction: int) -> Shared:
    """The sum of a histogram, [bins, 1], times public integers with fractional bits, uint64[bins]: [1]."""
    return Shared((histogram.part * weights[:, None]).sum(axis=0, dtype=np.uint64), fraction)


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

    @property
    def diverged(self) -> bool:
        """Whether errors may have left the ring (:data:`DIVERGED`): then there are no metrics."""
        return not 0 <= self.errors <= DIVERGED**2 * max(self.rows, 1)


@cache
def _losses(score: tuple[float, ...]) -> tuple[Ring, Ring]:
    """−log p of both labels at each score: integers, the same on every machine, since they multiply shares."""
    with gmpy2.context(precision=128):
        each = [[gmpy2.log1p(gmpy2.exp(sign * z)) for z in score] for sign in (1, -1)]
        integers = [[int(gmpy2.rint(loss * (1 << FRACTION))) for loss in of] for of in each]
    return np.array(integers[0], np.uint64), np.array(integers[1], np.uint64)


def _share(machine: ShareMachine, opened: Opened, columns: int) -> Shared:
    """An opened value as shares again, repeated so many times side by side."""
    part = opened.mask + opened.difference if machine.place == 0 else opened.mask
    return Shared(np.repeat(part, columns, axis=1) if machine.place >= 0 else np.zeros((len(part), columns), np.uint64), 0)


async def _opened(
    machine: ShareMachine, histogram: Shared, score: np.ndarray, least: float, about: float, to: int | None
) -> OutputTally:
    """Sums of a histogram whose bins stand for ``score``, which ascends; label 1 is predicted above ``least``."""
    negative, positive = histogram[:, :1], histogram[:, 1:]
    below = Shared(2 * (np.cumsum(negative.part, axis=0, dtype=np.uint64) - negative.part) + negative.part, 0)
    left, right = await machine.run(masked(positive), masked(below))
    (pairs,) = await machine.run(product(left, right, "numbers"))
    of_negative, of_positive = _losses(tuple(score.tolist()))
    losses = _weighed(negative, of_negative, FRACTION) + _weighed(positive, of_positive, FRACTION)
    loss = await _rounded(machine, losses, about)
    upper, far_off = score > least, np.abs(score) > OFF
    right_side = positive[upper].summed(0) + negative[~upper].summed(0)
    beyond = (positive + negative)[far_off].summed(0)
    sums = [of.summed(0) for of in (positive, negative, pairs)]
    opened = await machine.run(*(revealed(of, to) for of in (*sums, beyond, loss, right_side)))
    plus, minus, ordered, many, total, correct = (int(of.view(np.int64)[0]) for of in opened)
    return OutputTally(plus, minus, ordered, total * 2.0**-loss.fraction, correct, many)
