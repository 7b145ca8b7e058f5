"""How good the model is on the held-out shared records, opened as sums with noise.

Scores of rows are never opened: a multiset of scores with labels tells the active party, who knows its part of each score,
which of its records are shared. So a histogram is made in shares (:mod:`vfl_node.crypto.shares.tallies`), of scores by label or
of the errors of predicted numbers, and only what the metrics need of it is opened, each sum with noise that nobody knows
(:mod:`vfl_node.training.shares.metric_noise`). The histogram has a bin for every number that there can be: a model whose scores
are large is measured as it is. ::

    first    how many records there are of each label
    second   pairs in order less pairs in disorder, losses, their squares, how many are right, how many are far off

How much a record changes the pairs depends on the numbers of labels, so noise for the pairs is made for each size that these
may have. The active party knows which one is right, and chooses it in shares: neither the dealer nor another party learns it.

Whatever is counted, the same sums are opened: that there are few records tells nothing.

Source: ours; pairs are those of Mann and Whitney, with ties at half.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import gmpy2
import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.shares.kits import DEALT, Kit
from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.operations import reveal
from vfl_node.crypto.shares.ring import FRACTION, Ring
from vfl_node.crypto.shares.tallies import Level
from vfl_node.crypto.shares.values import Shared
from vfl_node.training.shares.metric_noise import MOST_LOSS, MOST_SQUARE, REACHES, MetricNoise

Weights = tuple[Ring, int]
"""Public integers, uint64[bins, labels], and their fractional bits."""

Scores = Callable[[slice], Awaitable[Shared]]
"""The scores of some of the rows that are measured on, [r, K], with :data:`SCORE_FRACTION` fractional bits."""

BINS = 256
"""Bins of a range of 32: those near 0 are an eighth wide. With scores that vary by 1 or more, the area is within .001."""

ERROR_OFF = 16.0
"""An error of a predicted number counts as far off in a bin that stands for more deviations of the target: at 16 none does, at
18 every one, and between them by a coin."""


@dataclass(frozen=True)
class OutputTally:
    """What is opened of one output on the rows that all parties own: sums with noise.

    Attributes:
        counts: rows of each label, negative ones first; of numbers all rows. Never below 0.
        order: pairs of a positive and a negative row in order, less those in disorder; 0 of numbers.
        reach: how much a record changes that at most; 0 of numbers.
        sums: those that are opened of ``loss``, −log p of the labels or squared errors; ``squares`` of these; ``right``, rows
            on the right side of the threshold; ``beyond``, rows whose score is far off, or whose error is beyond ±17, about.
    """

    counts: tuple[int, ...]
    order: int
    reach: int
    sums: Mapping[str, float]

    @property
    def rows(self) -> int:
        """Rows of both labels together."""
        return sum(self.counts)


async def tally(
    machine: ShareMachine,
    score: Scores,
    targets: Ring,
    owned: Any,
    noise: MetricNoise,
    *,
    far_score: int,
    bins: int = BINS,
    threshold: float = 0.5,
    to: int | None = None,
    kit: Kit = DEALT,
) -> list[OutputTally]:
    """The sums of each output, on held-out rows.

    Args:
        machine: of whoever runs it; the dealer gets nonsense, and so do parties that sums are not opened to.
        score: the model's scores of some of the held-out rows.
        targets: uint64[n, K] at the active party: 0 and 1, or numbers with :data:`FRACTION` fractional bits; zeros at others.
        owned: which rows all parties own, as :meth:`~vfl_node.crypto.shares.kits.Kit.gate`.
        noise: of the sums.
        far_score: scores of classes count as beyond in bins that stand for more; the first of
            :attr:`~vfl_node.training.shares.config.SharesConfig.far_scores`.
        bins: of the histogram.
        threshold: probability from which on label 1 is predicted.
        to: place of the only party that sums are opened to; None: all.
        kit: whose randomness it is.

    Leaks: what :class:`OutputTally` has, μ-private.
    """
    outputs, levels = noise.outputs, kit.levels(bins)
    stands = np.concatenate([level.kept for level in levels])
    total: Sequence[Shared] = ()
    count, at_once = len(targets), kit.rows_counted(bins, outputs)
    for first in range(0, count, at_once):
        rows = slice(first, first + at_once)
        z = await score(rows)
        if noise.numbers:
            z = z - Shared(targets[rows], FRACTION).times(1 << (z.fraction - FRACTION), z.fraction - FRACTION)
        counted = await kit.count(machine, z, None if noise.numbers else targets[rows], owned[rows], bins)
        total = [one + more for one, more in zip(total, counted, strict=True)] if total else counted
    order = np.argsort(stands, kind="stable")
    added = Shared(np.stack([counts.part[order] for counts in total]), 0)
    histogram = await kit.settle(machine, added, labelled=not noise.numbers)
    far = min(ERROR_OFF if noise.numbers else far_score, kit.told_apart)
    weights = _weights(tuple(levels), threshold, far, noise.numbers)
    sums = {name: _weigh(histogram, *weights[name]) for name in noise.sums}
    return await _open_sums(machine, kit, histogram, sums, noise, to)


async def _open_sums(
    machine: ShareMachine, kit: Kit, histogram: Shared, sums: Mapping[str, Shared], noise: MetricNoise, to: int | None
) -> list[OutputTally]:
    """The sums that are opened of histograms, [K, bins, labels], whose bins stand for numbers that ascend."""
    outputs, _, labels = histogram.shape
    of_counts = await _add_noise(machine, kit, {"counts": histogram.sum(1)}, {"counts": noise.counts})
    counts = [tuple(max(0, int(count)) for count in each) for each in (await _reveal_sums(machine, of_counts, to))["counts"]]
    reaches = [noise.reach(each) if labels > 1 else 0 for each in counts]
    noisy = await _add_noise(machine, kit, sums, noise.sums)
    if labels > 1:
        deviations, chosen = [noise.order(reach) for reach in REACHES], [REACHES.index(reach) for reach in reaches]
        noisy["order"] = await _count_pairs(machine, kit, histogram) + await kit.pick_noise(machine, deviations, chosen)
    opened = await _reveal_sums(machine, noisy, to)
    order = opened.pop("order", np.zeros(outputs, np.int64))
    return [
        OutputTally(
            counts[k],
            int(order[k]),
            reaches[k],
            {name: float(totals[k]) * 2.0 ** -noisy[name].fraction for name, totals in opened.items()},
        )
        for k in range(outputs)
    ]


async def _add_noise(
    machine: ShareMachine, kit: Kit, sums: Mapping[str, Shared], deviations: Mapping[str, float]
) -> dict[str, Shared]:
    """The same ``sums``, each with noise of its standard deviation."""
    drawn = await machine.run(*(kit.draw_noise(total.shape, deviations[name], total.fraction) for name, total in sums.items()))
    return {name: total + noise for (name, total), noise in zip(sums.items(), drawn, strict=True)}


async def _reveal_sums(machine: ShareMachine, sums: Mapping[str, Shared], to: int | None) -> dict[str, NDArray[np.int64]]:
    """All of them in one round, as integers; zeros where they are not opened."""
    opened = await machine.run(*(reveal(total, to) for total in sums.values()))
    return {name: total.view(np.int64) for name, total in zip(sums, opened, strict=True)}


async def _count_pairs(machine: ShareMachine, kit: Kit, histogram: Shared) -> Shared:
    """For each positive row the negative ones below it less those above it: [K]."""
    negative, positive = histogram[:, :, 0], histogram[:, :, 1]
    upward = np.cumsum(negative.part, axis=1, dtype=np.uint64)
    below = Shared(2 * upward - negative.part - upward[:, -1:], 0)
    return (await kit.multiply(machine, positive, below)).sum(1)


def _weigh(histogram: Shared, weights: Ring, fraction: int) -> Shared:
    """The sum of histograms times public integers with fractional bits, uint64[bins, labels]: [K]."""
    return Shared((histogram.part * weights).sum(axis=(1, 2), dtype=np.uint64), fraction)


@lru_cache(maxsize=16)
def _weights(levels: Sequence[Level], threshold: float, most: float, numbers: bool) -> dict[str, Weights]:
    """What a row counts in each sum, by bin in ascending order, and label: the same integers on every machine."""
    *wider, finest = levels
    z = np.sort(np.concatenate([level.kept for level in (*wider, finest)]))
    if numbers:  # less what the coins of the bins add, in whole steps, so that the range is what it was
        loss = np.minimum(z**2, MOST_SQUARE)[:, None] - np.ldexp(np.rint(np.ldexp(finest.width**2 / 6, FRACTION)), -FRACTION)
    else:
        with gmpy2.context(precision=128):
            loss = np.array([[float(gmpy2.log1p(gmpy2.exp(sign * score))) for sign in (1, -1)] for score in z.tolist()])
        loss = np.minimum(loss, MOST_LOSS)
    least = float(gmpy2.log(threshold / (1 - threshold)))
    upper, labels = z > least, loss.shape[1]
    far_off = np.abs(z) > most
    found = {
        "loss": (np.rint(np.ldexp(loss, FRACTION)), FRACTION),
        "squares": (np.rint(np.ldexp(loss**2, FRACTION)), FRACTION),
        "right": (np.stack([~upper, upper], axis=1)[:, :labels], 0),
        "beyond": (np.stack([far_off] * labels, axis=1), 0),
    }
    return {name: (counts.astype(np.int64).view(np.uint64), fraction) for name, (counts, fraction) in found.items()}
