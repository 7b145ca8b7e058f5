"""Which similarities are of the same passive record, by its embedding.

The embedding of a candidate depends on its record alone. So in one forward pass equal records have equal embeddings, to the
last bit, and a trainer may as well send each of them once. Hidden is only the number of the record in its owner's table.

If each place drew a dropout of its own, the embeddings of one record would differ, but not those of held-out rows, which are
computed without dropout.

Who attacks: the active party, which follows the protocol.

Source: our own.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vfl_node.privacy.linkage.space import Floats


def partition(embeddings: NDArray[np.float32]) -> NDArray[np.int64]:
    """Numbers of the groups of places with equal bytes: int64[m, K] from float32[m, K, d], counted from 0 in no order."""
    flat = np.ascontiguousarray(embeddings).reshape(-1, embeddings.shape[-1])
    raw = flat.view(np.dtype((np.void, flat.itemsize * flat.shape[1]))).ravel()
    _, groups = np.unique(raw, return_inverse=True)
    return groups.reshape(embeddings.shape[:-1]).astype(np.int64)


def of_records(similarities: Floats, groups: NDArray[np.int64]) -> Floats:
    """The similarities of each group to each active record, float64[groups, m]; NaN where it is no candidate.

    Args:
        similarities: float[m, K].
        groups: int64[m, K]; −1 where there is no candidate.
    """
    found = np.full((int(groups.max(initial=-1)) + 1, len(groups)), np.nan)
    rows, places = np.nonzero(groups >= 0)
    found[groups[rows, places], rows] = similarities[rows, places]
    return found


def agreement(groups: NDArray[np.int64], truth: NDArray[np.int64]) -> float:
    """The share of pairs of places that are of one record, or are said to be, on which ``groups`` is right (Jaccard index)."""

    def pairs(counts: NDArray[np.int64]) -> int:
        return int((counts * (counts - 1) // 2).sum())

    both = np.stack([groups.ravel(), truth.ravel()])
    same = pairs(np.unique(both, axis=1, return_counts=True)[1])
    said, true = (pairs(np.unique(one, return_counts=True)[1]) for one in both)
    return same / (said + true - same) if said + true > same else 1.0
