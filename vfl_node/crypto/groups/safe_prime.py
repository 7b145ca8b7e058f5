"""The squares modulo a safe prime: the group used in the papers.

p = 2q + 1 with p and q prime; the quadratic residues QR(p) form a cyclic group of prime
order q. An element is an integer, big-endian and as wide as p. Identifiers are hashed to
x mod p and *squared*: without squaring, the Legendre symbol of the hash, one bit of the
identifier, would survive every odd exponent. Exponents are uniform in 1 … q−1 (the papers' Z_q
includes 0, which would map everything to 1).
"""

from __future__ import annotations

from collections.abc import Sequence

import gmpy2
import numpy as np
from gmpy2 import mpz

from vfl_node.crypto.expand import expander
from vfl_node.crypto.groups.contract import Group, Scalar
from vfl_node.crypto.kernels import kernel
from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.rows import Rows
from vfl_node.crypto.texts import Offsets, strings_of
from vfl_node.errors import DataError

_BLOCK_ROWS, _CHUNK_ROWS = 2, 64  # 5 to 20 ms by the libraries


class SafePrimeGroup(Group):
    """QR(p). Cost at 3072 bits: about 10 µs per hash, 10 µs per decode (one core); of powers see the kernels.

    Args:
        name: its name in a job file.
        p: a safe prime above 7. It is not tested here: use published primes.
    """

    def __init__(self, name: str, p: int) -> None:
        self.name = name
        self.p, self.q = mpz(p), mpz(p) // 2
        self.width = (p.bit_length() + 7) // 8
        self.block_rows, self.chunk_rows = max(_BLOCK_ROWS, kernel().lanes), _CHUNK_ROWS

    def hash_texts(self, text: bytes, offsets: Offsets, domain: bytes) -> Rows:
        """As :meth:`Group.hash_texts`: 128 bits more than p has, reduced mod p, squared.

        Raises:
            DataError: an identifier maps to 0 or 1 (``E_ELEMENT``); impossible at real sizes.
        """
        expand = expander(domain, self.width + 16)
        squares = [mpz.from_bytes(expand(item), "big") ** 2 % self.p for item in strings_of(text, offsets)]
        if any(square <= 1 for square in squares):
            raise DataError("an identifier maps to 0 or 1 in this group", code="E_ELEMENT", hint="choose a larger group")
        return self._pack(squares)

    def block_powers(self, rows: Rows, exponent: int) -> Rows:
        """As :meth:`Group.block_powers`: one modular exponentiation per row."""
        return self._pack(kernel().powers(self._integers(rows), mpz(exponent), self.p))

    def decode(self, rows: Rows) -> Rows:
        """As :meth:`Group.decode`: 1 < y < p−1 and Jacobi symbol 1, which is y^q = 1 for a safe prime."""
        for y in self._integers(rows):
            if y >= self.p:
                self.refuse("is not below p")
            if y <= 1 or y == self.p - 1:
                self.refuse("is 0, 1 or p-1")
            if gmpy2.jacobi(y, self.p) != 1:
                self.refuse("is not a square")
        return rows

    def draw(self, randomness: Randomness) -> Scalar:
        """As :meth:`Group.draw`: uniform in 1 … q−1."""
        return Scalar(1 + randomness.draw_below(int(self.q) - 1))

    def product(self, *scalars: Scalar) -> Scalar:
        """As :meth:`Group.product`: mod q."""
        product = mpz(1)
        for scalar in scalars:
            product = product * scalar.reveal() % self.q
        return Scalar(int(product))

    def inverse(self, scalar: Scalar) -> Scalar:
        """As :meth:`Group.inverse`: mod q."""
        return Scalar(int(gmpy2.invert(scalar.reveal(), self.q)))

    def _integers(self, rows: Rows) -> list[mpz]:
        data = rows.tobytes()
        return [mpz.from_bytes(data[start : start + self.width], "big") for start in range(0, len(data), self.width)]

    def _pack(self, integers: Sequence[mpz]) -> Rows:
        data = b"".join(integer.to_bytes(self.width, "big") for integer in integers)
        return np.frombuffer(data, dtype=np.uint8).reshape(-1, self.width)


def modp2048() -> SafePrimeGroup:
    """The 2048-bit group of RFC 3526 (number 14): about 112 bits of security."""
    return SafePrimeGroup("modp2048", _modp(2048, 124476))


def modp3072() -> SafePrimeGroup:
    """The 3072-bit group of RFC 3526 (number 15): about 128 bits of security."""
    return SafePrimeGroup("modp3072", _modp(3072, 1690314))


def _modp(bits: int, offset: int) -> int:
    """2^n − 2^(n−64) − 1 + 2^64·(⌊2^(n−130)·π⌋ + offset). Source: RFC 3526."""
    mantissa, exponent = gmpy2.const_pi(bits).as_mantissa_exp()
    pi = mantissa >> -(int(exponent) + bits - 130)
    return int(2**bits - 2 ** (bits - 64) - 1 + 2**64 * (pi + offset))
