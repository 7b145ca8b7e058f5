"""A matrix of bits transposed by words, and the hash that makes keys of its columns.

A block is 128 bits as two 64-bit words, the lower one first: uint64[n, 2] for n of them.

**The hash** of block x with index i is the lower half of π(z) ⊕ z at the point z = σ(x) ⊕ i. π is AES-128 under a public key,
and σ(a, b) = (a ⊕ b, a), which is linear, and a permutation just as x → σ(x) ⊕ x is. Without the secret offset s of 128
uniform bits, hashes of x ⊕ s at known x are like random numbers (correlation robustness): the points are σ(x) ⊕ i ⊕ σ(s), where
σ(s) is as uniform as s, and for distinct known points π(· ⊕ Δ) ⊕ · ⊕ Δ is correlation robust if π is an ideal permutation.
The index keeps points apart even where blocks repeat. With q blocks under one key of π, p evaluations of it find s with
a probability of about pq/2¹²⁸; so each place has a key of its own, and q is the number of transfers at one place.

Source: Guo, Katz, Wang and Yu 2020, "Efficient and secure multiparty computation from fixed-key block ciphers": π(x) ⊕ x is
correlation robust, and with σ circular correlation robust; Warren 2013, "Hacker's Delight", section 7-3, for the transposition.
"""

from __future__ import annotations

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from vfl_node.crypto.rows import Rows

Blocks = NDArray[np.uint64]

_BLOCK_BYTES = 16
_WORD = 64


def transpose(rows: Rows) -> Blocks:
    """The columns of 128 rows of bits: bit r of block j is bit j of row r, bits of a byte counted from its lowest.

    Cost: about 10 ns a block (one core); two more matrices of this size.

    Args:
        rows: uint8[128, 8·w]; its content is lost.

    Returns:
        uint64[64·w, 2]
    """
    words = rows.view("<u8").reshape(2, _WORD, -1)  # (half, row, word of columns)
    width = words.shape[2]
    spare = np.empty((2, _WORD // 2, width), "<u8")
    shift = _WORD // 2
    mask = np.uint64((1 << shift) - 1)
    while shift:  # swap squares of this side beside the diagonal, in all squares of twice the side at once
        squares = words.reshape(2, _WORD // (2 * shift), 2, shift, width)
        upper, lower = squares[:, :, 0], squares[:, :, 1]
        moved, by = spare.reshape(lower.shape), np.uint64(shift)
        np.right_shift(upper, by, out=moved)
        moved ^= lower
        moved &= mask
        lower ^= moved
        moved <<= by
        upper ^= moved
        shift //= 2
        mask ^= mask << np.uint64(shift)
    return np.ascontiguousarray(words.transpose(2, 1, 0)).reshape(-1, 2)  # (word of columns, bit, half)


def spread(blocks: Blocks) -> Blocks:
    """σ of each block, uint64[n, 2]."""
    spread_out = np.empty(blocks.shape, "<u8")
    np.bitwise_xor(blocks[:, 0], blocks[:, 1], out=spread_out[:, 0])
    spread_out[:, 1] = blocks[:, 0]
    return spread_out


def points_of(blocks: Blocks, first: int) -> Blocks:
    """z = σ(x) ⊕ i for blocks whose indices are ``first``, ``first`` + 1 and so on, uint64[n, 2]."""
    points = spread(blocks)
    points[:, 0] ^= np.arange(first, first + len(blocks), dtype=np.uint64)
    return points


class RobustHash:
    """π(z) ⊕ z, cut to its lower half; π is AES-128 with ``key``, 16 public bytes.

    Cost: about 2 ns a point (one core).
    """

    def __init__(self, key: bytes) -> None:
        self._cipher = Cipher(algorithms.AES128(key), modes.ECB())  # noqa: S305 - one block alone: a permutation

    def digest(self, points: Blocks) -> NDArray[np.uint64]:
        """A key for each point, uint64[n]."""
        count = len(points)
        permuted = np.empty(_BLOCK_BYTES * (count + 1), np.uint8)  # the library wants a block to spare
        plain = np.ascontiguousarray(points, "<u8").reshape(-1).view(np.uint8)
        self._cipher.encryptor().update_into(plain.data, permuted.data)
        lower = permuted[: _BLOCK_BYTES * count].view("<u8").reshape(-1, 2)[:, 0]
        return (lower ^ points[:, 0]).astype(np.uint64, copy=False)
