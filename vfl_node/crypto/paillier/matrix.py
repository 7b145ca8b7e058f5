"""A matrix of integers times a vector of ciphertexts: column j is Π_i c_i^{x_ij} mod n².

Nearly all of its time is spent on multiplications modulo n². Their number depends on how
products are shared. There are two methods, each best for some columns:

**Subset tables** (the "four Russians", a Straus table for many outputs): the exponents of a
column are divided into bits; bit k of all rows selects a subset of the ciphertexts. For g
ciphertexts at a time all 2^g subset products are computed once, and every (column, bit) uses one of
them, or none if its g bits are 0. Negative exponents are in two's complement: the
highest bit has the opposite sign. This is for dense columns, if there are enough of them to share the tables.

**Buckets** (Pippenger, with signed digits): the exponents of a column are divided into digits of w
bits in −2^(w−1) … 2^(w−1)−1, and each ciphertext is multiplied into the bucket of its digit, or into
none for 0. The buckets with an odd d are a factor of bit 0; then buckets 2d and 2d + 1 are joined, those with an odd d
are a factor of bit 1, and so on: about two products a bucket, as with running products, but many at a time. This is for
few columns and for sparse ones.

For a few rows both methods become one multiplication per set bit and row (g = 1) or per row and digit;
so there is no third method. Bits or digits are combined by Horner's rule, with one pass
of squarings per column, at most as many as its own exponents have bits.
Negative parts are collected in a denominator; all denominators share one inversion.

:func:`plan` counts the multiplications from the matrix, without doing them, and chooses the best
g and, for each column, the best w or the tables. A squaring counts like a multiplication, because division by n² takes
two thirds of the time of either. Exponents are the caller's own features, and the time of the computation may depend on them.

Source: Pippenger, "On the evaluation of powers and monomials" (1980); Straus (1964); Arlazarov et al. (1970).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from vfl_node.crypto.kernels import kernel
from vfl_node.crypto.kernels.contract import Residues, Vector
from vfl_node.crypto.paillier.ciphertexts import inverses
from vfl_node.crypto.paillier.keys import Ciphertexts, PublicKey
from vfl_node.crypto.paillier.products import NONE, Indices, horner, multiply_by_bits, ones
from vfl_node.engines.contract import Engine

Matrix = NDArray[np.int64]

_GROUPS = range(2, 13)
"""g: a table has at most 2^12 products, 4 MiB at 3072 bits."""

_SUBSETS = 1 << 12
"""Largest number of products of the tables that exist at a time."""

_DIGITS = range(2, 13)
"""w: at most 2^12 buckets for each digit of a column."""

_WIDEST = 8
"""Largest number of buckets for each row: more are not worth their products."""

_ENTRIES = 1 << 14
"""Largest number of digits of a place that are multiplied at a time, and of buckets: 15 MiB at 3072 bits."""

_COLUMNS = 1024
"""Largest number of columns of a block: a product for each of their bits is stored, 13 MiB for 16 bits at 3072."""

_ROWS = 1 << 15
"""Largest number of rows of a block: their ciphertexts are stored, 25 MiB at 3072 bits."""

_SAMPLE = 1 << 15
"""Largest number of entries from which a plan is made."""

_LEAST = 4096
"""Number of multiplications that justify a separate block, for each that a kernel does at a time: 15 to 35 ms at 2048 bits."""


def multiply(public: PublicKey, matrix: Matrix, ciphertexts: Ciphertexts, engine: Engine) -> Ciphertexts:
    """The encrypted products of every column of ``matrix`` with the encrypted vector.

    The result does not depend on the division of the work or on the number of workers. It is determined by
    ``matrix`` and ``ciphertexts``: **re-randomise it before it leaves the party**. A column of zeros
    gives the ciphertext 1.

    Args:
        public: the key.
        matrix: int64[rows, columns].
        ciphertexts: uint8[rows, width], checked.
        engine: computes the blocks.

    Returns:
        uint8[columns, width].

    Cost: for a dense matrix of b bits, with n rows and f columns, about n·f·b/g + n·2^g/g
        multiplications mod n² (2.3 per entry for 16 bits and 100 columns: 112,000 entries/s on one core at
        2048 bits); for few columns n·f·b/w + f·2^w·b/w; for sparse columns in proportion to the entries that are not 0.

    Raises:
        ValueError: the number of rows differs from the number of ciphertexts.
    """
    if matrix.ndim != 2 or len(matrix) != len(ciphertexts):
        raise ValueError(f"a matrix of shape {matrix.shape} and {len(ciphertexts)} ciphertexts")
    numerators, denominators = ([mpz(1)] * matrix.shape[1] for _ in range(2))
    begun: deque[range] = deque()  # the columns of each block

    def blocks() -> Iterator[tuple[Matrix, Ciphertexts]]:
        for rows, columns in _cuts(matrix, engine.workers):
            begun.append(range(*columns.indices(matrix.shape[1])))
            yield matrix[rows, columns], ciphertexts[rows]

    for parts in engine.map(_block, blocks(), public):
        columns = begun.popleft()
        for products, part in zip((numerators, denominators), parts, strict=True):
            for column, factor in zip(columns, public.integers(part), strict=True):
                products[column] = products[column] * factor % public.square
    pairs = zip(numerators, inverses(denominators, public.square), strict=True)
    return public.rows(numerator * inverse % public.square for numerator, inverse in pairs)


def _cuts(matrix: Matrix, workers: int) -> Iterator[tuple[slice, slice]]:
    """Rows and columns of the blocks."""
    rows, columns = matrix.shape
    for top, left in product(range(0, rows, _ROWS), range(0, columns, _COLUMNS)):
        bottom, right = min(top + _ROWS, rows), min(left + _COLUMNS, columns)
        pieces, of_rows = _pieces(matrix[top:bottom, left:right], workers)
        for piece in range(pieces):
            if of_rows:
                first, end = ((bottom - top) * place // pieces + top for place in (piece, piece + 1))
                yield slice(first, end), slice(left, right)
            else:
                yield slice(top, bottom), slice(left + piece, right, pieces)


def _pieces(matrix: Matrix, workers: int) -> tuple[int, bool]:
    """The number of pieces, and whether rows or columns are divided: the faster choice."""
    if workers == 1:
        return 1, False
    whole, columns = plan(matrix), matrix.shape[1]
    pieces = min(workers, whole.cost // (_LEAST * kernel().lanes))
    if pieces < 2:
        return 1, False
    by_rows = whole.cost_a_column + (whole.cost - whole.cost_a_column) / pieces
    by_columns = whole.cost_of_tables + (whole.cost - whole.cost_of_tables) * -(-columns // pieces) / columns
    return (pieces, True) if by_rows < by_columns else (min(pieces, columns), False)


def _block(public: PublicKey, block: tuple[Matrix, Ciphertexts]) -> tuple[Ciphertexts, Ciphertexts]:
    """In a worker: numerators and denominators of the columns of one block."""
    matrix, ciphertexts = block
    fractions = evaluate(matrix, public.integers(ciphertexts), kernel().residues(public.square, matrix.size), plan(matrix))
    return public.rows(above for above, _ in fractions), public.rows(below for _, below in fractions)


@dataclass(frozen=True)
class MatrixPlan:
    """How a matrix is multiplied.

    Attributes:
        group: g, rows per subset table; 0: no column uses tables.
        digits: w for each column, int64[columns]; 0: the column uses the tables.
        cost: multiplications and squarings mod n².
        cost_of_tables: those of them that all columns share.
        cost_a_column: those of them that do not grow with the number of rows.
    """

    group: int
    digits: Indices
    cost: int
    cost_of_tables: int
    cost_a_column: int


def plan(matrix: Matrix) -> MatrixPlan:
    """The cheapest way to multiply ``matrix``, int64[rows, columns], which has at least one row and one column.

    The costs are exact, but for a few multiplications a column with tables, up to :data:`_SAMPLE` entries. Beyond that they are
    an estimate from this number of entries.
    Cost: 5 to 50 ms; .3 s for a thousand columns of 63 bits.
    """
    sample = matrix[:: -(-matrix.size // _SAMPLE)]
    scale = len(matrix) / len(sample)
    widths = [width for width in _DIGITS if 1 << width <= max(_WIDEST * len(matrix), 4)]
    by_digits = np.stack([_bucket_costs(sample, width, scale) for width in widths])  # [widths, 2, columns]
    best = by_digits.sum(axis=1).argmin(axis=0)
    buckets = np.take_along_axis(by_digits, best[np.newaxis, np.newaxis], axis=0)[0]  # [2, columns]
    plans = []
    for group in (0, *_GROUPS):
        subsets = _subset_costs(sample, group, scale) if group else np.full_like(buckets, np.inf)
        cheaper = subsets.sum(axis=0) < buckets.sum(axis=0)
        costs = np.where(cheaper, subsets, buckets)
        tables = _table_cost(len(matrix), group) if cheaper.any() else 0
        digits = np.where(cheaper, 0, np.array(widths)[best])
        plans.append(MatrixPlan(group, digits, int(costs.sum()) + tables, tables, int(costs[1].sum())))
    return min(plans, key=lambda each: each.cost)


def _bucket_costs(matrix: Matrix, width: int, scale: float) -> NDArray[np.float64]:
    """For each column, [2, columns]: one multiplication per digit that is not 0; and those of buckets and Horner's rule."""
    columns = matrix.shape[1]
    into, after, highest = np.zeros(columns), np.zeros(2 * columns), np.full(2 * columns, -1)  # the latter by sign; bits
    for place, digits in enumerate(_digits(matrix, width)):
        into += np.count_nonzero(digits, axis=0) * scale
        weights = np.abs(digits)
        size = 1 << int(weights.max()).bit_length()
        here = np.zeros(2 * columns * size, dtype=np.bool_)
        here[(2 * np.arange(columns) + (digits < 0)) * size + weights] = True
        here = here.reshape(-1, size)
        largest = np.where(here.any(axis=1), size - 1 - here[:, ::-1].argmax(axis=1), 0)
        bits = np.frexp(largest)[1]
        highest = np.where(bits > 0, width * place + bits - 1, highest)
        for bit in range(size.bit_length() - 1):  # as by_bits
            odd, last = here[:, 1::2], here[:, 1]
            count = odd.sum(axis=1)
            if scale > 1:
                possible = ((largest >> bit) + 1 >> 1).clip(1)
                count = possible * (1 - (1 - count / possible) ** scale)
            after += count - last
            here = here[:, ::2] | odd
    after += np.where(highest >= 0, highest - 1, 0)
    return np.stack([into, after.reshape(-1, 2).sum(axis=1)])


