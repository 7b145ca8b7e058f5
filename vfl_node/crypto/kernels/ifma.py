"""Eight points at a time by AVX-512 IFMA (``native/``), in constant time, without Python's lock."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

import numpy as np
from gmpy2 import mpz

from vfl_node.crypto.kernels.contract import Residues
from vfl_node.crypto.kernels.libraries import Libraries
from vfl_node.crypto.kernels.montgomery import MOST_BITS, Montgomery, montgomery
from vfl_node.crypto.rows import Rows

_FAULTS = {0: None, 1: "is not canonical", 2: "is not on the curve"}


class Ifma:
    """As :class:`~vfl_node.crypto.kernels.contract.Kernel`. About 1.5 µs a hash, 7.5 µs a ladder, .6 µs a check (one core).

    Args:
        native: the compiled module.
    """

    name = "ifma"

    def __init__(self, native: ModuleType) -> None:
        self._native, self._lib, self._ffi, self._others = native, native.lib, native.ffi, Libraries()

    def ladders(self, rows: Rows, key: bytes) -> Rows:
        """As the contract."""
        results = np.empty((len(rows), 32), dtype=np.uint8)
        self._lib.vfl_x25519_ifma(self._bytes(results), key, self._bytes(np.ascontiguousarray(rows)), len(rows))
        return results

    def hashed(self, ids: Sequence[bytes], domain: bytes) -> Rows:
        """As the contract. Raises MemoryError: there is none for the longest of ``ids``, eight times."""
        results = np.empty((len(ids), 32), dtype=np.uint8)
        if not 1 <= len(domain) <= 255:
            raise ValueError("a domain has 1 to 255 bytes")
        ends = np.cumsum(np.fromiter(map(len, ids), np.uint64, len(ids)), dtype=np.uint64)
        where = self._ffi.from_buffer("uint64_t[]", ends)
        if self._lib.vfl_hash_ifma(self._bytes(results), b"".join(ids), where, len(ids), domain, len(domain)):
            raise MemoryError("no memory to hash an identifier in")
        return results

    def fault(self, rows: Rows) -> str | None:
        """As the contract."""
        return _FAULTS[self._lib.vfl_check_ifma(self._bytes(np.ascontiguousarray(rows)), len(rows))]

    def powers(self, bases: Sequence[mpz], exponent: mpz, modulus: mpz, *, secret: bool = True) -> list[mpz]:
        """As the contract: 1.5 ms at 3072 bits, of eight at a time; in constant time in any case."""
        numbers = self._montgomery(modulus)
        return numbers.powers(bases, exponent) if numbers else self._others.powers(bases, exponent, modulus, secret=secret)

    def own_powers(self, bases: Sequence[mpz], exponents: Sequence[mpz], bits: int, modulus: mpz) -> list[mpz]:
        """As the contract."""
        numbers = self._montgomery(modulus)
        if numbers is None:
            return self._others.own_powers(bases, exponents, bits, modulus)
        return numbers.own_powers(bases, exponents, bits)

    def residues(self, modulus: mpz) -> Residues:
        """As the contract."""
        return self._montgomery(modulus) or self._others.residues(modulus)

    def _montgomery(self, modulus: mpz) -> Montgomery | None:
        """None for larger moduli than the compiled code takes: those are the libraries'."""
        return montgomery(self._native, modulus) if modulus.bit_length() <= MOST_BITS else None

    def _bytes(self, rows: Rows) -> object:
        return self._ffi.from_buffer("uint8_t[]", rows)
