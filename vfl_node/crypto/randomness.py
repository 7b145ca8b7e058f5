"""Each party's private randomness, and that of the public schedule from the joint coin toss.

One 32-byte seed gives, by HMAC-SHA-512 over labels, any number of independent
streams of ChaCha20 (RFC 8439). The same seed and label give the same bytes on every
machine and library version, so that a restarted party can repeat itself
exactly. A job's seed comes from the operating system; a test injects its own seed.

Every draw comes from the stream itself, never from a library's generator that is seeded from it:
torch's CPU generator keeps only 32 bits of its seed, and all of these can be tried. Normal numbers are
the quantile function at uniform numbers, computed with exact operations and single
multiplications and additions. So a CPU's vector unit changes no bit of them, unlike those from
numpy's and torch's logarithms and cosines.
"""

from __future__ import annotations

import builtins
import hmac
import math
from collections.abc import Iterable
from functools import cache, cached_property

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms
from numpy.typing import NDArray

BLOCK = 8192
"""Number of normal numbers computed at a time, so that the data fits into the second-level cache."""

SEGMENT_BITS = 6
"""The quantile function is made of 2^SEGMENT_BITS cubics for each octave of the probability; its error is below 1e-9."""


LOWEST = (8.29143564638712, -0.2360032984944196)
"""−Φ⁻¹ at the middle of the lowest segment, u = 2⁻⁵⁴ · (1 + 2⁻⁷), and its slope there, of u in units of 2⁻⁵³."""


