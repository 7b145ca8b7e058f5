"""Bits in shares, 64 of them in a word: what numbers are compared with.

A bit is shared by two parties as the XOR of what each of them has. XOR and NOT cost nothing; AND takes correlated bits from the
dealer (:func:`and_bits`), and its operands must have been opened under masks (:func:`show_bits`), each once, however often it
is used. The XOR of such operands is one, too: difference and mask are added each for itself. So a full adder opens its carry
alone.

=================  =======================================  ==================================
what               opens, for each bit, each way            from the dealer, for each bit
=================  =======================================  ==================================
:func:`show_bits`  a bit                                    nothing
:func:`and_bits`   nothing                                  a bit
:func:`bits_of`    a number's low bits, and a bit for each  two bits for each
:func:`or_bits`    a bit less than there are operands       a bit less than there are operands
:func:`add_bits`   a bit for each bit that is added         a bit for each bit that is added
=================  =======================================  ==================================

Every opened bit is uniform, whatever is computed. Numbers of a matrix uint64[n, m] lie in planes: uint64[m, w] for each of
their bits, where bit i % 64 of word i // 64 is that of row i, and w = ⌈n / 64⌉.

Sources: Beaver 1991 (AND of masked bits); Escudero, Ghosh, Keller, Rachuri and Scholl 2020 (a mask with its bits in shares);
Wallace 1964 (sums by full adders).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.operation import DEALER, Drawn, Material, Opening, Operation, Shape
from vfl_node.crypto.shares.operations import mask_value
from vfl_node.crypto.shares.ring import Ring
from vfl_node.crypto.shares.sizes import words_of
from vfl_node.crypto.shares.values import Opened, Shared

_ONES = np.uint64((1 << 64) - 1)


@dataclass(frozen=True, eq=False)
class Bits:
    """Bits of which each party has a share.

    Attributes:
        part: uint64[…, w], the party's share; of no meaning at the dealer.
    """

    part: Ring

    def __xor__(self, other: Bits) -> Bits:
        return Bits(self.part ^ other.part)

    def __getitem__(self, index: Any) -> Bits:
        return Bits(self.part[index])


@dataclass(frozen=True, eq=False)
class ShownBits:
    """Bits under masks that were opened; they may be operands of any number of :func:`and_bits`.

    Attributes:
        difference: uint64[…, w], bits XOR mask, which both parties know; of no meaning at the dealer.
        mask: a party's share of the mask; at the dealer the mask itself.
    """

    difference: Ring
    mask: Ring

    def __xor__(self, other: ShownBits) -> ShownBits:
        return ShownBits(self.difference ^ other.difference, self.mask ^ other.mask)

    def __getitem__(self, index: Any) -> ShownBits:
        return ShownBits(self.difference[index], self.mask[index])

    def __len__(self) -> int:
        return len(self.mask)

    @property
    def inverted(self) -> ShownBits:
        """NOT of each bit."""
        return ShownBits(self.difference ^ _ONES, self.mask)

    def share(self, place: int) -> Bits:
        """The same bits as a party's share."""
        return Bits(self.mask ^ self.difference if place == 0 else self.mask)


