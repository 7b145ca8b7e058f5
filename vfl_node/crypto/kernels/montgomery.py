"""Vectors of numbers in Montgomery's form, eight at a time by AVX-512 IFMA (``native/residues_ifma.c``)."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

import gmpy2
import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray
from typing_extensions import override

from vfl_node.crypto.kernels.contract import Indices, Places, Residues, Vector

MOST_BITS = 8318
"""The largest modulus: 160 limbs of 52 bits, less the two bits that products need above it."""

_LIMB = 52

Words = NDArray[np.uint64]


def fits(modulus: mpz) -> bool:
    """Whether the compiled code takes it: larger moduli are the libraries'."""
    return modulus.bit_length() <= MOST_BITS


class Montgomery(Residues):
    """As :class:`~vfl_node.crypto.kernels.contract.Residues`: .25 µs a product at 2048 bits, .9 at 4096, 2 at 6144.

    A number x is the limbs of x·R mod N, or N more, in words of 52 bits: uint64[count, words]. R is 2^(52·n), for n limbs.
    A call takes 5 µs besides, and one number as long as eight.

    Args:
        native: the compiled module.
        modulus: N, odd, from 3 to 2^:data:`MOST_BITS`.

    Raises:
        ValueError: the modulus is even, 1 or too large.
    """

    def __init__(self, native: ModuleType, modulus: mpz) -> None:
        if modulus < 3 or modulus % 2 == 0 or not fits(modulus):
            raise ValueError(f"no odd modulus of 2 to {MOST_BITS} bits")
        self._lib, self._ffi, self.modulus = native.lib, native.ffi, modulus
        self._size = (modulus.bit_length() + 7) // 8
        self._limbs = -(-(modulus.bit_length() + 2) // _LIMB) + 3 & ~3  # C takes four at a time
        self._words = self._limbs + 7 & ~7  # and reads eight
        radix = mpz(1) << _LIMB * self._limbs
        minus_inverse = -gmpy2.invert(modulus, 1 << _LIMB) % (1 << _LIMB)
        self._constants = np.append(self._split(modulus), np.uint64(int(minus_inverse)))
        self._one, self._square = self._split(radix % modulus), self._split(radix * radix % modulus)

    @override
    def load(self, numbers: Sequence[mpz]) -> Vector:
        """A product each. Raises ValueError: a number is negative or not below the modulus."""
        if any(not 0 <= number < self.modulus for number in numbers):
            raise ValueError("a number is not below the modulus")
        data = b"".join(number.to_bytes(self._size, "little") for number in numbers)
        vector = np.empty((len(numbers), self._words), dtype=np.uint64)
        self._lib.vfl_load_ifma(
            self._pointer(vector),
            data,
            self._size,
            len(numbers),
            self._pointer(self._constants),
            self._pointer(self._square),
            self._limbs,
        )
        return vector

    @override
    def numbers(self, vector: Vector) -> list[mpz]:
        """A product each."""
        data = bytearray(self._size * len(vector))
        target = self._ffi.from_buffer("uint8_t[]", data, require_writable=True)
        self._lib.vfl_store_ifma(
            target, self._size, self._pointer(self._check(vector)), len(vector), self._pointer(self._constants), self._limbs
        )
        return [mpz.from_bytes(data[at : at + self._size], "little") for at in range(0, len(data), self._size)]

    @override
    def multiply(self, to: Places, a: Places, b: Places) -> None:
        """A product each, of eight at a time.

        Raises:
            IndexError: a place is not in its vector.
            ValueError: vectors of another modulus, a result that cannot be written, or the numbers of places differ.
        """
        counts, arguments = zip(*map(self._places, (to, a, b)), strict=True)
        if len(set(counts)) != 1:
            raise ValueError(f"{' and '.join(map(str, sorted(set(counts))))} factors")
        self._writable(to[0])
        pointers = [pointer for pair in arguments for pointer in pair]
        self._lib.vfl_products_ifma(*pointers, counts[0], self._pointer(self._constants), self._limbs)

    @override
    def square(self, places: Places, times: int) -> None:
        """Raises as :meth:`multiply`."""
        count, pointers = self._places(places)
        self._writable(places[0])
        self._lib.vfl_squares_ifma(*pointers, count, times, self._pointer(self._constants), self._limbs)

    @override
    def multiply_by_label(self, vector: Vector, at: Indices, labels: Indices) -> tuple[Indices, Vector]:
        """Numbers of a label are multiplied in pairs, and so are the products. Raises as :meth:`multiply`."""
        order = np.argsort(labels, kind="stable")
        at, labels = at[order], labels[order]
        while True:
            begins = np.flatnonzero(np.r_[len(labels) > 0, labels[1:] != labels[:-1]][: len(labels)])
            place = np.arange(len(labels)) - np.repeat(begins, np.diff(np.r_[begins, len(labels)]))  # within its label
            left, right = np.flatnonzero(place % 2 == 0), np.flatnonzero(place % 2)
            products = vector[at[left]]
            if not len(right):
                return labels, products
            paired = np.searchsorted(left, right - 1)
            self.multiply((products, paired), (products, paired), (vector, at[right]))
            vector, at, labels = products, np.arange(len(left)), labels[left]

    def powers(self, bases: Sequence[mpz], exponent: mpz) -> list[mpz]:
        """As the kernel's: in constant time. The table of eight at a time takes at most 330 KiB."""
        return self._powers(bases, exponent.to_bytes((exponent.bit_length() + 7) // 8, "little"), 0)

    def own_powers(self, bases: Sequence[mpz], exponents: Sequence[mpz], bits: int) -> list[mpz]:
        """As the kernel's: in constant time."""
        size = (bits + 7) // 8
        if len(bases) != len(exponents):
            raise ValueError(f"{len(bases)} bases and {len(exponents)} exponents")
        return self._powers(bases, b"".join(exponent.to_bytes(size, "little") for exponent in exponents), size)

    def _powers(self, bases: Sequence[mpz], exponents: bytes, apart: int) -> list[mpz]:
        vector, size = self.load(bases), apart or len(exponents)
        if self._lib.vfl_powers_ifma(
            self._pointer(vector),
            len(bases),
            exponents,
            size,
            apart,
            self._pointer(self._constants),
            self._pointer(self._one),
            self._limbs,
        ):
            raise MemoryError("no memory for a table of powers")
        return self.numbers(vector)

    def _places(self, places: Places) -> tuple[int, tuple[object, object]]:
        """How many they are, and what C reads them from; it keeps the memory alive."""
        vector, at = places
        words = self._pointer(self._check(vector))
        if at is None:
            return len(vector), (words, self._ffi.NULL)
        at = np.ascontiguousarray(at, dtype=np.int64)
        if len(at) and at.view(np.uint64).max() >= len(vector):  # so read, a negative one is larger than any
            raise IndexError("a place is not in its vector")
        return len(at), (words, self._ffi.from_buffer("int64_t[]", at))

    def _writable(self, vector: Vector) -> None:
        if not vector.flags.writeable:
            raise ValueError("the result's vector is not writable")

    def _split(self, number: mpz) -> Words:
        """Its limbs, uint64[n]: two of them are 13 bytes."""
        pairs = np.frombuffer(number.to_bytes(self._limbs // 2 * 13, "little"), dtype=np.uint8).reshape(-1, 13)
        low, high = (np.ascontiguousarray(part).view("<u8") for part in (pairs[:, :8], pairs[:, 5:]))
        return np.hstack([low & (1 << _LIMB) - 1, high >> 64 - _LIMB]).ravel().astype(np.uint64, copy=False)

    def _check(self, vector: Vector) -> Vector:
        """``vector``, if C may read it."""
        if vector.dtype != np.uint64 or vector.shape[1:] != (self._words,) or not vector.flags.c_contiguous:
            raise ValueError(f"no contiguous vector of {self._words} words a number")
        return vector

    def _pointer(self, words: Vector) -> object:
        return self._ffi.from_buffer("uint64_t[]", words)
