"""Tallies of sums of two private places, in shares.

Of each row the owner knows a place u and a number a, the evaluator v and p, and the tally has Σ a·p at u + v.

Row j of a ciphertext is a·x^(u + stride·j), N / stride rows a ciphertext. The evaluator multiplies by Σ_j p·x^(v − stride·j).
With u + v < stride, a row's own product is at u + v, and every product of two different rows falls outside of 0 … stride − 1.
Products of all ciphertexts are summed, and one answer is sent for all.

Leaks: to the evaluator nothing, by RLWE; to the owner what ``flooding.log2_distance`` bounds, with all rows as terms.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.lattice.keys import Ciphertexts, PublicRingKey, SecretKey, encrypt
from vfl_node.crypto.lattice.parameters import N
from vfl_node.crypto.lattice.ring import Words
from vfl_node.crypto.randomness import Randomness

Places = NDArray[np.int64]


def encrypt_monomials(key: SecretKey, places: Places, numbers: Words, stride: int, randomness: Randomness) -> Iterator[bytes]:
    """The owner's rows, one ciphertext of ``monomials_bytes()`` bytes after the other.

    Args:
        key: the owner's, with the ring ``MONOMIALS``.
        places: u, int64[rows], 0 … stride − 1.
        numbers: a, uint64[rows].
        stride: a power of two; the evaluator's v is such that u + v < stride.
        randomness: of these rows alone.

    Raises:
        ValueError: shapes differ, or a place is outside.
    """
    per, marked = _marked(places, numbers, stride)
    for at in range(len(marked) // per):
        yield encrypt(key, marked[at * per : (at + 1) * per].reshape(1, N), randomness.derive(f"monomials {at}"))


class MonomialTally:
    """The evaluator's sum over all rows.

    Args:
        public: the owner's key.
        stride: as the owner's.
    """

    def __init__(self, public: PublicRingKey, stride: int) -> None:
        self._public, self._stride = public, stride
        self._sums = public.ring.zeros(2)

    def add(self, data: bytes, places: Places, numbers: Words) -> None:
        """Takes the next ciphertext, and the evaluator's part of its rows: N / stride of them, or fewer in the last one.

        Args:
            data: a ciphertext.
            places: v, int64[rows].
            numbers: p, uint64[rows]: with their sign, at most 2^multiplier_bits in size.

        Cost: 2L transforms.

        Raises:
            ValueError: shapes differ, a number or place is outside, or the ciphertext is none.
        """
        ring = self._public.ring
        most = np.uint64(1 << ring.parameters.multiplier_bits)
        per, marked = _marked(places, numbers, self._stride)
        if len(marked) != per or bool((numbers + most > most + most).any()):
            raise ValueError(f"{len(places)} rows of a ciphertext of {per}, or a number above {most}")
        ciphertexts = Ciphertexts(ring, data, 1)
        turned = np.concatenate([marked[:1], np.uint64(0) - marked[:0:-1]]).reshape(1, N)  # x^(−k) is −x^(N − k)
        factor, part = ring.plain(turned), ring.empty(1)
        ring.add_products(self._sums[0], ciphertexts.first_parts([0], part), factor, part.size, 1)
        ring.add_products(self._sums[1], ciphertexts.second_parts([0], part), factor, part.size, 1)

    def answer(self, randomness: Randomness) -> tuple[bytes, Words]:
        """``tally_bytes(stride)`` bytes for the owner, and the evaluator's share, uint64[stride]. Once."""
        ring, stream = self._public.ring, randomness.derive("tally")
        mask = ring.masks(stream, self._stride)
        sums, self._sums = self._sums, ring.zeros(2)
        return ring.answer(sums, self._public.parts, mask, 1, stream), mask


def open_tally(key: SecretKey, answer: bytes, stride: int) -> Words:
    """The owner's share, uint64[stride]. Raises ValueError: a wrong length."""
    return key.ring.open(key.transformed, answer, 1, stride)


def _marked(places: Places, numbers: Words, stride: int) -> tuple[int, Words]:
    """Rows of a ciphertext, and each row's number at its place, uint64[rows, stride], filled up with rows of 0.

    All places are compared, so that no address depends on one.
    """
    if not 1 <= stride <= N or N % stride or places.ndim != 1 or places.shape != numbers.shape or numbers.dtype != np.uint64:
        raise ValueError(f"places {list(places.shape)} and numbers {numbers.dtype}{list(numbers.shape)}, {stride} apart")
    if bool(((places < 0) | (places >= stride)).any()):
        raise ValueError(f"a place is not in 0 … {stride - 1}")
    per, rows = N // stride, len(places)
    out = np.zeros((-(-rows // per) * per, stride), np.uint64)
    out[:rows] = (np.arange(stride) == places[:, None]) * numbers[:, None]
    return per, out
