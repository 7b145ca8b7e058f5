"""How columns of all parties move together over the shared records: a matrix of products in shares, opened with noise.

Each party brings its numbers in deviations of its own table, cut off at ±:data:`FAR`; categories are zeros. Each shrinks its
part of a row to a length of √(:data:`LENGTH`·columns). The active party brings a constant and the label as well. With z a whole
row, of all parties, Σ z·zᵀ over the records that all have and that are trained on is computed block by block ::

    w∘z_q    by the party q that knows z_q, w in shares          z_pᵀ·(w∘z_q)    by the party p that knows z_p

and its upper half is opened to all, each number with noise. From it everybody computes correlations, variance inflation, and
how well a linear score of some columns would tell the labels.

Source: ours; the area of a linear score is that of Fisher's discriminant for two normal classes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.noise import draw_noise
from vfl_node.crypto.shares.operations import known_product, mask_known, reveal
from vfl_node.crypto.shares.ring import Ring, decode, encode
from vfl_node.crypto.shares.values import Shared, stack_rows

Floats = NDArray[np.float64]

FAR = 3.0
LENGTH = 2.0

FRACTION = 12
"""Fractional bits of a number of a row."""

BESIDE = 2
"""What the active party has beside its columns: a constant, and the label less a half."""

_AT_ONCE = 1 << 22
"""Numbers of rows that are multiplied at a time."""


def scale_rows(values: Floats, *, label: NDArray[np.int64] | None = None) -> Ring:
    """A party's part of all rows, uint64[n, d], at the active party [n, d + 2].

    Args:
        values: float64[n, d] in deviations; 0 where there is none.
        label: int64[n] of 0 and 1, at the active party.
    """
    cut = np.clip(values, -FAR, FAR)
    lengths = np.sqrt((cut**2).sum(axis=1, keepdims=True))
    most = math.sqrt(LENGTH * values.shape[1])
    cut = cut * (most / np.maximum(lengths, most))
    parts = [np.trunc(cut * 2**FRACTION) * 2.0**-FRACTION]
    if label is not None:
        parts += [np.ones((len(cut), 1)), label[:, None] - 0.5]
    return encode(np.concatenate(parts, axis=1), FRACTION)


def noise_of(mu: float, columns: int) -> float:
    """The standard deviation of the noise of each number of the matrix's upper half, over so many columns of all parties.

    With |z|² ≤ R² and |z_i| ≤ :data:`FAR` the squares of the upper half of z·zᵀ sum to (R⁴ + Σ z_i⁴)/2 ≤ (R⁴ + 9·R²)/2. Two
    neighbouring worlds differ in one record that comes in, or is swapped, or whose label is another one: twice as much.
    """
    square = 1.25 + LENGTH * columns
    return math.sqrt(square**2 + FAR**2 * square) / mu


async def multiply_rows(
    machine: ShareMachine, widths: Sequence[int], own: Ring | None, both: Shared, deviation: float
) -> Floats:
    """The matrix, float64[D, D], the same for all parties; zeros at the dealer.

    Args:
        machine: of whoever runs it.
        widths: numbers of each party in a row.
        own: this party's, uint64[n, d]; None at the dealer.
        both: w of the same rows, [n].
        deviation: of the noise.

    Opens about 8·(parties + 1) bytes a row and column; the dealer sends as many as a row has numbers.
    """
    rows, total = len(both.part), sum(widths)
    at_once = max(1, _AT_ONCE // total)
    sums = Shared(np.zeros((total, total), np.uint64), 2 * FRACTION)
    for first in range(0, rows, at_once):
        part = slice(first, first + at_once)
        mine = [own[part] if own is not None and machine.place == place else None for place in range(len(widths))]
        known = await machine.run(
            *(
                mask_known(place, (len(both.part[part]), width), FRACTION, values)
                for place, (width, values) in enumerate(zip(widths, mine, strict=True))
            )
        )
        counted = await machine.run(*(known_product(each, both[part][:, None], "numbers") for each in known))
        blocks = await machine.run(*(known_product(one.transposed, other) for one in known for other in counted))
        bands = [blocks[place * len(widths) : (place + 1) * len(widths)] for place in range(len(widths))]
        sums = sums + stack_rows([Shared(np.concatenate([each.part for each in band], axis=1), 2 * FRACTION) for band in bands])
    upper = np.triu_indices(total)
    (noise,) = await machine.run(draw_noise((len(upper[0]),), deviation, 2 * FRACTION))
    (opened,) = await machine.run(reveal(sums[upper] + noise))
    matrix = np.zeros((total, total))
    matrix[upper] = decode(opened, 2 * FRACTION)
    return np.asarray(matrix + np.triu(matrix, 1).T)


@dataclass(frozen=True, eq=False)
class ColumnsTogether:
    """What the matrix says.

    Attributes:
        values: float64[d, d], correlations of all columns; NaN where a column does not vary.
        noise: the standard deviation of each, about.
        inflation: float64[d], the variance inflation factor of each; NaN likewise.
        areas: for each number of parties from the active one on, in the order of the job, how well a linear score of their
            columns tells the labels, as an area under the curve, about.
    """

    values: Floats
    noise: float
    inflation: Floats
    areas: tuple[float, ...]


def read_matrix(matrix: Floats, widths: Sequence[int], deviation: float) -> ColumnsTogether:
    """Correlations and what follows; ``widths`` and ``deviation`` as above."""
    active = widths[0] - BESIDE
    order = [*range(active), *range(widths[0], len(matrix)), active + 1]
    count = max(matrix[active, active], 1.0)
    means = matrix[active, order] / count
    covariance = matrix[np.ix_(order, order)] / count - np.outer(means, means)
    noise = deviation / count
    varies = np.diag(covariance) > max(4 * noise, 1e-9)
    scale = np.where(varies, np.sqrt(np.maximum(np.diag(covariance), 1e-12)), np.nan)
    values = np.clip(covariance / np.outer(scale, scale), -1, 1)
    inflation = np.full(len(order) - 1, np.nan)
    kept = np.flatnonzero(varies[:-1])
    if len(kept):
        inflation[kept] = np.diag(np.linalg.inv(_bound_below(values[np.ix_(kept, kept)], noise)))
    ends = np.cumsum([active, *widths[1:]])
    areas = tuple(_area(values, kept[kept < end], means[-1] + 0.5, noise) for end in ends) if varies[-1] else ()
    return ColumnsTogether(values[:-1, :-1], noise, inflation, areas)


def _bound_below(correlations: Floats, noise: float) -> Floats:
    """The nearest matrix whose smallest eigenvalue is no less than what noise alone gives: 2·noise·√d."""
    values, vectors = np.linalg.eigh((correlations + correlations.T) / 2)
    least = max(1e-4, 2 * noise * math.sqrt(len(values)))
    return np.asarray((vectors * np.maximum(values, least)) @ vectors.T)


def _area(values: Floats, columns: NDArray[np.int64], share: float, noise: float) -> float:
    """The area under the curve of the best linear score of some columns, by R² with the label less what noise adds to R²."""
    if not len(columns):
        return 0.5
    within, label = _bound_below(values[np.ix_(columns, columns)], noise), values[columns, -1]
    inverse = np.linalg.inv(within)
    determined = float(label @ inverse @ label) - noise**2 * float(np.trace(inverse))
    determined, share = min(max(determined, 0.0), 0.99), min(max(share, 0.01), 0.99)
    distance = math.sqrt(determined / ((1 - determined) * share * (1 - share)))
    return NormalDist().cdf(distance / math.sqrt(2))
