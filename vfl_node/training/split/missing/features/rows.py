"""Made-up rows, cell by cell or copied: ``naive`` and ``sampling``."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.randomness import Randomness
from vfl_node.data.features import Features
from vfl_node.training.split.missing.strategies import FeatureStrategy

# ``naive``: each cell by itself, anywhere in its column's range. For comparison only.
#
# Nothing of what the columns have in common is left, so the rows are outliers.
#
# Source: Song et al. 2021, section 4.2, which discards it.


class NaiveRows:
    """Uniform values: between the least and the largest of a numeric column, among the codes of a categorical one.

    A numeric column of few values, as an indicator is, takes one of them. Only what occurs
    in the own rows is drawn. A cell drawn as missing loses its number when the row is encoded
    (:meth:`~vfl_node.data.features.Encoder.translate`).
    """

    def __init__(self, strategy: FeatureStrategy, features: Features, randomness: Randomness) -> None:
        self._none = features.take(np.empty(0, dtype=np.int64))
        self._numeric = [_Column(values) for values in features.numeric.T]
        self._codes = [np.unique(codes) for codes in features.categorical.T]
        self._bags = features.split_bags()

    def __call__(self, sources: NDArray[np.int64], randomness: Randomness) -> Features:
        """As :meth:`Rows.__call__`; of ``sources`` only the number counts."""
        rows = len(sources)
        cells = randomness.uniform((rows, len(self._numeric) + len(self._codes)))
        numeric = np.empty((rows, len(self._numeric)), dtype=np.float32)
        for index, column in enumerate(self._numeric):
            numeric[:, index] = column(cells[:, index])
        categorical = np.empty((rows, len(self._codes)), dtype=np.int64)
        for index, codes in enumerate(self._codes):
            categorical[:, index] = codes[_index(cells[:, len(self._numeric) + index], len(codes))]
        rows_of_bags = randomness.derive("lists").uniform((len(self._bags), rows))  # a whole list is one cell
        bags = [bag[_index(part, len(bag))] for bag, part in zip(self._bags, rows_of_bags, strict=True)]
        return replace(
            self._none, numeric=numeric, categorical=categorical, bags=np.concatenate(bags, axis=1) if bags else None
        )


class _Column:
    """One numeric column's values, by what part of the way through them."""

    def __init__(self, values: NDArray[np.float32]) -> None:
        self._values = np.unique(values)
        self._few = has_few_values(values)

    def __call__(self, part: NDArray[np.float64]) -> NDArray[np.float64]:
        """float64[b] of ``part``, float64[b] in 0 … 1."""
        if self._few:
            return self._values[_index(part, len(self._values))].astype(np.float64)
        least, largest = float(self._values[0]), float(self._values[-1])
        return least + part * (largest - least)


def _index(part: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """0 … count−1."""
    return (part * count).astype(np.int64)


FEW = 32
COMMON = 0.01


def has_few_values(values: NDArray[np.float32]) -> bool:
    """Whether a column of n own rows takes so few values that another one would stand out.

    These are at most 32 and at most n/10, or two: flags, indicators, small counts.
    """
    return len(np.unique(values)) <= max(2, min(FEW, len(values) // 10))


def atoms(numeric: NDArray[np.float32]) -> NDArray[np.bool_]:
    """bool[n, p]: the cells beside which no other number would look real; they are only copied.

    Cells of a column of few values, cells whose value a hundredth of the rows share, and
    cells that are exactly 0, as the missing ones are.

    Cost: p sorts of n numbers.
    """
    copied = np.zeros(numeric.shape, dtype=np.bool_)
    for column, values in enumerate(numeric.T):
        distinct, index, counts = np.unique(values, return_inverse=True, return_counts=True)
        common = (counts >= max(2, COMMON * len(values))) | (distinct == 0)
        copied[:, column] = has_few_values(values) | common[index]
    return copied


# ``sampling``: a whole real row, so that the columns keep their joint distribution.
#
# A synthetic row is drawn from the marginal of x; no other distribution p(x)·q(y) is closer
# to the real one. Its exact twin is among the party's own rows, which a peer that sees both in
# one epoch can notice (:mod:`vfl_node.privacy.attacks.near_duplicate`).
#
# Source: Song et al. 2021, section 4.2 and Theorem 2; the fixed draw is ours.


def sampling(own_rows: int, shared_rows: int, randomness: Randomness) -> NDArray[np.int64]:
    """A uniform own row for every position, drawn whether it is needed or not. int64[shared_rows].

    The draw at a position depends on the party's secret seed and the position alone.
    """
    return randomness.derive("synthetic rows").choices(own_rows, shared_rows)
