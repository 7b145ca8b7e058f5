"""``smoothed``: a draw from the cloud of own rows around a random one, so that it is neither a copy nor between two rows.

A copied row has an equal among the real ones; one between two near rows lies on a line with
both, which a network hardly bends; noise in each column by itself leaves the surface on which the
rows lie. Here the numbers vary as those of the rows around do, together: a smoothed bootstrap whose
kernel is the local covariance. A little noise in each column besides takes the row out of the
space that these rows span, and pulling it towards their mean keeps the spread what it is. Every number is one that
the column has, with as many digits.

Of categories, and of cells that no noise fits, a row near the chosen one gives half, so that most combinations occur; one
category in ten comes from any row, without which made-up rows would be more usual than real ones. A whole list is exchanged as
a category is.

The figures below were chosen against the attacks of :mod:`vfl_node.privacy.attacks` behind wide untrained networks. The
chosen row counts for little more than the others around it: in many independent columns even the nearest of
real rows are far apart.

Source: Efron 1979, Silverman and Young 1987 (smoothed bootstrap, shrunken); Vincent and Bengio 2003,
Manifold Parzen Windows (local covariance). Ours for synthetic rows: the paper copies (``sampling``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.randomness import Randomness
from vfl_node.data.features import Features
from vfl_node.training.split.missing.features.rows import atoms
from vfl_node.training.split.missing.strategies import FeatureStrategy

NEAR = 30
"""Rows around the chosen one."""

OWN, TOGETHER, APART = 0.4, 1.0, 0.25
"""What counts of the way from the mean to the chosen row, of noise as the rows around vary, and of noise in each column."""

EXCHANGED, STRANGE = 0.5, 0.1
"""Shares that a near row gives, of categories and cells that no noise fits, and any row, of categories."""

CELLS_AT_ONCE = 1 << 21


class SmoothedRows:
    """m + .4·(x − m) + Σ wᵢ·(zᵢ − m)/√(k + 1) + .25·s·v, then the nearest number of each column.

    z₀ = x is a random row, z₁ … z_k are the 30 nearest that differ from it, m and s their mean and standard deviation in each
    column; w and v are normal. Cells that no noise fits (:func:`~vfl_node.training.split.missing.features.rows.atoms`) are
    those of x or of one zᵢ; what x lacks stays missing, and nothing else is.

    Cost: that of :func:`~vfl_node.training.split.missing.features.smoothed.nearest_rows`, and 31 multiplications a cell.
    """

    def __init__(self, strategy: FeatureStrategy, features: Features, randomness: Randomness) -> None:
        self._features = features
        self._atoms = atoms(features.numeric)
        self._near = nearest_rows(features, randomness.derive("near"), NEAR)
        self._numbers = [np.unique(column[~kept]) for column, kept in zip(features.numeric.T, self._atoms.T, strict=True)]

    def __call__(self, sources: NDArray[np.int64], randomness: Randomness) -> Features:
        """As :meth:`Rows.__call__`."""
        x = self._features.take(sources)
        count = self._near.shape[1]
        together = randomness.derive("together").normal((len(sources), count + 1))
        apart = randomness.derive("apart").normal(x.numeric.shape)
        moved = np.empty(x.numeric.shape, dtype=np.float64)
        at_once = max(1, CELLS_AT_ONCE // max(1, (count + 1) * x.numeric.shape[1]))
        for start in range(0, len(sources), at_once):
            part = slice(start, start + at_once)
            moved[part] = self._move(sources[part], together[part], apart[part])
        for column, numbers in enumerate(self._numbers):
            if len(numbers):
                moved[:, column] = _nearest(numbers, moved[:, column])
        near_row = self._near[sources, randomness.derive("near").choices(count, len(sources))].astype(np.int64)
        rows = self._sources(sources, near_row, randomness.derive("exchanged numbers"))
        columns = np.arange(rows.shape[1])
        copied = self._atoms[rows, columns]
        numeric = np.where(copied, self._features.numeric[rows, columns], moved).astype(np.float32)
        bags = self._lists(sources, near_row, randomness.derive("lists"))
        return replace(x, numeric=numeric, categorical=self._categories(x, near_row, randomness), bags=bags)

    def _move(
        self, sources: NDArray[np.int64], together: NDArray[np.float32], apart: NDArray[np.float32]
    ) -> NDArray[np.float64]:
        """Numbers float64[b, p] for normal draws float32[b, k + 1] and float32[b, p]."""
        around = np.concatenate([sources[:, None], self._near[sources]], axis=1)  # (b, k + 1)
        rows = self._features.numeric[around].astype(np.float64)  # (b, k + 1, p)
        mean, sd = rows.mean(axis=1), rows.std(axis=1)
        own = rows[:, 0] - mean
        ways = ((rows - mean[:, None]) * together[:, :, None]).sum(axis=1) / around.shape[1] ** 0.5
        moved: NDArray[np.float64] = mean + OWN * own + TOGETHER * ways + APART * sd * apart
        return moved

    def _sources(self, own: NDArray[np.int64], near_row: NDArray[np.int64], randomness: Randomness) -> NDArray[np.int64]:
        """int64[b, p]: for each cell the row whose it is if no noise fits it: that of ``own`` or of ``near_row``."""
        mine, other = self._features.numeric[own], self._features.numeric[near_row]
        exchanged = (randomness.uniform(mine.shape) < EXCHANGED) & (mine != 0) & (other != 0)  # 0: missing, or an indicator
        return np.where(exchanged, near_row[:, None], own[:, None])

    def _categories(self, own: Features, near_row: NDArray[np.int64], randomness: Randomness) -> NDArray[np.int64]:
        """Codes int64[b, c]."""
        codes = own.categorical
        any_row = randomness.derive("any").choices(len(self._features), codes.size).reshape(codes.shape)
        strange = self._features.categorical[any_row, np.arange(codes.shape[1])]
        exchanged = randomness.derive("exchanged").uniform(codes.shape) < EXCHANGED
        codes = np.where(exchanged, self._features.categorical[near_row], codes)
        return np.where(randomness.derive("strange").uniform(codes.shape) < STRANGE, strange, codes)

    def _lists(self, own: NDArray[np.int64], near_row: NDArray[np.int64], randomness: Randomness) -> NDArray[np.int32] | None:
        """Codes of lists int32[b, length of all]; a whole list is chosen as a category is."""
        of_each = self._features.split_bags()
        if not of_each:
            return None
        shape = (len(own), len(of_each))
        any_row = randomness.derive("any").choices(len(self._features), len(own) * len(of_each)).reshape(shape)
        exchanged = randomness.derive("exchanged").uniform(shape) < EXCHANGED
        rows = np.where(exchanged, near_row[:, None], own[:, None])
        rows = np.where(randomness.derive("strange").uniform(shape) < STRANGE, any_row, rows)
        return np.concatenate([bag[rows[:, column]] for column, bag in enumerate(of_each)], axis=1)


def _nearest(numbers: NDArray[np.float32], values: NDArray[np.float64]) -> NDArray[np.float32]:
    """For each of ``values`` the nearest of ``numbers``, which ascend."""
    place = np.searchsorted(numbers, values)
    below, above = numbers[np.maximum(place - 1, 0)], numbers[np.minimum(place, len(numbers) - 1)]
    return np.where(values - below < above - values, below, above)


LEAF = 1024


def nearest_rows(features: Features, randomness: Randomness, most: int) -> NDArray[np.int32]:
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
    for column in [*features.numeric.T, *features.categorical.T, *(codes for bag in features.split_bags() for codes in bag.T)]:
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
    for bag in rows.split_bags():  # as a category of which each different list is a level
        _, codes = np.unique(bag, axis=0, return_inverse=True)
        distance += codes.reshape(-1, 1) != codes.reshape(-1)
    np.fill_diagonal(distance, np.inf)
    return distance
