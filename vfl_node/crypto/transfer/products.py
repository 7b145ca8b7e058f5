"""A bit of one party times a number of the other, in shares modulo 2⁶⁴.

**Ahead.** In each random transfer the receiver chooses a random bit α and gets k_α; the sender has k₀ and k₁. With the
random number β = k₁ − k₀ and the shares r = k_α and s = −k₀:

    r + s = k_α − k₀ = αβ    modulo 2⁶⁴

Nothing is sent but the message of the extension.

**Later**, for a bit c of the receiver and a number v of the sender:

1. The receiver opens d = c ⊕ α, and the sender e = v − β. Neither waits for the other.
2. As c = d + (1 − 2d)α and v = β + e, the product is cv = ce + cβ = ce + dβ + (1 − 2d)αβ.
   The receiver's share of it is ce + (1 − 2d)r, the sender's dβ + (1 − 2d)s.

**What each learns.** Nothing: α is uniform to the sender, and hides c; β is to the receiver, who knows one of two keys, and
hides v. Both hold *once*. With the same α for c and c′, d ⊕ d′ = c ⊕ c′ is open.

Source: Gilboa 1999, "Two party RSA key generation", with random messages; Beaver 1995, "Precomputing oblivious
transfer", for what is opened.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.transfer.extension import RandomReceiver, RandomSender
from vfl_node.crypto.transfer.sizes import row_bytes

Numbers = NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class RandomBits:
    """What the receiver has of n random products αβ; use each once.

    Attributes:
        bits: α, uint64[n] of 0 and 1.
        share: r, uint64[n].
    """

    bits: Numbers
    share: Numbers

    def __repr__(self) -> str:
        return f"RandomBits({len(self.bits)}, secret)"


@dataclass(frozen=True, eq=False)
class RandomNumbers:
    """What the sender has of n random products αβ; use each once.

    Attributes:
        numbers: β, uint64[n].
        share: s, uint64[n].
    """

    numbers: Numbers
    share: Numbers

    def __repr__(self) -> str:
        return f"RandomNumbers({len(self.numbers)}, secret)"


def draw_bits(receiver: RandomReceiver, randomness: Randomness, place: str, count: int) -> tuple[bytes, RandomBits]:
    """The receiver's half of ``count`` random products, and the message to the sender.

    The bits come from ``randomness`` at this place, so the same call gives the same bytes. Cost: that of the extension.
    """
    drawn = np.frombuffer(randomness.derive("bits at " + place).bytes(row_bytes(count)), np.uint8)
    bits = np.unpackbits(drawn, count=count, bitorder="little")
    message, keys = receiver.extend(place, count, bits)
    return message, RandomBits(bits.astype(np.uint64), keys)


def draw_numbers(sender: RandomSender, place: str, count: int, message: bytes) -> RandomNumbers:
    """The sender's half of ``count`` random products. Cost: that of the extension.

    Raises:
        ValueError: the message has another length than ``count`` transfers need.
    """
    zero, one = sender.extend(place, count, message)
    return RandomNumbers(one - zero, np.negative(zero))


def hide_bits(random: RandomBits, bits: Numbers) -> Numbers:
    """d = c ⊕ α for the sender, uint64[n] of 0 and 1; ``bits`` is c.

    Raises:
        ValueError: another shape or kind, or one is neither 0 nor 1.
    """
    _check(bits, random.bits, bits=True)
    return bits ^ random.bits


def hide_numbers(random: RandomNumbers, numbers: Numbers) -> Numbers:
    """e = v − β for the receiver, uint64[n]; ``numbers`` is v.

    Raises:
        ValueError: another shape or kind.
    """
    _check(numbers, random.numbers)
    return numbers - random.numbers


def multiply_bits(random: RandomBits, hidden_bits: Numbers, hidden_numbers: Numbers) -> Numbers:
    """The receiver's share of cv, from d and e: ce + (1 − 2d)r, uint64[n].

    Raises:
        ValueError: another shape or kind, or a hidden bit is neither 0 nor 1.
    """
    _check(hidden_bits, random.bits, bits=True)
    _check(hidden_numbers, random.bits)
    return (hidden_bits ^ random.bits) * hidden_numbers + _signed(random.share, hidden_bits)


def multiply_numbers(random: RandomNumbers, hidden_bits: Numbers) -> Numbers:
    """The sender's share of cv, from d alone: dβ + (1 − 2d)s, uint64[n].

    Raises:
        ValueError: another shape or kind, or a hidden bit is neither 0 nor 1.
    """
    _check(hidden_bits, random.numbers, bits=True)
    return hidden_bits * random.numbers + _signed(random.share, hidden_bits)


def _signed(share: Numbers, hidden_bits: Numbers) -> Numbers:
    """(1 − 2d) times a share: by multiplication, so that time depends on no secret."""
    return share * (np.uint64(1) - np.uint64(2) * hidden_bits)


def _check(given: Numbers, like: Numbers, bits: bool = False) -> None:
    if given.dtype != np.uint64 or given.shape != like.shape:
        raise ValueError(f"uint64{list(like.shape)} and not {given.dtype}{list(given.shape)}")
    if bits and bool((given > 1).any()):
        raise ValueError("a bit is neither 0 nor 1")
