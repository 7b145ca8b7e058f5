"""``smoothed``: a draw from the cloud of own rows around a random one, so that it is neither a copy nor between two rows.

A copied row has an equal among the real ones; one between two near rows lies on a line with
both, which a network hardly bends; noise in each column by itself leaves the surface on which the
rows lie. Here the numbers vary as those of the rows around do, together: a smoothed bootstrap whose
kernel is the local covariance. A little noise in each column besides takes the row out of the
space that these rows span, and pulling it towards their mean keeps the spread what it is. Every number is one that
the column has, with as many digits.

Of categories a row near the chosen one gives half, so that most combinations occur; one in ten
comes from any row, without which made-up rows would be more usual than real ones.

Source: Efron 1979, Silverman and Young 1987 (smoothed bootstrap, shrunken); Vincent and Bengio 2003,
Manifold Parzen Windows (local covariance). Ours for rows that stand in: the paper copies (``sampling``).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.randomness import Randomness
from vfl_node.data.features import Features
from vfl_node.training.missing.features.near import near
from vfl_node.training.missing.features.rows import atoms

NEAR = 20
"""Rows around the chosen one."""

DONORS = 5
"""Of these, the nearest, which give categories."""

OWN, TOGETHER, APART = 0.7, 0.8, 0.3
"""What counts of the way from the mean to the chosen row, of noise as the rows around vary, and of noise in each column."""

EXCHANGED, STRANGE = 0.5, 0.1
"""Shares of the categories that a near row gives, and any row."""

CELLS_AT_ONCE = 1 << 21


class Smoothed:
    """m + .7·(x − m) + .8·Σ wᵢ·(zᵢ − m)/√(k + 1) + .3·s·v, then the nearest number of each column.

    z₀ = x is a random row, z₁ … z_k are the 20 nearest that differ from it, m and s their mean and standard deviation in each
    column; w and v are normal. Cells that no noise fits stay those of x
    (:func:`~vfl_node.training.missing.features.rows.atoms`).

    Cost: that of :func:`~vfl_node.training.missing.features.near.near`, and 21 multiplications a cell.
    """

    def __init__(self, features: Features, randomness: Randomness) -> None:
        self._features = features
        self._atoms = atoms(features.numeric)
        self._near = near(features, randomness.derive("near"), NEAR)
        self._numbers = [np.unique(of[~kept]) for of, kept in zip(features.numeric.T, self._atoms.T, strict=True)]

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
            moved[part] = self._moved(sources[part], together[part], apart[part])
        for column, numbers in enumerate(self._numbers):
            if len(numbers):
                moved[:, column] = _nearest(numbers, moved[:, column])
        return Features(
            np.where(self._atoms[sources], x.numeric, moved).astype(np.float32),
            self._categories(sources, x.categorical, randomness),
            x.cardinalities,
        )

    def _moved(
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

    def _categories(self, sources: NDArray[np.int64], own: NDArray[np.int64], randomness: Randomness) -> NDArray[np.int64]:
        """Codes int64[b, c]."""
        which = randomness.derive("near").choices(min(DONORS, self._near.shape[1]), len(sources))
        near_row = self._features.categorical[self._near[sources, which]]
        any_row = randomness.derive("any").choices(len(self._features), own.size).reshape(own.shape)
        strange = self._features.categorical[any_row, np.arange(own.shape[1])]
        exchanged = randomness.derive("exchanged").uniform(own.shape) < EXCHANGED
        codes = np.where(exchanged, near_row, own)
        return np.where(randomness.derive("strange").uniform(own.shape) < STRANGE, strange, codes)


def _nearest(numbers: NDArray[np.float32], values: NDArray[np.float64]) -> NDArray[np.float32]:
    """For each of ``values`` the nearest of ``numbers``, which ascend."""
    place = np.searchsorted(numbers, values)
    below, above = numbers[np.maximum(place - 1, 0)], numbers[np.minimum(place, len(numbers) - 1)]
    return np.where(values - below < above - values, below, above)
