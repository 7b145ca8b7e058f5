"""Masks: they hide a gradient from the party that decrypts it.

additive (default)
    each entry G has a uniform ρ added to it, 64 bits wider than G's range: what is decrypted
    is within 2⁻⁶⁴ of noise.
multiplicative (the paper's)
    each entry is multiplied by a secret odd r of either sign, 2²⁴ ≤ |r| < 2⁶⁴. An entry that is 0
    stays 0. Others are hidden badly: factoring a product of 125 bits takes a tenth of a second, and leaves a median of 14
    candidates for |G| (25 entries of 57 bits).

A party that knows the mask needs only the last bits of a masked entry, as many as the entry has with its sign, because it
removes the mask modulo 2^bits. So only these bits are sent back (:func:`returned_bits`).

An additive mask belongs to one tensor of one iteration of one attempt and is never drawn again.
Factors are the same when an iteration is repeated after a restart: two products of one entry
with different factors would give it away.

Source: arXiv 2004.07427, Algorithm 2, steps 9 to 11 (multiplicative).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from vfl_node.crypto.fixed_point import MASK_BITS, slot_bits
from vfl_node.crypto.randomness import Randomness

MaskKind = Literal["additive", "multiplicative"]

LEAST_FACTOR = 24
"""A multiplicative mask has at least so many bits."""


@dataclass(frozen=True)
class Mask:
    """The mask of a tensor of ``len(offsets)`` values, each of at most ``bound`` bits and a sign.

    Attributes:
        bound: bits of a value.
        factors: what each value is multiplied by, never 0; None: by nothing.
        offsets: what is added to each product; it makes every slot non-negative.
    """

    bound: int = field(repr=False)
    factors: tuple[int, ...] | None = field(repr=False)
    offsets: tuple[int, ...] = field(repr=False)

    @classmethod
    def draw(cls, kind: MaskKind, count: int, bound: int, randomness: Randomness) -> Mask:
        """A new mask for ``count`` values of ``bound`` bits."""
        if kind == "additive":
            low, width = 1 << bound, 1 << (bound + 1 + MASK_BITS)
            return cls(bound, None, tuple(low + randomness.draw_below(width) for _ in range(count)))
        low, width = 1 << LEAST_FACTOR, (1 << MASK_BITS) - (1 << LEAST_FACTOR)
        factors = tuple((low + randomness.draw_below(width) | 1) * (1 - 2 * randomness.draw_below(2)) for _ in range(count))
        return cls(bound, factors, (1 << (slot_bits(bound) - 1),) * count)

    def remove(self, masked: Sequence[int]) -> list[int]:
        """The values behind the last :func:`returned_bits` bits of each of ``masked``."""
        modulus, factors = 1 << returned_bits(self.bound), self.factors or (1,) * len(self.offsets)
        values = [
            (value - offset) * pow(factor, -1, modulus) % modulus
            for value, offset, factor in zip(masked, self.offsets, factors, strict=True)
        ]
        return [value - modulus if value >> self.bound else value for value in values]


def returned_bits(bound: int) -> int:
    """How many bits of a masked value its owner needs: those of a value of ``bound`` bits, and the sign."""
    return bound + 1


def masked_range(kind: MaskKind, bound: int) -> range:
    """Where a masked value of ``bound`` bits lies, whatever the value and the mask are."""
    if kind == "additive":
        return range((2 << bound) + (1 << (bound + 1 + MASK_BITS)))
    middle, reach = 1 << (slot_bits(bound) - 1), 1 << (bound + MASK_BITS)
    return range(middle - reach, middle + reach + 1)
