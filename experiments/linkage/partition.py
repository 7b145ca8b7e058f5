"""Which similarities are of the same passive record, by its embedding.

The embedding of a candidate depends on its record alone. So in one forward pass equal records have equal embeddings, to the
last bit, and a trainer may as well send each of them once: ``LinkedEmbeddings.index`` says which these are. Hidden is only the
number of the record in its owner's table. In the next epoch the same candidates stand in other batches, so that what batches
say can be joined.

If each place drew a dropout of its own, the embeddings of one record would differ, but not those of held-out rows, which are
computed without dropout.

Who attacks: the active party, which follows the protocol.

Source: our own.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from vfl_node.privacy.linkage.space import Floats


def partition(embeddings: NDArray[np.float32]) -> NDArray[np.int64]:
    """Numbers of the groups of places with equal bytes: int64[m, K] from float32[m, K, d], counted from 0 in no order."""
    flat = np.ascontiguousarray(embeddings).reshape(-1, embeddings.shape[-1])
    raw = flat.view(np.dtype((np.void, flat.itemsize * flat.shape[1]))).ravel()
    _, groups = np.unique(raw, return_inverse=True)
    return groups.reshape(embeddings.shape[:-1]).astype(np.int64)


def join(batches: Iterable[tuple[NDArray[np.int64], NDArray[np.int64]]], rows: int, candidates: int) -> NDArray[np.int64]:
    """Numbers of the groups of all places that batches together tell to be of one record: int64[rows, candidates].

    A place that was never seen is a group of its own.

    Args:
        batches: rows of the active party int64[b], and the groups of their candidates within this batch int64[b, K]; −1 where
            there is no candidate.
        rows: m.
        candidates: K.
    """
    places, groups, count = [np.arange(0)], [np.arange(0)], rows * candidates
    for batch, index in batches:
        known = index >= 0
        places.append((batch[:, None] * candidates + np.arange(candidates))[known])
        groups.append(count + index[known])
        count += int(index.max(initial=-1)) + 1
    edges = (np.concatenate(places), np.concatenate(groups))
    graph = coo_array((np.ones(len(edges[0])), edges), shape=(count, count))
    _, found = connected_components(graph, directed=False)
    return found[: rows * candidates].reshape(rows, candidates).astype(np.int64)


def record_similarities(similarities: Floats, groups: NDArray[np.int64]) -> Floats:
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