def _subset_costs(matrix: Matrix, group: int, scale: float) -> NDArray[np.float64]:
    """For each column, [2, columns]: one multiplication per group and bit, unless 0 in all its rows; and Horner's rule."""
    bits, negative = _two_complement(matrix)
    masks = np.array([(1 << count) - 1 for count in bits.tolist()], dtype=np.uint64)
    taken = np.bitwise_or.reduceat(matrix.view(np.uint64) & masks, np.arange(0, len(matrix), group), axis=0)
    hits = np.unpackbits(taken.view(np.uint8).reshape(len(taken), -1, 8), axis=2).sum(axis=(0, 2), dtype=np.int64)
    return np.stack([hits * scale, np.maximum((bits - 2) * (1 + negative) - negative, -hits)])


def _table_cost(rows: int, group: int) -> int:
    tables, rest = divmod(rows, group)
    return tables * ((1 << group) - group - 1) + ((1 << rest) - rest - 1)


def _two_complement(matrix: Matrix) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """For each column: how many bits its exponents have, including the sign, and whether any is negative."""
    low, high = matrix.min(axis=0), matrix.max(axis=0)
    negative = low < 0
    bits = [most.bit_length() for most in np.maximum(high, np.where(negative, ~low, 0)).tolist()]
    return np.array(bits) + negative, negative


