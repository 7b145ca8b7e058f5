"""The same table in every format, what a file is by its first bytes, and files that cannot be read."""

from __future__ import annotations

import datetime as dt
import gzip
import pickle
import sqlite3
import zipfile
from contextlib import closing, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from vfl_node.data.cells import WHITE_SPACE, number, numbers_of, text_of
from vfl_node.data.readers.arrow import ArrowReader
from vfl_node.data.readers.dialect import decimal_of, delimiter_of
from vfl_node.data.reading import columns_for, read_table, table_of
from vfl_node.data.tables import CategoricalColumn, DateColumn, NumericColumn, Table
from vfl_node.errors import DataError
from vfl_node.node.check import check_table
from vfl_node.settings.node import Data, Settings
from vfl_node.settings.source import READERS

N = 500
DRAW = np.random.default_rng(3)
TYPED = pa.table(
    {
        "id": pa.array(2**53 + DRAW.permutation(N)),
        "whole": pa.array(DRAW.integers(-5, 500, N), pa.int16(), mask=DRAW.random(N) < 0.1),
        "real": pa.array(DRAW.normal(size=N), mask=DRAW.random(N) < 0.1),
        "small": pa.array(DRAW.integers(0, 8, N) / 4, pa.float32()),
        "price": pa.array([Decimal(int(cents)) / 100 for cents in DRAW.integers(0, 9999, N)], pa.decimal128(8, 2)),
        "kind": pa.array([("north", "süd", None)[row % 3] for row in range(N)]),
        "colour": pa.array([("red", "blue")[row % 2] for row in range(N)]).dictionary_encode(),
        "flag": pa.array([(True, False, None)[row % 3] for row in range(N)]),
        "day": pa.array([dt.date(2024, 1, 1 + row % 28) for row in range(N)]),
        "nothing": pa.nulls(N),
        "label": pa.array(DRAW.integers(0, 2, N)),
    }
)


def write(table: pa.Table, path: Path) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=150)
    elif path.suffix == ".feather":
        feather.write_feather(table, path, chunksize=150)
    elif path.suffix == ".arrows":
        with pa.ipc.new_stream(path, table.schema) as stream:
            stream.write_table(table, max_chunksize=150)
    else:
        sink = pa.BufferOutputStream()
        pa_csv.write_csv(table, sink)
        data = sink.getvalue().to_pybytes()
        if path.suffix == ".gz":
            half = len(data) // 2
            data = gzip.compress(data[:half]) + gzip.compress(data[half:])  # as `cat a.gz b.gz` makes them
        elif path.suffix == ".zst":
            half = len(data) // 2
            data = b"".join(pa.compress(part, "zstd", asbytes=True) for part in (data[:half], data[half:]))
        path.write_bytes(data)
    return path


def read(path: Path | None = None, *, needs_label: bool = True, **settings: Any) -> Table:
    return read_table(Data(path=path, **settings), id_form="text", needs_label=needs_label, party="lab")


@pytest.fixture(scope="module")
def as_csv(tmp_path_factory: pytest.TempPathFactory) -> Table:
    return read(write(TYPED, tmp_path_factory.mktemp("csv") / "table.csv"))


@pytest.mark.parametrize("suffix", ["csv.gz", "csv.zst", "parquet", "feather", "arrows"])
def test_every_format_is_the_same_table(suffix: str, as_csv: Table, tmp_path: Path) -> None:
    path = write(TYPED, tmp_path / f"table.{suffix}")
    assert read(path).digest() == as_csv.digest()
    renamed = path.rename(tmp_path / "table.bin")  # the name of a file says nothing
    assert read(renamed).digest() == as_csv.digest()


def test_a_table_in_memory_is_the_same_table(as_csv: Table) -> None:
    data = Data(path=Path("memory"))
    for table in (TYPED, TYPED.to_reader(max_chunksize=77)):
        with closing(ArrowReader(table, source="lab: table")) as reader:
            text = columns_for(reader, data, id_form="text", needs_label=True, party="lab")
        built = table_of(text, data, id_form="text", needs_label=True, party="lab")
        assert built.digest() == as_csv.digest()


