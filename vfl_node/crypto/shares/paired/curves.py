"""Sums of sines of two parties' shares.

::

    θ_j        the angle of each party's share: the period is a power of two, so θ = θ_0 + θ_1
    sin kθ  =  sin kθ_0 · cos kθ_1 + cos kθ_0 · sin kθ_1
    Σ c_k·sin kθ  =  ⟨u, v⟩     u of the active party, with c_k and all that only it adds;  v of the other: 2K numbers each

The inner product is one modulo a prime t below 2⁴⁰, of random vectors that were made ahead: each party opens its vector less
the random one, 5 bytes a number. Both shares of a sum below t/2 are below t, so the sum has wrapped around exactly if one of
them is above t/2. So one bit product lifts it to 2⁶⁴ and cuts it.

Source: ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from vfl_node.crypto.lattice.parameters import SLOT_PRIME
from vfl_node.crypto.lattice.slots import multiply_modulo
from vfl_node.crypto.shares.kits import Curved
from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.operation import DEALER, Material, Opening, Operation
from vfl_node.crypto.shares.paired.correlations import InnerProducts
from vfl_node.crypto.shares.paired.operations import choose
from vfl_node.crypto.shares.paired.tools import nothing
from vfl_node.crypto.shares.ring import FRACTION, Ring
from vfl_node.crypto.shares.sines import ANGLE_BITS, ONE, PERIOD_BITS, Series, scale_sines, sines_and_cosines
from vfl_node.crypto.shares.values import Shared

_MODULUS = np.uint64(SLOT_PRIME)
_RESIDUE_BITS = 40
_HALF = 1 << 38  # a sum, with twice FRACTION fractional bits, is below 2^38 either way
_ONE = np.uint64(1)


async def bend(machine: ShareMachine, value: Shared, series: Series, curved: Curved) -> Shared:
    """A sum of sines of a value, [n, K], plus numbers of the active party, times a public number; :data:`FRACTION` bits.

    Two rounds. A result is below ±4, and rounded down or one more by a coin, right on average.
    """
    (sums,) = await machine.run(_add_sines(value, series, curved))
    shape = value.shape
    above = (sums > np.uint64(SLOT_PRIME // 2)).astype(np.uint64)
    unit = np.uint64(SLOT_PRIME >> FRACTION)
    (both,) = await machine.run(choose(0, above, above * unit, shape))
    if machine.place == DEALER:
        return Shared(nothing(shape), FRACTION)
    cut = (sums >> np.uint64(FRACTION)) - above * unit + both
    return Shared(cut - np.uint64(_HALF >> FRACTION) + _ONE if machine.place == 0 else cut, FRACTION)


def _add_sines(value: Shared, series: Series, curved: Curved) -> Operation[Ring]:
    """A party's share of the sum modulo t, with twice :data:`FRACTION` fractional bits, and 2³⁸ added."""
    shape, rows = value.shape, prod(value.shape)
    terms = 2 * series.terms
    correlation = InnerProducts(terms, rows)

    def shares(place: int, material: Material) -> Sequence[Ring]:
        hidden = _add(_vector(place, value, series, curved), _MODULUS - material["factors"])
        return (hidden, nothing(hidden.shape)) if place == 0 else (nothing(hidden.shape), hidden)

    def result(place: int, opened: Sequence[Ring], material: Material) -> Ring:
        if place == DEALER:
            return nothing(shape)
        theirs = _reduce(opened[1 - place])  # of 40 bits, so below twice the modulus
        own, total = _vector(0, value, series, curved) if place == 0 else material["factors"], material["share"]
        for first, second in zip(own, theirs, strict=True):
            total = _add(total, multiply_modulo(first, second, SLOT_PRIME))
        if place == 0:
            offset = (curved.offset.view(np.int64) * curved.mantissa >> np.int64(curved.bits)).ravel() + np.int64(_HALF)
            total = _add(total, _residues(offset))
        return total.reshape(shape)

    shown = tuple(Opening((terms, rows), to=1 - place, by=place, bits=_RESIDUE_BITS) for place in (0, 1))
    return Operation(result, shown=shown, shares=shares, paired=correlation)


def _vector(place: int, value: Shared, series: Series, curved: Curved) -> Ring:
    """u or v, residues uint64[2K, n]."""
    bits = value.fraction + PERIOD_BITS
    angles = (value.part.ravel() & np.uint64((1 << bits) - 1)) >> np.uint64(bits - ANGLE_BITS)
    vector = np.empty((2 * series.terms, len(angles)), np.uint64)
    for term, (coefficient, multiple) in enumerate(zip(series.coefficients, series.multiples, strict=True)):
        sin, cos = sines_and_cosines(angles, multiple)
        scale = round(coefficient * curved.factor * curved.mantissa / 2**curved.bits) if place == 0 else ONE
        first, second = (sin, cos) if place == 0 else (cos, sin)
        vector[2 * term] = scale_sines(first, scale, FRACTION)
        vector[2 * term + 1] = scale_sines(second, scale, FRACTION)
    return _residues(vector.view(np.int64))


def _residues(numbers: np.ndarray) -> Ring:
    """Integers between −t and t, modulo t; without a branch or a division, as everything here."""
    return np.asarray(numbers + (numbers >> np.int64(63) & np.int64(SLOT_PRIME))).view(np.uint64)


def _add(first: Ring, second: Ring) -> Ring:
    """The sum of two residues, or of a residue and t."""
    return _reduce(first + second)


def _reduce(numbers: Ring) -> Ring:
    """Numbers up to 2t, modulo t."""
    return numbers - (_MODULUS & (np.uint64(0) - (numbers >= _MODULUS).astype(np.uint64)))
