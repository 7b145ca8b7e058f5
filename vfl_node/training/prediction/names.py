"""Sets of names of rows: int64, ascending, each once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vfl_node.training.predictor import Names


def find_known(names: Names, known: Names) -> NDArray[np.bool_]:
    """Which of ``names``, int64[k], are in the set ``known``, int64[n]: bool[k]. Cost: k·log n operations."""
    if len(known) == 0:
        return np.zeros(len(names), dtype=np.bool_)
    return np.asarray(known[np.searchsorted(known, names).clip(max=len(known) - 1)] == names)


def missing(names: Names, known: Names) -> Names:
    """The set of those of ``names``, in whatever order, that ``known`` does not have."""
    return np.unique(names[~find_known(names, known)])


def join(known: Names, new: Names) -> Names:
    """The set of both, which have nothing in common."""
    return np.sort(np.concatenate([known, new]), kind="stable") if len(new) else known
