"""What the strategies that make up rows have in common."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.randomness import Randomness
from vfl_node.data.features import Features

FEW = 32
COMMON = 0.01


class Rows(Protocol):
    """Makes up rows; called once for each block of consecutive shared positions."""

    def __call__(self, sources: NDArray[np.int64], randomness: Randomness) -> Features:
        """One row for each of ``sources``.

        Args:
            sources: int64[b], a random own row for each position of the block.
            randomness: of this block alone.
        """


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
    found = np.zeros(numeric.shape, dtype=np.bool_)
    for column, values in enumerate(numeric.T):
        distinct, index, counts = np.unique(values, return_inverse=True, return_counts=True)
        common = (counts >= max(2, COMMON * len(values))) | (distinct == 0)
        found[:, column] = few_valued(values) | common[index]
    return found
