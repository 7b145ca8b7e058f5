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

_LEAST_VARIANCES = 6.0  # of a column, in deviations of its noise

NUMBERS_AT_ONCE = 1 << 22
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

    With |z|² ≤ R² and |z_i| ≤ :data:`FAR` the squares of the upper half of z·zᵀ sum to (R⁴ + Σ z_i⁴)/2 ≤ (R⁴ + 9·R²)/2. Both
    tables are the same in two neighbouring worlds, which differ in one record that comes in, or is swapped, or whose label is
    another one: twice as much.
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
    at_once = max(1, NUMBERS_AT_ONCE // total)
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


@dataclass(frozen=True)
class Area:
    """How well a linear score tells the labels, as an area under the curve, about.

    Attributes:
        value: of it.
        low, high: between which it is in 95 % of cases, by the noise.
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class ColumnsTogether:
    """What the matrix says.

    Attributes:
        values: float64[d, d], correlations of all columns; NaN where a column does not vary, or less than noise does.
        noise: float64[d, d], the standard deviation of each; NaN likewise.
        inflation: float64[d], the variance inflation factor of each; NaN likewise.
        most_inflation: about the largest one that two columns can have under this noise.
        areas: of the columns of the active party, then with those of each further one, in the order of the job; empty where the
            label does not vary.
    """

    values: Floats
    noise: Floats
    inflation: Floats
    most_inflation: float
    areas: tuple[Area, ...]


def read_matrix(matrix: Floats, widths: Sequence[int], deviation: float) -> ColumnsTogether:
    """Correlations and what follows; ``widths`` and ``deviation`` as above."""
    active = widths[0] - BESIDE
    order = [*range(active), *range(widths[0], len(matrix)), active + 1]
    count = max(matrix[active, active], 1.0)
    means = matrix[active, order] / count
    covariance = matrix[np.ix_(order, order)] / count - np.outer(means, means)
    of_products = deviation / count
    varies = np.diag(covariance) > max(_LEAST_VARIANCES * of_products, 1e-9)
    scale = np.where(varies, np.sqrt(np.maximum(np.diag(covariance), 1e-12)), np.nan)
    values = np.clip(covariance / np.outer(scale, scale), -1, 1)
    noise = of_products * np.sqrt(1 + np.add.outer(means**2, means**2)) / np.outer(scale, scale)
    kept = np.flatnonzero(varies[:-1])
    inflation, least = np.full(len(order) - 1, np.nan), _least_eigenvalue(noise, kept)
    if len(kept):
        inflation[kept] = np.diag(np.linalg.inv(_bound_below(values[np.ix_(kept, kept)], least)))
    ends = np.cumsum([active, *widths[1:]])
    areas = tuple(_find_area(values, noise, kept[kept < end], means[-1] + 0.5) for end in ends) if varies[-1] else ()
    return ColumnsTogether(values[:-1, :-1], noise[:-1, :-1], inflation, (1 / least + 0.5) / 2, areas)


def _least_eigenvalue(noise: Floats, columns: NDArray[np.int64]) -> float:
    """The smallest eigenvalue that is not noise alone: a matrix of noise has some of 2·σ·√d."""
    if not len(columns):
        return 1.0
    within = noise[np.ix_(columns, columns)]
    return max(1e-4, 2 * float(np.sqrt((within**2).mean())) * math.sqrt(len(columns)))


def _bound_below(correlations: Floats, least: float) -> Floats:
    """The nearest matrix without a smaller eigenvalue."""
    values, vectors = np.linalg.eigh((correlations + correlations.T) / 2)
    return np.asarray((vectors * np.maximum(values, least)) @ vectors.T)


def _find_area(values: Floats, noise: Floats, columns: NDArray[np.int64], share: float) -> Area:
    """The area of the best linear score of some columns, by R² with the label less what noise adds to R² on average."""
    if not len(columns):
        return Area(0.5, 0.5, 0.5)
    label, spread = values[columns, -1], noise[columns, -1] ** 2
    inverse = np.linalg.inv(_bound_below(values[np.ix_(columns, columns)], _least_eigenvalue(noise, columns)))
    weights = inverse @ label
    determined = float(label @ weights - spread @ np.diag(inverse))
    deviation = math.sqrt(4 * float(weights**2 @ spread) + 2 * float(spread @ inverse**2 @ spread))
    areas = (_area_of(determined + 2 * times * deviation, share) for times in (0, -1, 1))
    return Area(*areas)


def _area_of(determined: float, share: float) -> float:
    determined, share = min(max(determined, 0.0), 0.99), min(max(share, 0.01), 0.99)
    distance = math.sqrt(determined / ((1 - determined) * share * (1 - share)))
    return NormalDist().cdf(distance / math.sqrt(2))
