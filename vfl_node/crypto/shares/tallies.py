"""A histogram of secret numbers, in shares: how much falls into each bin, without anybody seeing a number.

One range (:func:`tally`)
---------------------------

A number z is opened under a mask r, modulo the range of the bins. The dealer shares for each row a vector that is 1 at the bin
of r and 0 elsewhere; turned by the bin of the opened difference it is 1 at the bin of z, or at the one below it. A row counts
by secret amounts t, opened under masks s as τ = t − s: the dealer shares the same vector times s, too ::

    row's share of the histogram = turn(v·τ + v·s, bin of z − r)        v = 1 at the bin of r

Which of the two bins it is, is a coin whose odds are where z lies between them: on average z counts in the right place.

All ranges (:func:`sift`)
---------------------------
A number beyond the range would count in a wrong bin. So the first range is the whole ring, beyond which there is no number,
and each one after it is smaller. A row's amounts go on to the next range only if the row is in one of the bins around 0, and
are zero there if it is not: a secret choice, made by adding up a row's shares of these bins. Bins are so about as fine beside
a number as the number is large.

Source: ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.operation import DEALER, Drawn, Material, Opening, Operation
from vfl_node.crypto.shares.ring import BITS, FRACTION, WEIGHT_FRACTION, Ring
from vfl_node.crypto.shares.values import Shared, stack_rows

FAR_BINS = 32
"""Bins of each range of :func:`far`; a range is a quarter of the one before."""

_NEAREST_BITS = 8
_NUMBERS_AT_ONCE = 1 << 18

SCORE_FRACTION = FRACTION + WEIGHT_FRACTION
"""Fractional bits of scores that are measured: those of a product of columns and weights."""

LEAST_AT_ONCE = 16
"""So that rounds do not become too many."""


def rows_at_once(bins: int, histograms: int = 1) -> int:
    """How many rows are counted in a round, at least :data:`LEAST_AT_ONCE`.

    A row has as many numbers in memory as all histograms have bins, three times and more.
    """
    return max(_NUMBERS_AT_ONCE // (bins * histograms), LEAST_AT_ONCE)


@dataclass(frozen=True)
class Level:
    """Bins over a range around 0.

    Attributes:
        range_bits: of the range, 2^range_bits: bins lie between −2^range_bits / 2 and 2^range_bits / 2.
        bins: how many, a power of two.
        inner: rows in bins that stand for numbers within ±inner are left to the next level; None: no row is. With a bin more it
            must lie within the next range but for one of its bins, or a row could count at the wrong end there.
    """

    range_bits: int
    bins: int
    inner: float | None = None

    @property
    def width(self) -> float:
        """Width of a bin."""
        return 2.0**self.range_bits / self.bins

    @property
    def centres(self) -> NDArray[np.float64]:
        """The number for which each bin stands, float64[bins]; the last one has both ends of the range."""
        return np.asarray(self.width * (np.arange(self.bins) + 1 - self.bins / 2), dtype=np.float64)

    @property
    def outer(self) -> NDArray[np.bool_]:
        """Which bins keep their rows."""
        return np.abs(self.centres) > (-1.0 if self.inner is None else self.inner)

    @property
    def kept(self) -> NDArray[np.float64]:
        """The numbers for which the outer bins stand.

        The first one on each side gets, by the coin, some rows from inside and no others for them: with as many rows everywhere
        its mean is a sixth of a bin further in.
        """
        centres = self.centres[self.outer]
        if self.inner is None:
            return centres
        first = np.abs(centres) < self.inner + 1.5 * self.width
        return np.asarray(centres - first * np.sign(centres) * self.width / 6, dtype=np.float64)


def far(fraction: int) -> tuple[Level, ...]:
    """Levels from the whole ring down to ±24, for numbers with ``fraction`` fractional bits."""
    return tuple(
        Level(bits, FAR_BINS, inner=2 * 2.0**bits / FAR_BINS) for bits in range(BITS - fraction, _NEAREST_BITS - 1, -2)
    )


def score_levels(bins: int) -> tuple[Level, ...]:
    """Levels of a histogram of scores: bins of 32/``bins`` near 0, beyond ±4 to ±6 of 2, beyond ±16 to ±24 of 8, and so on."""
    return (*far(SCORE_FRACTION), Level(6, FAR_BINS, inner=4.0), Level(4, bins // 2))


async def sift(
    machine: ShareMachine, values: Sequence[Shared], amounts: Sequence[Shared], levels: Sequence[Level]
) -> tuple[list[Shared], list[Shared]]:
    """How much falls into each outer bin of all levels, of several values at a time, and each row's amounts that are left.

    Args:
        machine: of whoever runs it.
        values: each [n], with fractional bits; the first level's range must be the whole ring, or hold them all.
        amounts: of each value's rows, [n, c], without fractional bits.
        levels: the widest first.

    Returns:
        Of each value the amounts by bin, [b, c], in the order of the levels' ``kept``; and what is left, [n, c].

    Cost: a round, and what :func:`tally` takes, for each level.
    """
    left, found = list(amounts), [[] for _ in values]  # type: list[Shared], list[list[Shared]]
    for level in levels:
        made = await machine.run(*(tally(value, some, level) for value, some in zip(values, left, strict=True)))
        for each, into in zip(made, found, strict=True):
            into.append(each.sum(0)[level.outer])
        left = [each[:, ~level.outer].sum(1) for each in made]
    return [stack_rows(each) for each in found], left


def tally(values: Shared, amounts: Shared, level: Level) -> Operation[Shared]:
    """In which bin each row's amounts are.

    Args:
        values: of some rows, [n], with fractional bits; beyond half of the range they count in a wrong bin.
        amounts: of these rows, [n, c], without fractional bits.
        level: the bins.

    Returns:
        [n, bins, c], without fractional bits: a row's amounts in its bin, zeros in the others.

    Opens 7 bytes and 8·c for each row; the dealer sends 8·bins·(1 + c).
    """
    (rows,), columns, bins = values.shape, amounts.shape[1], level.bins
    bits = values.fraction + level.range_bits
    modulus, cut = np.uint64((1 << bits) - 1), np.uint64(bits - bins.bit_length() + 1)

    def places(values: Ring) -> np.ndarray:
        return ((values & modulus) >> cut).astype(np.intp)

    def correlate(values: Material) -> Material:
        one = np.zeros((rows, bins, 1), np.uint64)
        one[np.arange(rows), places(values["mask"])] = 1
        return {"one": one, "amounts": one * values["amount mask"][:, None]}

    def shares(place: int, material: Material) -> Sequence[Ring]:
        return (values.part - material["mask"]) & modulus, amounts.part - material["amount mask"]

    def result(place: int, opened: Sequence[Ring], material: Material) -> Shared:
        if place == DEALER:
            return Shared(np.zeros((rows, bins, columns), np.uint64), 0)
        counted = material["one"] * opened[1][:, None] + material["amounts"]
        turned = (np.arange(bins) - bins // 2 - places(opened[0])[:, None]) % bins  # numbers from half of the range below 0 on
        return Shared(np.take_along_axis(counted, turned[:, :, None], axis=1), 0)

    return Operation(
        result,
        drawn=(Drawn("mask", (rows,)), Drawn("amount mask", (rows, columns))),
        dealt={"one": (rows, bins, 1), "amounts": (rows, bins, columns)},
        correlated=correlate,
        shown=(Opening((rows,), bits=bits), Opening((rows, columns))),
        shares=shares,
    )