def test_what_the_table_is(as_csv: Table) -> None:
    assert list(as_csv.ids)[:2] == [f"text:{id_}".encode() for id_ in TYPED["id"].to_pylist()[:2]]  # beyond 2**53, exactly
    numeric = [name for name, column in as_csv.columns.items() if isinstance(column, NumericColumn)]
    assert numeric == ["whole", "real", "small", "price", "nothing"]
    levels = {name: column.levels for name, column in as_csv.columns.items() if isinstance(column, CategoricalColumn)}
    assert (levels["kind"], levels["colour"], levels["flag"]) == (("north", "süd"), ("blue", "red"), ("false", "true"))
    day = as_csv.columns["day"]
    assert isinstance(day, DateColumn)
    assert day.seconds[0] == 1_704_067_200  # 2024-01-01
    assert as_csv.columns["real"].values.tolist() == pytest.approx(  # type: ignore[union-attr]
        [np.nan if value is None else value for value in TYPED["real"].to_pylist()], nan_ok=True, abs=0
    )


def test_declared_kinds_of_typed_columns(tmp_path: Path) -> None:
    columns = {"whole": "categorical", "price": "categorical", "small": "ignore", "kind": "ignore"}
    settings = {"columns": columns, "needs_label": False}
    typed = read(write(TYPED, tmp_path / "table.parquet"), **settings)
    assert isinstance(typed.columns["whole"], CategoricalColumn)
    assert "small" not in typed.columns
    assert all("." not in level or not level.endswith("0") for level in typed.columns["price"].levels)  # type: ignore[union-attr]
    with pytest.raises(DataError, match=r"table.parquet:row 1:flag: text in numeric column 'flag'") as caught:
        read(tmp_path / "table.parquet", columns={"flag": "numeric"})
    assert caught.value.code == "E_NUMERIC"


@pytest.mark.parametrize(
    ("cells", "texts"),
    [
        (pa.array([712, -3, None]), ["712", "-3", None]),
        (pa.array([712.0, 0.1, -0.0, 1e20, float("nan")]), ["712", "0.1", "0", "1e+20", None]),
        (pa.array([1.5, 0.1], pa.float32()), ["1.5", "0.1"]),
        (pa.array([Decimal("1.50"), Decimal("700.00")]), ["1.5", "700"]),
        (pa.array([True, None]), ["true", None]),
        (pa.array([dt.date(2024, 1, 31)]), ["2024-01-31"]),
        (pa.array([dt.time(9, 30), dt.time(9, 30, 0, 500_000)]), ["09:30:00", "09:30:00.5"]),
        (pa.array([dt.datetime(2024, 1, 31, 9, 30)], pa.timestamp("ns")), ["2024-01-31T09:30:00"]),
        (pa.array([dt.datetime(2024, 1, 31, 9, 30)], pa.timestamp("s", "Europe/Berlin")), ["2024-01-31T09:30:00Z"]),
        (pa.array(["a", None, "a"]).dictionary_encode(), ["a", None, "a"]),
        (pa.array([10, 100, 1000]), ["10", "100", "1000"]),
    ],
)
def test_the_text_of_every_type(cells: pa.Array, texts: list[str | None]) -> None:
    assert text_of(cells).to_pylist() == texts
    values = numbers_of(cells)
    for text, value in zip(texts, values.tolist(), strict=True):
        assert value == pytest.approx(number(text or ""), nan_ok=True, rel=1e-6)


def test_decimals_with_a_comma() -> None:
    cells = pa.array(["1,5", "-2,25e3", "7", "1.5", "1.234,5", "1,2,3", ",", "NA", None])
    assert numbers_of(cells, ",").tolist() == pytest.approx([1.5, -2250, 7, *[np.inf] * 4, np.nan, np.nan], nan_ok=True)


def test_white_space_is_what_python_strips() -> None:
    assert {character for character in map(chr, range(0x110000)) if character.isspace()} == set(WHITE_SPACE)


