"""Curve25519 by its u-coordinates alone; ladders, hashes and checks are those of a kernel (:mod:`vfl_node.crypto.kernels`).

The curve v² = u³ + 486662u² + u over GF(2²⁵⁵ − 19) has order 8ℓ, ℓ prime. An element is
the u-coordinate of a point, 32 bytes little-endian (RFC 7748); u stands for ±P.

- **Hash**: the map of ``curve25519_XMD:SHA-512_ELL2_NU_`` (RFC 9380), u only and *without*
  clear_cofactor. Every secret scalar is a multiple of 8, so the first ladder clears it.
  Non-uniform (NU) is enough: the map can be sampled and inverted, which is all that the
  Diffie–Hellman argument needs. A plain hash used as u would be on the twist half
  of the time, and this bit of the identifier would survive every blinding.
- **Scalars** are clamped: k ≡ 0 (mod 8) and 2²⁵⁴ ≤ k < 2²⁵⁵, the only form that the ladder accepts.
  The multiples of 8 below 8ℓ represent the residues mod ℓ once each, k and 8ℓ − k act
  equally on u (they give ±kP), and one of the two is clamped. So products and inverses are
  always one clamped scalar again.
- **Received elements** must be canonical, on the curve (one Jacobi symbol), and not of small order. A component
  of order 2, 4 or 8 beside a good one is accepted and cleared by the next ladder.
"""

from __future__ import annotations

import gmpy2
import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.groups.contract import Group, Scalar
from vfl_node.crypto.kernels import kernel
from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.rows import Rows
from vfl_node.crypto.texts import Offsets

L = 2**252 + 27742317777372353535851937790883648493

SMALL_ORDER = frozenset(
    {
        0,  # order 2
        1,  # order 4
        325606250916557431795983626356110631294008115727848805560023387167927233504,  # order 8
        39382357235489614581723060781553021112529911719440698176882885853963445705823,  # order 8
    }
)
"""u-coordinates on the curve whose points have no component of order ℓ. Source: https://cr.yp.to/ecdh.html#validate"""

_SMALL_ORDER = np.frombuffer(b"".join(u.to_bytes(32, "little") for u in SMALL_ORDER), dtype="<u8").reshape(-1, 4)
_BLOCK_ROWS = 512  # 3 to 25 ms of ladders: long compared to passing a block on, short compared to a pause


class Curve25519(Group):
    """x-only Curve25519. Cost: see the kernels; a power is one ladder."""

    name = "curve25519"
    width = 32
    block_rows = _BLOCK_ROWS
    chunk_rows = 32 * _BLOCK_ROWS

    def __init__(self) -> None:
        self.hashes_beside = kernel().hashes_beside

    def hash_texts(self, text: bytes, offsets: Offsets, domain: bytes) -> Rows:
        """As :meth:`Group.hash_texts`. Source: RFC 9380, sections 5.2 (L = 48) and 6.7.1 (Elligator 2, Z = 2)."""
        return kernel().hash_ids(text, offsets, domain)

    def block_powers(self, rows: Rows, exponent: int) -> Rows:
        """As :meth:`Group.block_powers`: one X25519 ladder per row (RFC 7748)."""
        powers = kernel().ladders(rows, exponent.to_bytes(32, "little"))
        if not _words(powers).any(axis=1).all():
            self.refuse("has small order")
        return powers

    def decode(self, rows: Rows) -> Rows:
        """As :meth:`Group.decode`: u < p with the top bit clear, not of small order, on the curve and not its twist."""
        words = _words(rows)
        suspects = words[np.isin(words[:, 0], _SMALL_ORDER[:, 0])]
        if (suspects[:, np.newaxis] == _SMALL_ORDER).all(axis=2).any():
            self.refuse("has small order")
        if fault := kernel().fault(rows):
            self.refuse(fault)
        return rows

    def draw(self, randomness: Randomness) -> Scalar:
        """As :meth:`Group.draw`: 251 uniform bits. Never 0 mod ℓ, because 0 < k < 8ℓ and 8 divides k."""
        return Scalar(randomness.draw_below(2**251) * 8 + 2**254)

    def product(self, *scalars: Scalar) -> Scalar:
        """As :meth:`Group.product`, clamped again: even an empty product clears a component of small order."""
        residue = 1
        for scalar in scalars:
            residue = residue * scalar.reveal() % L
        return _clamp(residue)

    def inverse(self, scalar: Scalar) -> Scalar:
        """As :meth:`Group.inverse`, for points of order ℓ; every power is one."""
        return _clamp(int(gmpy2.invert(scalar.reveal(), L)))


def _clamp(residue: int) -> Scalar:
    """The clamped scalar that acts on u as ``residue`` mod ℓ does."""
    k = residue + L * (3 * residue % 8)  # ≡ 0 mod 8, because 3ℓ ≡ −1
    if k < 2**254:
        k = 8 * L - k
    if not 2**254 <= k < 2**255:  # one residue in 2¹²⁷; those here are random
        raise ArithmeticError("a residue without a clamped representative")
    return Scalar(k)


def _words(rows: Rows) -> NDArray[np.uint64]:
    """Each row as four numbers, uint64[n, 4]."""
    return np.ascontiguousarray(rows).view("<u8")
