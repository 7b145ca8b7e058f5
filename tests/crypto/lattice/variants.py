"""Both variants of the compiled code, each with rings of its own."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from gmpy2 import mpz

from vfl_node.crypto.kernels import names
from vfl_node.crypto.kernels.choice import _native
from vfl_node.crypto.lattice import parameters
from vfl_node.crypto.lattice.keys import SecretKey
from vfl_node.crypto.lattice.ring import Ring, Words
from vfl_node.crypto.randomness import Randomness

VARIANTS = ["portable", "ifma"] if "ifma" in names() else ["portable"]
SETS = {of.name: of for of in (parameters.LINEAR, parameters.SLOTS, parameters.MONOMIALS)}

compiled = pytest.mark.skipif(_native() is None, reason="nothing was compiled here")
variants = pytest.mark.parametrize("variant", VARIANTS)
sets = pytest.mark.parametrize("name", sorted(SETS))


@cache
def ring(name: str, variant: str = "portable") -> Ring:
    return Ring(SETS[name], variant)


@cache
def key(name: str, variant: str = "portable") -> SecretKey:
    return SecretKey(ring(name, variant), randomness("key"))


def randomness(label: str) -> Randomness:
    return Randomness(bytes(range(32))).derive(label)


def numbers(seed: int, *shape: int, below: int = 1 << 64) -> Words:
    return np.random.default_rng(seed).integers(0, below, shape, np.uint64)


def exact_product(x: list[int], y: list[int], p: int) -> list[int]:
    """Modulo p and x^N + 1, with N the lists' length, by one product of large numbers."""
    n = len(x)
    size = (2 * p.bit_length() + n.bit_length() + 7) // 8
    left, right = (mpz.from_bytes(b"".join(each.to_bytes(size, "little") for each in of), "little") for of in (x, y))
    data = (left * right).to_bytes(2 * n * size, "little")
    parts = [int.from_bytes(data[at : at + size], "little") for at in range(0, len(data), size)]
    return [(parts[at] - parts[at + n]) % p for at in range(n)]
