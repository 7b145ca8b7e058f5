"""A reader gives names first and then batches of text; the table is the same whatever reads it, and its batches."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vfl_node.data.readers import csv_blocks
from vfl_node.data.readers.contract import Reader, RowBatch
from vfl_node.data.readers.head import HeadReader
from vfl_node.data.reading import read_table, table_of
from vfl_node.data.text_columns import TextColumns
from vfl_node.errors import DataError
from vfl_node.settings.node import Data
from vfl_node.settings.source import READERS

ROWS = [(f"r{row}", f"{row / 4}", "north" if row % 3 else "", f"{row % 2}") for row in range(20)]
NAMES = ("id", "age", "region", "label")


class InMemory(Reader):
    """A reader of rows that are there already, in batches of the given sizes."""

    def __init__(self, rows: Sequence[tuple[str, ...]], sizes: Sequence[int]) -> None:
        self.source, self.names = "lab: memory", NAMES
        self._rows, self._sizes = rows, sizes

    def batches(self, columns: Collection[str] | None = None) -> Iterator[RowBatch]:
        start = 0
        for size in self._sizes:
            cells = zip(*self._rows[start : start + size], strict=True)
            batch = pa.RecordBatch.from_pydict(dict(zip(NAMES, cells, strict=True)))
            yield RowBatch(batch, range(101 + start, 101 + start + size))
            start += size


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "table.csv"
    path.write_text("\n".join(",".join(row) for row in (NAMES, *ROWS)) + "\n")
    return path


@st.composite
def cuts(draw: st.DrawFn) -> list[int]:
    """Sizes of batches that are all the rows together."""
    places = sorted(draw(st.sets(st.integers(1, len(ROWS) - 1))))
    return [after - before for before, after in zip([0, *places], [*places, len(ROWS)], strict=True)]


@given(sizes=cuts())
@settings(deadline=None, derandomize=True)
def test_cells_and_places_do_not_depend_on_batches(sizes: list[int]) -> None:
    text = TextColumns(InMemory(ROWS, sizes))
    assert len(text) == len(ROWS)
    for name, cells in zip(NAMES, zip(*ROWS, strict=True), strict=True):
        assert list(text.cells(name)) == list(cells)
        assert [text.cell(name, row) for row in range(len(ROWS))] == list(cells)
        assert [len(block) for block in text.blocks(name)] == sizes
    assert text.locate("age", 7) == "lab: memory:108:age"


def test_the_table_is_the_same_whatever_reads_it(file: Path) -> None:
    data = Data(path=file)
    read = read_table(data, id_form="text", needs_label=True, party="lab")
    built = table_of(TextColumns(InMemory(ROWS, [7, 13])), data, id_form="text", needs_label=True, party="lab")
    assert built.digest() == read.digest()


def test_errors_name_the_place_that_the_reader_gives() -> None:
    rows = [*ROWS[:5], ("r5", "1", "", "2"), *ROWS[6:]]
    text = TextColumns(InMemory(rows, [3, 17]))
    with pytest.raises(DataError, match=r"^lab: memory:106:label: ") as caught:
        table_of(text, Data(path=Path("memory")), id_form="text", needs_label=True, party="lab")
    assert caught.value.code == "E_LABEL"


def test_names_are_known_before_any_row_is_read(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("id,age\n1,2,3\n")
    with closing(READERS["csv"](path, party="lab")) as reader:
        assert reader.names == ("id", "age")
        with pytest.raises(DataError, match=":2: 3 cells where the header has 2"):
            list(reader.batches())


def test_a_reader_can_be_closed_before_its_end_and_twice(file: Path) -> None:
    reader = READERS["csv"](file, party="lab")
    next(reader.batches())
    reader.close()
    reader.close()
    with pytest.raises(ValueError, match="closed"):
        list(reader.batches())


def test_the_format_is_one_that_something_reads(tmp_path: Path) -> None:
    assert Data(path=tmp_path / "x").format == "auto"
    with pytest.raises(ValueError, match="should be 'auto', 'csv', "):
        Data(path=tmp_path / "x", format="xlsx")


@pytest.mark.parametrize(
    ("rows", "sizes", "whole"),
    [(1, [1], False), (7, [7], False), (8, [7, 1], False), (19, [7, 12], False), (20, [7, 13], True), (99, [7, 13], True)],
)
def test_the_first_rows_of_an_input(rows: int, sizes: list[int], whole: bool) -> None:
    head = HeadReader(InMemory(ROWS, [7, 13]), rows)
    batches = list(head.batches())
    assert [batch.columns.num_rows for batch in batches] == sizes
    rows_read = [tuple(row.values()) for batch in batches for row in batch.columns.to_pylist()]
    assert rows_read == ROWS[: sum(sizes)]
    assert [line for batch in batches for line in batch.lines or ()] == list(range(101, 101 + sum(sizes)))
    assert (head.names, head.whole) == (NAMES, whole)


def test_far_rows_are_not_read_for_the_first_ones() -> None:
    sizes = iter([5, 5, 5, 5])
    head = HeadReader(InMemory(ROWS, sizes), 3)  # type: ignore[arg-type]
    assert len(TextColumns(head)) == 3
    assert list(sizes) == [5, 5, 5]


def test_arrow_parses_a_csv_from_memory_of_its_own(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its threads may let go of the block after the end of Python; with memory of Python they would abort the process."""
    given: list[pa.Buffer] = []
    monkeypatch.setattr(csv_blocks.pa, "BufferReader", lambda buffer: given.append(buffer) or _BUFFER_READER(buffer))
    block = file.read_bytes()
    assert csv_blocks.parse(block, 1, NAMES, ",", None) is not None
    (buffer,) = given
    assert isinstance(buffer, pa.Buffer)
    assert buffer.address != pa.py_buffer(block).address
    assert buffer.to_pybytes() == block


_BUFFER_READER = pa.BufferReader
