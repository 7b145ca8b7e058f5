"""Functions of secret numbers over many octaves: quotients, and two numbers that travel as one.

A number v is brought near 1 first: with the bits u_t = [v ≥ θ_t] of thresholds half an octave apart, σ = Σ u_t·d_t is 1/v
up to a factor of 2^(1/4) either way. Then e = v·σ − 1 is small, and 1/v is σ times a polynomial in e. The thresholds,
differences d_t and coefficients are integers, the same on every machine.

Source: ours, from known parts: Goldschmidt 1964 (quotients by a first guess), Beaver 1991.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log2
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.shares.bits import Bits, pack_bits, unpack_bits
from vfl_node.crypto.shares.operation import DEALER, Drawn, Material, Opening, Operation
from vfl_node.crypto.shares.ring import Ring
from vfl_node.crypto.shares.sizes import words_of
from vfl_node.crypto.shares.steps import LOW, Lifted
from vfl_node.crypto.shares.values import Opened, Shared

GUESS_FRACTION = 30
"""Fractional bits of σ."""

REST_FRACTION = 14
"""Fractional bits of e."""

INVERSE_FRACTION = 36
"""Fractional bits that the polynomial of :func:`multiply_inverse` adds."""

INVERSE = (68719312330, -4193283, 4199475, -265, 247)
"""1/(1 + e) ≈ Σ of these times 1, e, e₂, e·e₂ and e₂², where e₂ is e² cut to :data:`REST_FRACTION` bits: with
:data:`INVERSE_FRACTION` bits together with those of their factors. The least largest relative error, 1.02e-5, over
2^(±1/4) − 1."""

_STEPS = 2  # thresholds an octave
_BELOW = 1 << 21  # a number may be a little below 0
_ONE = np.uint64(1)


@dataclass(frozen=True)
class Guess:
    """Thresholds of a first guess of 1/v.

    Attributes:
        thresholds: θ_t as integers with the fractional bits of v, ascending.
        changes: d_t with :data:`GUESS_FRACTION` fractional bits; below θ_0 the guess is 0.
        below: how far v may be below 0, as an integer likewise.
    """

    thresholds: tuple[int, ...]
    changes: tuple[int, ...]
    below: int = _BELOW

    @classmethod
    def from_range(cls, least: float, most: float, fraction: int, below: int = _BELOW) -> Guess:
        """For numbers from ``least`` to ``most`` with so many fractional bits."""
        count = max(1, ceil(_STEPS * log2(most / least)))
        thresholds = tuple(round(least * 2 ** (step / _STEPS) * 2**fraction) for step in range(count))
        one = 2 ** (GUESS_FRACTION + fraction)
        values = [round(one / threshold / 2 ** (0.5 / _STEPS)) for threshold in thresholds]
        changes = tuple(value - before for before, value in zip([0, *values], values, strict=False))
        return cls(thresholds, changes, below)

    def looks(self, opened: Opened) -> Ring:
        """What is looked up of numbers under a mask, flattened: uint64[N, 1 + thresholds] for :func:`~.steps.find_at_most`."""
        return (self._reached(opened) - np.array([0, *self._lifted], np.uint64)) & LOW

    def reach(self, opened: Opened, lifted: Lifted, place: int) -> Shared:
        """The bits u_t of numbers under a mask, [..., thresholds], of what was looked up."""
        below = lifted.share(place).part
        reached = below[:, 1:] - below[:, :1]
        if place == 0:
            reached = reached + _ONE - (self._reached(opened) < np.array(self._lifted, np.uint64)).astype(np.uint64)
        return Shared(reached.reshape(*opened.difference.shape, -1), 0)

    def add_up(self, reached: Shared) -> Shared:
        """σ of the bits u_t."""
        changes = np.array([change % (1 << 64) for change in self.changes], np.uint64)
        return Shared((reached.part * changes).sum(axis=-1, dtype=np.uint64), GUESS_FRACTION)

    def guess(self, opened: Opened, lifted: Lifted, place: int) -> tuple[Shared, Shared]:
        """σ of numbers under a mask, of what was looked up; and the bits u_0, as numbers."""
        reached = self.reach(opened, lifted, place)
        return self.add_up(reached), reached[..., 0]

    @property
    def _lifted(self) -> list[int]:
        return [threshold + self.below for threshold in self.thresholds]

    def _reached(self, opened: Opened) -> Ring:
        return ((opened.difference + np.uint64(self.below)) & LOW).reshape(-1, 1)


def multiply_three(first: Opened, second: Opened, third: Opened) -> Operation[Shared]:
    """The product of three numbers that are open under masks, number by number, without a message."""
    shape = np.broadcast_shapes(first.mask.shape, second.mask.shape, third.mask.shape)
    fraction = first.fraction + second.fraction + third.fraction
    a, b, c = first, second, third

    def correlate(values: Material) -> Material:
        both = a.mask * b.mask
        return {"ab": both, "ac": a.mask * c.mask, "bc": b.mask * c.mask, "abc": both * c.mask}

    def result(place: int, opened: Sequence[Ring], material: Material) -> Shared:
        if place == DEALER:
            return Shared(np.zeros(shape, np.uint64), fraction)
        d, e, f = a.difference, b.difference, c.difference
        part = material["abc"] + d * material["bc"] + e * material["ac"] + f * material["ab"]
        part += d * e * c.mask + d * f * b.mask + e * f * a.mask
        return Shared(part + d * e * f if place == 0 else part, fraction)

    return Operation(result, dealt=dict.fromkeys(("ab", "ac", "bc", "abc"), shape), correlated=correlate)


def multiply_inverse(factor: Opened, rest: Opened, square: Opened) -> Operation[Shared]:
    """y/(1 + e) of numbers that are open under masks, with :data:`INVERSE`, without a message.

    Args:
        factor: y.
        rest: e, with :data:`REST_FRACTION` fractional bits.
        square: e₂, its square with as many.

    From the dealer: 6 numbers for each.
    """
    shape, fraction = factor.mask.shape, factor.fraction + INVERSE_FRACTION
    a0, a1, a2, a3, a4 = (np.uint64(value % (1 << 64)) for value in INVERSE)
    y, e, s = factor, rest, square

    def correlate(values: Material) -> Material:
        es, ss = e.mask * s.mask, s.mask * s.mask
        return {"es": es, "ss": ss, "ye": y.mask * e.mask, "ys": y.mask * s.mask, "yes": y.mask * es, "yss": y.mask * ss}

    def result(place: int, opened: Sequence[Ring], material: Material) -> Shared:
        if place == DEALER:
            return Shared(np.zeros(shape, np.uint64), fraction)
        d, g = e.difference, s.difference
        known = a0 + d * (a1 + a3 * g) + g * (a2 + a4 * g)
        of_rest = a1 + a3 * g
        of_square = a2 + a3 * d + np.uint64(2) * a4 * g
        part = y.mask * known + of_rest * material["ye"] + of_square * material["ys"]
        part += a3 * material["yes"] + a4 * material["yss"]
        part += y.difference * (of_rest * e.mask + of_square * s.mask + a3 * material["es"] + a4 * material["ss"])
        return Shared(part + y.difference * known if place == 0 else part, fraction)

    return Operation(result, dealt=dict.fromkeys(("es", "ss", "ye", "ys", "yes", "yss"), shape), correlated=correlate)


def split_pair(value: Shared, below: int = 1 << 20) -> Operation[tuple[Ring, Ring]]:
    """The two numbers of x = a·2³² + b in shares, exactly, for |a| < 2³⁰ and −B ≤ b < 2³¹ − B; without fractional bits.

    Args:
        value: x.
        below: B, how far b may be below 0, public.

    ::

        c = x + 2⁶² + B + r  is opened; of both halves of c and r whether they have carried is known but for a bit each

    From the dealer: 5 numbers for each.
    """
    shape, low, half = value.shape, np.uint64(0xFFFFFFFF), np.uint64(31)
    names = ("low", "low top", "high", "carry", "carry after one")

    def correlate(values: Material) -> Material:
        mask = values["mask"]
        of_low, of_high = mask & low, mask >> np.uint64(32)
        top = of_low >> half
        after = ((of_high + top) >> half > 0).astype(np.uint64)
        return dict(zip(names, (of_low, top, of_high, mask >> np.uint64(63), after), strict=True))

    def shares(place: int, material: Material) -> Sequence[Ring]:
        part = value.part + material["mask"]
        return (part + np.uint64((1 << 62) + below) if place == 0 else part,)

    def result(place: int, opened: Sequence[Ring], material: Material) -> tuple[Ring, Ring]:
        if place == DEALER:
            return np.zeros(shape, np.uint64), np.zeros(shape, np.uint64)
        sum_low, sum_high = opened[0] & low, opened[0] >> np.uint64(32)
        first, second = (sum_low >> half) ^ _ONE, (sum_high >> half) ^ _ONE
        wrap = np.uint64(1 << 32)
        low_part = wrap * first * material["low top"] - material["low"]
        carried = first * material["carry after one"] + (_ONE - first) * material["carry"]
        above = wrap * second * carried - material["high"] - first * material["low top"]
        if place == 0:
            low_part, above = low_part + sum_low - np.uint64(below), above + sum_high - np.uint64(1 << 30)
        return above, low_part

    return Operation(
        result,
        drawn=(Drawn("mask", shape),),
        dealt=dict.fromkeys(names, shape),
        correlated=correlate,
        shown=(Opening(shape),),
        shares=shares,
    )


def deal_flags(opened: Opened, bits: int, size: int) -> Operation[Bits]:
    """Vectors that are 1 where the low ``bits`` of a number say, and 0 elsewhere: bits [K, size], packed.

    Args:
        opened: the numbers, [K], as :func:`~.operations.mask_value` opens their ``bits``.
        bits: how many.
        size: of the vectors, 2^bits at most.
    """
    shape = (len(opened.mask), 1 << bits)

    def correlate(values: Material) -> Material:
        return {"flags": pack_bits(_one_hot(opened, bits))}

    def result(place: int, shown: Sequence[Ring], material: Material) -> Bits:
        if place == DEALER:
            return Bits(np.zeros(words_of(shape[0] * size), np.uint64))
        return Bits(pack_bits(_turn(unpack_bits(material["flags"], shape), opened, size)))

    return Operation(result, dealt={"flags": (words_of(shape[0] * shape[1]),)}, correlated=correlate, binary=True)


def deal_places(opened: Opened, bits: int, size: int) -> Operation[Shared]:
    """The same vectors as numbers, [K, size]."""
    shape = (len(opened.mask), 1 << bits)

    def correlate(values: Material) -> Material:
        return {"places": _one_hot(opened, bits).astype(np.uint64)}

    def result(place: int, shown: Sequence[Ring], material: Material) -> Shared:
        if place == DEALER:
            return Shared(np.zeros((shape[0], size), np.uint64), 0)
        return Shared(_turn(material["places"], opened, size), 0)

    return Operation(result, dealt={"places": shape}, correlated=correlate)


def _one_hot(opened: Opened, bits: int) -> NDArray[np.uint8]:
    """1 at the mask's place, uint8[K, 2^bits]."""
    found = np.zeros((len(opened.mask), 1 << bits), np.uint8)
    found[np.arange(len(found)), (opened.mask & np.uint64((1 << bits) - 1)).astype(np.intp)] = 1
    return found


def _turn(vectors: NDArray[Any], opened: Opened, size: int) -> NDArray[Any]:
    """Vectors turned by the differences, and their first ``size`` places."""
    every = vectors.shape[1]
    places = (np.arange(size) - (opened.difference % np.uint64(every)).astype(np.int64)[:, None]) % every
    return np.take_along_axis(vectors, places, axis=1)