def pack_bits(bits: NDArray[Any]) -> Ring:
    """Any array of 0 and 1 in words, uint64[⌈size / 64⌉], in its order."""
    packed = np.zeros(8 * words_of(bits.size), np.uint8)
    packed[: -(-bits.size // 8)] = np.packbits(bits.astype(np.uint8, copy=False).ravel(), bitorder="little")
    return packed.view("<u8").astype(np.uint64, copy=False)


def unpack_bits(words: Ring, shape: Shape) -> NDArray[np.uint8]:
    """What :func:`pack_bits` has packed."""
    data = np.ascontiguousarray(words, "<u8").view(np.uint8)
    return np.unpackbits(data, count=prod(shape), bitorder="little").reshape(shape)


def public(words: Ring) -> ShownBits:
    """Bits that everybody knows."""
    return ShownBits(words, np.zeros_like(words))


def join_rows(parts: Sequence[ShownBits]) -> ShownBits:
    """The rows of all of them."""
    return ShownBits(np.concatenate([part.difference for part in parts]), np.concatenate([part.mask for part in parts]))


def show_bits(value: Bits) -> Operation[ShownBits]:
    """Bits under masks, ready for any number of :func:`and_bits`."""
    shape = value.part.shape

    def shares(place: int, material: Material) -> Sequence[Ring]:
        return (value.part ^ material["mask"],)

    def result(place: int, opened: Sequence[Ring], material: Material) -> ShownBits:
        return ShownBits(opened[0], material["mask"])

    drawn, opening = (Drawn("mask", shape, lasting=True),), Opening(shape, binary=True)
    return Operation(result, drawn=drawn, shown=(opening,), shares=shares, binary=True)


def and_bits(left: ShownBits, right: ShownBits) -> Operation[Bits]:
    """AND, without a message; words are broadcast as numpy does."""
    shape = np.broadcast_shapes(left.mask.shape, right.mask.shape)

    def correlate(values: Material) -> Material:
        return {"both": left.mask & right.mask}

    def result(place: int, opened: Sequence[Ring], material: Material) -> Bits:
        if place == DEALER:
            return Bits(np.zeros(shape, np.uint64))
        first = left.mask ^ left.difference if place == 0 else left.mask
        return Bits(material["both"] ^ (left.difference & right.mask) ^ (first & right.difference))

    return Operation(result, dealt={"both": shape}, correlated=correlate, binary=True)


def reveal_bits(value: Bits, to: int) -> Operation[Ring]:
    """The bits themselves, for one party: uint64[…, w]; zeros elsewhere."""

    def result(place: int, opened: Sequence[Ring], material: Material) -> Ring:
        return opened[0]

    opening = Opening(value.part.shape, to, binary=True)
    return Operation(result, shown=(opening,), shares=lambda place, material: (value.part,), binary=True)


def planes_of(numbers: Ring, bits: int) -> Ring:
    """Planes uint64[bits, m, w] of numbers uint64[n, m], the lowest bit first."""
    rows, columns = numbers.shape
    packed = np.zeros((bits, columns, words_of(rows) * 8), np.uint8)
    for bit in range(bits):
        plane = (numbers >> np.uint64(bit)).astype(np.uint8) & np.uint8(1)
        packed[bit, :, : -(-rows // 8)] = np.packbits(plane.T, axis=1, bitorder="little")
    return packed.view("<u8").astype(np.uint64, copy=False)


def rows_of(plane: Ring, rows: int) -> NDArray[np.bool_]:
    """The bits bool[n, m] of a plane uint64[m, w]."""
    data = np.ascontiguousarray(plane, "<u8").view(np.uint8)
    return np.unpackbits(data, axis=1, count=rows, bitorder="little").T.astype(np.bool_)


async def bits_of(machine: ShareMachine, value: Shared, bits: int) -> list[ShownBits]:
    """The low bits of shared numbers, as planes, the lowest first.

    With x = δ + r, of which δ is opened and the dealer deals the bits of r, a carry is AND of a bit of r and the carry before
    where that of δ is 0, and OR where it is 1.

    Args:
        machine: of whoever runs it, one of two parties or their dealer.
        value: [n, m].
        bits: how many; the numbers count modulo 2^bits.

    Returns:
        ``bits`` times [m, w].

    Cost: ``bits`` rounds; what the file's table says.
    """
    (opened,) = await machine.run(mask_value(value, bits))
    (masks,) = await machine.run(_mask_bits(opened, bits))
    sums = planes_of(opened.difference, bits)
    found, carry = [masks[0] ^ public(sums[0])], Bits(masks[0].mask & sums[0])
    for bit in range(1, bits):
        (known,) = await machine.run(show_bits(carry))
        found.append(masks[bit] ^ known ^ public(sums[bit]))
        if bit + 1 < bits:
            (joint,) = await machine.run(and_bits(masks[bit], known))
            carry = joint ^ Bits((masks[bit] ^ known).share(machine.place).part & sums[bit])
    return found


def _mask_bits(opened: Opened, bits: int) -> Operation[ShownBits]:
    """The bits of an open number's mask, [bits, m, w]: nothing of them is open."""
    rows, columns = opened.mask.shape
    shape: Shape = (bits, columns, words_of(rows))

    def correlate(values: Material) -> Material:
        return {"planes": planes_of(opened.mask, bits)}

    def result(place: int, shown: Sequence[Ring], material: Material) -> ShownBits:
        mask = planes_of(opened.mask, bits) if place == DEALER else material["planes"]
        return ShownBits(np.zeros(shape, np.uint64), mask)

    return Operation(result, dealt={"planes": shape}, correlated=correlate, binary=True)


async def or_bits(machine: ShareMachine, values: Sequence[ShownBits]) -> Bits:
    """OR of some bits, each [m, w]. Cost: log₂ of their number in rounds."""
    left = list(values)
    while len(left) > 1:
        pairs = list(zip(left[::2], left[1::2], strict=False))
        ands = await machine.run(*(and_bits(*pair) for pair in pairs))
        ors = [joint ^ (one ^ other).share(machine.place) for joint, (one, other) in zip(ands, pairs, strict=True)]
        rest = left[2 * len(pairs) :]
        if len(ors) == 1 and not rest:
            return ors[0]
        left = [*await machine.run(*(show_bits(value) for value in ors)), *rest]
    return left[0].share(machine.place)


async def add_bits(machine: ShareMachine, columns: Sequence[ShownBits]) -> list[ShownBits]:
    """The sum of bits of different weights, modulo 2^len(columns).

    Args:
        machine: as :func:`bits_of`.
        columns: bits of weight 2^k, [m_k, w] each, m_k ≥ 1.

    Returns:
        Its bits, the lowest first: len(columns) times [1, w].

    Cost: about log₁.₅ m_0 + len(columns) rounds, and an AND for each bit but those of the highest weight.
    """
    left = list(columns)
    while True:
        left[-1] = reduce(ShownBits.__xor__, (left[-1][row : row + 1] for row in range(len(left[-1]))))
        done = next((weight for weight, column in enumerate(left) if len(column) > 1), None)
        if done is None:
            return left
        adders = [_adder(column, weight == done) for weight, column in enumerate(left[:-1])]
        busy = [weight for weight, adder in enumerate(adders) if adder is not None]
        ands = await machine.run(*(and_bits(*adder.operands) for adder in adders if adder is not None))
        carries = [joint ^ adder.first.share(machine.place) for joint, adder in zip(ands, filter(None, adders), strict=True)]
        opened = dict(zip(busy, await machine.run(*(show_bits(carry) for carry in carries)), strict=True))
        for weight in busy:
            made = adders[weight]
            assert made is not None
            left[weight] = join_rows([made.sums, made.rest])
        for weight, carry in opened.items():
            left[weight + 1] = join_rows([left[weight + 1], carry])


@dataclass(frozen=True)
class _Adders:
    """Full adders of a, b, c: the sum is a ⊕ b ⊕ c, the carry (a ⊕ b)(a ⊕ c) ⊕ a."""

    first: ShownBits
    operands: tuple[ShownBits, ShownBits]
    sums: ShownBits
    rest: ShownBits


def _adder(bits: ShownBits, lowest: bool) -> _Adders | None:
    """What adds as many of some bits of one weight as can be; two of them alone only where no carry comes any more."""
    count = len(bits) // 3
    if len(bits) == 2 and lowest:  # with a zero
        bits, count = join_rows([bits, public(np.zeros_like(bits.mask[:1]))]), 1
    if not count:
        return None
    a, b, c = (bits[start : 3 * count : 3] for start in range(3))
    return _Adders(a, (a ^ b, a ^ c), a ^ b ^ c, bits[3 * count :])
