"""The least distances of each query so far, while distances arrive tile by tile.

Nearly all distances of a tile are above what a query already has, and one comparison with a limit drops them. The few others
wait in a buffer beside the best. When the buffer of a query may be full, the best of both are chosen, and the limit falls. With
rows in random order that happens a few times in a whole search, as ever fewer distances are below the limit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_FAR = (1 << 31) - 1  # above every distance
_INDEX_BITS = 32


@dataclass(frozen=True)
class Neighbours:
    """What a block of queries has found, nearest first; of equal distances the smaller index first.

    Attributes:
        rows: int32[queries, K], indices into the base; −1 where there are no more candidates.
        distances: int32[queries, K], bits that differ; −1 there.
    """

    rows: NDArray[np.int32]
    distances: NDArray[np.int32]


class Best:
    """The ``count`` least of (distance, index) for each query. Distances arrive by ascending index.

    Memory: 8·queries·(5·count + columns of a tile) bytes. While a tile is taken that is all below the limits, as the first is,
    40 bytes more for each of its distances.

    Args:
        queries: how many.
        count: how many rows each gets.
        columns: of a tile, at most.
        limit: only distances below it count.
    """

    def __init__(self, queries: int, count: int, columns: int, limit: int = _FAR) -> None:
        self._count = count
        self._none = limit << _INDEX_BITS  # no row: behind all that count
        self._keys = np.full((queries, count + max(4 * count, columns)), self._none, dtype=np.int64)
        self._filled = np.full(queries, count)
        self._columns = columns
        self._limits = np.full((queries, 1), limit, dtype=np.uint32)

    def add(self, first: int, distances: NDArray[np.uint32], most: tuple[NDArray[np.uint32], NDArray[np.uint32]]) -> None:
        """Take the distances to the next rows.

        Args:
            first: index of the first of these rows.
            distances: uint32[queries, tile].
            most: distances are below the sum of both: uint32[queries] and uint32[tile]; a row at this distance does not count.
        """
        width = distances.shape[1]
        places = np.flatnonzero(distances < self._limits)
        if not len(places):
            return
        queries, rows = np.divmod(places, width)
        found = distances.ravel()[places]
        counts = found < most[0][queries] + most[1][rows]
        queries, rows, found = queries[counts], rows[counts], found[counts]
        news = np.bincount(queries, minlength=len(self._keys))
        nth = np.arange(len(queries)) - (np.cumsum(news) - news)[queries]  # of its query's new ones
        self._keys[queries, self._filled[queries] + nth] = (found.astype(np.int64) << _INDEX_BITS) | (rows + first)
        self._filled += news
        if self._filled.max() + self._columns > self._keys.shape[1]:
            self._choose()

    def neighbours(self) -> Neighbours:
        """The best, in their order."""
        self._choose()
        best = np.sort(self._keys[:, : self._count], axis=1)
        none = best == self._none
        rows, distances = best & ((1 << _INDEX_BITS) - 1), best >> _INDEX_BITS
        return Neighbours(*(np.where(none, -1, values).astype(np.int32) for values in (rows, distances)))

    def _choose(self) -> None:
        self._keys.partition(self._count - 1, axis=1)
        self._keys[:, self._count :] = self._none
        self._filled[:] = self._count
        self._limits[:, 0] = self._keys[:, self._count - 1] >> _INDEX_BITS
