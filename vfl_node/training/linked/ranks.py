"""Whether one number rises with another one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def spearman(first: NDArray[Any], second: NDArray[Any]) -> float | None:
    """Spearman's rank correlation of n pairs of numbers, −1 … 1; None of fewer than two, or where all of one are equal.

    Equal numbers have their mean rank.
    """
    if len(first) < 2:
        return None
    ranks = [_ranks(values) for values in (first, second)]
    spreads = [float(rank.std()) for rank in ranks]
    if not all(spreads):
        return None
    centred = [rank - rank.mean() for rank in ranks]
    return float(np.clip((centred[0] * centred[1]).mean() / (spreads[0] * spreads[1]), -1, 1))


def _ranks(values: NDArray[Any]) -> NDArray[np.float64]:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return ((last - counts + last - 1) / 2)[inverse]
