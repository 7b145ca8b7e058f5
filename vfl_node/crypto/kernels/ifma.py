"""Eight points at a time by AVX-512 IFMA (``native/``), in constant time, without Python's lock."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import gmpy2
import numpy as np
from gmpy2 import mpz

from vfl_node.crypto.kernels.compiled import Compiled
from vfl_node.crypto.rows import Rows

MOST_BITS = 6184
"""Of a modulus: 119 limbs of 52 bits, less the two bits that products need above it, in whole bytes."""


class Ifma(Compiled):
    """As :class:`~vfl_node.crypto.kernels.contract.Kernel`. About .8 µs a hash, 5.2 µs a ladder, .6 µs a check (one core)."""

    name = "ifma"

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

    def powers(self, bases: Sequence[mpz], exponent: mpz, modulus: mpz) -> list[mpz]:
        """As the contract: 2.2 ms at 3072 bits, of eight at a time. Larger moduli than :data:`MOST_BITS` by the libraries."""
        if modulus.bit_length() > MOST_BITS:
            return super().powers(bases, exponent, modulus)
        size = (modulus.bit_length() + 7) // 8
        numbers, results = b"".join(base.to_bytes(size, "little") for base in bases), bytearray(size * len(bases))
        key, (square, factor) = exponent.to_bytes((exponent.bit_length() + 7) // 8, "little"), _constants(modulus, size)
        given = self._ffi.from_buffer("uint8_t[]", results, require_writable=True)
        of = modulus.to_bytes(size, "little")
        if self._lib.vfl_powers_ifma(given, numbers, len(bases), size, key, len(key), of, square, factor):
            raise MemoryError("no memory for a table of powers")
        return [mpz.from_bytes(results[at : at + size], "little") for at in range(0, len(results), size)]


@lru_cache(maxsize=16)
def _constants(modulus: mpz, size: int) -> tuple[bytes, int]:
    """R² mod N and −1/N mod 2⁵² of Montgomery's products, for R = 2^(52·limbs)."""
    limbs = -(-(8 * size + 2) // 52)
    square = pow(mpz(2), 2 * 52 * limbs, modulus)
    return square.to_bytes(size, "little"), int(-gmpy2.invert(modulus, 1 << 52) % (1 << 52))
