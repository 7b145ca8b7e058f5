"""Operations that two parties do with what they have made ahead.

====================  ========================================  ==========================================
operation             opens                                     made ahead, for each value
====================  ========================================  ==========================================
:func:`choose`        a bit and a number, each under a mask     a random transfer
:func:`truncate`      the same                                  a random transfer
:func:`multiply`      128 bits and numbers                      128 random transfers
:func:`known_product` the other's share under a mask            a share of the product with that mask
:func:`draw_noise`    nothing                                   nothing
====================  ========================================  ==========================================

Source: Gilboa 1999 (products by transfers); the truncation is that of Escudero, Ghosh, Keller, Rachuri and Scholl 2020, 5.1,
with the top bits of shares in place of a dealt one.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.noise import variance_of
from vfl_node.crypto.shares.operation import DEALER, Drawn, Material, Opening, Operation, Shape
from vfl_node.crypto.shares.paired.correlations import Linear, OwnNoise, Transfers
from vfl_node.crypto.shares.paired.tools import BlockMatrix, nothing
from vfl_node.crypto.shares.ring import BITS, Ring, matmul
from vfl_node.crypto.shares.values import Shared
from vfl_node.crypto.transfer import products

_CENTRE = 62  # a truncation takes numbers from −2^62 to 2^62
_ONE = np.uint64(1)


def choose(receiver: int, bits: Ring | None, numbers: Ring | None, shape: Shape, kept: int = BITS) -> Operation[Ring]:
    """Shares of c·v, number by number: a bit c of one party times a number v of the other.

    Args:
        receiver: place of the party that has the bits.
        bits: uint64[…] of 0 and 1 at that party; not read elsewhere.
        numbers: uint64[…] at the other one; not read elsewhere.
        shape: of both.
        kept: of a share only so many low bits count.

    The receiver opens a byte for each, the other party as many bytes as count (:mod:`vfl_node.crypto.transfer.products`).
    """
    sender, count = 1 - receiver, prod(shape)

    def shares(place: int, material: Material) -> Sequence[Ring]:
        if place == receiver:
            assert bits is not None
            return products.hide_bits(_bits_of(material), bits.reshape(count)).reshape(shape), nothing(shape)
        assert numbers is not None
        return nothing(shape), products.hide_numbers(_numbers_of(material), numbers.reshape(count)).reshape(shape)

    def result(place: int, opened: Sequence[Ring], material: Material) -> Ring:
        if place == DEALER:
            return nothing(shape)
        if place == receiver:
            assert bits is not None
            random = _bits_of(material)
            hidden = products.hide_bits(random, bits.reshape(count))
            return products.multiply_bits(random, hidden, opened[1].reshape(count)).reshape(shape)
        return products.multiply_numbers(_numbers_of(material), opened[0].reshape(count)).reshape(shape)

    return Operation(
        result,
        shown=(Opening(shape, to=sender, by=receiver, bits=1), Opening(shape, to=receiver, by=sender, bits=kept)),
        shares=shares,
        paired=Transfers(receiver, count),
    )


def _bits_of(material: Material) -> products.RandomBits:
    return products.RandomBits(material["bits"], material["share"])


def _numbers_of(material: Material) -> products.RandomNumbers:
    return products.RandomNumbers(material["numbers"], material["share"])


def truncate(value: Shared, bits: int) -> Operation[Shared]:
    """A value without its lowest ``bits`` bits, for −2⁶² ≤ x < 2⁶².

    With x + 2⁶² in shares, of which m₀ and m₁ are the top bits ::

        wrap = m₀ + m₁ − m₀·m₁
        x >> F  =  Σ (share >> F) − wrap·2^(64−F) − 2^(62−F) + 1     or one less, by a coin

    A sum below 2⁶³ of two shares has wrapped around exactly if one of them at least is 2⁶³ or more. Shares get a number
    that both parties know added and taken away: so the coin has the right odds whatever they came from. The mean is 2⁻ᶠ of a
    unit too high.
    """
    fraction, shape = value.fraction - bits, value.shape
    low, unit = np.uint64(bits), np.uint64(1 << (BITS - bits))

    def fresh(place: int, material: Material) -> Ring:
        if place == 0:
            return value.part + np.uint64(1 << _CENTRE) + material["zero"]
        return value.part - material["zero"]

    def chosen(place: int, material: Material) -> Operation[Ring]:
        top = fresh(place, material) >> np.uint64(BITS - 1)
        return choose(0, top, top * unit, shape)

    def shares(place: int, material: Material) -> Sequence[Ring]:
        return chosen(place, material).shares(place, material)

    def result(place: int, opened: Sequence[Ring], material: Material) -> Shared:
        if place == DEALER:
            return Shared(nothing(shape), fraction)
        both = chosen(place, material).result(place, opened, material)
        share = fresh(place, material)
        cut = (share >> low) - (share >> np.uint64(BITS - 1)) * unit + both
        return Shared(cut - np.uint64(1 << (_CENTRE - bits)) + _ONE if place == 0 else cut, fraction)

    bits_chosen = choose(0, None, None, shape)
    drawn = (Drawn("zero", shape, common=True),)
    return Operation(result, drawn=drawn, shown=bits_chosen.shown, shares=shares, paired=bits_chosen.paired)


async def multiply(machine: ShareMachine, left: Shared, right: Shared) -> Shared:
    """The product of shared numbers, number by number: bit by bit of one share times the other party's share. One round.

    Opens 128 bytes and 128 numbers for each.
    """
    shape, places = (*left.shape, BITS), np.arange(BITS, dtype=np.uint64)
    bits = (left.part[..., None] >> places) & _ONE
    numbers = right.part[..., None] << places
    # The share of `left` at each party is read bit by bit, and multiplied by the share of `right` at the other one.
    made = await machine.run(*(choose(receiver, bits, numbers, shape) for receiver in (0, 1)))
    part = left.part * right.part
    for each in made:
        part = part + each.sum(axis=-1, dtype=np.uint64)
    return Shared(part, left.fraction + right.fraction)


def known_product(matrix: BlockMatrix, value: Shared) -> Operation[Shared]:
    """The product of a matrix that one party knows and a shared value.

    With a random b of the other party, of which both have shares c of X·b ::

        f = w_j − b  opened to the owner o        o: X·(w_o + f) + c_o        j: c_j
    """
    owner, fraction = matrix.owner, matrix.fraction + value.fraction
    rows, _columns = matrix.shape
    shape = rows, value.shape[1]

    def shares(place: int, material: Material) -> Sequence[Ring]:
        return (nothing(value.shape) if place == owner else value.part - material["mask"],)

    def result(place: int, opened: Sequence[Ring], material: Material) -> Shared:
        if place == DEALER:
            return Shared(nothing(shape), fraction)
        if place != owner:
            return Shared(material["product"], fraction)
        assert matrix.part is not None
        return Shared(matmul(matrix.part, value.part + opened[0]) + material["product"], fraction)

    correlation = Linear(owner, matrix.tiles, matrix.blocks, value.shape[1], matrix.is_transposed)
    return Operation(result, shown=(Opening(value.shape, to=owner, by=1 - owner),), shares=shares, paired=correlation)


def draw_noise(shape: Shape, deviation: float | Sequence[float], fraction: int) -> Operation[Shared]:
    """Discrete Gaussian numbers of which each party draws one of the full width as its share, ahead of need.

    The other party knows nothing of it, so what is opened has noise of the full width for everybody: for a party that is the
    other's, for anybody else the sum of both. Opens nothing.

    Args:
        shape: of them.
        deviation: σ, or that of each column, public.
        fraction: fractional bits of the numbers.
    """

    def result(place: int, opened: object, material: Material) -> Shared:
        return Shared(nothing(shape) if place == DEALER else material["noise"].reshape(shape), fraction)

    return Operation(result, paired=_noise(shape, deviation, fraction))


def draw_apart(shape: Shape, deviations: Sequence[float]) -> Operation[Ring]:
    """A party's own noise, uint64[…], which it keeps; likewise."""

    def result(place: int, opened: object, material: Material) -> Ring:
        return nothing(shape) if place == DEALER else material["noise"].reshape(shape)

    return Operation(result, paired=_noise(shape, deviations, 0))


def _noise(shape: Shape, deviation: float | Sequence[float], fraction: int) -> OwnNoise:
    deviations = [deviation] if isinstance(deviation, float) else deviation
    return OwnNoise(prod(shape), tuple(variance_of(one, fraction) for one in deviations))
