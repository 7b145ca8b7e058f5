"""A column is whole up to its last finished chunk, whatever happened to its files."""

from __future__ import annotations

import hashlib
import itertools
import stat
import tempfile
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vfl_node.alignment.lists.columns import Chosen, Column, Columns, Given, write_all

WIDTH = 3
CHUNKS = (2, 1, 3)  # rows of each
ENDS = np.cumsum((0, *CHUNKS)).tolist()
MARK = 40


def some_rows(count, width=WIDTH, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, width), dtype=np.uint8)


ROWS = some_rows(sum(CHUNKS))


def opened(folder, width=WIDTH, chunk_rows=2):
    return Column(folder / "list", width, chunk_rows)


def files(folder):
    return {name: folder / f"list.{name}" for name in ("rows", "marks")}


def made(folder):
    """A closed column of :data:`CHUNKS`; its files' bytes."""
    column = opened(folder)
    for start, stop in itertools.pairwise(ENDS):
        column.append(ROWS[start:stop])
    column.close()
    return {name: path.read_bytes() for name, path in files(folder).items()}


def spoilt(folder, name, data):
    """The column with the bytes of one file exchanged, and how many whole chunks it has: the oracle, from the bytes alone."""
    whole = made(folder)
    files(folder)[name].write_bytes(data)
    good = whole | {name: data}
    chunks = 0
    for i, end in enumerate(ENDS[1:]):
        rows, mark = slice(ENDS[i] * WIDTH, end * WIDTH), slice(i * MARK, (i + 1) * MARK)
        if any(good[kind][part] != whole[kind][part] for kind, part in (("rows", rows), ("marks", mark))):
            break
        chunks += 1
    return chunks


def check_recovered(folder, chunks):
    """Exactly ``chunks`` chunks are there, nothing lies behind them, and appending goes on."""
    column, count = opened(folder), ENDS[chunks]
    assert len(column) == count
    assert column.digest.digest() == hashlib.sha256(ROWS[:count].tobytes()).digest()
    assert column.read(0, 99).tobytes() == ROWS[:count].tobytes()
    sizes = {name: path.stat().st_size for name, path in files(folder).items()}
    assert sizes == {"rows": count * WIDTH, "marks": chunks * MARK}
    for start, stop in itertools.pairwise(ENDS[chunks:]):
        column.append(ROWS[start:stop])
    column.close()
    again = opened(folder)
    assert np.array_equal(again.rows, ROWS)
    assert again.digest.digest() == hashlib.sha256(ROWS.tobytes()).digest()
    again.close()


@pytest.mark.parametrize("name", ["rows", "marks"])
def test_cut_off_at_any_byte(tmp_path, name):
    size = len(made(tmp_path)[name])
    found = set()
    for left in range(size + 1):
        folder = tmp_path / str(left)
        folder.mkdir()
        chunks = spoilt(folder, name, made(folder)[name][:left])
        check_recovered(folder, chunks)
        found.add(chunks)
    assert found == {0, 1, 2, 3}


@pytest.mark.parametrize("name", ["rows", "marks"])
def test_lost_pages_are_seen(tmp_path, name):
    """After a loss of power a file may have its length and zeros where data was not written yet."""
    data = made(tmp_path)[name]
    for left in range(len(data)):
        folder = tmp_path / str(left)
        folder.mkdir()
        check_recovered(folder, spoilt(folder, name, data[:left] + bytes(len(data) - left)))


@pytest.mark.parametrize("name", ["rows", "marks"])
def test_a_flipped_bit_ends_what_is_whole(tmp_path, name):
    data = made(tmp_path)[name]
    for place in range(len(data)):
        folder = tmp_path / str(place)
        folder.mkdir()
        flipped = bytes([data[place] ^ 1 << place % 8])
        chunks = spoilt(folder, name, data[:place] + flipped + data[place + 1 :])
        assert chunks < len(CHUNKS)
        check_recovered(folder, chunks)


