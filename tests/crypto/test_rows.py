from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vfl_node.crypto.rows import are_distinct, find_rows, is_strictly_ascending, sorted_rows


@st.composite
def columns(draw, min_size=0):
    """A column of few different values, with zero bytes at either end."""
    width = draw(st.integers(1, 5))
    values = st.lists(st.sampled_from([0, 1, 127, 128, 255]), min_size=width, max_size=width).map(bytes)
    return np.array([list(v) for v in draw(st.lists(values, min_size=min_size))], np.uint8).reshape(-1, width)


def as_bytes(rows):
    return [bytes(row) for row in rows]


@given(columns())
def test_sorts_by_bytes(rows):
    assert as_bytes(sorted_rows(rows)) == sorted(as_bytes(rows))
    assert sorted_rows(rows).shape == rows.shape


@given(columns())
def test_distinct_and_ascending(rows):
    values = as_bytes(rows)
    assert are_distinct(rows) == (len(set(values)) == len(values))
    assert is_strictly_ascending(rows) == (values == sorted(set(values)))
    assert is_strictly_ascending(np.unique(rows, axis=0))


@given(columns(), st.data())
def test_finds_rows(rows, data):
    ordered = sorted_rows(rows)[::2]
    wanted = rows[data.draw(st.permutations(range(len(rows))))]
    found = find_rows(ordered, wanted)
    assert found.dtype == np.int64
    present = set(as_bytes(ordered))
    for place, row in zip(found, as_bytes(wanted), strict=True):
        assert (row in present) == (place >= 0)
        assert place < 0 or bytes(ordered[place]) == row


def test_takes_rows_that_are_not_contiguous():
    rows = np.arange(40, dtype=np.uint8).reshape(10, 4)[::-2, :]
    assert as_bytes(sorted_rows(rows)) == sorted(as_bytes(rows))