@pytest.mark.parametrize(
    ("lines", "delimiter", "decimal"),
    [
        (["id,x\n", "a,1.5\n"], ",", "."),
        (["id;x;y\n", "a;1,5;2\n", "b;3,25;4\n"], ";", ","),
        (["id;x;y\n", "a;1.5;2,5\n"], ";", "."),  # as many with a comma as with a point
        (["id;x\n", "a;1,234\n", "b;2,345\n"], ";", "."),  # these may be thousands
        (["id;x\n", "a;1,234\n", "b;0,345\n"], ";", ","),
        (["id,x\n", 'a,"1,5"\n'], ",", "."),
        (["id\tnote\n", "a\tone, two; three\n"], "\t", "."),
        (["id|x\n", "a|1\n"], "|", "."),
        (["id\n", "a\n"], ",", "."),
        (["id;x,y\n", "a;1;2\n"], ",", "."),  # neither splits all rows alike
        (['"a;b",c\n', '"1;2",3\n'], ",", "."),
    ],
)
def test_how_a_csv_is_written(lines: list[str], delimiter: str, decimal: str) -> None:
    assert (delimiter_of(lines), decimal_of(lines, delimiter_of(lines))[0]) == (delimiter, decimal)


@pytest.mark.parametrize("delimiter", ["", ";;", '"', "\n", " ", "a", "1", ".", "-", "§"])
def test_what_cannot_separate_cells(delimiter: str) -> None:
    with pytest.raises(ValidationError):
        Data(path=Path("t.csv"), delimiter=delimiter)


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("decimal", [".", ","])
def test_dialects_are_the_same_table(delimiter: str, decimal: str, tmp_path: Path) -> None:
    rows = [(f"r{row}", row / 8, "a;b" if row % 2 else "c,d", row % 2) for row in range(40)]
    table = read(_written(tmp_path / "plain.csv", rows, ",", "."))
    path = _written(tmp_path / "other.csv", rows, delimiter, decimal)
    other = read(path, decimal=decimal) if delimiter == "," else read(path)
    assert other.digest() == table.digest()
    assert read(path, delimiter=delimiter, decimal=decimal).digest() == table.digest()


def _written(path: Path, rows: list[Any], delimiter: str, decimal: str) -> Path:
    lines = [delimiter.join(["id", "x", "kind", "label"])]
    lines += [delimiter.join([i, f'"{x}"'.replace(".", decimal), f'"{kind}"', str(label)]) for i, x, kind, label in rows]
    path.write_text("\n".join(lines))
    return path


