"""Blocks that Arrow parses are what Python's csv module reads row by row: cells, lines, errors, and kinds of columns."""

from __future__ import annotations

import csv
import io
import math
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.thorough import examples
from vfl_node.data.feature_columns import column_of
from vfl_node.data.missing_words import MISSING
from vfl_node.data.notation import numbers_in
from vfl_node.data.readers import csv as csv_reader
from vfl_node.data.readers import csv_blocks
from vfl_node.data.readers.opening import open_csv
from vfl_node.data.tables import CategoricalColumn, NumericColumn
from vfl_node.data.text_columns import TextColumns
from vfl_node.errors import DataError
from vfl_node.settings.declared import UNSAID
from vfl_node.settings.source import READERS

MESSY = settings(deadline=None, derandomize=True, max_examples=examples(400, fewer=100))

PLAIN = ["1", "-2.5", "+3", "4.", ".5", "6e7", "7E-3", "x", "red", "2024_01", "inf", "NAN", "1e999", "1e-400", "0x10", *MISSING]
SPACED = [" 8", "9 ", "\t10", "\x1c11\x1f", "\u00a012", "\u200313", " ", "é", "１２", "a b", "日本"]
QUOTED = ['"14"', '" 15 "', '""', '"end\n"', '"\r\nbegin"', '"a,b"', '"two\nlines"', '"crlf\r\nx"', '"q""q"', '""""', ' "16"']
WRONG = ['a"b', '"a"b', '"open', "\r", "\0", "1,2", 'a""', '"a" ']


@st.composite
def files(draw: st.DrawFn) -> str:
    """A CSV of three columns, as messy as ``kinds`` of cells make it."""
    kinds = draw(st.sampled_from([[PLAIN], [PLAIN, SPACED], [PLAIN, QUOTED], [PLAIN, SPACED, QUOTED], [PLAIN, QUOTED, WRONG]]))
    cells = st.sampled_from([cell for kind in kinds for cell in kind])
    ends = st.sampled_from(["\n", "\n", "\r\n", "\n\n", "\n\r\n"])
    rows = draw(st.lists(st.tuples(st.lists(cells, min_size=3, max_size=3), ends), min_size=1, max_size=12))
    text = "a,b,c\n" + "".join(",".join(row) + end for row, end in rows)
    return text if draw(st.booleans()) else text.removesuffix("\n")


def row_by_row(content: bytes) -> tuple[list[list[str]], list[int]] | tuple[str, int]:
    """The rows after the header, with their lines; or what is wrong, and where."""
    at = 0

    def lines() -> Any:
        nonlocal at
        for raw in io.BytesIO(content):
            at += 1
            if b"\0" in raw:
                raise ValueError("holds NUL characters")
            yield raw.decode()

    reader = csv.reader(lines(), strict=True, skipinitialspace=True)
    rows, places, first = [], [], 1
    try:
        for cells in reader:
            if cells:
                if len(cells) != 3:
                    return f"{len(cells)} cells", first
                rows.append([cell.strip() for cell in cells])
                places.append(first)
            first = reader.line_num + 1
    except csv.Error:
        return "is not valid CSV", first
    except ValueError as error:
        return str(error), at
    return rows[1:], places[1:]


def number(cell: str) -> float:
    """NaN: missing, infinity: no number, minus infinity: an infinite one."""
    if cell in MISSING:
        return math.nan
    if cell in ("inf", "1e999"):
        return -math.inf
    try:
        value = float(cell)
    except ValueError:
        return math.inf
    return value if math.isfinite(value) and "_" not in cell else math.inf


def column(cells: list[str]) -> tuple[str, list[Any]]:
    """The kind of a column that is not declared, and its values; None: missing, and infinity: not a number."""
    values = [number(cell) for cell in cells]
    present = [value for value in values if not math.isnan(value)]
    if sum(value < math.inf for value in present) >= 0.95 * len(present) and (not present or any(map(math.isfinite, present))):
        return "numeric", [None if math.isnan(value) else abs(value) if math.isinf(value) else value for value in values]
    return "categorical", [None if cell in MISSING else cell for cell in cells]


def values(text: TextColumns, name: str) -> tuple[str, list[Any]]:
    read = text.feature(name, None)
    if isinstance(read, CategoricalColumn):
        numbers = numbers_in(read, UNSAID, text.decimal, known=text.decimal_known, declared=False)
        if numbers is None:
            return "categorical", [None if code < 0 else read.levels[code] for code in read.codes.tolist()]
        if (wrong := np.flatnonzero(np.isinf(numbers.values))).size:
            row = int(wrong[0])
            with pytest.raises(DataError, match=f":{text.line(row)}:{name}: {numbers.wrong(row)} in numeric"):
                column_of(text, name, None)
        read = numbers
    return "numeric", [None if math.isnan(value) else value for value in read.values.tolist()]


