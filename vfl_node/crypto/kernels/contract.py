"""What a kernel does: Curve25519 on u-coordinates of 32 bytes, little-endian, arithmetic modulo large odd numbers, matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from vfl_node.crypto.rows import Rows
from vfl_node.crypto.texts import Offsets

Vector = NDArray[Any]
"""Numbers modulo one number, in the form that a kernel computes with: a number for each place of the first axis. It can be
indexed, assigned to, copied and concatenated."""

Indices = NDArray[np.int64]

Cells = NDArray[np.uint16]

Words = NDArray[np.uint64]

Places = tuple[Vector, Indices | None]
"""A vector, and the places in it that are meant, int64[count], each within it; None for all, in order."""


class Kernel(Protocol):
    """A way to compute. Every function is pure, and gives the same bytes in every kernel.

    Attributes:
        name: as ``VFL_KERNEL`` names it.
        lanes: how many powers of large numbers are computed at a time, so that fewer take as long.
        hashes_beside: whether hashes and checks of several threads run at the same time, without Python's lock.
    """

    name: str
    lanes: int
    hashes_beside: bool

    def ladders(self, rows: Rows, key: bytes) -> Rows:
        """X25519 (RFC 7748) of every row by one key, in constant time, without Python's lock: uint8[n, 32].

        Args:
            rows: uint8[n, 32].
            key: 32 bytes, clamped. A result of zeros says that the row had small order.
        """

    def hash_ids(self, text: bytes, offsets: Offsets, domain: bytes) -> Rows:
        """The map of ``curve25519_XMD:SHA-512_ELL2_NU_`` (RFC 9380) without clear_cofactor: uint8[n, 32].

        Args:
            text: the messages.
            offsets: where each begins and ends.
            domain: the RFC's DST, 1 to 255 bytes.

        Raises:
            ValueError: these are no offsets into the text, or the domain is too long or empty.
        """

    def digests(self, text: bytes, offsets: Offsets) -> Rows:
        """SHA-256 of every string, uint8[n, 32]. Raises ValueError as :meth:`hash_ids`."""

    def fault(self, rows: Rows) -> str | None:
        """Why some row is no canonical u-coordinate of the curve; None if all are. Small orders are not looked for."""

    def multiply_cells(self, cells: Cells, numbers: Words) -> Words:
        """Products modulo 2⁶⁴ of a matrix of 16 bits and numbers, in a time that depends on sizes alone: uint64[T, W].

        Args:
            cells: uint16[n, W].
            numbers: uint64[T, n].

        Raises:
            ValueError: other types, or shapes that do not fit.
        """

    def multiply_bits(self, rows: Words, chosen: Words) -> NDArray[np.uint8]:
        """Products modulo 2 of rows of bits, packed in words: uint8[K, n].

        Args:
            rows: uint64[n, w].
            chosen: uint64[K, w].

        Raises:
            ValueError: as :meth:`multiply_cells`.
        """

    def powers(self, bases: Sequence[mpz], exponent: mpz, modulus: mpz, *, secret: bool = True) -> list[mpz]:
        """``base^exponent mod modulus`` of each, without Python's lock.

        Args:
            bases: from 0 to modulus − 1.
            exponent: above 0.
            modulus: odd, above 1.
            secret: the time must depend on sizes alone.
        """

    def own_powers(self, bases: Sequence[mpz], exponents: Sequence[mpz], bits: int, modulus: mpz) -> list[mpz]:
        """The power of each base by its own secret exponent, in a time that depends on sizes alone.

        Args:
            bases: from 0 to modulus − 1.
            exponents: as many, from 2^(``bits`` − 1) to 2^``bits`` − 1.
            bits: public.
            modulus: odd, above 1.
        """

    def residues(self, modulus: mpz, count: int) -> Residues:
        """Vectors of numbers modulo an odd number above 1.

        Args:
            modulus: odd, above 1.
            count: how many products are computed in a call, about.
        """


class Residues(Protocol):
    """Vectors of numbers modulo one number: many products whose factors and results stay in the kernel's form.

    The time of a product may depend on numbers and places.
    """

    modulus: mpz

    def load(self, numbers: Sequence[mpz]) -> Vector:
        """A vector of numbers from 0 to modulus − 1."""

    def numbers(self, vector: Vector) -> list[mpz]:
        """The numbers again, from 0 to modulus − 1."""

    def multiply(self, to: Places, a: Places, b: Places) -> None:
        """``to[i] ← a[i] · b[i]``: as many places in each, those of ``to`` different.

        Where ``to`` and a factor are the same vector, their places are the same in the same order, or have none in common.
        """

    def square(self, places: Places, times: int) -> None:
        """``of[i] ← of[i]^(2^times)``; its places are different."""

    def multiply_by_label(self, vector: Vector, at: Indices, labels: Indices) -> tuple[Indices, Vector]:
        """The product of all numbers of each label: a product for each number but one of each label.

        Args:
            vector: numbers.
            at: places in it, int64[count].
            labels: int64[count], of each.

        Returns:
            The labels, ascending, and the product of each.
        """
