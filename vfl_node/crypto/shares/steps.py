"""Comparisons of secret numbers with public ones and with each other, in few rounds.

A number x is open under a mask: δ = x + r. The dealer deals, for each digit of r of 8 bits, the bits [digit < a] for all a,
in shares: a *table of steps*. Then [r ≤ a] for a public a is a look-up in each digit, and one round to join the digits,
however many a are looked up. And x ≥ θ exactly if r ≤ δ − θ, but for wrapping around, which is public.

======================  ============================  ==============================================================
function                rounds                        from the dealer, for each number
======================  ============================  ==============================================================
:func:`deal_steps`      none                          192 bytes
:func:`find_at_most`    1                             83 bits for each public number that is compared with
:func:`negative`        2, the opening included       the table, and 84 bits
:func:`larger`          3                             the same, and 16 bytes
:func:`widen`           3                             the table, 16 bytes, and 83 bits
:func:`largest`         3                             of four numbers: six times that of :func:`negative`, and 264 bytes
:func:`multiply_bits`   none                          8 bytes for a bit, 32 for two, 88 for three
======================  ============================  ==============================================================

Every opened number is uniform, whatever is compared.

Source: ours; look-ups of opened digits are those of Ishai, Kushilevitz, Meldgaard, Orlandi and Paskin-Cherniavsky 2013,
"On the power of correlated randomness in secure computation" (one-time truth tables).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.shares.bits import Bits, ShownBits, pack_bits, show_bits, unpack_bits
from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.operation import DEALER, Material, Operation, Shape
from vfl_node.crypto.shares.operations import mask_value
from vfl_node.crypto.shares.ring import Ring
from vfl_node.crypto.shares.sizes import words_of
from vfl_node.crypto.shares.values import Opened, Shared

Flags = NDArray[np.uint8]
"""0 and 1, each a party's share by XOR unless it is said that they are open."""

RANGE_BITS = 48
"""Numbers are compared modulo 2^RANGE_BITS; those with a sign are between −2^RANGE_BITS and 2^RANGE_BITS."""

_DIGITS, _DIGIT_BITS = 6, 8
_TABLE_WORDS = (1 << _DIGIT_BITS) // 64
LOW = np.uint64((1 << RANGE_BITS) - 1)
_ONE, _TWO = np.uint64(1), np.uint64(2)


@dataclass(frozen=True, eq=False)
class StepTable:
    """The bits [digit < a] of the digits of N numbers.

    Attributes:
        part: uint64[N, digits, words], a party's share.
    """

    part: Ring


def deal_steps(opened: Opened, bits: int = RANGE_BITS) -> Operation[StepTable]:
    """The table of steps of what was added to numbers before they were opened, flattened; its low ``bits``."""
    shape = (opened.mask.size, _DIGITS, _TABLE_WORDS)

    def correlate(values: Material) -> Material:
        added = opened.blinding.ravel() & np.uint64((1 << bits) - 1)
        digits = np.stack([added >> np.uint64(_DIGIT_BITS * digit) & np.uint64(255) for digit in range(_DIGITS)], axis=1)
        shift = np.clip(digits[..., None].astype(np.int64) + 1 - 64 * np.arange(_TABLE_WORDS), 0, 64).astype(np.uint64)
        ones = np.uint64(0xFFFFFFFFFFFFFFFF)
        return {"table": np.where(shift < 64, ones << (shift & np.uint64(63)), np.uint64(0))}

    def result(place: int, shown: Sequence[Ring], material: Material) -> StepTable:
        return StepTable(np.zeros(shape, np.uint64) if place == DEALER else material["table"])

    return Operation(result, dealt={"table": shape}, correlated=correlate, binary=True)


async def find_at_most(
    machine: ShareMachine, table: StepTable, numbers: Ring, *beside: Operation[Any]
) -> tuple[Flags, list[Any]]:
    """[r ≤ a] of each number r of a table, for the public a below 2^:data:`RANGE_BITS`. One round.

    Args:
        machine: of whoever runs it.
        table: of N numbers.
        numbers: uint64[N, M], a.
        beside: other operations of the same round.

    Returns:
        Bits in shares, [N, M], and the results of the others.
    """
    below, until = _look_up(table, numbers, machine.place)
    shape = (2 * (_DIGITS - 1), *numbers.shape)
    equal = below[:, 1:] ^ until[:, 1:]
    low = np.concatenate([until[:, :1], below[:, 1:]], axis=1)
    factors = np.concatenate([low[:, : _DIGITS - 1], equal], axis=1).swapaxes(0, 1)
    shown, *others = await machine.run(show_bits(Bits(_pack_each(factors))), *beside)
    (joined,) = await machine.run(xor_of_ands(shown, [_nest(digit) for digit in range(_DIGITS - 1)]))
    return low[:, _DIGITS - 1] ^ unpack_bits(joined.part, shape[1:]), others


def _nest(digit: int) -> tuple[int, ...]:
    """The factors of one term of [r ≤ a]: the digits above are equal, and this one is below or, of the last, not above."""
    return (*(_DIGITS - 2 + above for above in range(_DIGITS - 1, digit, -1)), digit)