def evaluate(matrix: Matrix, ciphertexts: Sequence[mpz], numbers: Residues, chosen: MatrixPlan) -> list[tuple[mpz, mpz]]:
    """Numerator and denominator of every column of ``matrix``, int64[rows, columns], by the plan ``chosen``."""
    vector = numbers.load(ciphertexts)
    fractions = [(mpz(1), mpz(1))] * matrix.shape[1]
    tabled = np.flatnonzero(chosen.digits == 0)
    if len(tabled):
        by_subsets = _multiply_by_subsets(matrix[:, tabled], vector, numbers, chosen.group)
        for column, fraction in zip(tabled.tolist(), by_subsets, strict=True):
            fractions[column] = fraction
    for columns, width in _group_digits(matrix, chosen.digits):
        by_buckets = _multiply_by_buckets(matrix[:, columns], vector, numbers, width)
        for column, fraction in zip(columns.tolist(), by_buckets, strict=True):
            fractions[column] = fraction
    return fractions


def _multiply_by_subsets(matrix: Matrix, ciphertexts: Vector, numbers: Residues, group: int) -> list[tuple[mpz, mpz]]:
    bits, negative = _two_complement(matrix)
    columns = np.repeat(np.arange(len(bits)), bits)  # (column, bit) pairs, [outputs]
    planes = np.concatenate([np.arange(count) for count in bits])
    outputs = ones(numbers, len(columns))
    at_once = max(1, _SUBSETS >> group)
    for top in range(0, len(matrix), group * at_once):
        rows = matrix[top : top + group * at_once]
        tables = _tables(ciphertexts, np.arange(top, top + len(rows)), numbers, group)
        for table, start in enumerate(range(0, len(rows), group)):
            of_group = rows[start : start + group]
            subsets = (1 << np.arange(len(of_group))) @ (of_group[:, columns] >> planes & 1)
            taken = np.flatnonzero(subsets)
            numbers.multiply((outputs, taken), (outputs, taken), (tables, subsets[taken] + (table << group)))
    ends, places = np.cumsum(bits), np.arange(bits.max(initial=0))
    at = (ends - bits)[:, np.newaxis] + places
    sign = negative[:, np.newaxis] & (places == bits[:, np.newaxis] - 1)
    above = np.where((places < bits[:, np.newaxis]) & ~sign, at, NONE)
    fractions = horner(numbers, outputs, np.concatenate([above, np.where(sign, at, NONE)]), 1)
    return list(zip(fractions[: len(bits)], fractions[len(bits) :], strict=True))


