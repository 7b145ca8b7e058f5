"""Columns of fixed-width elements: one contiguous buffer, ordered and searched by its bytes.

For big-endian elements the order is the numeric one; for little-endian elements it is just
some order, which is all that the protocols need. A column may be in a file (a read-only
``np.memmap``): its rows are read when they are compared, never all copied, and no more than a slice of them stays mapped.
"""

from __future__ import annotations

import mmap

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.uint8]
"""Fixed-width elements, uint8[n, width], contiguous."""

_WORD_BYTES = 8  # rows are compared by words of this size; most columns need only the first word
_SLICE_ROWS = 1 << 16  # rows read at a time


class RowIndex:
    """Finds rows in a column.

    Cost: O(n log n) comparisons of 64-bit words to build, and O(log n) to find a row. Measured on one core
    with random rows of 32 bytes in a file: building takes 0.15 s for a million rows and 2.5 s for ten million; finding takes
    0.3 and 0.6 µs per row. Memory: 16 bytes per row, 20 while building. Rows with equal first words,
    of which only a cheating peer sends many, need a sort for each further word: at most 48 bytes
    and, if every row comes twice, 2 µs per row for building and 4 µs per row for finding.

    The column must not change.

    Args:
        rows: uint8[n, width], in any order.

    Attributes:
        distinct: whether no two rows are equal.
    """

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._words, self._order, tied = _sort(rows)
        self.distinct = not tied.any()
        self._unique_words = not (self._words[1:] == self._words[:-1]).any()

    def find(self, queries: Rows) -> NDArray[np.int64]:
        """Where each row of ``queries``, uint8[k, width], is in the column, int64[k].

        The first position if there are several, −1 if there is none.
        """
        places = np.full(len(queries), -1, dtype=np.int64)
        if len(self._rows):
            for start in range(0, len(queries), _SLICE_ROWS):
                places[start : start + _SLICE_ROWS] = self._find(queries[start : start + _SLICE_ROWS])
            _unmap(self._rows)
        return places

    def _find(self, queries: Rows) -> NDArray[np.int64]:
        words = _words(queries[:, :_WORD_BYTES])
        ascending = np.argsort(words)  # neighbours then search in the same places, which is three times faster
        words, queries = words[ascending], queries.take(ascending, axis=0)
        ranks = np.searchsorted(self._words, words)
        if not self._unique_words:
            ranks = self._leftmost(queries, ranks, np.searchsorted(self._words, words, side="right"))
        places = self._order[np.minimum(ranks, len(self._rows) - 1)]
        positions = np.empty_like(places)
        positions[ascending] = np.where(_equal(self._rows.take(places, axis=0), queries), places, -1)
        return positions

    def _leftmost(self, queries: Rows, low: NDArray[np.int64], high: NDArray[np.int64]) -> NDArray[np.int64]:
        """Bisect the ranks ``low`` to ``high``, whose first words are equal, by whole rows."""
        while len(unsettled := np.flatnonzero(low < high)):
            middle = (low[unsettled] + high[unsettled]) // 2
            less = _precedes(self._rows[self._order[middle]], queries[unsettled])
            low[unsettled[less]] = middle[less] + 1
            high[unsettled[~less]] = middle[~less]
        return low


def order_rows(rows: Rows) -> NDArray[np.int64]:
    """Positions of the rows in ascending byte order, int64[n]; for equal rows the earlier position first.

    Cost and memory: as :class:`RowIndex` to build.
    """
    return _sort(rows)[1]


def is_strictly_ascending(rows: Rows) -> bool:
    """Whether the rows are sorted and no two are equal; O(n), with almost no memory."""
    for start in range(0, len(rows) - 1, _SLICE_ROWS):
        some = rows[start : start + _SLICE_ROWS + 1]
        if not _precedes(some[:-1], some[1:]).all():
            return False
        _unmap(rows)
    return True


def _sort(rows: Rows) -> tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.bool_]]:
    """First words, ascending; positions in ascending order of rows; whether each row equals the one before in this order."""
    words = np.empty(len(rows), dtype=np.uint64)
    for begin in range(0, len(rows), _SLICE_ROWS):
        words[begin : begin + _SLICE_ROWS] = _words(rows[begin : begin + _SLICE_ROWS, :_WORD_BYTES])
        _unmap(rows)
    order = np.argsort(words)
    ascending = words[order]
    tied = np.zeros(len(rows), dtype=np.bool_)
    tied[1:] = ascending[1:] == ascending[:-1]
    if tied.any():  # the sort that keeps the order of equal words takes five times as long
        order = np.argsort(words, kind="stable")
    words = ascending
    for start in range(_WORD_BYTES, rows.shape[1], _WORD_BYTES):
        if not tied.any():
            break
        _break_ties(rows, order, tied, start)
    return words, order, tied


def _break_ties(rows: Rows, order: NDArray[np.int64], tied: NDArray[np.bool_], start: int) -> None:
    """Order every run of tied rows by the word at byte ``start``, in place."""
    in_run = tied.copy()
    in_run[:-1] |= tied[1:]
    runs = np.cumsum(~tied[in_run], dtype=np.int32)
    words = _words(rows[order[in_run], start : start + _WORD_BYTES])
    by = np.lexsort((words, runs))  # stable, and no row leaves its run
    order[in_run] = order[in_run][by]
    words = words[by]
    still = np.zeros_like(words, dtype=np.bool_)
    still[1:] = (words[1:] == words[:-1]) & (runs[1:] == runs[:-1])
    tied[in_run] = still


def _words(columns: Rows) -> NDArray[np.uint64]:
    """At most 8 bytes of each row as numbers with the same order, uint64[n]."""
    if columns.shape[1] == _WORD_BYTES:
        return columns.view(">u8")[:, 0].astype(np.uint64)
    padded = np.zeros((len(columns), _WORD_BYTES), dtype=np.uint8)
    padded[:, : columns.shape[1]] = columns
    return padded.view(">u8")[:, 0].astype(np.uint64)


def _equal(a: Rows, b: Rows) -> NDArray[np.bool_]:
    """Whether each row of ``a`` is that of ``b``, bool[n]; whole words are compared a third as long."""
    kind = np.uint64 if a.shape[1] % _WORD_BYTES == 0 else np.uint8
    left, right = (np.ascontiguousarray(rows).view(kind) for rows in (a, b))
    equal: NDArray[np.bool_] = (left == right).all(axis=1)
    return equal


def _precedes(a: Rows, b: Rows) -> NDArray[np.bool_]:
    """Whether each row of ``a`` comes before that of ``b`` in byte order, bool[n]."""
    at = (a != b).argmax(axis=1)[:, np.newaxis]  # the first byte that differs; 0 if none does
    return (np.take_along_axis(a, at, axis=1) < np.take_along_axis(b, at, axis=1))[:, 0]


def _unmap(rows: Rows) -> None:
    """Rows of a file count as memory of this process as long as they are mapped; the system keeps them if it has room."""
    if isinstance(rows, np.memmap) and rows._mmap is not None:  # type: ignore[attr-defined]
        rows._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]
