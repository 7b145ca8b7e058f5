"""Each party's private randomness, and the public schedule tossed jointly.

One 32-byte seed gives, by HMAC-SHA-512 over labels, any number of independent
streams of ChaCha20 (RFC 8439). The same seed and label give the same bytes on every
machine and library version, which is what lets a restarted party repeat itself
exactly. A job's seed comes from the operating system; a test injects its own.
"""

from __future__ import annotations

import hmac

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from numpy.typing import NDArray


class Randomness:
    """A tree of deterministic random streams under one secret seed.

    A stream is consumed by :meth:`bytes` and everything built on it; :meth:`derive`
    gives an independent child and consumes nothing, so the order in which children
    are made never matters.
    """

    def __init__(self, seed: bytes) -> None:
        if len(seed) != 32:
            raise ValueError("a seed has 32 bytes")
        self._seed = seed
        nonce = bytes(16)  # the key is used for this one stream
        self._stream = Cipher(algorithms.ChaCha20(_mac(seed, "stream")[:32], nonce), mode=None).encryptor()

    def __repr__(self) -> str:
        return "Randomness(secret)"

    def __reduce__(self) -> str:
        raise TypeError("randomness is secret and is not serialised")

    def derive(self, label: str) -> Randomness:
        """The independent stream named ``label``."""
        return Randomness(_mac(self._seed, "derive:" + label)[:32])

    def bytes(self, count: int) -> bytes:
        """The next ``count`` bytes."""
        return self._stream.update(bytes(count))

    def below(self, bound: int) -> int:
        """Uniform integer in 0 … bound−1 (rejection sampling)."""
        bits = (bound - 1).bit_length()
        size = (bits + 7) // 8
        while True:
            value = int.from_bytes(self.bytes(size), "big") >> (8 * size - bits)
            if value < bound:
                return value

    def uint64(self, count: int) -> NDArray[np.uint64]:
        """``count`` uniform 64-bit words."""
        return np.frombuffer(self.bytes(8 * count), dtype="<u8").astype(np.uint64)

    def permutation(self, count: int) -> NDArray[np.int64]:
        """A permutation of 0 … count−1: the order of ``count`` random 128-bit keys.

        Two equal keys, which alone could bias it, have probability below count²/2¹²⁹.
        """
        keys = self.uint64(2 * count)
        order = np.argsort(keys[count:], kind="stable")
        ranked = keys[count:][order]
        if bool((ranked[1:] == ranked[:-1]).any()):  # the other halves of the keys decide
            order = np.lexsort((keys[:count], keys[count:]))
        return order.astype(np.int64)

    def choices(self, population: int, count: int) -> NDArray[np.int64]:
        """``count`` draws from 0 … population−1 with replacement (bias below population/2⁶⁴)."""
        words = self.uint64(count)
        return (words % np.uint64(population)).astype(np.int64)

    def torch(self) -> torch.Generator:
        """A CPU generator for initial weights and dropout, seeded from this stream."""
        generator = torch.Generator()
        generator.manual_seed(int.from_bytes(self.bytes(8), "big") >> 1)
        return generator


def _mac(key: bytes, label: str) -> bytes:
    return hmac.digest(key, label.encode(), "sha512")
