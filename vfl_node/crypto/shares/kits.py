"""What a model is trained with: operations on shares, by the randomness that a dealer deals or by that of two parties.

A computation is written once, with a kit::

    z = X·w                          known_product
    truncate                         a number without its lowest bits
    bend                             a sum of sines, cut
    gate                             a residual times the secret bit of who owns its row
    noise, multiply, pick, count     what metrics are made of

Source: ours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from typing_extensions import override

from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.noise import draw_noise
from vfl_node.crypto.shares.operation import Operation, Shape
from vfl_node.crypto.shares.operations import known_product, mask_known, mask_value, product, sum_sines, truncate
from vfl_node.crypto.shares.ring import FRACTION, Ring
from vfl_node.crypto.shares.sines import Series
from vfl_node.crypto.shares.tallies import Level, rows_at_once, score_levels, sift
from vfl_node.crypto.shares.values import KnownToOne, Opened, Shared


class Kit(Protocol):
    """Operations of a training.

    Attributes:
        told_apart: scores that are farther off than this are counted as one.
    """

    told_apart: float

    def known_product(self, matrix: Any, value: Shared) -> Operation[Shared]:
        """The product of a matrix that one party knows and a shared one."""

    def truncate(self, value: Shared, bits: int) -> Operation[Shared]:
        """A value without its lowest bits, rounded down, or by a coin one more: on average it is exact."""

    async def bend(self, machine: ShareMachine, value: Shared, series: Series, curved: Curved) -> Shared:
        """A sum of sines of a value, [n, K], plus numbers of the active party, times a public number; :data:`FRACTION` bits."""

    async def gate(self, machine: ShareMachine, value: Shared, owned: Any) -> Sequence[Shared]:
        """Values of rows, [n, K], times a bit of each row, for the product with each party's columns, in their order.

        For the columns of a party, which are 0 where it does not own a row, the bits of all others are enough.
        """

    def draw_noise(self, shape: Shape, deviation: float | Sequence[float], fraction: int) -> Operation[Shared]:
        """Independent discrete Gaussian numbers, of which no party knows the sum."""

    async def multiply(self, machine: ShareMachine, left: Shared, right: Shared) -> Shared:
        """The product of shared numbers, number by number."""

    async def pick_noise(self, machine: ShareMachine, deviations: Sequence[float], chosen: Sequence[int]) -> Shared:
        """For each index that the active party has ``chosen``, noise of the deviation there, [K]; nobody else knows which."""

    def levels(self, bins: int) -> Sequence[Level]:
        """The bins that scores are counted in."""

    def rows_counted(self, bins: int, outputs: int) -> int:
        """How many rows are counted at a time."""

    async def count(
        self, machine: ShareMachine, scores: Shared, labels: Ring | None, owned: Any, bins: int
    ) -> Sequence[Shared]:
        """How many of the rows that all parties own have which score: of each output, as they add up, [b, c].

        The bins are those that :meth:`levels` keep, in their order; :meth:`settle` makes counts by label of them.

        Args:
            machine: of whoever runs it.
            scores: [n, K].
            labels: uint64[n, K] of 0 and 1 at the active party, zeros elsewhere; None: there are none.
            owned: as :meth:`gate`.
            bins: of the finest range.
        """

    async def settle(self, machine: ShareMachine, found: Shared, *, labelled: bool) -> Shared:
        """Rows by label, [..., 2] or [..., 1], of all that was counted."""


@dataclass(frozen=True)
class Curved:
    """What is made of a sum of sines.

    Attributes:
        factor: a public integer, by which the sum is multiplied.
        offset: uint64[n, K] at the active party, zeros elsewhere: added to it, with twice :data:`FRACTION` fractional bits.
        mantissa, bits: a public integer that stands for a number with so many fractional bits, by which both are multiplied.
    """

    factor: int
    offset: Ring
    mantissa: int
    bits: int


class DealtKit(Kit):
    """As :class:`Kit`, with what a dealer deals (:mod:`vfl_node.crypto.shares.operations`)."""

    told_apart = math.inf

    @override
    def known_product(self, matrix: KnownToOne, value: Shared) -> Operation[Shared]:
        return known_product(matrix, value)

    @override
    def truncate(self, value: Shared, bits: int) -> Operation[Shared]:
        return truncate(value, bits)

    async def bend(self, machine: ShareMachine, value: Shared, series: Series, curved: Curved) -> Shared:
        """As the base: two rounds."""
        (curve,) = await machine.run(sum_sines(value, series, curved.factor))
        scaled = (curve.value + Shared(curved.offset, 2 * FRACTION)).times(curved.mantissa, curved.bits)
        (cut,) = await machine.run(truncate(scaled, scaled.fraction - FRACTION))
        return cut

    async def gate(self, machine: ShareMachine, value: Shared, owned: Opened | Shared) -> Sequence[Shared]:
        """As the base; ``owned``: the product of all parties' bits, [n, 1], under a mask of another section, or in shares."""
        if isinstance(owned, Opened):
            (opened,), bits = await machine.run(mask_value(value)), owned
        else:
            opened, bits = await machine.run(mask_value(value), mask_value(owned))
        (gated,) = await machine.run(product(opened, bits, "numbers"))
        return [gated] * machine.parties

    def draw_noise(self, shape: Shape, deviation: float | Sequence[float], fraction: int) -> Operation[Shared]:
        """As the base: the dealer draws it."""
        return draw_noise(shape, deviation, fraction)

    async def multiply(self, machine: ShareMachine, left: Shared, right: Shared) -> Shared:
        """As the base: a round."""
        first, second = await machine.run(mask_value(left), mask_value(right))
        (made,) = await machine.run(product(first, second, "numbers"))
        return made

    async def pick_noise(self, machine: ShareMachine, deviations: Sequence[float], chosen: Sequence[int]) -> Shared:
        """As the base: the choice is a matrix that the active party knows. Two rounds."""
        shape = len(chosen), len(deviations)
        (drawn,) = await machine.run(draw_noise(shape, deviations, 0))
        ones = np.eye(len(deviations), dtype=np.uint64)[list(chosen)] if machine.place == 0 else None
        (picked,) = await machine.run(mask_known(0, shape, 0, ones))
        (of_chosen,) = await machine.run(known_product(picked, drawn, "numbers"))
        return of_chosen.sum(1)

    def levels(self, bins: int) -> Sequence[Level]:
        """As the base: there is a bin for every number."""
        return score_levels(bins)

    @override
    def rows_counted(self, bins: int, outputs: int) -> int:
        return rows_at_once(bins, outputs)

    async def count(
        self, machine: ShareMachine, scores: Shared, labels: Ring | None, owned: Opened, bins: int
    ) -> Sequence[Shared]:
        """As the base; ``owned`` as :meth:`gate`, under a mask."""
        outputs = range(scores.shape[1])
        genuine = _repeat(machine, owned, len(outputs))
        amounts = [genuine]
        if labels is not None:
            (said,) = await machine.run(mask_value(Shared(labels, 0)))
            (positive,) = await machine.run(product(said, owned, "numbers"))
            each = (genuine - positive).part, positive.part
            amounts = [Shared(np.stack([marks[:, k] for marks in each], axis=1), 0) for k in outputs]
        found, _ = await sift(machine, [scores[:, k] for k in outputs], amounts, score_levels(bins))
        return found

    async def settle(self, machine: ShareMachine, found: Shared, *, labelled: bool) -> Shared:
        """As the base: that is what they are."""
        return found


def _repeat(machine: ShareMachine, opened: Opened, columns: int) -> Shared:
    """An opened value as shares again, repeated so many times side by side."""
    part = opened.mask + opened.difference if machine.place == 0 else opened.mask
    return Shared(np.repeat(part, columns, axis=1) if machine.place >= 0 else np.zeros((len(part), columns), np.uint64), 0)


DEALT = DealtKit()
