"""The K nearest of one party's filters for each filter of the other one, in shares: no distance is open to anybody.

::

    c_ij = x_i·y_j        X of the one party and Y of the other; the dealer knows the masks R and S of both
                          X·Y = X·(Y − S) + (X − R)·S + R·S: the first term is A's, the second B's, the third is dealt
    d_ij = |x_i| + |y_j| − 2·c_ij
    key  = d_ij·2^b + j   the K smallest; of equal distances the smaller place, as in a search over open filters
    e_ij                  whether the key of j begins like that of the K-th one; first c_ij > 0: who is within reach
    z_ij = e_ij·¬bit      of those the keys whose next bit is 0
    s_i  = rank_i − Σ_j z_ij           rank_i: how many are before the K-th one; first K − 1
           s_i < 0: the K-th is among z, all others leave;  else all of z are found, and it is among the others

So the K-th key is found bit by bit, from the highest, and each of them costs a sum of bits instead of a comparison of numbers.
Nothing of keys, sums and ranks is opened. Bits of a place are public and save half of the sum. Where fewer than K are within
reach, all of them are found: the K-th key is then a number of ones.

Source: ours, from known parts: radix selection; :mod:`vfl_node.crypto.shares.bits`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.rows import Rows
from vfl_node.crypto.shares.bits import Bits, ShownBits, add_bits, and_bits, bits_of, join_rows, or_bits, public, show_bits
from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.operation import DEALER, Drawn, Material, Opening, Operation
from vfl_node.crypto.shares.ring import Ring
from vfl_node.crypto.shares.sizes import block_bits, ring_bits
from vfl_node.crypto.shares.values import Shared
from vfl_node.errors import ProtocolError

NONE = -1
"""In place of a row that is chosen."""


async def distances(machine: ShareMachine, rows: tuple[int, int], bits: int, own: Rows | None) -> tuple[Shared, Shared]:
    """How many ones two filters have in common, and in how many bits they differ.

    Args:
        machine: of party 0, party 1 or their dealer.
        rows: n of party 0 and m of party 1.
        bits: of a filter, a multiple of 8.
        own: uint8[n or m, bits / 8], this party's filters; None at the dealer.

    Returns:
        Both [n, m], modulo 2^:func:`~vfl_node.crypto.shares.sizes.ring_bits`.

    Cost: a round for each block of bits. Each party sends 2 bytes for each bit of each of its filters, 3 from 2¹⁵ bits on; the
    dealer 8 bytes a pair. Memory: 16 bytes a pair, and what a block takes.
    """
    modulus, shape, step = ring_bits(bits), rows, block_bits(bits, rows)
    total, ones = np.zeros(shape, np.uint64), np.zeros(rows[max(machine.place, 0)], np.uint64)
    for start in range(0, bits, step):
        width = min(step, bits - start)
        block = None
        if own is not None:
            block = np.unpackbits(own[:, start // 8 : (start + width) // 8], axis=1).astype(np.uint64)
            ones += block.sum(axis=1, dtype=np.uint64)
        (part,) = await machine.run(cross_product(block, rows, width, modulus))
        total += part
    (common,) = await machine.run(deal(total))
    apart = common.times(-2)
    if machine.place != DEALER:
        apart = Shared(apart.part + (ones[None] if machine.place else ones[:, None]), 0)
    return common, apart


def cross_product(own: Ring | None, rows: tuple[int, int], width: int, bits: int) -> Operation[Ring]:
    """The products of some columns of both parties' matrices, X·Yᵀ modulo 2^bits, without what only the dealer knows.

    Args:
        own: uint64[n, width] at party 0, uint64[m, width] at party 1, zeros and ones; None at the dealer.
        rows: n and m.
        width: columns; below 2^(53 − 2·bits).
        bits: of the numbers.

    Returns (as result): uint64[n, m]; those of all parties and of the dealer, who has its own alone, sum to the products.
    """
    low, shapes = np.uint64((1 << bits) - 1), tuple((count, width) for count in rows)

    def shares(place: int, material: Material) -> Sequence[Ring]:
        assert own is not None
        return [
            (own - material[f"mask {at}"]) & low if at == place else np.zeros(shape, np.uint64)
            for at, shape in enumerate(shapes)
        ]

    def result(place: int, opened: Sequence[Ring], material: Material) -> Ring:
        left = material["mask 0"] & low if place == DEALER else own if place == 0 else opened[0]
        right = opened[1] if place == 0 else material["mask 1"] & low
        assert left is not None
        return _product(left, right) & low

    return Operation(
        result,
        drawn=tuple(Drawn(f"mask {at}", shape, owner=at, lasting=True) for at, shape in enumerate(shapes)),
        shown=tuple(Opening(shape, by=at, bits=bits) for at, shape in enumerate(shapes)),
        shares=shares,
    )


def _product(left: Ring, right: Ring) -> Ring:
    """left·rightᵀ, exact: sums are below 2^53."""
    return (left.astype(np.float64) @ right.astype(np.float64).T).astype(np.uint64)


def deal(known: Ring) -> Operation[Shared]:
    """What the dealer knows, in shares; a party's own number is added. Opens nothing; the dealer sends 8 bytes a number."""

    def result(place: int, opened: Sequence[Ring], material: Material) -> Shared:
        return Shared(np.zeros(known.shape, np.uint64) if place == DEALER else known + material["number"], 0)

    return Operation(result, dealt={"number": known.shape}, correlated=lambda values: {"number": known})


