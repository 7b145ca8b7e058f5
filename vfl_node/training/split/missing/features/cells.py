"""Cells beside which no other number looks real."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FEW = 32
COMMON = 0.01


def few_valued(values: NDArray[np.float32]) -> bool:
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
        copied[:, column] = few_valued(values) | common[index]
    return copied
