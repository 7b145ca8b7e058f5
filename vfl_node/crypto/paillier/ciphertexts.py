"""Arithmetic on encrypted numbers with the public key, a vector of ciphertexts at a time.

The product of two ciphertexts encrypts the sum of their numbers; the k-th power of a ciphertext encrypts k times
its number. The inputs determine the result: a party that knows the input ciphertexts can test
a guess of the plain numbers that were applied. So every result must be **re-randomised before it
leaves the party** (``encryption.Encryptor.rerandomise``). A factor 0 gives the ciphertext 1.

Ciphertexts of a peer are checked once, by :func:`check`, when they arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gmpy2
import numpy as np
from gmpy2 import mpz

from vfl_node.crypto.kernels import kernel
from vfl_node.crypto.paillier.keys import Ciphertexts, PublicKey
from vfl_node.engines.contract import Engine, Key
from vfl_node.errors import ProtocolError

_ADD_ROWS, _SCALE_ROWS = 4096, 32  # of a block: 20 ms at 2048 bits


def check(public: PublicKey, ciphertexts: Ciphertexts) -> None:
    """Refuse rows that are not ciphertexts: each must be in 1 … n²−1 and coprime to n.

    Cost: 3.5 µs per ciphertext at 2048 bits, and one gcd for all.

    Raises:
        ProtocolError: another width or type, or a number that is not a ciphertext (``E_CIPHERTEXT``).
    """
    if ciphertexts.dtype != np.uint8 or ciphertexts.ndim != 2 or ciphertexts.shape[1] != public.width:
        raise _refusal(f"rows of {public.width} bytes were expected, not {ciphertexts.dtype} of shape {ciphertexts.shape}")
    product = mpz(1)
    for row, ciphertext in enumerate(public.integers(ciphertexts)):
        if not 0 < ciphertext < public.square:
            raise _refusal(f"row {row} is not in 1 … n²-1")
        product = product * ciphertext % public.n
    if gmpy2.gcd(product, public.n) != 1:
        raise _refusal("one of them shares a factor with the key")


def add(public: PublicKey, a: Ciphertexts, b: Ciphertexts, engine: Engine) -> Ciphertexts:
    """Row by row the sum of the encrypted numbers; uint8[count, width] each. Cost: one multiplication mod n² per row."""
    return _map_rows(_add, public, (a, b), _ADD_ROWS, engine)


def add_plain(public: PublicKey, ciphertexts: Ciphertexts, values: Sequence[int], engine: Engine) -> Ciphertexts:
    """Row by row the encrypted number plus a plain one.

    The size of the numbers that are multiplied does not depend on the value. The noise stays
    the same, so a party that knows ``ciphertexts`` can find the value.

    Args:
        public: the key.
        ciphertexts: uint8[count, width].
        values: ``count`` integers, each of magnitude below n/2.
        engine: computes the blocks.

    Cost: two multiplications per row.

    Raises:
        ValueError: a value is too large, or the number of values differs from that of rows.
    """
    if any(2 * abs(value) >= public.n for value in values):
        raise ValueError("a value is not below n/2")
    return _map_rows(_add_plain, public, (ciphertexts, values), _ADD_ROWS // 2, engine)


def scale(public: PublicKey, ciphertexts: Ciphertexts, factors: Sequence[int], bits: int, engine: Engine) -> Ciphertexts:
    """Row by row the encrypted number times a secret one.

    The time does not depend on a factor's size or sign, nor on whether it is 0: with s = 3·2^``bits``
    the exponent k + s always has ``bits`` + 2 bits and is applied by ``powmod_sec``. Then the result is divided by
    c^s, which is public.

    Args:
        public: the key.
        ciphertexts: uint8[count, width].
        factors: ``count`` integers, each of magnitude below 2^``bits``; 0 gives the ciphertext 1.
        bits: public bound of all factors.
        engine: computes the blocks.

    Cost: one and a half ``powmod_sec``, whose time grows in steps of 64 bits: at 2048 bits
        0.6 ms per row for factors of up to 62 bits, and an inversion for every 32 rows.

    Raises:
        ValueError: a factor is too large, or the number of factors differs from that of rows.
    """
    if any(abs(factor) >> bits for factor in factors):
        raise ValueError(f"a factor has more than {bits} bits")
    shift = 3 << bits
    exponents = [factor + shift for factor in factors]
    return _map_rows(_scale, (public, shift), (ciphertexts, exponents), _SCALE_ROWS, engine)


def total(public: PublicKey, ciphertexts: Ciphertexts) -> Ciphertexts:
    """The sum of all encrypted numbers, uint8[1, width]; the ciphertext 1 for none. Cost: one multiplication per row."""
    product = mpz(1)
    for ciphertext in public.integers(ciphertexts):
        product = product * ciphertext % public.square
    return public.rows([product])


def inverses(numbers: Sequence[mpz], modulus: mpz) -> list[mpz]:
    """All inverses modulo ``modulus``. Cost: one inversion, and three multiplications per number.

    Raises:
        ZeroDivisionError: a number has no inverse.

    Source: Montgomery, "Speeding the Pollard and elliptic curve methods of factorization" (1987).
    """
    before = [mpz(1)]  # the product of all numbers before each
    for number in numbers:
        before.append(before[-1] * number % modulus)
    inverse = gmpy2.invert(before.pop(), modulus)
    last_to_first = []
    for number, product in zip(reversed(numbers), reversed(before), strict=True):
        last_to_first.append(inverse * product % modulus)
        inverse = inverse * number % modulus
    return last_to_first[::-1]


def _map_rows(
    operation: Callable[[Key, Any], Ciphertexts],
    key: Key,
    columns: tuple[Ciphertexts, Ciphertexts | Sequence[int]],
    block_rows: int,
    engine: Engine,
) -> Ciphertexts:
    """``operation`` on blocks of both columns, uint8[count, width]."""
    first, second = columns
    if len(first) != len(second):
        raise ValueError(f"columns of {len(first)} and {len(second)} rows")
    starts = range(0, len(first), block_rows)
    blocks = ((first[start : start + block_rows], second[start : start + block_rows]) for start in starts)
    return np.concatenate([first[:0], *engine.map(operation, blocks, key)])


def _add(public: PublicKey, block: tuple[Ciphertexts, Ciphertexts]) -> Ciphertexts:
    """In a worker."""
    pairs = zip(*map(public.integers, block), strict=True)
    return public.rows(x * y % public.square for x, y in pairs)


def _add_plain(public: PublicKey, block: tuple[Ciphertexts, Sequence[int]]) -> Ciphertexts:
    """In a worker."""
    ciphertexts, values = block
    n = mpz(public.n)
    pairs = zip(public.integers(ciphertexts), values, strict=True)
    # 4n more is the same plaintext, and for any value in ±n/2 as many machine words.
    return public.rows(c * (1 + (value + 4 * n) * n) % public.square for c, value in pairs)


def _scale(key: tuple[PublicKey, int], block: tuple[Ciphertexts, Sequence[int]]) -> Ciphertexts:
    """In a worker. Key: the public key, and s."""
    (public, shift), (ciphertexts, factors) = key, block
    numbers, modulus, exponents = public.integers(ciphertexts), public.square, [mpz(factor) for factor in factors]
    divisors = inverses(kernel().powers(numbers, mpz(shift), modulus, secret=False), modulus)
    powers = kernel().own_powers(numbers, exponents, shift.bit_length(), modulus)
    return public.rows(power * divisor % modulus for power, divisor in zip(powers, divisors, strict=True))


def _refusal(fault: str) -> ProtocolError:
    return ProtocolError(
        f"these are no ciphertexts under this key: {fault}",
        code="E_CIPHERTEXT",
        hint="no honest node sends such a vector; ask the peer's owner what runs there",
    )