async def nearest(machine: ShareMachine, common: Shared, apart: Shared, bits: int, count: int) -> Bits:
    """Which of party 1's rows are the ``count`` nearest of each of party 0's.

    Args:
        machine: of party 0, party 1 or their dealer.
        common: [n, m], ones that two filters have in common; where it is 0 the row is no candidate.
        apart: [n, m], in how many bits they differ.
        bits: of a filter.
        count: K, 1 to m.

    Returns:
        [m, w], ones where a row of party 1 is chosen for one of party 0.

    Cost, with k bits of a filter's number of bits and b of m: about (k + b)·(2·log₂ m + 3) rounds; for each pair each party
    sends 6·k + 1.5·b bits and the numbers' low bits twice, the dealer about 9·k + 1.5·b bits.
    """
    width = bits.bit_length()
    reach = await or_bits(machine, await bits_of(machine, common, width))
    return await _select_least(machine, reach, await bits_of(machine, apart, width), count)


async def _select_least(machine: ShareMachine, left: Bits, digits: Sequence[ShownBits], count: int) -> Bits:
    """The ``count`` least keys of those in ``left``: [m, w]. ``digits``: of the numbers, the lowest first."""
    rows, words = left.part.shape
    ties, place = (rows - 1).bit_length(), machine.place
    chosen, rank = Bits(np.zeros_like(left.part)), _number(count - 1, rows.bit_length() + 1, words)
    for weight in reversed(range(len(digits) + ties)):
        (open_left,) = await machine.run(show_bits(left))
        if weight >= ties:
            (low,) = await machine.run(and_bits(open_left, digits[weight - ties].inverted))
            (open_low,) = await machine.run(show_bits(low))
            places: Sequence[int] | NDArray[np.intp] = np.arange(rows)
        else:
            places = np.flatnonzero(np.arange(rows) >> weight & 1 == 0)
            open_low, low = open_left[places], left[places]
        ranks = await _subtract_ones(machine, rank, open_low)
        below, changed = ranks[-1], join_rows(ranks) ^ rank
        stay, back = await machine.run(and_bits(below, open_left), and_bits(below, changed))
        (low_stay,) = await machine.run(and_bits(below, open_low)) if weight >= ties else (stay[places],)
        left = left ^ stay
        left.part[places] ^= low.part
        chosen.part[places] ^= (low ^ low_stay).part
        (rank,) = await machine.run(show_bits(join_rows(ranks).share(place) ^ back))
    return chosen ^ left


async def _subtract_ones(machine: ShareMachine, rank: ShownBits, ones: ShownBits) -> list[ShownBits]:
    """A number less the ones in each column, in two's complement: rank + Σ ¬z − m, and only once all carries are added."""
    width = len(rank)
    less = _number(-len(ones), width, rank.mask.shape[1])
    columns = [join_rows([rank[bit : bit + 1], less[bit : bit + 1]]) for bit in range(width)]
    columns[0] = join_rows([columns[0], ones.inverted])
    return await add_bits(machine, columns)


