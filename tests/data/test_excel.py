"""A sheet of Excel is the same table as a CSV of its cells; what would take too much memory is refused before it does."""

from __future__ import annotations

import builtins
import csv
import struct
import tracemalloc
import zipfile
from contextlib import closing
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.data.workbooks import Raw, sheet_of, write_workbook
from tests.thorough import examples
from vfl_node.data.cells import text_of
from vfl_node.data.readers import excel, workbook
from vfl_node.data.readers.opening import open_auto, open_given
from vfl_node.data.reading import read_table
from vfl_node.data.tables import DateColumn, NumericColumn, Table
from vfl_node.errors import DataError, UsageError
from vfl_node.settings.node import Data

pytest.importorskip("python_calamine", reason="pip install 'vfl-node[excel]'")

MANY = settings(deadline=None, derandomize=True, max_examples=examples(200, fewer=12))
TEXTS = st.sampled_from(["red", "blue, or", "ж号", '"q"', "<&>", "two\nlines", " spaced ", "n/a", "", "007"])
KINDS: dict[str, st.SearchStrategy[Any]] = {
    "numbers": st.none() | st.floats(-1e12, 1e12) | st.integers(-(10**9), 10**9),
    "texts": st.none() | TEXTS,
    "truth": st.none() | st.booleans(),
    "dates": st.none() | st.dates(date(1901, 1, 1), date(2100, 1, 1)),
    "times": st.none() | st.datetimes(datetime(1950, 1, 1), datetime(2100, 1, 1)).map(lambda at: at.replace(microsecond=0)),
    "numbers and words": st.none() | st.integers(0, 99) | st.sampled_from(["n/a", "unknown"]),
    "mixed": st.none() | st.integers(0, 9) | TEXTS | st.booleans() | st.dates(date(2000, 1, 1), date(2001, 1, 1)),
}


def read(path: Path, **said: Any) -> Table:
    return read_table(Data(path=path, **said), id_form="text", needs_label=False, party="lab")


def written(cell: Any) -> str:
    """As a CSV has it."""
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, datetime | date | time):
        return cell.isoformat()
    if isinstance(cell, int | float):
        return str(text_of(pa.array([float(cell)]))[0].as_py())
    return cell or ""


def write_csv(path: Path, rows: list[list[Any]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([[written(cell) for cell in row] for row in rows])
    return path


@st.composite
def tables(draw: st.DrawFn) -> list[list[Any]]:
    """A header, and rows with columns of some kinds; ids are texts or whole numbers."""
    kinds = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=4))
    count = draw(st.integers(1, 30))
    ids = list(range(count)) if draw(st.booleans()) else [f"{row:03}" for row in range(count)]
    columns = [draw(st.lists(KINDS[kind], min_size=count, max_size=count)) for kind in kinds]
    return [["id", *(f"c{at}" for at in range(len(kinds)))], *map(list, zip(ids, *columns, strict=True))]