def _look_up(table: StepTable, numbers: Ring, place: int) -> tuple[Flags, Flags]:
    """[digit < a's digit] and [digit ≤ a's digit], [N, digits, M] each."""
    shifts = np.arange(0, _DIGITS * _DIGIT_BITS, _DIGIT_BITS, dtype=np.uint64)[:, None]
    digits = (numbers[:, None] >> shifts & np.uint64(255)).astype(np.int64)
    if place == DEALER:
        return np.zeros(digits.shape, np.uint8), np.zeros(digits.shape, np.uint8)

    def bits(index: NDArray[np.int64]) -> Flags:
        words = np.take_along_axis(table.part, np.minimum(index >> 6, _TABLE_WORDS - 1), axis=2)
        found = (words >> (index & 63).astype(np.uint64) & _ONE).astype(np.uint8)
        return np.where(index < 1 << _DIGIT_BITS, found, np.uint8(place == 0))

    return bits(digits), bits(digits + 1)


def _pack_each(bits: Flags) -> Ring:
    """The bits of each row packed by themselves: uint64[rows, w]."""
    return np.stack([pack_bits(row) for row in bits])


def xor_of_ands(bits: ShownBits, terms: Sequence[tuple[int, ...]]) -> Operation[Bits]:
    """The XOR of some products of bits that are open under masks, without a message.

    Args:
        bits: uint64[F, w], of F factors.
        terms: the factors of each product, all different ones.

    From the dealer: a bit for each product of two masks or more that any term has.
    """
    parts = sorted({part for term in terms for size in range(2, len(term) + 1) for part in combinations(term, size)})
    shape = bits.mask.shape[1:]

    def correlate(values: Material) -> Material:
        return {"products": np.stack([np.bitwise_and.reduce([bits.mask[at] for at in part]) for part in parts])}

    def result(place: int, opened: Sequence[Ring], material: Material) -> Bits:
        total = np.zeros(shape, np.uint64)
        if place == DEALER:
            return Bits(total)
        dealt = {part: material["products"][at] for at, part in enumerate(parts)}
        for term in terms:
            for size in range(len(term) + 1):
                for part in combinations(term, size):
                    rest = [bits.difference[at] for at in term if at not in part]
                    if part or place == 0:
                        mask = [bits.mask[part[0]] if size == 1 else dealt[part]] if part else []
                        total ^= np.bitwise_and.reduce([*mask, *rest])
        return Bits(total)

    return Operation(result, dealt={"products": (len(parts), *shape)}, correlated=correlate, binary=True)


@dataclass(frozen=True, eq=False)
class Lifted:
    """Bits as numbers.

    Attributes:
        flags: uint8[…], the bits under masks, which everybody knows.
        mask: at the dealer these masks, uint64[…] of 0 and 1; elsewhere a share of them as numbers.
    """

    flags: Flags
    mask: Ring

    @property
    def sign(self) -> Ring:
        """1 − 2·flags, by which a mask counts."""
        return _ONE - _TWO * self.flags.astype(np.uint64)

    def share(self, place: int) -> Shared:
        """The bits as a party's share of numbers."""
        part = self.sign * self.mask
        return Shared(part + self.flags.astype(np.uint64) if place == 0 else part, 0)


async def lift(machine: ShareMachine, flags: Flags) -> Lifted:
    """Bits in shares as numbers in shares: e + (1 − 2e)·ρ, with the bits under masks ρ as e. One round."""
    (shown,) = await machine.run(show_bits(Bits(pack_bits(flags))))
    (lifted,) = await machine.run(deal_lifted(shown, flags.shape))
    return lifted


def deal_lifted(shown: ShownBits, shape: Shape) -> Operation[Lifted]:
    """Bits that are open under masks, packed, as numbers."""

    def correlate(values: Material) -> Material:
        return {"mask": unpack_bits(shown.mask, shape).astype(np.uint64)}

    def result(place: int, opened: Sequence[Ring], material: Material) -> Lifted:
        mask = unpack_bits(shown.mask, shape).astype(np.uint64) if place == DEALER else material["mask"]
        return Lifted(unpack_bits(shown.difference, shape), mask)

    return Operation(result, dealt={"mask": shape}, correlated=correlate)


async def negative(machine: ShareMachine, value: Shared) -> tuple[Flags, Opened]:
    """[x < 0] in shares, for |x| < 2^:data:`RANGE_BITS`; and x under a mask."""
    (opened,) = await machine.run(mask_value(value))
    table, tops = await machine.run(deal_steps(opened), _top_bits(opened))
    sums = opened.difference
    reached, _ = await find_at_most(machine, table, (sums & LOW).reshape(-1, 1))
    sign = reached.reshape(sums.shape) ^ tops
    if machine.place == 0:
        sign = sign ^ (sums >> np.uint64(RANGE_BITS) & _ONE).astype(np.uint8) ^ np.uint8(1)
    return sign, opened


