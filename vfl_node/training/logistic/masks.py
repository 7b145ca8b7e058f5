"""What keeps a gradient from the party that decrypts it.

additive (default)
    each entry G has a uniform ρ added to it, 64 bits wider than G's range: what is decrypted
    is within 2⁻⁶⁴ of noise.
multiplicative (the paper's)
    each entry is multiplied by a secret r of either sign, 2²⁴ ≤ |r| < 2⁶⁴. An entry that is 0
    stays 0, and a product's size tells about G's.

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
from vfl_node.errors import ProtocolError

MaskKind = Literal["additive", "multiplicative"]

LEAST_FACTOR = 24
"""A multiplicative mask has at least so many bits."""


@dataclass(frozen=True)
class Mask:
    """The mask of a tensor of ``len(offsets)`` values, each of at most ``bound`` bits and a sign.

    Attributes:
        factors: what each value is multiplied by, never 0; None: by nothing.
        offsets: what is added to each product; it makes every slot non-negative.
    """

    factors: tuple[int, ...] | None = field(repr=False)
    offsets: tuple[int, ...] = field(repr=False)

    @classmethod
    def draw(cls, kind: MaskKind, count: int, bound: int, randomness: Randomness) -> Mask:
        """A new mask for ``count`` values of ``bound`` bits."""
        if kind == "additive":
            low, width = 1 << bound, 1 << (bound + 1 + MASK_BITS)
            return cls(None, tuple(low + randomness.below(width) for _ in range(count)))
        low, width = 1 << LEAST_FACTOR, (1 << MASK_BITS) - (1 << LEAST_FACTOR)
        factors = tuple((low + randomness.below(width)) * (1 - 2 * randomness.below(2)) for _ in range(count))
        return cls(factors, (1 << (slot_bits(bound) - 1),) * count)

    def remove(self, masked: Sequence[int], peer: str) -> list[int]:
        """The values behind ``masked``.

        Raises:
            ProtocolError: they are not multiples of the mask's factors: not what was asked to be decrypted (``E_DECRYPTION``).
        """
        values = [value - offset for value, offset in zip(masked, self.offsets, strict=True)]
        if self.factors is None:
            return values
        parts = [divmod(value, factor) for value, factor in zip(values, self.factors, strict=True)]
        if any(rest for _, rest in parts):
            raise ProtocolError(f"{peer} returned values that are not the ones it was asked to decrypt", code="E_DECRYPTION")
        return [value for value, _ in parts]