def _tables(ciphertexts: Vector, rows: NDArray[np.int64], numbers: Residues, group: int) -> Vector:
    """All products of ``group`` rows and fewer, one group after another."""
    tables = ones(numbers, -(-len(rows) // group) << group)
    for place in range(group):
        of_place = rows[place::group]  # of each group, but perhaps the last one
        subsets = ((np.arange(len(of_place)) << group)[:, np.newaxis] + np.arange(1 << place)).ravel()
        numbers.multiply((tables, subsets + (1 << place)), (tables, subsets), (ciphertexts, np.repeat(of_place, 1 << place)))
    return tables


def _group_digits(matrix: Matrix, digits: Indices) -> Iterator[tuple[NDArray[np.int64], int]]:
    """The columns with digits of a width, as many at a time as have at most :data:`_ENTRIES` of them and of buckets."""
    for width in np.unique(digits[digits > 0]).tolist():
        columns = np.flatnonzero(digits == width)
        places = -(-(_two_complement(matrix[:, columns])[0].max() + 1) // width)
        sizes = np.maximum(np.count_nonzero(matrix[:, columns], axis=0), places << width)
        yield from ((part, width) for part in np.split(columns, _ends(sizes)) if len(part))


def _ends(sizes: NDArray[np.int64]) -> list[int]:
    """Where a part ends, so that its sizes sum up to :data:`_ENTRIES` at most, or it is only one."""
    ends, total = [], 0
    for place, size in enumerate(sizes.tolist()):
        if total + size > _ENTRIES:
            ends.append(place)
            total = 0
        total += size
    return ends


def _multiply_by_buckets(exponents: Matrix, ciphertexts: Vector, numbers: Residues, width: int) -> list[tuple[mpz, mpz]]:
    lanes = 2 * exponents.shape[1]  # of each column the positive and the negative digits
    bits, parts = [np.full((0, lanes), NONE)], [ones(numbers, 0)]
    for row, lane, weights in _signed_digits(exponents, width):
        products = list(multiply_by_bits(numbers, ciphertexts, row, lane, weights))
        at = np.full((width, lanes), NONE)
        for bit, (which, of_bit) in enumerate(products):
            at[bit, which] = sum(map(len, parts)) + np.arange(len(which))
            parts.append(of_bit)
        bits.append(at)
    signed = horner(numbers, np.concatenate(parts), np.concatenate(bits).T, 1)
    return list(zip(signed[::2], signed[1::2], strict=True))


def _signed_digits(exponents: Matrix, width: int) -> Iterator[tuple[Indices, Indices, Indices]]:
    """The digits of each place that are not 0: rows, twice the columns and one more for a negative digit, and magnitudes."""
    for digits in _digits(exponents, width):
        row, column = np.nonzero(digits)
        taken = digits[row, column]
        yield row, 2 * column + (taken < 0), np.abs(taken)


def _digits(exponents: Matrix, width: int) -> Iterator[Matrix]:
    """The digits of ``exponents`` in −2^(w−1) … 2^(w−1)−1, lowest first, as long as any is left."""
    half = 1 << (width - 1)
    while exponents.any():
        digits = (exponents + half & 2 * half - 1) - half
        yield digits
        exponents = (exponents >> width) + (digits < 0)