@MESSY
@given(content=files(), block=st.sampled_from([1, 20, 60, 1 << 20]), few=st.sampled_from([0, 0, 1 << 10]))
@example(content='a,b,c\n1,2,3\n"x\n\ny",2,3\n\n4,5,6', block=1, few=0)
@example(content='a,b,c\n1,2,3\n4,5,"6\n7,8,9\n', block=1, few=0)
@example(content='a,b,c\nx,"end\n",3\n', block=1 << 20, few=0)  # white space at a quoted edge, and none else
def test_a_messy_file(content: str, block: int, few: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("messy") / "table.csv"
    path.write_bytes(content.encode())
    expected = row_by_row(content.encode())
    wrong: Any = None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_reader, "HEAD_BYTES", block)
        patch.setattr(csv_reader, "BLOCK_BYTES", block)
        patch.setattr(csv_reader, "FEW_BYTES", few)
        try:
            with closing(open_csv(path, party="lab", delimiter=",")) as reader:
                held = TextColumns(reader)
                streamed = TextColumns(reader, dict.fromkeys(reader.names))
        except DataError as error:
            empty = error.code == "E_EMPTY"
            where, _, what = error.message.removeprefix(f"lab: {path}:").partition(": ")
            wrong = ([], []) if empty else (what[: len(str(expected[0]))], int(where))
    if wrong:
        assert wrong == expected
        return
    rows, lines = expected
    assert [list(row) for row in zip(*map(held.cells, "abc"), strict=True)] == rows
    assert [held.line(row) for row in range(len(held))] == [streamed.line(row) for row in range(len(streamed))] == lines
    for name, cells in zip("abc", zip(*rows, strict=True), strict=True):
        assert values(held, name) == column(list(cells))
        assert values(streamed, name) == column(list(cells))


@pytest.mark.parametrize(
    ("content", "fast"),
    [
        ("1,2\n3,4\n", True),
        ("1,2\r\n\r\n3,4", True),
        ('"a ""b""\nc",2\n3,""\n', True),
        ("1, 2\né,4\n", True),
        ('1, "2"\n', False),
        ('a"b",2\n', False),
        ('"a"b,2\n', False),
        ("1,2\r3,4\n", False),
        ("1,2\n3\n", False),
        ("x" * 200_000 + ",2\n", False),
    ],
)
def test_which_blocks_arrow_parses(content: str, fast: bool) -> None:
    assert (csv_blocks.parse(content.encode(), 2, ("a", "b"), ",", None) is not None) == fast


@pytest.mark.parametrize("share", [0.94, 0.95, 0.96])
@pytest.mark.parametrize("late", [False, True])
def test_a_column_that_seemed_to_be_numbers_is_read_again(
    share: float, late: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the other way round: texts come first, and numbers after them."""
    monkeypatch.setattr(csv_reader, "HEAD_BYTES", 100)
    monkeypatch.setattr(csv_reader, "BLOCK_BYTES", 100)
    monkeypatch.setattr(csv_reader, "FEW_BYTES", 0)
    cells = [f"{row}.0" for row in range(round(100 * share))] + ["north"] * round(100 - 100 * share)
    cells = cells if late else cells[::-1]
    path = tmp_path / "table.csv"
    path.write_text("id,x\n" + "".join(f"k{row},{cell}\n" for row, cell in enumerate(cells)))
    with closing(open_csv(path, party="lab")) as reader:
        text = TextColumns(reader, {"x": None}, ["id"])
    kind, read = values(text, "x")
    assert (kind, read) == column(cells)
    assert kind == ("numeric" if share >= 0.95 else "categorical")
    assert list(text.cells("id")) == [f"k{row}" for row in range(100)]


def test_unwritable_arrays_are_not_handed_on(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("x,y\n1,a\n2,b\n")
    with closing(open_csv(path, party="lab")) as reader:
        text = TextColumns(reader)
    numbers, categories = column_of(text, "x", None), column_of(text, "y", None)
    assert isinstance(numbers, NumericColumn)
    assert isinstance(categories, CategoricalColumn)
    assert numbers.values.dtype == np.float64
    assert categories.codes.dtype == np.int64
    assert numbers.values.flags.writeable
    assert categories.codes.flags.writeable


def test_a_file_that_changes_between_its_readings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_reader, "HEAD_BYTES", 100)
    path = tmp_path / "table.csv"
    path.write_text("x\n" + "1\n" * 190 + "north\n" * 190)
    with closing(open_csv(path, party="lab")) as reader:
        batches = reader.batches

        def changed(columns: Any = None) -> Any:
            yield from batches(columns)
            path.write_text("x\n" + "1\n" * 60)

        reader.batches = changed  # type: ignore[method-assign]
        with pytest.raises(DataError, match="changed while it was read"):
            TextColumns(reader, {"x": None})


@pytest.mark.parametrize("first", ["sep=;", "SEP=;", '"sep=;"', "sep=;;;", "sep=|", "sep=\t"])
def test_a_first_line_may_tell_the_delimiter(tmp_path: Path, first: str) -> None:
    between = first.strip('"')[4]
    path = tmp_path / "table.csv"
    rows = "".join(f"{one}{between}{other}\r\n" for one, other in (("id", "x"), ("a", "1"), ("a", "2")))
    path.write_text(f"\ufeff{first}\r\n{rows}")
    with closing(READERS["csv"](path, party="lab")) as reader:
        assert reader.names == ("id", "x")
        for _ in range(2):  # which reads the file again
            (batch,) = reader.batches()
            assert (batch.columns.to_pydict(), list(batch.lines or ())) == ({"id": ["a", "a"], "x": ["1", "2"]}, [3, 4])


def test_a_column_may_be_called_so(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("sep=,id\n1,a\n")
    with closing(READERS["csv"](path, party="lab")) as reader:
        assert reader.names == ("sep=", "id")


@pytest.mark.parametrize("content", ['"id,x"\n"a,1"\n', '"id;""name"";x"\r\n"a;""canary"";1"\r\n'])
def test_lines_that_are_quoted_as_a_whole_are_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "table.csv"
    path.write_text(content)
    with pytest.raises(DataError, match="every line is one quoted cell") as caught:
        READERS["csv"](path, party="lab")
    assert (caught.value.code, "quotes around whole lines" in caught.value.hint) == ("E_CSV", True)
    path.write_text('"id"\n"a,1"\n')
    with closing(READERS["csv"](path, party="lab")) as reader:
        assert reader.names == ("id",)
