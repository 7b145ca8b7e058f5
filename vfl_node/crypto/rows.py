"""Columns of fixed-width elements: one contiguous buffer, ordered and searched by its bytes.

For big-endian elements the order is the numeric one; for little-endian ones it is merely
an order, which is all the protocols need.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.uint8]
"""Fixed-width elements, uint8[n, width], contiguous."""


def sorted_rows(rows: Rows) -> Rows:
    """The rows in ascending byte order, uint8[n, width]; O(n log n)."""
    return np.sort(_keys(rows)).view(np.uint8).reshape(rows.shape)


def is_strictly_ascending(rows: Rows) -> bool:
    """Whether the rows are sorted and no two are equal."""
    return np.array_equal(sorted_rows(rows), rows) and not (rows[1:] == rows[:-1]).all(axis=1).any()


def are_distinct(rows: Rows) -> bool:
    """Whether no two rows are equal."""
    return is_strictly_ascending(sorted_rows(rows))


def find_rows(ordered: Rows, wanted: Rows) -> NDArray[np.int64]:
    """Position of every row of ``wanted`` in the sorted rows ``ordered``, int64[k]; −1 where it is absent."""
    if not len(ordered):
        return np.full(len(wanted), -1, dtype=np.int64)
    places = np.minimum(np.searchsorted(_keys(ordered), _keys(wanted)), len(ordered) - 1)
    return np.where((ordered[places] == wanted).all(axis=1), places, -1).astype(np.int64)


def _keys(rows: Rows) -> NDArray[np.void]:
    """The same memory as n opaque values, which numpy compares byte by byte."""
    return np.ascontiguousarray(rows).reshape(-1).view(f"V{rows.shape[1]}")
