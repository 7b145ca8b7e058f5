"""Many powers of one base: a comb of precomputed products, sized to its use.

The exponent's bits are laid out as *teeth* × *columns* × *steps*: tooth i, column j and step k
hold bit (i·columns + j)·steps + k. For each column a table has the product of
base^(2^((i·columns + j)·steps)) over every subset of the teeth. A power then takes, step by step
from the highest, one squaring and one multiplication per column: columns·steps multiplications
and steps − 1 squarings, with columns·2^teeth stored products. (With one step this is the plain window
method, which needs a fifth more for the same memory.)

Each multiplication is done for every exponent, also by 1. Which products are used depends on
the secret exponent, so another program on the same processor might learn some of its
bits from the cache. ``powmod_sec`` would reveal none, but takes seven to thirty times as long; and each
exponent is used for one ciphertext only.

Source: Lim and Lee, "More flexible exponentiation with precomputation", CRYPTO 1994.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache

import gmpy2
import numpy as np
from gmpy2 import mpz

from vfl_node.crypto.kernels import kernel
from vfl_node.crypto.kernels.contract import Residues, Vector
from vfl_node.crypto.paillier.products import Indices, ones

_TABLE_BYTES = 24 << 20  # twice as much would save 5 % of the time
_TABLES = 2  # kept by a process; while one replaces another, up to 90 MiB, as compiled kernels take a quarter more
_OVERHEAD_BYTES = 64  # bytes of a Python integer besides its digits
_MOST_TEETH = 16
_FEW = 4  # exponents

Moduli = tuple[mpz, ...]
"""Coprime moduli whose product is the modulus: the product itself, or its factors if this party knows them."""


@dataclass(frozen=True)
class Comb:
    """The layout of an exponent of ``exponent_bytes``, and so of the tables."""

    exponent_bytes: int
    teeth: int
    columns: int
    steps: int

    def indices(self, exponents: bytes) -> Indices:
        """Positions in the flat table, int64[count, steps (highest first), columns], for little-endian exponents."""
        bits = np.unpackbits(np.frombuffer(exponents, np.uint8).reshape(-1, self.exponent_bytes), axis=1, bitorder="little")
        padding = self.teeth * self.columns * self.steps - bits.shape[1]
        bits = np.pad(bits, ((0, 0), (0, padding))).reshape(-1, self.teeth, self.columns, self.steps)
        subsets = np.einsum("rtcs,t->rsc", bits, 1 << np.arange(self.teeth))[:, ::-1]
        return subsets + (np.arange(self.columns) << self.teeth)


@cache
def choose_comb(exponent_bytes: int, uses: int, modulus_bytes: int) -> Comb:
    """The layout with the fewest multiplications, including those for tables, within the bound on memory.

    Args:
        exponent_bytes: size of the exponents.
        uses: how many powers will be computed with one table.
        modulus_bytes: size of the numbers in the table.
    """

    def cost(comb: Comb) -> int:
        table = (comb.columns << comb.teeth) + 8 * exponent_bytes
        return table + uses * ((comb.columns + 1) * comb.steps - 1)

    combs = []
    for teeth in range(1, _MOST_TEETH + 1):
        length = -(-8 * exponent_bytes // teeth)
        most_columns = _TABLE_BYTES // (modulus_bytes + _OVERHEAD_BYTES) >> teeth
        for steps in range(1, length + 1):
            columns = -(-length // steps)
            if columns <= most_columns:
                combs.append(Comb(exponent_bytes, teeth, columns, steps))
    return min(combs, key=cost)


def powers(base: mpz, moduli: Moduli, comb: Comb, exponents: bytes) -> list[mpz]:
    """base^e modulo the product of ``moduli`` for each exponent.

    Args:
        base: coprime to the moduli.
        moduli: one modulus, or two coprime ones.
        comb: from :func:`choose_comb`.
        exponents: little-endian, ``comb.exponent_bytes`` each.
    """
    places = comb.indices(exponents)
    tables = _tables(base, moduli, comb)
    compute = _few_powers if len(places) < _FEW else _powers
    residues = [compute(table, numbers, places) for table, numbers in tables]
    if len(moduli) == 1:
        return residues[0]
    first, second = moduli
    inverse = gmpy2.invert(second, first)
    return [y + (x - y) * inverse % first * second for x, y in zip(*residues, strict=True)]


def _few_powers(table: Vector, numbers: Residues, places: Indices) -> list[mpz]:
    """As :func:`_powers`, by single products of gmpy2, of which a few take less time than a call of a kernel."""
    entries, modulus = iter(numbers.numbers(table[places.ravel()])), numbers.modulus  # a place named twice is read twice
    results = []
    for _ in range(len(places)):
        power = mpz(1)
        for step in range(places.shape[1]):
            if step:
                power = power * power % modulus
            for _ in range(places.shape[2]):
                power = power * next(entries) % modulus
        results.append(power)
    return results


def _powers(table: Vector, numbers: Residues, places: Indices) -> list[mpz]:
    results = ones(numbers, len(places))
    for step in range(places.shape[1]):
        if step:
            numbers.square((results, None), 1)
        for column in range(places.shape[2]):
            numbers.multiply((results, None), (results, None), (table, places[:, step, column]))
    return numbers.numbers(results)


@lru_cache(maxsize=_TABLES)
def _tables(base: mpz, moduli: Moduli, comb: Comb) -> list[tuple[Vector, Residues]]:
    each = [kernel().residues(modulus, comb.columns << comb.teeth) for modulus in moduli]
    return [(_table(base % numbers.modulus, numbers, comb), numbers) for numbers in each]


def _table(base: mpz, numbers: Residues, comb: Comb) -> Vector:
    """The subset products of all columns, one column after another."""
    spread = [base]
    while len(spread) < comb.teeth * comb.columns:
        spread.append(gmpy2.powmod(spread[-1], 1 << comb.steps, numbers.modulus))
    teeth = numbers.load(spread)
    table = ones(numbers, comb.columns << comb.teeth)
    first = np.arange(comb.columns) << comb.teeth  # of each column
    for tooth in range(comb.teeth):
        without = (first[:, np.newaxis] + np.arange(1 << tooth)).ravel()
        which = np.repeat(tooth * comb.columns + np.arange(comb.columns), 1 << tooth)
        numbers.multiply((table, without + (1 << tooth)), (table, without), (teeth, which))
    return table
