"""A histogram of secret numbers, in shares: how much falls into each bin, without anybody seeing a number.

A number z is opened under a mask r, modulo the range of the bins. The dealer shares for each row a vector that is 1 at the bin
of r and 0 elsewhere; turned by the bin of the opened difference it is 1 at the bin of z, or at the one below it. A row counts
by secret amounts t, opened under masks s as τ = t − s: the dealer shares the same vector times s, too ::

    row's share of the histogram = turn(v·τ + v·s, bin of z − r)        v = 1 at the bin of r

Which of the two bins it is, is a coin whose odds are where z lies between them: on average z counts in the right place.

Source: ours.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vfl_node.crypto.shares.operation import DEALER, Drawn, Material, Opening, Operation
from vfl_node.crypto.shares.ring import Ring
from vfl_node.crypto.shares.values import Shared

RANGE_BITS = 5
RANGE = 2.0**RANGE_BITS
"""Bins lie between −RANGE/2 and RANGE/2."""

_NUMBERS_AT_ONCE = 1 << 18

LEAST_AT_ONCE = 16
"""So that rounds do not become too many."""


def rows_at_once(bins: int, histograms: int = 1) -> int:
    """How many rows are counted in a round, at least :data:`LEAST_AT_ONCE`.

    A row has as many numbers in memory as all histograms have bins, three times and more.
    """
    return max(_NUMBERS_AT_ONCE // (bins * histograms), LEAST_AT_ONCE)


def tallied(values: Shared, amounts: Shared, bins: int, range_bits: int = RANGE_BITS) -> Operation[Shared]:
    """How much falls into each bin.

    Args:
        values: of some rows, [n], with fractional bits; beyond half of the range they count in a wrong bin.
        amounts: of these rows, [n, c], without fractional bits.
        bins: how many, a power of two.
        range_bits: of their range, 2^range_bits.

    Returns:
        [bins, c], without fractional bits.

    Opens 7 bytes and 8·c for each row; the dealer sends 8·bins·(1 + c).
    """
    (rows,), columns = values.shape, amounts.shape[1]
    bits = values.fraction + range_bits
    modulus, cut = np.uint64((1 << bits) - 1), np.uint64(bits - bins.bit_length() + 1)

    def places(of: Ring) -> np.ndarray:
        return ((of & modulus) >> cut).astype(np.intp)

    def correlated(values: Material) -> Material:
        one = np.zeros((rows, bins, 1), np.uint64)
        one[np.arange(rows), places(values["mask"])] = 1
        return {"one": one, "amounts": one * values["amount mask"][:, None]}

    def shares(place: int, material: Material) -> Sequence[Ring]:
        return (values.part - material["mask"]) & modulus, amounts.part - material["amount mask"]

    def result(place: int, opened: Sequence[Ring], material: Material) -> Shared:
        total = np.zeros((bins, columns), np.uint64)
        if place != DEALER:
            counted = material["one"] * opened[1][:, None] + material["amounts"]
            half = bins // 2  # numbers from −RANGE/2 on
            turned = (np.arange(bins) - half - places(opened[0])[:, None]) % bins
            total += np.take_along_axis(counted, turned[:, :, None], axis=1).sum(axis=0, dtype=np.uint64)
        return Shared(total, 0)

    return Operation(
        result,
        drawn=(Drawn("mask", (rows,)), Drawn("amount mask", (rows, columns))),
        dealt={"one": (rows, bins, 1), "amounts": (rows, bins, columns)},
        correlated=correlated,
        shown=(Opening((rows,), bits=bits), Opening((rows, columns))),
        shares=shares,
    )


def centres(bins: int) -> np.ndarray:
    """The number for which each bin stands, float64[bins]."""
    width = RANGE / bins
    return np.asarray(-RANGE / 2 + width * (np.arange(bins) + 1))
