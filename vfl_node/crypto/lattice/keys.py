"""Keys of an owner of data, and its ciphertexts as bytes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from vfl_node.crypto.lattice.parameters import N
from vfl_node.crypto.lattice.ring import Ring, Words
from vfl_node.crypto.lattice.sizes import SEED_BYTES
from vfl_node.crypto.randomness import Randomness


class SecretKey:
    """An owner's key, and the public one of it.

    Args:
        ring: of one parameter set; a key is for that alone.
        randomness: the same gives the same key.
    """

    def __init__(self, ring: Ring, randomness: Randomness) -> None:
        self.ring = ring
        own = randomness.derive(f"key: {ring.parameters.name}")  # the same randomness gives other keys for other rings
        self.transformed = ring.ternary(own.derive("secret"))
        seed = own.derive("public seed").bytes(SEED_BYTES)
        a = spread(ring, seed, [0])
        self.public = PublicRingKey(ring, seed, ring.encrypt(self.transformed, a, None, own.derive("public error"))[0])

    def __repr__(self) -> str:
        return f"SecretKey({self.ring.parameters.name})"

    def __reduce__(self) -> str:
        raise TypeError("a secret key is not serialised")


class PublicRingKey:
    """An encryption of 0, whose second part is of a public seed."""

    def __init__(self, ring: Ring, seed: bytes, b: Words) -> None:
        self.ring, self._seed, self._b = ring, seed, b

    @cached_property
    def parts(self) -> Words:
        """Both, uint64[2, L, N]."""
        return np.stack([self._b, spread(self.ring, self._seed, [0])[0]])

    def to_bytes(self) -> bytes:
        """The seed and the first part."""
        return self._seed + self.ring.pack(self._b)

    @classmethod
    def from_bytes(cls, ring: Ring, data: bytes) -> PublicRingKey:
        """The reverse. Raises ValueError: a wrong length, or a residue that is not below its prime."""
        ciphertexts = Ciphertexts(ring, data, 1)
        b = ring.empty()
        ciphertexts.first_parts([0], b)
        return cls(ring, ciphertexts.seed, b)


class Ciphertexts:
    """Several ciphertexts as they arrive: a seed of all second parts, and the first parts, 50 bits a residue.

    Args:
        ring: of the parameter set.
        data: which is kept, not copied; it may be a memory map.
        count: how many there are to be.

    Cost: about .1 ms each for the check.

    Raises:
        ValueError: a wrong length, or a residue that is not below its prime.
    """

    def __init__(self, ring: Ring, data: bytes | memoryview, count: int) -> None:
        view, size = memoryview(data), ring.parameters.polynomial_bytes
        if len(view) != SEED_BYTES + count * size:
            raise ValueError(f"{len(view)} bytes of {count} ciphertexts, which take {SEED_BYTES + count * size}")
        self.ring, self._size = ring, size
        self.seed, self._body = bytes(view[:SEED_BYTES]), view[SEED_BYTES:]
        place = ring.empty()
        if any(ring.unpack(self._body[at * size : (at + 1) * size], place) for at in range(count)):
            raise ValueError("a residue of a ciphertext is not below its prime")

    def first_parts(self, places: Sequence[int], out: Words) -> Words:
        """Those at ``places``, into ``out`` [len(places), L, N]."""
        size, each = self._size, self.ring.primes * N
        flat = out.reshape(-1)
        for at, place in enumerate(places):
            self.ring.unpack(self._body[place * size : (place + 1) * size], flat[at * each : (at + 1) * each])
        return out

    def second_parts(self, places: Sequence[int], out: Words) -> Words:
        """Likewise, made of the seed."""
        return spread(self.ring, self.seed, places, out)


def spread(ring: Ring, seed: bytes, places: Sequence[int], out: Words | None = None) -> Words:
    """Uniform polynomials of a public seed, those at ``places``, uint64[len(places), L, N]. About .1 ms each."""
    drawn = ring.empty(len(places)) if out is None else out
    flat, each, source = drawn.reshape(-1), ring.primes * N, Randomness(seed)
    for at, place in enumerate(places):
        ring.uniform(source.derive(f"a {place}"), flat[at * each : (at + 1) * each])
    return drawn


def encrypt(key: SecretKey, numbers: Words, randomness: Randomness) -> bytes:
    """Polynomials uint64[count, N] of numbers below t as the bytes that :class:`Ciphertexts` reads.

    Args:
        key: of the numbers' owner.
        numbers: coefficients.
        randomness: of these ciphertexts alone, and the same for the same numbers alone: errors and the seed come from it.

    Cost: L transforms and N words of the stream each, and as much for the second part.
    """
    ring, own = key.ring, randomness.derive(f"ciphertexts: {key.ring.parameters.name}")
    errors, seed = own.derive("errors"), own.derive("seed").bytes(SEED_BYTES)
    packed, place = [seed], ring.empty(1)
    for at in range(len(numbers)):
        a = spread(ring, seed, [at], place)
        packed.append(ring.pack(ring.encrypt(key.transformed, a, numbers[at : at + 1], errors)))
    return b"".join(packed)
