"""What can be done with shares.

=====================  =====================================================  ================================
operation              opens                                                  from the dealer, for each value
=====================  =====================================================  ================================
:func:`mask_value`     the value under a mask                                 nothing
:func:`reveal`         the value itself, to everybody or to one party         nothing
:func:`product`        nothing: both operands are open under masks            a number for each of the product
:func:`mask_known`     a matrix of one party under a mask, once               nothing
:func:`known_product`  the shared operand under a mask, to the matrix' owner  a number for each of the product
:func:`truncate`       the value under a mask of 64 bits                      2 numbers
:func:`sum_sines`      the value under a mask, modulo the period              2·K numbers
=====================  =====================================================  ================================

A mask belongs to one value: whoever sees two values under one mask has their difference. Machines see to that.

Every opened number but those of :func:`reveal` is uniform, whatever the value is. A truncation rounds down and may add one
unit in the last place, with the part cut off as its probability: on average it is exact. So what is opened later is a value
rounded by coins that those who see the masked value know.

Sources: Beaver 1991 (products); Escudero, Ghosh, Keller, Rachuri and Scholl 2020, 5.1 (truncation with a top bit).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from vfl_node.crypto.shares.operation import DEALER, Drawn, Material, Opening, Operation, Shape
from vfl_node.crypto.shares.ring import BITS, FRACTION, Ring, add_shares, matmul
from vfl_node.crypto.shares.sines import ANGLE_BITS, ONE, PERIOD_BITS, Series, scale_sines, sines_and_cosines
from vfl_node.crypto.shares.values import KnownToOne, Opened, Shared

Kind = Literal["matrices", "numbers"]
"""What a product is: that of matrices, or number by number."""

_CENTRE = 62  # a truncation takes numbers from −2^62 to 2^62


def mask_value(value: Shared, bits: int = BITS) -> Operation[Opened]:
    """A value under a mask, ready for any number of products (:func:`product`); only its ``bits`` low bits, if not all."""
    low = np.uint64((1 << bits) - 1)

    def shares(place: int, material: Material) -> Sequence[Ring]:
        return ((value.part - material["mask"]) & low,)

    def result(place: int, opened: Sequence[Ring], material: Material) -> Opened:
        return Opened(opened[0], material["mask"], value.fraction)

    drawn = (Drawn("mask", value.shape, lasting=True),)
    return Operation(result, drawn=drawn, shown=(Opening(value.shape, bits=bits),), shares=shares)


def mask_apart(value: Shared, parties: int) -> Operation[Opened]:
    """As :func:`mask_value`, where the dealer keeps the share of each party apart (:func:`~.cells.sum_cells`)."""
    names = [f"mask {place}" for place in range(parties)]

    def shares(place: int, material: Material) -> Sequence[Ring]:
        return (value.part - material[names[place]],)

    def result(place: int, opened: Sequence[Ring], material: Material) -> Opened:
        if place != DEALER:
            return Opened(opened[0], material[names[place]], value.fraction)
        each = tuple(material[name] for name in names)
        return Opened(opened[0], add_shares(each, value.shape), value.fraction, each)

    drawn = tuple(Drawn(name, value.shape, owner=place, lasting=True) for place, name in enumerate(names))
    return Operation(result, drawn=drawn, shown=(Opening(value.shape),), shares=shares)


def reveal(value: Shared, to: int | None = None, bits: int = BITS) -> Operation[Ring]:
    """The value itself, uint64[…], for everybody or for one party; zeros elsewhere. The only operation that tells something.

    Args:
        value: what is told.
        to: place of the only party that gets it; None: everybody.
        bits: only so many low ones are told, and no carry into others: of a share no others are sent.
    """
    low = np.uint64((1 << bits) - 1)

    def result(place: int, opened: Sequence[Ring], material: Material) -> Ring:
        return opened[0]

    return Operation(result, shown=(Opening(value.shape, to, bits=bits),), shares=lambda place, material: (value.part & low,))


def product(left: Opened, right: Opened, kind: Kind = "matrices") -> Operation[Shared]:
    """The product of two values that are open under masks, without a message: (d + a)(e + b) = de + db + ae + ab."""
    times, shape = _product(kind, left.mask.shape, right.mask.shape)
    fraction = left.fraction + right.fraction

    def correlate(values: Material) -> Material:
        return {"product": times(left.mask, right.mask)}

    def result(place: int, opened: Sequence[Ring], material: Material) -> Shared:
        if place == DEALER:
            return Shared(np.zeros(shape, np.uint64), fraction)
        first = left.mask + left.difference if place == 0 else left.mask
        part = material["product"] + times(left.difference, right.mask) + times(first, right.difference)
        return Shared(part, fraction)

    return Operation(result, dealt={"product": shape}, correlated=correlate)


def mask_known(
    owner: int, shape: Shape, fraction: int, matrix: Ring | None = None, *, keeps: bool = False
) -> Operation[KnownToOne]:
    """A matrix that one party knows, ready for any number of products: the others get it under a mask.

    Args:
        owner: place of that party.
        shape: of the matrix.
        fraction: its fractional bits.
        matrix: uint64[n, d] at its owner; None elsewhere.
        keeps: whether the owner keeps the mask, too: it checks products with that (:mod:`vfl_node.crypto.shares.audit`).
    """

    def shares(place: int, material: Material) -> Sequence[Ring]:
        return (np.zeros(shape, np.uint64) if matrix is None else matrix - material["mask"],)

    def result(place: int, opened: Sequence[Ring], material: Material) -> KnownToOne:
        if place == DEALER:
            return KnownToOne(owner, material["mask"], fraction)
        return KnownToOne(owner, opened[0] if matrix is None else matrix, fraction, material.get("mask") if keeps else None)

    return Operation(
        result, drawn=(Drawn("mask", shape, owner=owner, lasting=True),), shown=(Opening(shape, by=owner),), shares=shares
    )


def known_product(matrix: KnownToOne, value: Shared, kind: Kind = "matrices") -> Operation[Shared]:
    """The product of a matrix that one party knows and a shared value.

    With X = E + R, of which the owner o knows X, everybody else E, and the dealer R ::

        b_j  a mask of each other party's share      f = Σ_{j≠o} (w_j − b_j)  opened to o      c  shares of R·Σ b_j
        o: X·(w_o + f) + c_o                          j: E·b_j + c_j

    The owner alone may get what is dealt: c_o tells whoever learns the other shares R·b, and with b equations of X
    (:mod:`vfl_node.crypto.shares.audit`).
    """
    times, shape = _product(kind, matrix.part.shape, value.shape)
    owner, fraction = matrix.owner, matrix.fraction + value.fraction

    def correlate(values: Material) -> Material:
        return {"product": times(matrix.part, values["mask"])}

    def shares(place: int, material: Material) -> Sequence[Ring]:
        return (value.part if place == owner else value.part - material["mask"],)

    def result(place: int, opened: Sequence[Ring], material: Material) -> Shared:
        if place == DEALER:
            return Shared(np.zeros(shape, np.uint64), fraction)
        factor = opened[0] if place == owner else material["mask"]
        return Shared(times(matrix.part, factor) + material["product"], fraction)

    return Operation(
        result,
        drawn=(Drawn("mask", value.shape, without=owner),),
        dealt={"product": shape},
        correlated=correlate,
        shown=(Opening(value.shape, to=owner),),
        shares=shares,
        receiver=owner,
    )


def truncate(value: Shared, bits: int) -> Operation[Shared]:
    """A value without its lowest ``bits`` bits, for −2⁶² ≤ x < 2⁶².

    ::

        c = x + 2⁶² + r  opened
        x >> F  =  (c >> F) − (r >> F) + [c < 2⁶³]·(r >> 63)·2^(64−F) − 2^(62−F)   + a carry of 0 or 1

    x + 2⁶² is below 2⁶³, so the sum has wrapped around exactly if its top bit is 0 and that of r is 1. A truncation without the
    top bit fails once in 2^(63 − bits of x), by 2^(64−F), which ruins a model.
    """
    fraction, shape = value.fraction - bits, value.shape

    def correlate(values: Material) -> Material:
        return {"high": values["mask"] >> np.uint64(bits), "top": values["mask"] >> np.uint64(BITS - 1)}

    def shares(place: int, material: Material) -> Sequence[Ring]:
        part = value.part + material["mask"]
        return (part + np.uint64(1 << _CENTRE) if place == 0 else part,)

    def result(place: int, opened: Sequence[Ring], material: Material) -> Shared:
        if place == DEALER:
            return Shared(np.zeros(shape, np.uint64), fraction)
        (sum_,) = opened
        low = (sum_ >> np.uint64(BITS - 1)) ^ np.uint64(1)
        part = low * material["top"] * np.uint64(1 << (BITS - bits)) - material["high"]
        if place == 0:
            part += (sum_ >> np.uint64(bits)) - np.uint64(1 << (_CENTRE - bits))
        return Shared(part, fraction)

    return Operation(
        result,
        drawn=(Drawn("mask", shape),),
        dealt={"high": shape, "top": shape},
        correlated=correlate,
        shown=(Opening(shape),),
        shares=shares,
    )


@dataclass(frozen=True)
class Curve:
    """What comes out of :func:`sum_sines`.

    Attributes:
        value: the function, with twice :data:`FRACTION` fractional bits.
        slope: its derivative, likewise; None unless it was wanted.
    """

    value: Shared
    slope: Shared | None


def sum_sines(value: Shared, series: Series, factor: int = 1, *, slope: bool = False) -> Operation[Curve]:
    """A sum of sines of a value (:mod:`vfl_node.crypto.shares.sines`), times a public integer.

    Only the value modulo the period is opened under a mask. Value and mask are cut to angles of :data:`ANGLE_BITS` bits, so the
    argument is exact to a unit in the last of its :data:`FRACTION` fractional bits.

    Args:
        value: with :data:`FRACTION` fractional bits or more; a larger number than the series is valid for gives nonsense.
        series: the function.
        factor: the integer.
        slope: whether its derivative is wanted, too; that costs nothing on the wire.
    """
    bits, shape = value.fraction + PERIOD_BITS, value.shape
    modulus, cut = np.uint64((1 << bits) - 1), np.uint64(bits - ANGLE_BITS)

    def correlate(values: Material) -> Material:
        angles = (values["mask"] & modulus) >> cut
        each = [sines_and_cosines(angles, multiple) for multiple in series.multiples]
        return {
            name: np.stack([scale_sines(pair[at], ONE, FRACTION) for pair in each]) for at, name in enumerate(("sin", "cos"))
        }

    def shares(place: int, material: Material) -> Sequence[Ring]:
        return ((value.part - material["mask"]) & modulus,)

    def result(place: int, opened: Sequence[Ring], material: Material) -> Curve:
        values, slopes = np.zeros(shape, np.uint64), np.zeros(shape, np.uint64)
        if place != DEALER:
            angles = (opened[0] & modulus) >> cut
            factors = zip(series.multiples, series.coefficients, series.slope_coefficients, strict=True)
            for k, (multiple, rise, rate) in enumerate(factors):
                sin, cos = sines_and_cosines(angles, multiple)
                of_sin, of_cos = material["sin"][k], material["cos"][k]
                values += (
                    scale_sines(sin, factor * rise, FRACTION) * of_cos + scale_sines(cos, factor * rise, FRACTION) * of_sin
                )
                if slope:
                    slopes += (
                        scale_sines(cos, factor * rate, FRACTION) * of_cos - scale_sines(sin, factor * rate, FRACTION) * of_sin
                    )
        return Curve(Shared(values, 2 * FRACTION), Shared(slopes, 2 * FRACTION) if slope else None)

    return Operation(
        result,
        drawn=(Drawn("mask", shape),),
        dealt=dict.fromkeys(("sin", "cos"), (series.terms, *shape)),
        correlated=correlate,
        shown=(Opening(shape, bits=bits),),
        shares=shares,
    )


def _product(kind: Kind, left: Shape, right: Shape) -> tuple[Callable[[Ring, Ring], Ring], Shape]:
    """What multiplies, and the shape of the product."""
    if kind == "matrices":
        return matmul, (left[0], right[1])
    return np.multiply, np.broadcast_shapes(left, right)