class Randomness:
    """A tree of deterministic random streams under one secret seed.

    :meth:`bytes` and everything built on it consume the stream. :meth:`derive`
    gives an independent child and consumes nothing, so the order in which children
    are made does not matter.
    """

    def __init__(self, seed: bytes) -> None:
        if len(seed) != 32:
            raise ValueError("a seed has 32 bytes")
        self._seed = seed

    @cached_property
    def _stream(self) -> CipherContext:
        nonce = bytes(16)  # the key is used only for this stream
        return Cipher(algorithms.ChaCha20(_mac(self._seed, "stream")[:32], nonce), mode=None).encryptor()

    def __repr__(self) -> str:
        return "Randomness(secret)"

    def __reduce__(self) -> str:
        raise TypeError("randomness is secret and is not serialised")

    def derive(self, label: str) -> Randomness:
        """The independent stream named ``label``."""
        return Randomness(_mac(self._seed, "derive:" + label)[:32])

    def bytes(self, count: int) -> bytes:
        """The next ``count`` bytes."""
        return self._stream.update(bytes(count))

    def draw_below(self, bound: int) -> int:
        """Uniform integer in 0 … bound−1 (rejection sampling)."""
        bits = (bound - 1).bit_length()
        size = (bits + 7) // 8
        while True:
            value = int.from_bytes(self.bytes(size), "big") >> (8 * size - bits)
            if value < bound:
                return value

    def uint64(self, count: int) -> NDArray[np.uint64]:
        """``count`` uniform 64-bit words."""
        drawn = np.zeros(count, "<u8")
        if count:
            place = drawn.data.cast("B")
            self._stream.update_into(place, place)  # over the zeros: a copy takes longer than the stream itself
        return drawn.astype(np.uint64, copy=False)

    def words_of(self, names: Iterable[builtins.bytes], count: int) -> NDArray[np.uint64]:
        """``count`` uniform 64-bit words, 8 at most, for each of n ``names``, uint64[n, count]; consumes nothing.

        Those of a name are the same whatever other names there are. Cost: one HMAC a name, about 2 µs.
        """
        digests = b"".join([hmac.digest(self._seed, b"name:" + name, "sha512")[: 8 * count] for name in names])
        return np.frombuffer(digests, dtype="<u8").astype(np.uint64).reshape(-1, count)

    def permutation(self, count: int) -> NDArray[np.int64]:
        """A permutation of 0 … count−1: the order of ``count`` random 128-bit keys.

        Only two equal keys could bias it; their probability is below count²/2¹²⁹.
        """
        keys = self.uint64(2 * count)
        order = np.argsort(keys[count:])
        ranked = keys[count:][order]
        if bool((ranked[1:] == ranked[:-1]).any()):  # the other halves of the keys decide
            order = np.lexsort((keys[:count], keys[count:]))
        return order.astype(np.int64, copy=False)

    def choices(self, population: int, count: int) -> NDArray[np.int64]:
        """``count`` draws from 0 … population−1 with replacement (bias below population/2⁶⁴)."""
        words = self.uint64(count)
        return (words % np.uint64(population)).astype(np.int64)

    def uniform(self, shape: tuple[int, ...]) -> NDArray[np.float64]:
        """Uniform numbers in 0 … 1, without 1; multiples of 2⁻⁵³."""
        words = self.uint64(math.prod(shape)).reshape(shape)
        return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def normal(self, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Standard normal numbers with 53 random bits each: correct up to 8 standard deviations, and none beyond 8.3.

        Cost: 8 bytes of the stream and about 15 ns each.
        """
        count = math.prod(shape)
        drawn = np.empty(count, dtype=np.float32)
        for start in range(0, count, BLOCK):
            part = drawn[start : start + BLOCK]
            part[:] = normal_of(self.uint64(len(part)))
        return drawn.reshape(shape)


def normal_of(words: NDArray[np.uint64]) -> NDArray[np.float64]:
    """A standard normal number for each uniform word, float64[n].

    It is −Φ⁻¹(u) of an odd multiple u of 2⁻⁵⁴ below ½, made of the word's upper 53 bits, with the lowest bit's sign. As a
    float64, u is exact. Its exponent and its first bits give the segment, the other bits the position in it.
    """
    u = ((words >> np.uint64(11)) | np.uint64(1)).astype(np.float64)  # in units of 2⁻⁵⁴
    rest = 52 - SEGMENT_BITS
    bits = u.view(np.int64)
    segment = (bits >> rest) - (1023 << SEGMENT_BITS)
    at = (bits & ((1 << rest) - 1)).astype(np.float64)
    at -= 2.0 ** (rest - 1)  # from the segment's middle
    cubic, *lower = _quantile()
    size = np.take(cubic, segment, mode="clip")
    for coefficient in lower:
        size *= at
        size += np.take(coefficient, segment, mode="clip")
    return (size.view(np.uint64) ^ (words << np.uint64(63))).view(np.float64)


@cache
def _quantile() -> tuple[NDArray[np.float64], ...]:
    """Coefficients of −Φ⁻¹ in each of 53 · 2^SEGMENT_BITS segments of 2⁻⁵⁴ … ½, the third order first.

    w = −Φ⁻¹(u) solves w″ = w·w′², which gives its Taylor series at any point from w and w′ there. From the middle of
    the lowest segment each series gives w and w′ in the middle of the next. At u = ½ the sum of errors is below 1e-15.

    Source: Steinbrecher and Shaw 2008, "Quantile mechanics", for the differential equation.
    """
    segments = 53 << SEGMENT_BITS
    table = np.empty((4, segments))
    half = 2.0 ** -(SEGMENT_BITS + 2)  # half a segment, where its octave's upper end is 1
    w, slope = LOWEST
    for segment in range(segments):
        series = _series(w, slope)
        for order in range(4):
            table[3 - order, segment] = series[order] * (half * 2.0 ** (SEGMENT_BITS - 51)) ** order  # a unit: the last bit
        last = (segment + 1) % (1 << SEGMENT_BITS) == 0  # the next octave's segments are twice as wide
        w, slope = _evaluate(series, 3 * half if last else 2 * half)
        if last:
            slope *= 2
    table.setflags(write=False)
    return tuple(table)


def _series(w: float, slope: float, orders: int = 9) -> list[float]:
    """Taylor coefficients of the solution of w″ = w·w′² with this value and this slope."""
    series, slopes, squares = [w, slope], [slope], list[float]()  # of w, w′ and w′²
    for order in range(orders - 2):
        squares.append(sum(slopes[k] * slopes[order - k] for k in range(order + 1)))
        second = sum(series[k] * squares[order - k] for k in range(order + 1))
        series.append(second / ((order + 1) * (order + 2)))
        slopes.append(second / (order + 1))
    return series


def _evaluate(series: list[float], step: float) -> tuple[float, float]:
    """Value and slope of the series at distance ``step``."""
    value = slope = 0.0
    for coefficient in reversed(series):
        slope = slope * step + value
        value = value * step + coefficient
    return value, slope


def _mac(key: bytes, label: str) -> bytes:
    return hmac.digest(key, label.encode(), "sha512")