@pytest.mark.parametrize("end", [2**62, 2**64 - 1])
def test_a_damaged_mark_asks_for_no_memory(tmp_path, end):
    """A mark is read before anything is known of it."""
    data = made(tmp_path)["marks"]
    chunks = spoilt(tmp_path, "marks", data[:MARK] + end.to_bytes(8, "big") + data[MARK + 8 :])
    assert chunks == 1
    check_recovered(tmp_path, chunks)


@given(st.data())
def test_both_files_cut_and_garbage_behind(data):
    """A kill and a loss of power together: each file ends anywhere, in anything."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        whole = made(folder)
        left = {name: data.draw(st.integers(0, len(whole[name])), name) for name in whole}
        for name, path in files(folder).items():
            path.write_bytes(whole[name][: left[name]] + data.draw(st.binary(max_size=50)))
        least = min(
            sum(end * WIDTH <= left["rows"] for end in ENDS[1:]),
            left["marks"] // MARK,
        )
        column = opened(folder)
        assert len(column) in ENDS[least:]  # more only where the garbage happens to be right
        assert np.array_equal(column.read(0, 99), ROWS[: len(column)])
        column.close()


def test_either_file_may_be_gone(tmp_path):
    for name in ("rows", "marks"):
        folder = tmp_path / name
        folder.mkdir()
        made(folder)
        files(folder)[name].unlink()
        check_recovered(folder, 0)


def test_a_chunk_that_cannot_be_stored_is_not_there(tmp_path, monkeypatch):
    """The disk is full between the rows of a chunk and its mark."""
    column = opened(tmp_path)
    column.append(ROWS[:2])
    monkeypatch.setattr("vfl_node.alignment.lists.columns.write_all", _full(after=1))
    with pytest.raises(OSError, match="full"):
        column.append(ROWS[2:3])
    column.close()
    monkeypatch.undo()
    check_recovered(tmp_path, 1)


def _full(after):
    left = [after]

    def write(descriptor, data):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(28, "full")
        write_all(descriptor, data)

    return write


def test_files_are_private(tmp_path):
    columns = Columns(tmp_path / "job" / "lists", width=WIDTH, chunk_rows=2)
    columns.column("step 1 powers").append(ROWS[:2])
    columns.close()
    folder = tmp_path / "job" / "lists"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert modes == {"step-1-powers.rows": 0o600, "step-1-powers.marks": 0o600}


def test_no_more_than_a_chunk_in_memory(tmp_path):
    width, chunk_rows, chunks = 32, 1 << 13, 32  # 8 MiB in chunks of 256 KiB
    column = opened(tmp_path, width, chunk_rows)
    rows, places = some_rows(chunk_rows, width), np.random.default_rng(1).permutation(chunks * chunk_rows)
    tracemalloc.start()

    def peak():
        return tracemalloc.get_traced_memory()[1] / (width * chunk_rows)

    for _ in range(chunks):
        column.append(rows)
    assert peak() < 4
    column.close()
    tracemalloc.reset_peak()
    column = opened(tmp_path, width, chunk_rows)
    assert len(column) == chunks * chunk_rows
    assert peak() < 4
    tracemalloc.reset_peak()
    assert sum(map(len, column.chunks())) == len(column)
    assert sum(map(len, Chosen([column, column], places, chunk_rows).chunks())) == len(column)
    assert peak() < 8
    tracemalloc.stop()
    column.close()


def test_sources_go_on_anywhere(tmp_path):
    """Whichever place a resumed list goes on from, its elements are those of the whole list from there."""
    made(tmp_path)
    column = opened(tmp_path)
    places = np.array([7, 0, 5, 11, 6, 2])  # of the column twice over
    expected = {column: ROWS, Given(ROWS, 2): ROWS, Chosen([column, column], places, 2): np.concatenate([ROWS, ROWS])[places]}
    for source, rows in expected.items():
        for start in range(len(rows) + 1):
            chunks = list(source.chunks(start))
            assert all(0 < len(chunk) <= 2 for chunk in chunks)
            assert b"".join(chunk.tobytes() for chunk in chunks) == rows[start:].tobytes()
    column.close()


def test_an_empty_column(tmp_path):
    column = opened(tmp_path)
    assert (len(column), column.rows.shape, list(column.chunks())) == (0, (0, WIDTH), [])
    column.sync()
    column.close()
    column.close()
