"""Sines as integers, the same on every machine, and bounded odd functions as sums of them.

::

    f(x) ≈ Σ_{i=1…K} c_i · sin(2π·k_i·x / PERIOD)

The period is a power of two, so it divides the ring: sin needs x modulo PERIOD only, and a share of x reduced modulo
PERIOD is a share of that. With an opened difference δ = x − r and shares of sin kr and cos kr ::

    sin k(r + δ) = sin kr · cos kδ + cos kr · sin kδ

every share is multiplied by a public number. If two machines disagreed on that number in its last bit, the result would be off
by a share, which is a uniform 64-bit number. So public factors are made of integers alone: an angle is a multiple of 2π / 2^p,
split into two parts whose sines come from tables that correctly rounded arithmetic (MPFR) computes. :data:`TABLES_DIGEST` pins
them.

Source: ours; the idea of opening an angle is folklore.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import gmpy2
import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.shares.ring import FRACTION

PERIOD_BITS = 6
PERIOD = 2.0**PERIOD_BITS
"""Period of the series, in real units."""

VALID = 0.4 * PERIOD
"""Up to where the series of the last layer approximates its function; that of hidden layers half as far."""

ANGLE_BITS = FRACTION + PERIOD_BITS
"""An angle is an integer modulo 2^ANGLE_BITS."""

TABLES_DIGEST = "9dc01719375863416ea9136c712a991a12a61a0d1d0bd47ceb5f1eaf52a93cf6"
"""SHA-256 of the tables; a party whose tables differ must not take part."""

_LOW_BITS = ANGLE_BITS // 2
_HIGH_BITS = ANGLE_BITS - _LOW_BITS
_TABLE_BITS = 30  # of a sine in a table

ONE = 1 << _TABLE_BITS
"""The coefficient 1."""


@dataclass(frozen=True)
class Series:
    """A function as a sum of sines.

    Attributes:
        coefficients: c_1 … c_K, as integers with :data:`_TABLE_BITS` fractional bits.
        multiples: k_1 … k_K.
    """

    coefficients: tuple[int, ...]
    multiples: tuple[int, ...]

    @property
    def terms(self) -> int:
        """K."""
        return len(self.coefficients)

    def values(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """The function in plain numbers, float64."""
        return np.asarray(np.sin(self._angles(x)) @ self._real, dtype=np.float64)

    def slopes(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Its derivative."""
        return np.asarray(np.cos(self._angles(x)) @ (self._real * self._rates), dtype=np.float64)

    @property
    def slope_coefficients(self) -> tuple[int, ...]:
        """Those of the cosines of the derivative, likewise as integers."""
        return tuple(round(value * 2**_TABLE_BITS) for value in self._real * self._rates)

    @property
    def terms_of_sines(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """In plain numbers: float64[K] before the sines, and float64[K] by which x is multiplied in them."""
        return self._real, self._rates

    @property
    def _real(self) -> NDArray[np.float64]:
        return np.array(self.coefficients, dtype=np.float64) / ONE

    @property
    def _rates(self) -> NDArray[np.float64]:
        return np.asarray(np.array(self.multiples) * (2 * np.pi / PERIOD), dtype=np.float64)

    def _angles(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(x)[..., None] * self._rates


def sines_and_cosines(angles: NDArray[np.uint64], multiple: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """sin and cos of ``multiple`` times angles modulo 2^:data:`ANGLE_BITS`: int64, with :data:`_TABLE_BITS` fractional bits."""
    high_sin, high_cos, low_sin, low_cos = _tables()
    turned = (angles * np.uint64(multiple)) & np.uint64((1 << ANGLE_BITS) - 1)
    high, low = (turned >> np.uint64(_LOW_BITS)).astype(np.intp), (turned & np.uint64((1 << _LOW_BITS) - 1)).astype(np.intp)
    a, b, c, d = high_sin[high], high_cos[high], low_sin[low], low_cos[low]
    return _round(a * d + b * c), _round(b * d - a * c)


def scale_sines(sines: NDArray[np.int64], coefficient: int, fraction: int) -> NDArray[np.uint64]:
    """``coefficient`` · sines with ``fraction`` fractional bits, as ring elements."""
    product = sines * np.int64(coefficient)  # below 2^62: a coefficient is below 4
    shift = 2 * _TABLE_BITS - fraction
    return ((product + np.int64(1 << (shift - 1))) >> np.int64(shift)).view(np.uint64)


SIGMOID: Mapping[int, Series] = {
    5: Series((650861614, -13643174, 149849099, -10606471, 46784704), (2, 4, 6, 8, 10)),
    9: Series(
        (672868396, 198348258, 94523395, 49315893, 26375159, 14222983, 7694885, 4150453, 2625540), tuple(range(1, 18, 2))
    ),
    13: Series(
        (
            *(656373565, -24155507, 163786059, -26662930, 61236979, -17453091, 23764438),
            *(-8369352, 8462617, -2946788, 2446563, -634742, 472541),
        ),
        tuple(range(2, 27, 2)),
    ),
}
"""K → σ(x) − ½, by least squares.

5, an activation: on ±:data:`VALID` / 2 with weights e^(−|x|/8), errors below .012. 9, a loss' slope: on ±:data:`VALID` with
weights e^(−|x|/16), errors below .0021. A sum of odd multiples is the same on both sides of a quarter of the period, as the
sigmoid of large numbers nearly is: so as many terms reach twice as far. 13, boosted trees: on ±:data:`VALID` / 2 likewise,
errors below 7.7e-5, and of the slope below 2.9e-4.
"""


def tables_digest() -> str:
    """SHA-256 of this machine's tables, hexadecimal."""
    return hashlib.sha256(b"".join(table.astype("<i8").tobytes() for table in _tables())).hexdigest()


def _round(products: NDArray[np.int64]) -> NDArray[np.int64]:
    return (products + np.int64(1 << (_TABLE_BITS - 1))) >> np.int64(_TABLE_BITS)


@cache
def _tables() -> tuple[NDArray[np.int64], ...]:
    """Sines and cosines of the high part of an angle, and of the low part."""
    with gmpy2.context(precision=128):
        turn = 2 * gmpy2.const_pi() / (1 << ANGLE_BITS)
        angles = [
            [turn * (index << shift) for index in range(1 << bits)] for bits, shift in ((_HIGH_BITS, _LOW_BITS), (_LOW_BITS, 0))
        ]
        return tuple(
            np.array([int(gmpy2.rint(function(angle) * (1 << _TABLE_BITS))) for angle in part], dtype=np.int64)
            for part in angles
            for function in (gmpy2.sin, gmpy2.cos)
        )
