"""What a kernel does: Curve25519 on u-coordinates of 32 bytes, little-endian, and powers modulo large numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gmpy2 import mpz

from vfl_node.crypto.rows import Rows


class Kernel(Protocol):
    """A way to compute. Every function is pure, and gives the same bytes in every kernel."""

    name: str

    def ladders(self, rows: Rows, key: bytes) -> Rows:
        """X25519 (RFC 7748) of every row by one key, in constant time, without Python's lock: uint8[n, 32].

        Args:
            rows: uint8[n, 32].
            key: 32 bytes, clamped. A result of zeros says that the row had small order.
        """

    def hashed(self, ids: Sequence[bytes], domain: bytes) -> Rows:
        """The map of ``curve25519_XMD:SHA-512_ELL2_NU_`` (RFC 9380) without clear_cofactor: uint8[n, 32].

        Args:
            ids: messages.
            domain: the RFC's DST, 1 to 255 bytes.
        """

    def fault(self, rows: Rows) -> str | None:
        """Why some row is no canonical u-coordinate of the curve; None if all are. Small orders are not looked for."""

    def powers(self, bases: Sequence[mpz], exponent: mpz, modulus: mpz) -> list[mpz]:
        """``base^exponent mod modulus`` of each, in a time that depends on sizes alone, without Python's lock.

        Args:
            bases: from 0 to modulus − 1.
            exponent: secret, above 0.
            modulus: odd.
        """