def _top_bits(opened: Opened) -> Operation[Flags]:
    """The bit above the range of what was added to numbers before they were opened."""
    shape, count = opened.mask.shape, words_of(opened.mask.size)

    def correlate(values: Material) -> Material:
        return {"bits": pack_bits(opened.blinding >> np.uint64(RANGE_BITS) & _ONE)}

    def result(place: int, shown: Sequence[Ring], material: Material) -> Flags:
        return unpack_bits(np.zeros(count, np.uint64) if place == DEALER else material["bits"], shape)

    return Operation(result, dealt={"bits": (count,)}, correlated=correlate, binary=True)


async def widen(machine: ShareMachine, value: Shared, bits: int) -> Shared:
    """Numbers from −2^(bits − 1) to 2^(bits − 1), whose shares count modulo 2^bits, as numbers modulo 2⁶⁴. Three rounds."""
    half = np.uint64(1 << (bits - 1))
    lifted_up = Shared(value.part + half if machine.place == 0 else value.part, value.fraction)
    (opened,) = await machine.run(mask_value(lifted_up, bits))
    table, added = await machine.run(deal_steps(opened, bits), _low_blinding(opened, bits))
    sums = opened.difference
    reached, _ = await find_at_most(machine, table, sums.reshape(-1, 1))
    lifted = await lift(machine, reached)
    wraps = lifted.share(machine.place).part.reshape(sums.shape)  # 1 where nothing has wrapped around
    part = np.uint64(0) - added - (wraps << np.uint64(bits))
    return Shared(part + sums + np.uint64(1 << bits) - half if machine.place == 0 else part, value.fraction)


def _low_blinding(opened: Opened, bits: int) -> Operation[Ring]:
    """What was added to numbers before they were opened, modulo 2^bits, as numbers in shares."""
    shape = opened.mask.shape

    def correlate(values: Material) -> Material:
        return {"added": opened.blinding & np.uint64((1 << bits) - 1)}

    def result(place: int, shown: Sequence[Ring], material: Material) -> Ring:
        return np.zeros(shape, np.uint64) if place == DEALER else material["added"]

    return Operation(result, dealt={"added": shape}, correlated=correlate)


async def larger(machine: ShareMachine, left: Shared, right: Shared) -> Shared:
    """The larger of two numbers whose difference is below 2^:data:`RANGE_BITS`. Three rounds."""
    sign, opened = await negative(machine, left - right)
    (change,) = await machine.run(multiply_bits(opened, [await lift(machine, sign)]))
    return left - change


_PAIRS = list(combinations(range(4), 2))
_WINS = {1: ((0, 0), (3, 1), (4, 1)), 2: ((1, 0), (3, 0), (5, 1)), 3: ((2, 0), (4, 0), (5, 0))}
"""Number 1, 2 or 3 of four is the largest → pairs whose sign is (0) or is not (1) below 0."""


async def largest(machine: ShareMachine, value: Shared) -> Shared:
    """The largest of four numbers, [..., 4] → [...], whose differences are below 2^:data:`RANGE_BITS`. Three rounds."""
    first, second = ([pair[side] for pair in _PAIRS] for side in (0, 1))
    sign, opened = await negative(machine, value[..., first] - value[..., second])
    lifted = await lift(machine, sign)
    total = value[..., 0]
    for number, wins in _WINS.items():
        bits = [Lifted(lifted.flags[..., pair] ^ np.uint8(turned), lifted.mask[..., pair]) for pair, turned in wins]
        (change,) = await machine.run(multiply_bits(opened[..., number - 1], bits))
        total = total - change
    return total


def multiply_bits(opened: Opened, bits: Sequence[Lifted]) -> Operation[Shared]:
    """x times some bits, in shares: x is open under a mask, the bits are e + s·ρ with ρ in shares as numbers.

    From the dealer: ρ·m for each product of some ρ and the mask m of x, and of several also the products themselves.

    Args:
        opened: x.
        bits: each of the shape of x.
    """
    count = len(bits)
    parts = [part for size in range(1, count + 1) for part in combinations(range(count), size)]
    shape, several = opened.mask.shape, [part for part in parts if len(part) > 1]

    def correlate(values: Material) -> Material:
        made: dict[str, Ring] = {}
        for part in parts:
            ones = np.multiply.reduce([bits[at].mask for at in part])
            made[f"{part} mask"] = ones * opened.mask
            if len(part) > 1:
                made[f"{part}"] = ones
        return made

    def result(place: int, shown: Sequence[Ring], material: Material) -> Shared:
        if place == DEALER:
            return Shared(np.zeros(shape, np.uint64), opened.fraction)
        flags = [each.flags.astype(np.uint64) for each in bits]
        total = np.multiply.reduce(flags) * opened.share(place).part
        for part in parts:
            rest = [flags[at] if at not in part else bits[at].sign for at in range(count)]
            ones = bits[part[0]].mask if len(part) == 1 else material[f"{part}"]
            total = total + np.multiply.reduce(rest) * (opened.difference * ones + material[f"{part} mask"])
        return Shared(total, opened.fraction)

    dealt: dict[str, Shape] = {f"{part} mask": shape for part in parts} | {f"{part}": shape for part in several}
    return Operation(result, dealt=dealt, correlated=correlate)
