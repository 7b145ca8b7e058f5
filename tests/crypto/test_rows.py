"""Ordering and finding against Python's own ``sorted`` and ``dict``, from toy widths to 3072 bits."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vfl_node.crypto import rows as module
from vfl_node.crypto.rows import RowIndex, is_strictly_ascending, order_rows


@st.composite
def columns(draw):
    """A column of few different values, which share a prefix of any length and have zero bytes at either end."""
    width = draw(st.sampled_from([1, 2, 5, 7, 8, 9, 15, 16, 17, 24, 32, 40, 384]))
    prefix = draw(st.binary(min_size=0, max_size=width))
    tail = st.lists(st.sampled_from([0, 1, 127, 128, 255]), min_size=width - len(prefix), max_size=width - len(prefix))
    values = draw(st.lists(st.builds(lambda end: prefix + bytes(end), tail), min_size=1, max_size=4))
    values += draw(st.lists(st.binary(min_size=width, max_size=width), max_size=2))
    chosen = draw(st.lists(st.sampled_from(values), max_size=40))
    return np.array([list(value) for value in chosen], np.uint8).reshape(-1, width)


def as_bytes(rows):
    return [bytes(row) for row in rows]


def first_places(rows):
    places = {}
    for place, value in enumerate(as_bytes(rows)):
        places.setdefault(value, place)
    return places


@given(columns())
def test_orders_as_python_does(rows):
    values = as_bytes(rows)
    order = order_rows(rows)
    assert order.dtype == np.int64
    assert order.tolist() == sorted(range(len(values)), key=values.__getitem__)  # stable, as ours is


@given(columns())
def test_distinct_and_ascending(rows):
    values = as_bytes(rows)
    assert RowIndex(rows).distinct == (len(set(values)) == len(values))
    assert is_strictly_ascending(rows) == (values == sorted(set(values)))
    assert is_strictly_ascending(np.unique(rows, axis=0).reshape(-1, rows.shape[1]))


@given(columns(), st.data())
def test_finds_the_first_place_or_none(rows, data):
    kept = rows[: data.draw(st.integers(0, len(rows)))]
    wanted = rows[data.draw(st.permutations(range(len(rows))))]
    found = RowIndex(kept).find(wanted)
    assert found.dtype == np.int64
    places = first_places(kept)
    assert found.tolist() == [places.get(value, -1) for value in as_bytes(wanted)]


@pytest.mark.parametrize("width", [2, 32, 384])
@pytest.mark.parametrize("count", [0, 1])
def test_no_rows_and_one(count, width):
    rows = np.zeros((count, width), np.uint8)
    wanted = np.stack([np.zeros(width, np.uint8), np.full(width, 255, np.uint8)])
    index = RowIndex(rows)
    assert index.distinct
    assert is_strictly_ascending(rows)
    assert order_rows(rows).tolist() == list(range(count))
    assert index.find(wanted).tolist() == [count - 1, -1]
    assert index.find(wanted[:0]).tolist() == []


@pytest.mark.parametrize("shared_bytes", [0, 7, 8, 9, 24, 31, 32])
def test_many_rows_with_a_common_prefix_across_slices(shared_bytes, monkeypatch):
    monkeypatch.setattr(module, "_SLICE_ROWS", 100)
    rows = np.random.default_rng(shared_bytes).integers(0, 256, (3000, 32), dtype=np.uint8)
    rows[:, :shared_bytes] = 7
    rows[1000:2000] = rows[2000:]  # a third of them twice
    places = first_places(rows)
    strangers = rows[::7] ^ np.uint8(1) if shared_bytes < 32 else rows[::7] ^ np.uint8(128)
    wanted = np.concatenate([rows[::-1], strangers])
    index = RowIndex(rows)
    assert not index.distinct
    assert index.find(wanted).tolist() == [places.get(value, -1) for value in as_bytes(wanted)]
    ascending = rows[order_rows(rows)]
    assert as_bytes(ascending) == sorted(as_bytes(rows))
    assert not is_strictly_ascending(ascending)
    assert is_strictly_ascending(np.unique(rows, axis=0))


def test_rows_whose_words_are_equal_across_a_border_of_runs():
    """The second words of AB, AC, BC, BD are B, C, C, D in order, yet no row ties with another."""
    rows = np.frombuffer(b"".join(bytes([a]) * 8 + bytes([b]) * 8 for a, b in (b"BD", b"BC", b"AC", b"AB")), np.uint8)
    rows = rows.reshape(-1, 16)
    assert RowIndex(rows).distinct
    assert order_rows(rows).tolist() == [3, 2, 1, 0]
    assert not RowIndex(rows[[0, 1, 2, 3, 2]]).distinct


@pytest.mark.parametrize("at", [0, 98, 99, 100, 101, 198, 249])
def test_one_row_out_of_place_is_seen_at_any_border_of_slices(at, monkeypatch):
    monkeypatch.setattr(module, "_SLICE_ROWS", 100)
    rows = np.arange(250, dtype=">u4").view(np.uint8).reshape(-1, 4)
    assert is_strictly_ascending(rows)
    swapped = rows.copy()
    swapped[[at, at - 1]] = rows[[at - 1, at]]
    assert not is_strictly_ascending(swapped)
    repeated = rows.copy()
    repeated[at] = rows[at - 1]
    assert not is_strictly_ascending(repeated)


def test_a_column_in_a_file_is_not_copied(tmp_path):
    rows = np.random.default_rng(1).integers(0, 256, (20_000, 384), dtype=np.uint8)
    rows.tofile(tmp_path / "column")
    mapped = np.memmap(tmp_path / "column", dtype=np.uint8, mode="r", shape=rows.shape)
    tracemalloc.start()
    index = RowIndex(mapped)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 40 * len(rows)  # of 384 bytes a row
    assert kept < 20 * len(rows)
    assert index.find(rows[::100]).tolist() == list(range(0, len(rows), 100))
    np.testing.assert_array_equal(order_rows(mapped), np.argsort(rows.view("V384")[:, 0]))


@settings(max_examples=20)
@given(columns())
def test_takes_rows_that_are_not_contiguous(rows):
    view = rows[::-2]
    assert as_bytes(view[order_rows(view)]) == sorted(as_bytes(view))
    assert RowIndex(view).find(view).tolist() == [first_places(view)[value] for value in as_bytes(view)]
