"""Which own rows are near one another, in encoded columns."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.randomness import Randomness
from vfl_node.data.features import Features

LEAF = 1024


def near(features: Features, randomness: Randomness, most: int) -> NDArray[np.int32]:
    """The nearest rows that differ from each row.

    The distance is Euclidean, a category that differs counting like one standard deviation
    (Chawla et al. 2002, SMOTE-NC). Rows are looked for in parts of at most 1,024 distinct
    ones, halves of halves along the column that varies most; the nearest across a border are
    missed.

    Args:
        features: n rows, one at least.
        randomness: of this alone.
        most: of each row, fewer than 512.

    Returns:
        int32[n, k], nearest first, k = ``most`` or as many as there are; where all rows are alike, the
        row itself, k = 1.

    Cost: at most n · 1,024 · columns multiplications.
    """
    key = _keys(features, randomness.derive("keys"))
    order = randomness.derive("order").permutation(len(features))  # ties between parts fall at random
    _, first, index = np.unique(key[order], return_index=True, return_inverse=True)
    distinct = order[np.sort(first)]
    place = np.empty(len(features), dtype=np.int64)  # of each row's like among the distinct ones
    place[order] = np.argsort(np.argsort(first))[index]
    count = min(most, len(distinct) - 1)
    if count == 0:
        return np.arange(len(features), dtype=np.int32)[:, None]
    rows = np.empty((len(distinct), count), dtype=np.int32)
    for part in _parts(features.numeric[distinct], np.arange(len(distinct))):
        distance = _distances(features.take(distinct[part]))
        nearest = np.argpartition(distance, count - 1, axis=1)[:, :count]
        ranked = np.argsort(np.take_along_axis(distance, nearest, axis=1), axis=1, kind="stable")
        rows[part] = distinct[part][np.take_along_axis(nearest, ranked, axis=1)]
    return rows[place]


def _keys(features: Features, randomness: Randomness) -> NDArray[np.float64]:
    """One number a row, float64[n]: the same for equal rows and, but for a chance of about 2⁻⁴⁰ a pair, only for them."""
    key = np.zeros(len(features))
    for column in [*features.numeric.T, *features.categorical.T, *(of for bag in features.each_bag() for of in bag.T)]:
        key += column * float(randomness.uint64(1)[0] + 1) * 2.0**-64
    return key


def _parts(numeric: NDArray[np.float32], rows: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """``rows`` in parts of at most LEAF near ones."""
    if len(rows) <= LEAF:
        yield rows
        return
    half = len(rows) // 2
    values = numeric[rows]
    if values.shape[1]:
        rows = rows[np.argpartition(values[:, values.var(axis=0).argmax()], half)]
    yield from _parts(numeric, rows[:half])
    yield from _parts(numeric, rows[half:])


def _distances(rows: Features) -> NDArray[np.float32]:
    """Squared distances, float32[k, k], infinite to itself; products in float64, so that equal ones stay equal."""
    x = rows.numeric.astype(np.float64)
    squares = np.square(x).sum(axis=1)
    distance = np.maximum(squares[:, None] + squares - 2 * x @ x.T, 0).astype(np.float32)
    for codes in rows.categorical.T:
        distance += codes[:, None] != codes
    for bag in rows.each_bag():  # as a category of which each different list is a level
        _, codes = np.unique(bag, axis=0, return_inverse=True)
        distance += codes.reshape(-1, 1) != codes.reshape(-1)
    np.fill_diagonal(distance, np.inf)
    return distance
