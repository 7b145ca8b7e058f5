"""Curve25519 by libsodium's ladder, which takes constant time; large numbers by gmpy2, and matrices by numpy."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from itertools import accumulate
from typing import Any

import gmpy2
import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray
from typing_extensions import override

from vfl_node.crypto.expand import expander
from vfl_node.crypto.kernels import cells as by_numpy
from vfl_node.crypto.kernels.contract import Cells, Indices, Kernel, Places, Residues, Vector, Words
from vfl_node.crypto.rows import Rows
from vfl_node.crypto.texts import Offsets, strings_of

P = mpz(2**255 - 19)
J = mpz(486662)

_FEW = 3


class Libraries(Kernel):
    """As :class:`~vfl_node.crypto.kernels.contract.Kernel`. About 5 µs a hash, 30 µs a ladder, 2.5 µs a check (one core)."""

    name = "libsodium"
    lanes = 1
    hashes_beside = False

    @override
    def ladders(self, rows: Rows, key: bytes) -> Rows:
        """One call a row."""
        ffi, lib = _sodium()
        results = np.zeros((len(rows), 32), dtype=np.uint8)
        u = ffi.from_buffer("unsigned char[]", np.ascontiguousarray(rows))
        result = ffi.from_buffer("unsigned char[]", results, require_writable=True)
        for at in range(0, results.size, 32):
            lib.crypto_scalarmult(result + at, key, u + at)  # which writes nothing for a row of small order
        return results

    @override
    def hash_ids(self, text: bytes, offsets: Offsets, domain: bytes) -> Rows:
        expand = expander(domain, 48)
        coordinates = _elligator2([mpz.from_bytes(expand(item), "big") % P for item in strings_of(text, offsets)])
        return np.frombuffer(b"".join(u.to_bytes(32, "little") for u in coordinates), dtype=np.uint8).reshape(-1, 32)

    @override
    def digests(self, text: bytes, offsets: Offsets) -> Rows:
        """About 1 µs a string, under Python's lock."""
        hashed = b"".join([sha256(item).digest() for item in strings_of(text, offsets)])
        return np.frombuffer(hashed, dtype=np.uint8).reshape(-1, 32)

    @override
    def fault(self, rows: Rows) -> str | None:
        """One Jacobi symbol a row."""
        data = rows.tobytes()
        coordinates = [mpz.from_bytes(data[start : start + 32], "little") for start in range(0, len(data), 32)]
        if any(u >= P for u in coordinates):
            return "is not canonical"
        return "is not on the curve" if any(gmpy2.jacobi(_curve(u), P) != 1 for u in coordinates) else None

    @override
    def multiply_cells(self, cells: Cells, numbers: Words) -> Words:
        return by_numpy.multiply_cells(cells, numbers)

    @override
    def multiply_bits(self, rows: Words, chosen: Words) -> NDArray[np.uint8]:
        return by_numpy.multiply_bits(rows, chosen)

    @override
    def powers(self, bases: Sequence[mpz], exponent: mpz, modulus: mpz, *, secret: bool = True) -> list[mpz]:
        """A secret takes a fifth to a third more time; 9 ms at 3072 bits."""
        power = gmpy2.powmod_sec if secret else gmpy2.powmod
        with gmpy2.context(allow_release_gil=True):
            return [power(base, exponent, modulus) for base in bases]

    @override
    def own_powers(self, bases: Sequence[mpz], exponents: Sequence[mpz], bits: int, modulus: mpz) -> list[mpz]:
        """The time of ``powmod_sec`` grows in steps of 64 bits."""
        with gmpy2.context(allow_release_gil=True):
            return [gmpy2.powmod_sec(base, exponent, modulus) for base, exponent in zip(bases, exponents, strict=True)]

    @override
    def residues(self, modulus: mpz, count: int) -> Residues:
        return Plain(modulus)


class Plain(Residues):
    """As :class:`~vfl_node.crypto.kernels.contract.Residues`: gmpy2's numbers.

    Cost: 1.5 µs a product at 2048 bits, 4 at 4096, 8 at 6144, under Python's lock.
    """

    def __init__(self, modulus: mpz) -> None:
        self.modulus = modulus

    @override
    def load(self, numbers: Sequence[mpz]) -> Vector:
        return np.fromiter(numbers, dtype=object, count=len(numbers))

    @override
    def numbers(self, vector: Vector) -> list[mpz]:
        return list(vector)

    @override
    def multiply(self, to: Places, a: Places, b: Places) -> None:
        vector, at = to
        modulus = self.modulus
        factors = zip(_take(a), _take(b), range(len(vector if at is None else at)), strict=True)
        vector[slice(None) if at is None else at] = self.load([left * right % modulus for left, right, _ in factors])

    @override
    def square(self, places: Places, times: int) -> None:
        vector, at = places
        modulus = self.modulus
        for place in range(len(vector)) if at is None else at.tolist():
            number = vector[place]
            # powmod begins and ends with a division of its own
            vector[place] = gmpy2.powmod(number, 1 << times, modulus) if times > _FEW else _square(number, times, modulus)

    @override
    def multiply_by_label(self, vector: Vector, at: Indices, labels: Indices) -> tuple[Indices, Vector]:
        products: dict[int, mpz] = {}
        for number, label in zip(vector[at].tolist(), labels.tolist(), strict=True):
            products[label] = products[label] * number % self.modulus if label in products else number
        ascending = sorted(products)
        return np.array(ascending, dtype=np.int64), self.load([products[label] for label in ascending])


@cache
def _sodium() -> tuple[Any, Any]:
    """libsodium's interface and functions; loaded for ladders alone, because digests of a table need none of it."""
    # nacl.bindings adds a microsecond to each ladder (4 %), all of it under Python's lock, for which threads wait.
    from nacl._sodium import ffi, lib

    lib.sodium_init()  # chooses the quickest ladder that this processor has, which takes two thirds of the time of the other
    return ffi, lib


def _take(places: Places) -> list[mpz]:
    vector, at = places
    return (vector if at is None else vector[at]).tolist()


def _square(number: mpz, times: int, modulus: mpz) -> mpz:
    for _ in range(times):
        number = number * number % modulus
    return number


def _curve(u: mpz) -> mpz:
    """v² at u."""
    return ((u + J) * u + 1) * u % P


def _elligator2(fields: Sequence[mpz]) -> list[mpz]:
    """The u-coordinate that each field element r is mapped to.

    This is −J / (1 + 2r²) or, if that is on the twist, −J minus it. The divisor is never 0,
    because −1/2 is not a square, and v² is never 0, so the Jacobi symbol is ±1. All divisions
    share one inversion (Montgomery's trick).
    """
    divisors = [(2 * r * r + 1) % P for r in fields]
    products = list(accumulate(divisors, lambda product, divisor: product * divisor % P, initial=mpz(1)))
    quotient = -J * gmpy2.invert(products.pop(), P) % P  # −J over the product of all divisors not yet passed
    coordinates = []
    while divisors:
        u = quotient * products.pop() % P
        quotient = quotient * divisors.pop() % P
        coordinates.append(u if gmpy2.jacobi(_curve(u), P) == 1 else (-J - u) % P)
    coordinates.reverse()
    return coordinates