@MANY
@given(rows=tables(), shared=st.booleans(), first=st.sampled_from([1, 4]), piece=st.sampled_from([2, 1 << 14]))
def test_a_sheet_is_the_same_table_as_a_csv_of_its_cells(
    rows: list[list[Any]], shared: bool, first: int, piece: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("excel")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(excel, "_ROWS", piece)
        patch.setattr(workbook, "_PIECE_BYTES", 500)
        tables_ = [
            read(write_workbook(folder / "t.xlsx", {"s": rows}, shared=shared, first=first)),
            read(write_csv(folder / "t.csv", rows)),
        ]
    kinds = [{name: type(column) for name, column in table.columns.items()} for table in tables_]
    assert kinds[0] == kinds[1]
    assert tables_[0].digest() == tables_[1].digest()


def test_cells_have_the_types_of_excel(tmp_path: Path) -> None:
    rows = [
        ["id", "day", "at", "clock", "x", "error", 2024, "y"],
        ["007", date(2024, 1, 31), datetime(2024, 1, 31, 9, 30), time(9, 30), 1, Raw("<v></v>"), 1, None],
        [7, date(2024, 2, 1), date(2024, 2, 1), time(9, 31), 2.5, None, 2, Raw("<f>E2*2</f><v>5</v>")],
    ]
    table = read(write_workbook(tmp_path / "t.xlsx", {"s": rows}))
    assert list(table.ids) == [b"text:007", b"text:7"]
    columns = table.columns
    assert list(columns) == ["day", "at", "clock", "x", "error", "2024", "y"]
    assert isinstance(columns["day"], DateColumn)
    assert isinstance(columns["at"], DateColumn)
    assert columns["at"].seconds.tolist() == [1706693400, 1706745600]
    assert isinstance(columns["y"], NumericColumn)
    assert columns["y"].values.tolist()[1] == 5


def test_a_sheet_is_the_first_seen_or_the_one_of_the_settings(tmp_path: Path) -> None:
    sheets = {name: [["id", "x"], [name, 1]] for name in ("Notes", "Data", "Old & new")}
    path = write_workbook(tmp_path / "t.xlsx", sheets, hidden="Notes")
    for said, name in (({}, "Data"), ({"sheet": "Notes"}, "Notes"), ({"sheet": "Old & new", "format": "excel"}, "Old & new")):
        assert list(read(path, **said).ids) == [f"text:{name}".encode()]
    with closing(open_auto(path, party="lab")) as reader:
        assert reader.format == "excel, sheet 'Data' of 3"
    with pytest.raises(DataError) as caught:
        read(path, sheet="data")
    assert (caught.value.code, caught.value.hint) == ("E_FORMAT", "its sheets: Notes, Data, Old & new")
    assert caught.value.message == f"lab: {path}: has no sheet 'data' (data.sheet)"
    for said in ({"format": "csv"}, {"path": None, "query": "select 1"}):
        with pytest.raises(ValidationError, match="sheet is for Excel"):
            Data(**{"path": path, "sheet": "Data", **said})


def test_places_are_the_rows_of_the_sheet(tmp_path: Path) -> None:
    rows = [["id", "x"], ["a", 1], [None, None], ["b", 2], ["a", 3]]
    path = write_workbook(tmp_path / "t.xlsx", {"s": rows}, first=3)
    with pytest.raises(DataError, match=r"t.xlsx:row 7:id: 1 duplicate ids \(rows 4 and 7\)"):
        read(path)
    path = write_workbook(tmp_path / "parts-1.xlsx", {"s": [["id", "x"], ["c", 1]]})
    write_workbook(tmp_path / "parts-2.xlsx", {"s": [["id", "x"], ["d", 1], ["c", 1]]})
    with pytest.raises(DataError, match=r"parts-2.xlsx:row 3:id: 1 duplicate ids \(rows parts-1.xlsx:2 and parts-2.xlsx:3\)"):
        read(tmp_path / "parts-*.xlsx")


FAULTS: dict[str, tuple[Any, str, str]] = {
    "rounded id": ([["id"], ["x"], [2**53]], ":row 3:id: the identifier is a number of 2^53 or more, and Excel has", "E_ID"),
    "no name": ([["id", None], ["a", 1]], ":1: column 2 has no name", "E_CSV"),
    "two names": ([["id", "id "], ["a", 1]], ":1: columns 1 and 2 have the same name", "E_CSV"),
    "empty": ([], ": sheet 's' is empty", "E_EMPTY"),
    "no rows": ([["id"]], ": has no rows", "E_EMPTY"),
    "not computed": ([["id", "x"], ["a", Raw("<f>1+1</f><v/>")]], ": has formulas without their results", "E_FORMAT"),
    "no places": (sheet_of([["id"], ["a"]]).replace('r="A2"', ""), ": has cells without a place (r)", "E_FORMAT"),
    "far away": (
        sheet_of([["id"], ["a"]]).replace("</sheetData>", '<row r="1048576"><c r="XFD1048576"><v>1</v></c></row></sheetData>'),
        ": has a cell in row 1,048,576 and one in column 16,384, so more than 33,554,432 cells",
        "E_FORMAT",
    ),
    "far away in another spelling": (
        sheet_of([["id"], ["a"]]).replace("</sheetData>", "<row><x:c s='0' r='XFD1048576'/></row></sheetData>"),
        ": has a cell in row 1,048,576 and one in column 16,384, so more than 33,554,432 cells",
        "E_FORMAT",
    ),
    "not computed in another spelling": (
        sheet_of([["id"], ["a"]]).replace("</sheetData>", '<row><x:c r="B2"><x:f>1+1</x:f></x:c></row></sheetData>'),
        ": has formulas without their results",
        "E_FORMAT",
    ),
    "damaged XML": (sheet_of([["id"], ["a"]])[:-40], ": is damaged or cut off", "E_CSV"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_sheet_that_cannot_be_used_is_refused(tmp_path: Path, fault: str) -> None:
    rows, said, code = FAULTS[fault]
    path = write_workbook(tmp_path / "t.xlsx", {"s": rows})
    with pytest.raises(DataError) as caught:
        read(path)
    assert caught.value.message.startswith(f"lab: {path}{said}")
    assert caught.value.code == code
    assert caught.value.hint or code == "E_EMPTY"


def test_a_text_that_a_formula_left_empty_is_a_missing_value(tmp_path: Path) -> None:
    sheet = sheet_of([["id", "x"], ["a", Raw("")], ["b", 1]]).replace('<c r="B2">', '<c r="B2" t="str"><f>IF(1,"")</f><v></v>')
    assert str(read(write_workbook(tmp_path / "t.xlsx", {"s": sheet})).columns["x"].values.tolist()) == "[nan, 1.0]"


def bomb(path: Path, claimed: int | None = None) -> Path:
    """A small archive whose sheet unpacks to 64 MiB, and may claim another size."""
    write_workbook(path, {"s": sheet_of([["id"], ["a"]]) + " " * (64 << 20)})
    assert path.stat().st_size < 100_000
    if claimed is not None:
        content = bytearray(path.read_bytes())
        place = -1
        while (place := content.find(b"PK\x01\x02", place + 1)) >= 0:
            content[place + 24 : place + 28] = struct.pack("<I", claimed)
        path.write_bytes(bytes(content))
    return path


@pytest.mark.parametrize("claimed", [None, 1000])
def test_what_would_unpack_to_too_much_is_refused_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, claimed: int | None
) -> None:
    path = bomb(tmp_path / "t.xlsx", claimed)
    monkeypatch.setattr(workbook, "MOST_BYTES", 32 << 20)
    tracemalloc.start()
    with pytest.raises(DataError, match="is an Excel workbook of more than 256 MiB, or 32 MiB when it is unpacked") as caught:
        read(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert caught.value.code == "E_FORMAT"
    assert peak < 32 << 20


def test_what_is_no_workbook_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.xlsx"
    for inside, said in (("xl/workbook.bin", "in binary form"), ("word/document.xml", "is a document of Office")):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("[Content_Types].xml", "")
            archive.writestr(inside, "")
        with pytest.raises(DataError, match=said) as caught:
            read(path)
        assert caught.value.code == "E_FORMAT"
    content = write_workbook(path, {"s": [["id"], ["a"]]}).read_bytes()
    with pytest.raises(DataError, match="lab: the request: is an Excel workbook"):
        open_given(content, "lab: the request")
    for damage in (content[: len(content) // 2], content.replace(content[60:70], b"canary-100", 1)):
        path.write_bytes(damage)
        with pytest.raises(DataError, match="is damaged or cut off") as caught:
            read(path)
        assert caught.value.code == "E_CSV"
    path.write_bytes(content)
    monkeypatch.setattr(workbook, "MOST_PACKED_BYTES", 100)
    with pytest.raises(DataError, match="is an Excel workbook of more than"):
        read(path)


def test_a_missing_package_is_said_with_what_installs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "python_calamine":
            raise ImportError(name)
        return load(name, *rest)

    path = write_workbook(tmp_path / "t.xlsx", {"s": [["id"], ["a"]]})
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UsageError) as caught:
        read(path)
    assert caught.value.code == "E_EXTENSION"
    assert caught.value.message == f"lab: {path}: is an Excel workbook, and python-calamine, which reads it, is not installed"
    assert caught.value.hint.startswith("pip install 'vfl-node[excel]'")
