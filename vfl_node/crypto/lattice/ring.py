"""Polynomials modulo q, by the compiled code (``native/rlwe.h``): two variants of it, which give the same bytes.

An array of polynomials is uint64[..., L, N]: residues modulo each of the L primes. Those that are multiplied are in transformed
form, the values at the primes' odd 2N-th roots of 1. Calls run without Python's lock and take their time whatever the secrets
are. A ring's tables take 1.3 MB and are made at the first use, in about 5 ms.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.kernels import lattice_kernel
from vfl_node.crypto.lattice import parameters as sets
from vfl_node.crypto.lattice.flooding import ADDENDS
from vfl_node.crypto.lattice.parameters import N, Parameters
from vfl_node.crypto.randomness import Randomness

Words = NDArray[np.uint64]


class Ring:
    """The operations on one parameter set's polynomials.

    Args:
        parameters: the set.
        variant: ``ifma`` or ``portable``; by default what :func:`~vfl_node.crypto.kernels.lattice_kernel` chooses.

    All methods that compute raise StateError (``E_DEVICE``): nothing was compiled when the package was installed.
    """

    def __init__(self, parameters: Parameters, variant: str = "") -> None:
        self.parameters = parameters
        self._variant = variant

    def __repr__(self) -> str:
        return f"Ring({self.parameters.name})"

    @property
    def primes(self) -> int:
        """L."""
        return len(self.parameters.primes)

    @cached_property
    def _native(self) -> tuple[Any, Any, str]:
        module, variant = lattice_kernel()
        return module.lib, module.ffi, self._variant or variant

    @cached_property
    def _tables(self) -> Any:
        lib, ffi, _ = self._native
        chosen = self.parameters
        primes = ffi.new("uint64_t[]", chosen.primes)
        bits = chosen.flood_bits, chosen.short_bits, chosen.long_bits
        made = lib.vfl_ring_new(primes, len(chosen.primes), chosen.slot_prime, *bits)
        if made == ffi.NULL:
            raise MemoryError("no memory for a ring's tables")
        return ffi.gc(made, lib.vfl_ring_free)

    def _call(self, name: str, *arguments: Any) -> Any:
        lib, _, variant = self._native
        return getattr(lib, f"vfl_{name}_{variant}")(self._tables, *arguments)

    def _pointer(self, words: Words, size: int, *, written: bool = False) -> Any:
        """What C reads at least ``size`` words from."""
        if words.dtype != np.uint64 or words.size < size or not (words.flags.c_contiguous and words.flags.aligned):
            raise ValueError(f"{words.dtype}{list(words.shape)} is no contiguous array of {size} words")
        return self._native[1].from_buffer("uint64_t[]", words, require_writable=written)

    def empty(self, *shape: int) -> Words:
        """Room for polynomials: uint64[*shape, L, N]."""
        return np.empty((*shape, self.primes, N), np.uint64)

    def zeros(self, *shape: int) -> Words:
        """Polynomials that are 0."""
        return np.zeros((*shape, self.primes, N), np.uint64)

    def slots(self, values: Words, *, back: bool = False) -> Words:
        """Numbers modulo t in slots, uint64[count, N], as coefficients, or ``back``. A transform each; a new array."""
        out = np.ascontiguousarray(values).copy()
        self._call("ntt" if back else "inverse_ntt", self._pointer(out, out.size, written=True), self.primes, len(out))
        return out

    def transform(self, polynomials: Words, *, back: bool = False) -> Words:
        """Polynomials modulo q, uint64[..., L, N], in transformed form, or ``back``. A new array; for tests and audits."""
        out = np.ascontiguousarray(polynomials).copy()
        for at, polynomial in enumerate(out.reshape(-1, N)):
            self._call("inverse_ntt" if back else "ntt", self._pointer(polynomial, N, written=True), at % self.primes, 1)
        return out

    def pack(self, polynomials: Words) -> bytes:
        """uint64[..., L, N] as bytes: 25 for each four residues, in order."""
        lib, ffi, _ = self._native
        out = bytearray(polynomials.size // 4 * 25)
        lib.vfl_pack(ffi.from_buffer("uint8_t[]", out), self._pointer(polynomials, polynomials.size), polynomials.size)
        return bytes(out)

    def unpack(self, data: bytes | memoryview, out: Words) -> int:
        """The reverse, into ``out``. Returns how many residues are not below their prime. Raises ValueError: wrong length."""
        lib, ffi, _ = self._native
        count = out.size // (self.primes * N)
        if len(data) != count * self.parameters.polynomial_bytes:
            raise ValueError(f"{len(data)} bytes for {count} polynomials")
        place = self._pointer(out, out.size, written=True)
        return int(lib.vfl_unpack(self._tables, place, ffi.from_buffer("uint8_t[]", data), count))

    def uniform(self, randomness: Randomness, out: Words) -> Words:
        """Uniform polynomials, into ``out``, of the stream's next bytes: 50 bits a residue.

        One of about 2^29 residues is not below its prime, and is drawn again, from the same stream and as often as it needs.
        """
        count = out.size // (self.primes * N)
        if self.unpack(randomness.bytes(count * self.parameters.polynomial_bytes), out):
            redraw(out.reshape(-1, self.primes, N), self.parameters.primes, randomness)
        return out

    def ternary(self, randomness: Randomness) -> Words:
        """A polynomial of uniform coefficients −1, 0 and 1, transformed. Cost: N words of the stream and L transforms."""
        out = self.empty()
        self._call("ternary", self._pointer(out, out.size, written=True), self._pointer(randomness.uint64(N), N))
        return out

    def plain(self, numbers: Words) -> Words:
        """Polynomials of coefficients of 64 bits with their sign, uint64[..., N], transformed: L transforms each."""
        numbers = np.ascontiguousarray(numbers)
        out = self.empty(*numbers.shape[:-1])
        count = numbers.size // N
        self._call("plain", self._pointer(out, out.size, written=True), self._pointer(numbers, count * N), count)
        return out

    def encrypt(self, secret: Words, a: Words, numbers: Words | None, randomness: Randomness) -> Words:
        """−a·s + e + round(q/t·m), transformed, for ``a`` uint64[count, L, N] and ``numbers`` uint64[count, N], below t.

        Args:
            secret: s, transformed.
            a: uniform, transformed.
            numbers: coefficients of m; None for 0.
            randomness: N words of the stream for each error.

        Cost: L transforms each.
        """
        out, count = np.empty_like(a), a.size // (self.primes * N)
        m = self._native[1].NULL if numbers is None else self._pointer(numbers, count * N)
        errors = self._pointer(randomness.uint64(count * N), count * N)
        place, s = self._pointer(out, a.size, written=True), self._pointer(secret, self.primes * N)
        self._call("encrypt", place, self._pointer(a, a.size), s, errors, m, count)
        return out

    def add_products(self, total: Words, left: Words, right: Words, apart: int, count: int) -> None:
        """``total`` += Σ left[k]·right[k], k below ``count``, where right's polynomials are ``apart`` words from each other."""
        size = self.primes * N
        last = (count - 1) * apart + size
        arguments = self._pointer(total, size, written=True), self._pointer(left, count * size), self._pointer(right, last)
        if count:
            self._call("dot", *arguments, apart, count)

    def masks(self, randomness: Randomness, count: int) -> Words:
        """Uniform numbers modulo t; those that are not below t are drawn again."""
        prime = self.parameters.slot_prime
        if not prime:
            return randomness.uint64(count)
        shift = np.uint64(64 - prime.bit_length())
        out = randomness.uint64(count) >> shift
        while len(outside := np.flatnonzero(out >= np.uint64(prime))):
            out[outside] = randomness.uint64(len(outside)) >> shift
        return out

    def flood(self, randomness: Randomness, count: int) -> Words:
        """Words of so many coefficients' flooding noise."""
        return randomness.uint64(count * ADDENDS * -(-self.parameters.flood_bits // 64))

    def answer(self, sums: Words, key: Words, mask: Words, step: int, randomness: Randomness) -> bytes:
        """What the evaluator sends of its sums, uint64[2, L, N], which are overwritten.

        Args:
            sums: of the products with the ciphertexts' two parts, transformed.
            key: the owner's public key, uint64[2, L, N].
            mask: subtracted from coefficients 0, step, 2·step, …; no others are sent. Below t.
            step: see there.
            randomness: of this answer alone.

        Cost: 3L transforms.
        """
        drawn = randomness.uint64(N), randomness.uint64(N), self.flood(randomness, len(mask))
        return self.answer_with(sums, key, mask, step, drawn)

    def answer_with(self, sums: Words, key: Words, mask: Words, step: int, drawn: tuple[Words, Words, Words]) -> bytes:
        """:meth:`answer` with given words of u, of the error and of the flooding noise."""
        ffi = self._native[1]
        u, errors, flood = drawn
        size, useful = self.primes * N, len(mask)
        if useful and (useful - 1) * step >= N:
            raise ValueError(f"{useful} coefficients, {step} from each other")
        out = bytearray(self.parameters.answer_bytes(useful))
        place = self._pointer(sums, 2 * size, written=True)
        public = self._pointer(key, 2 * size)
        words = useful * ADDENDS * -(-self.parameters.flood_bits // 64)
        failed = self._call(
            "answer",
            ffi.from_buffer("uint8_t[]", out),
            place,
            place + size,
            public,
            public + size,
            self._pointer(u, N),
            self._pointer(errors, N),
            self._pointer(flood, words),
            self._pointer(mask, useful),
            step,
            useful,
        )
        if failed:
            raise MemoryError("no memory for an answer")
        return bytes(out)

    def open(self, secret: Words, answer: bytes | memoryview, step: int, useful: int) -> Words:
        """What an answer's useful coefficients hold, uint64[useful], below t: 4 transforms. Raises ValueError: its length."""
        if len(answer) != self.parameters.answer_bytes(useful) or (useful and (useful - 1) * step >= N):
            raise ValueError(f"an answer of {len(answer)} bytes for {useful} coefficients, {step} from each other")
        out = np.empty(useful, np.uint64)
        ffi = self._native[1]
        place, s = self._pointer(out, useful, written=True), self._pointer(secret, self.primes * N)
        if self._call("open", place, ffi.from_buffer("uint8_t[]", answer), s, step, useful):
            raise MemoryError("no memory to open an answer in")
        return out


def redraw(residues: Words, primes: tuple[int, ...], randomness: Randomness) -> None:
    """Replaces residues that are not below their prime, of [count, L, N], in order."""
    for polynomial, prime, place in zip(*np.nonzero(residues >= np.array(primes, np.uint64)[:, None]), strict=True):
        value = primes[prime]
        while value >= primes[prime]:
            value = int(randomness.uint64(1)[0]) >> 14
        residues[polynomial, prime, place] = value


LINEAR = Ring(sets.LINEAR)
SLOTS = Ring(sets.SLOTS)
MONOMIALS = Ring(sets.MONOMIALS)
