"""How large what is computed with is: for those who compute, and for those who only count."""

from __future__ import annotations

NUMBER_BYTES = 8
"""Bytes of a number that is dealt, and of a word of bits."""

_BLOCK_NUMBERS = 1 << 22  # of both parties' filters that are numbers at a time: 32 MiB
_EXACT_BITS = 53  # integers that a float64 has


def words_of(rows: int) -> int:
    """How many words a bit of each row takes."""
    return -(-rows // 64)


def ring_bits(bits: int) -> int:
    """Bits of the numbers modulo 2^… that distances of filters with ``bits`` bits are: one more than they have."""
    return bits.bit_length() + 1


def block_bits(bits: int, rows: tuple[int, int]) -> int:
    """How many bits of n and m filters are multiplied at a time: so few that memory is bounded, and sums are exact."""
    most = min(_BLOCK_NUMBERS // sum(rows), 1 << (_EXACT_BITS - 2 * ring_bits(bits)))
    return max(8, most // 8 * 8)
