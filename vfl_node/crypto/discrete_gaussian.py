"""Exact discrete Laplace and Gaussian numbers from a stream of random bytes.

Integers x with probability ∝ exp(−|x|/t), and ∝ exp(−x²/2σ²).

All is arithmetic of whole numbers, so no rounding weakens the promise that the noise makes, and the same seed gives the same
numbers on every machine.

Source: Canonne, Kamath and Steinke 2020, algorithms 1 to 3.
"""

from __future__ import annotations

import math

from vfl_node.crypto.randomness import Randomness

_PIECE = 1 << 12


class DiscreteLaplace:
    """Draws numbers of one scale t.

    Args:
        randomness: of which bytes are consumed.
        scale: t, a whole number above 0.
    """

    def __init__(self, randomness: Randomness, scale: int) -> None:
        if scale < 1:
            raise ValueError("a scale is 1 or more")
        self._randomness, self._scale = randomness, scale
        self._piece, self._place = b"", 0

    def draw(self) -> int:
        """The next number."""
        while True:
            rest = self._draw_below(self._scale)
            if not self._accept(rest, self._scale):
                continue
            whole = 0
            while self._accept(1, 1):
                whole += 1
            size, negative = rest + self._scale * whole, self._draw_below(2)
            if size or not negative:  # or 0 would come twice as often
                return -size if negative else size

    def _exponential(self, numerator: int, denominator: int) -> bool:
        """True with probability exp(−numerator/denominator)."""
        while numerator > denominator:
            if not self._accept(1, 1):
                return False
            numerator -= denominator
        return self._accept(numerator, denominator)

    def _accept(self, numerator: int, denominator: int) -> bool:
        """The same where the fraction is 1 at most."""
        count = 1
        while self._draw_below(denominator * count) < numerator:
            count += 1
        return count % 2 == 1

    def _draw_below(self, bound: int) -> int:
        """Uniform in 0 … bound − 1."""
        bits = (bound - 1).bit_length()
        size = (bits + 7) // 8
        while True:
            if self._place + size > len(self._piece):
                self._piece, self._place = self._randomness.bytes(max(_PIECE, size)), 0
            value = int.from_bytes(self._piece[self._place : self._place + size], "little") >> (8 * size - bits)
            self._place += size
            if value < bound:
                return value


class DiscreteGaussian(DiscreteLaplace):
    """Draws numbers of one σ. Takes about 7 µs a number.

    Args:
        randomness: of which bytes are consumed.
        variance: σ², a whole number above 0.
    """

    def __init__(self, randomness: Randomness, variance: int) -> None:
        if variance < 1:
            raise ValueError("a variance is 1 or more")
        super().__init__(randomness, math.isqrt(variance) + 1)
        self._variance = variance

    def draw(self) -> int:
        """The next number."""
        variance, scale = self._variance, self._scale
        while True:
            drawn = super().draw()
            off = abs(drawn) * scale - variance
            if self._exponential(off * off, 2 * variance * scale * scale):
                return drawn