def _document(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        archive.writestr("word/document.xml", "<document/>")


def _archive(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("table.csv", "id,x\n1,2\n")


def _sqlite(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("create table t (id)")
        database.commit()


WRONG: dict[str, tuple[Any, str, str]] = {
    "docx": (_document, "is a document of Office", "export it as CSV in UTF-8, or as Parquet"),
    "xls": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "is a document of an older Excel or Office", "export it as CSV"),
    "zip": (_archive, "is a ZIP archive", "unpack it"),
    "pdf": (b"%PDF-1.7\n", "is a PDF document", "export it as CSV"),
    "pickle": (pickle.dumps({"canary": 1}), "is a pickle of Python", "DataFrame.to_parquet"),
    "sqlite": (_sqlite, "is an SQLite database", "database: 'sqlite:///FILE'"),
    "json": (b'[{"id": "canary"}]', "is JSON", "export it as CSV"),
    "jsonl": (b'\n {"id": "canary"}\n', "is JSON", "export it as CSV"),
    "html": (b"<!DOCTYPE html><p>canary", "is a web page (HTML), perhaps of a log-in", "download the table itself"),
    "bz2": (b"BZh91AY", "is compressed by bzip2", "compress it by gzip or zstd"),
    "parquet in gzip": (gzip.compress(b"PAR1canary"), "is a Parquet file compressed by gzip", "decompress it"),
    "excel in gzip": (gzip.compress(b"PK\x03\x04....xl/workbook.xml"), "is an Excel workbook compressed by", "decompress it"),
    "UTF-16": ("id,x\n1,2\n".encode("utf-16"), "is UTF-16 or UTF-32, not UTF-8", "save the file as UTF-8"),
    "UTF-16 in gzip": (gzip.compress("id,x\n1,2\n".encode("utf-16")), "is UTF-16 or UTF-32", "save the file as UTF-8"),
    "numpy": (b"\x93NUMPY\x01", "is an array of NumPy", "write it as CSV or Parquet"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_format_is_named(name: str, tmp_path: Path) -> None:
    content, what, hint = WRONG[name]
    path = tmp_path / "table.csv"
    path.write_bytes(content) if isinstance(content, bytes) else content(path)
    for format in ("auto", "csv"):
        with pytest.raises(DataError) as caught:
            read(path, format=format)
        assert caught.value.message.startswith(f"lab: {path}: {what}")
        assert hint in caught.value.hint
        assert caught.value.code == ("E_CSV" if "UTF-16" in name else "E_FORMAT")
        assert "canary" not in str(caught.value)


def test_a_format_that_is_not_the_declared_one(tmp_path: Path) -> None:
    parquet, text = write(TYPED, tmp_path / "a"), write(TYPED, tmp_path / "b.parquet")
    for path, format, message, hint in (
        (text, "csv", "is a Parquet file, not CSV", "leave data.format out, or set it to parquet"),
        (text, "arrow", "is a Parquet file, not Arrow", "set it to parquet"),
        (parquet, "parquet", "is no Parquet file", "leave data.format out"),
        (parquet, "arrow", "is no Arrow file", "leave data.format out"),
    ):
        with pytest.raises(DataError) as caught:
            read(path, format=format)
        assert (caught.value.message, caught.value.code) == (f"lab: {path}: {message}", "E_FORMAT")
        assert hint in caught.value.hint
    assert read(text, format="parquet").digest() == read(parquet, format="csv").digest()


@pytest.mark.parametrize("suffix", ["csv.gz", "csv.zst", "parquet", "feather", "arrows"])
@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_a_damaged_file_is_an_error_of_the_data(suffix: str, damage: str, tmp_path: Path) -> None:
    path = write(TYPED, tmp_path / f"table.{suffix}")
    data = bytearray(path.read_bytes())
    if damage == "cut":
        del data[len(data) * 2 // 3 :]
    elif suffix == "parquet":
        data[4:4000] = bytes(3996)
    else:
        data[len(data) // 2 : len(data) // 2 + 800] = b"\xff" * 800
    path.write_bytes(data)
    if damage == "flipped" and suffix in ("feather", "arrows"):  # numbers have no checksum there, so that some pass
        with suppress(DataError):
            read(path)
        return
    with pytest.raises(DataError, match=str(path)) as caught:
        read(path)
    assert caught.value.code in ("E_CSV", "E_COLUMN", "E_ID", "E_LABEL", "E_NUMERIC")


def test_a_cut_file_is_said_to_be_cut(tmp_path: Path) -> None:
    for suffix in ("csv.gz", "csv.zst", "parquet", "feather"):
        path = write(TYPED, tmp_path / f"table.{suffix}")
        path.write_bytes(path.read_bytes()[:-200])
        with pytest.raises(DataError, match=r": is damaged or cut off") as caught:
            read(path)
        assert caught.value.code == "E_CSV"


@pytest.mark.parametrize(
    ("column", "message", "code"),
    [
        (pa.array([[1], [2]]), ": column 'x' is of the type list<", "E_COLUMN"),
        (pa.array([b"canary", b"\xff"]), ": column 'x' is of the type binary, which is not UTF-8 text", "E_COLUMN"),
        (pa.array([b"\xff" * 16, None], pa.binary(16)), ": column 'x' is of the type fixed_size_binary[16]", "E_COLUMN"),
        (pa.array([b"fine", b"can\0ary"]), ":row 2:x: holds NUL characters", "E_CSV"),
        (pa.array([{"canary": 1}, None]), ": column 'x' is of the type struct<", "E_COLUMN"),
        (pa.array(["fine", "can\0ary"]), ":row 2:x: holds NUL characters", "E_CSV"),
        (pa.array([1.0, float("-inf")]), ":row 2:x: an infinite number in numeric column 'x' (1 such cell of 2)", "E_NUMERIC"),
    ],
)
def test_a_typed_column_that_cannot_be_used(column: pa.Array, message: str, code: str, tmp_path: Path) -> None:
    path = write(pa.table({"id": ["a", "b"], "x": column}), tmp_path / "table.parquet")
    with pytest.raises(DataError) as caught:
        read(path, needs_label=False)
    assert message in caught.value.message
    assert caught.value.code == code
    assert code == "E_COLUMN" or "canary" not in str(caught.value)
    assert list(read(path, needs_label=False, columns={"x": "ignore"}).columns) == []


def test_ids_as_bytes_and_as_uuids_are_text(tmp_path: Path) -> None:
    marked = pa.array(["A1", "Ö2"])
    for bytes_ in (pa.binary(), pa.large_binary()):
        unmarked = write(pa.table({"id": marked.cast(bytes_), "x": [1.0, 2.0]}), tmp_path / "table.parquet")
        assert list(read(unmarked, needs_label=False).ids) == [b"text:A1", "text:Ö2".encode()]
    known = UUID("0f8fad5b-d9cb-469f-a165-70867728950e")
    uuids = write(pa.table({"id": pa.array([known.bytes], pa.uuid())}), tmp_path / "uuids.parquet")
    assert list(read(uuids, needs_label=False).ids) == [f"text:{known}".encode()]
    raw = write(pa.table({"id": pa.array([known.bytes], pa.binary(16))}), tmp_path / "raw.parquet")
    with pytest.raises(DataError, match=r"column 'id' is of the type fixed_size_binary\[16\]") as caught:
        read(raw, needs_label=False)
    assert caught.value.hint.startswith("make it text, such as the hexadecimal digits of an id, alike at all parties")


@pytest.mark.parametrize(
    "ids", [["9.007E+17"] * 3, ["900719925474099000"] * 2, ["9,007e17", "9,007e17"], pa.array([9007199254740993.0] * 2)]
)
def test_ids_that_a_spreadsheet_rounded_are_no_records_to_remove(tmp_path: Path, ids: Any) -> None:
    with pytest.raises(DataError, match=f"{len(ids) - 1} duplicate ids") as caught:
        read(write(pa.table({"id": ids}), tmp_path / "table.parquet"), needs_label=False)
    assert caught.value.hint.startswith(f"{len(ids) - 1} of them have an exponent, as in 1.2E+17, or zeros after 15 digits")
    assert "Remove no rows" in caught.value.hint


@pytest.mark.parametrize("id_", ["A1", "712", "100000000000000", "1234567890123456"])
def test_other_ids_that_occur_twice_are_to_be_removed(tmp_path: Path, id_: str) -> None:
    with pytest.raises(DataError) as caught:
        read(write(pa.table({"id": [id_, id_]}), tmp_path / "table.parquet"), needs_label=False)
    assert caught.value.hint.startswith("keep one row a record")


def test_text_that_is_not_utf8_in_a_typed_file(tmp_path: Path) -> None:
    bad = pa.Array.from_buffers(pa.string(), 2, pa.array([b"ok", b"\xff\xfe"]).buffers())
    path = write(pa.table({"id": ["a", "b"], "x": bad}), tmp_path / "table.parquet")
    with pytest.raises(DataError, match=r"table.parquet:x: is not UTF-8 text"):
        read(path, needs_label=False)


def test_places_in_a_table_without_lines(tmp_path: Path) -> None:
    path = write(pa.table({"id": ["a", "b", "a", "c"]}), tmp_path / "table.parquet")
    with pytest.raises(DataError, match=r"table.parquet:row 3:id: 1 duplicate ids \(rows 1 and 3\)"):
        read(path, needs_label=False)
    with pytest.raises(DataError, match=r"table.parquet: there is no column 'label' \(data.label\)"):
        read(path)
    empty = write(pa.table({"id": pa.array([], pa.string())}), tmp_path / "empty.parquet")
    with pytest.raises(DataError, match=r"empty.parquet: has no rows") as caught:
        read(empty, needs_label=False)
    assert caught.value.code == "E_EMPTY"


def test_white_space_and_spellings_of_missing_values_in_typed_text(tmp_path: Path) -> None:
    table = pa.table(
        {"id": [" a ", "b\u00a0", "c"], "x": ["1", " NA ", " 3"], "y": pa.array(["u ", " ", "u"]).dictionary_encode()}
    )
    built = read(write(table, tmp_path / "table.parquet"), needs_label=False)
    assert list(built.ids) == [b"text:a", b"text:b", b"text:c"]
    assert built.columns["x"].values.tolist() == pytest.approx([1, np.nan, 3], nan_ok=True)  # type: ignore[union-attr]
    assert built.columns["y"].codes.tolist() == [0, -1, 0]  # type: ignore[union-attr]


@pytest.mark.parametrize("dictionary", [True, False], ids=["dictionary", "plain"])
def test_text_that_repeats_is_the_same_from_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dictionary: bool) -> None:
    """Each different cell is read once where a cell takes few bytes in the file, and the columns are those of other files."""
    rows = 3000
    table = pa.table(
        {
            "id": [f"p{row}" for row in range(rows)],
            "text": pa.array(DRAW.choice(np.array(["u ", "u", " NA ", "v", "", None], object), rows), pa.string()),
            "number": pa.array(DRAW.choice(np.array([" 1", "1", "2.50", "1e3", "NA", None], object), rows), pa.large_string()),
        }
    )
    path = tmp_path / "table.parquet"
    pq.write_table(table, path, use_dictionary=dictionary, row_group_size=1000)
    built, plain = read(path, needs_label=False), read(write(table, tmp_path / "table.feather"), needs_label=False)
    asked: list[Any] = []
    opened = pq.ParquetFile

    def open_and_note(*args: Any, **options: Any) -> pq.ParquetFile:
        asked.append(options["read_dictionary"])
        return opened(*args, **options)

    monkeypatch.setattr(pq, "ParquetFile", open_and_note)
    read(path, needs_label=False)
    assert set(map(tuple, asked)) == {("text", "number") if dictionary else ()}
    assert list(built.ids) == list(plain.ids)
    for name, values_of in {"text": "codes", "number": "values"}.items():
        found, expected = (getattr(columns[name], values_of) for columns in (built.columns, plain.columns))
        np.testing.assert_array_equal(found, expected)
    assert built.columns["text"].levels == plain.columns["text"].levels == ("u", "v")  # type: ignore[union-attr]


def test_the_head_of_a_large_file_is_read_alone(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("id,x\n" + "".join(f"r{row},{row}\n" for row in range(300_000)) + "r1,too,many\n")
    with closing(READERS["auto"](path, party="lab")) as reader:
        assert next(reader.batches()).columns.num_rows < 50_000
    assert reader.format == "csv"


@pytest.mark.parametrize(
    ("suffix", "format"),
    [
        ("csv", "csv"),
        ("csv.gz", "csv in gzip"),
        ("csv.zst", "csv in zstd"),
        ("parquet", "parquet"),
        ("feather", "arrow"),
        ("arrows", "arrow"),
    ],
)
def test_a_check_says_what_it_read(suffix: str, format: str, tmp_path: Path) -> None:
    """The look at the start reads the first rows of every format; the kinds are those of the whole table."""
    data = Data(path=write(TYPED, tmp_path / f"table.{suffix}"))
    settings = Settings(name="lab", role="active", data=data, insecure_loopback=True)
    whole, head = check_table(settings), check_table(settings, rows=70)
    for checked, rows in ((whole, N), (head, 70)):
        assert (checked.errors, checked.format) == ((), format)
        assert checked.profile is not None
        assert (checked.profile.rows, checked.profile.whole) == (rows, rows == N)
        uses = {column.name: column.use for column in checked.profile.columns}
        assert [name for name, use in uses.items() if use == "numeric"] == ["whole", "real", "small", "price", "nothing"]
        assert (uses["id"], uses["label"]) == ("id", "label")


def test_a_check_says_how_a_csv_is_written(tmp_path: Path) -> None:
    path = _written(tmp_path / "t.csv", [(f"r{row}", row / 8, "a", row % 2) for row in range(60)], ";", ",")
    checked = check_table(Settings(name="lab", role="active", data=Data(path=path), insecure_loopback=True))
    assert checked.format == "csv, cells between semicolons, decimals with a comma"
