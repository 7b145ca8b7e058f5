"""What an owner can compute of ciphertexts and answers, in exact numbers of Python: for tests of noise, and for attacks."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from gmpy2 import mpz

from vfl_node.crypto.lattice.keys import SecretKey
from vfl_node.crypto.lattice.parameters import N
from vfl_node.crypto.lattice.ring import Ring, Words


def whole(ring: Ring, polynomial: Words) -> list[int]:
    """Residues [L, N], transformed, as numbers modulo q in −q/2 … q/2."""
    q, coefficients = ring.parameters.q, ring.transform(polynomial, back=True)
    weights = [q // p * pow(q // p, -1, p) for p in ring.parameters.primes]
    total = sum(residues.astype(object) * weight for residues, weight in zip(coefficients, weights, strict=True))
    return [int(x) - q if x > q // 2 else int(x) for x in total % q]


def phase(key: SecretKey, parts: Words) -> list[int]:
    """c_0 + c_1·s of parts [2, L, N]."""
    ring, total = key.ring, parts[0].copy()
    ring.add_products(total, np.ascontiguousarray(parts[1]), key.transformed, 0, 1)
    return whole(ring, total)


def errors_of(key: SecretKey, parts: Words, numbers: Words) -> list[float]:
    """What a ciphertext of ``numbers`` has besides q/t·m: its error, and what rounding added."""
    q, t = key.ring.parameters.q, key.ring.parameters.t
    both = zip(phase(key, parts), numbers.tolist(), strict=True)
    return [((x * t - q * m + q * t // 2) % (q * t) - q * t // 2) / t for x, m in both]


def secret_of(key: SecretKey) -> list[int]:
    """s."""
    return whole(key.ring, key.transformed)


def read(key: SecretKey, answer: bytes, useful: int, step: int) -> list[int]:
    """c_0 + c_1·s at the useful coefficients of an answer's bytes, modulo 2^long_bits."""
    chosen = key.ring.parameters
    first, second = chosen.short_bits // 8, chosen.long_bits // 8
    parts = answer[: useful * first], answer[useful * first :]
    c0 = [int.from_bytes(parts[0][at : at + first], "little") for at in range(0, len(parts[0]), first)]
    c1 = [int.from_bytes(parts[1][at : at + second], "little") for at in range(0, len(parts[1]), second)]
    product = ternary_product(c1, secret_of(key))
    shift, modulus = chosen.long_bits - chosen.short_bits, 1 << chosen.long_bits
    return [((x << shift) + product[at * step]) % modulus for at, x in enumerate(c0)]


def ternary_product(x: list[int], s: list[int]) -> list[int]:
    """x·s modulo x^N + 1, for x of 0 … 2^80 and s of −1 … 1, by one product of large numbers."""
    size = 12
    packed = [
        mpz.from_bytes(b"".join(int(each).to_bytes(size, "little") for each in row), "little")
        for row in (x, [a + 1 for a in s])
    ]
    data = (packed[0] * packed[1]).to_bytes(2 * N * size, "little")
    parts = [int.from_bytes(data[at : at + size], "little") for at in range(0, len(data), size)]
    total = sum(x)
    ones, before = [], 0  # x·(1 + x + … + x^(N−1)) at each place: what stands up to it, less what stands after it
    for each in x:
        before += each
        ones.append(2 * before - total)
    return [parts[at] - parts[at + N] - ones[at] for at in range(N)]


def shortest_pair(a: int, q: int, scale: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """A reduced basis of all (scale·x, a·x mod q) (Gauss)."""
    u, v = (scale, a % q), (0, q)
    while True:
        if u[0] ** 2 + u[1] ** 2 > v[0] ** 2 + v[1] ** 2:
            u, v = v, u
        times = round_quotient(u[0] * v[0] + u[1] * v[1], u[0] ** 2 + u[1] ** 2)
        if not times:
            return u, v
        v = v[0] - times * u[0], v[1] - times * u[1]


def round_quotient(x: int, y: int) -> int:
    """x / y, rounded."""
    return (2 * x + y) // (2 * y) if y > 0 else -((2 * x - y) // (-2 * y))


def multiplier(a: int, q: int, product: int, scale: int) -> int:
    """The small b of which a·b is near to ``product`` modulo q: the lattice's nearest point to (0, product) (Babai)."""
    (u0, u1), (v0, v1) = shortest_pair(a, q, scale)
    determinant = u0 * v1 - u1 * v0
    i, j = round_quotient(-v0 * product, determinant), round_quotient(u0 * product, determinant)
    return (i * u0 + j * v0) // scale


def largest_gap(sample: list[float], cumulative: list[float]) -> float:
    """Kolmogorov and Smirnov's distance of a sorted sample's values under the distribution that is to be its own."""
    count = len(sample)
    assert all(first <= second for first, second in pairwise(sample))
    return max(max((at + 1) / count - each, each - at / count) for at, each in enumerate(cumulative))