def _number(value: int, width: int, words: int) -> ShownBits:
    """A public number in each column, [width, words], the lowest bit first."""
    return public(np.array([[np.uint64(-(value >> bit & 1) % (1 << 64))] * words for bit in range(width)], np.uint64))


def pick(value: Shared, bits: int, count: int, places: NDArray[np.intp] | None) -> Operation[tuple[Shared, Ring]]:
    """Some columns of each row, which party 1 alone knows.

    With a random order ρ of the columns for each row, of which party 1 and the dealer know, and a mask a of party 0's shares v:
    v − a is opened to party 1, and where a column that it wants is in ρ to party 0. The dealer deals a in the order ρ. So party
    0 sees different numbers, uniform ones, whatever is wanted.

    Args:
        value: [n, m], modulo 2^bits.
        bits: of the numbers.
        count: K, how many columns of each row.
        places: int[n, K] at party 1, different columns in each row, :data:`NONE` for none; None elsewhere.

    Returns (as result): the numbers [n, K], 0 for none, and uint64[n, K], 1 where there is one; zeros at the dealer.

    Opens the low bytes of a number for each pair to party 1, 4 bytes for each that is wanted to party 0; the dealer sends party
    1 8 bytes a pair. Raises ProtocolError at party 0: a place that is none (``E_ELEMENT``).
    """
    shape, low = value.shape, np.uint64((1 << bits) - 1)
    wanted = (shape[0], count)

    def correlate(values: Material) -> Material:
        return {"moved": np.take_along_axis(values["mask"], _order(values["order"]), axis=1)}

    def shares(place: int, material: Material) -> Sequence[Ring]:
        if place == 0:
            return (value.part - material["mask"]) & low, np.zeros(wanted, np.uint64)
        assert places is not None
        inverse = np.argsort(_order(material["order"]), axis=1)
        at = np.where(places == NONE, shape[1], np.take_along_axis(inverse, np.maximum(places, 0), axis=1))
        return np.zeros(shape, np.uint64), at.astype(np.uint64)

    def result(place: int, opened: Sequence[Ring], material: Material) -> tuple[Shared, Ring]:
        if place == DEALER:
            return Shared(np.zeros(wanted, np.uint64), 0), np.zeros(wanted, np.uint64)
        at = opened[1].astype(np.int64)
        if (at > shape[1]).any():
            raise ProtocolError("a party asks for a place that no record has", code="E_ELEMENT")
        found = at < shape[1]
        part = np.take_along_axis(material["moved"], np.where(found, at, 0), axis=1)
        if places is not None:
            part = part + np.take_along_axis(opened[0] + value.part, np.maximum(places, 0), axis=1)
        return Shared(part * found, 0), found.astype(np.uint64)

    return Operation(
        result,
        drawn=(Drawn("mask", shape, owner=0), Drawn("order", shape, owner=1)),
        dealt={"moved": shape},
        correlated=correlate,
        shown=(Opening(shape, by=0, bits=bits), Opening(wanted, by=1, bits=32)),
        shares=shares,
        receiver=1,
    )


def _order(keys: Ring) -> NDArray[np.intp]:
    return np.argsort(keys, axis=1, kind="stable")


def lift(value: Shared, bits: int) -> Operation[Shared]:
    """Numbers 0 ≤ x < 2^(bits − 1) that are shared modulo 2^bits, shared modulo 2⁶⁴.

    c = x + r is opened. It has wrapped around exactly if its top bit is 0 and that of r is 1. The dealer sends 16 bytes each.
    """
    low, top = np.uint64((1 << bits) - 1), np.uint64(bits - 1)

    def correlate(values: Material) -> Material:
        mask = values["mask"] & low
        return {"low": mask, "top": mask >> top}

    def result(place: int, opened: Sequence[Ring], material: Material) -> Shared:
        if place == DEALER:
            return Shared(np.zeros(value.shape, np.uint64), 0)
        part = ((opened[0] >> top) ^ np.uint64(1)) * material["top"] * np.uint64(1 << bits) - material["low"]
        return Shared(part + opened[0] if place == 0 else part, 0)

    return Operation(
        result,
        drawn=(Drawn("mask", value.shape),),
        dealt=dict.fromkeys(("low", "top"), value.shape),
        correlated=correlate,
        shown=(Opening(value.shape, bits=bits),),
        shares=lambda place, material: ((value.part + material["mask"]) & low,),
    )
