"""A folder of part files is one table, and whatever part does not fit is named."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from vfl_node.data.reading import read_table
from vfl_node.data.tables import CategoricalColumn, NumericColumn, Table
from vfl_node.errors import DataError
from vfl_node.settings.node import Data

IDS = [f"A{row}" for row in range(6)]


def read(path: Path, **settings: Any) -> Table:
    return read_table(Data(path=path, **settings), id_form="text", needs_label=False, party="lab")


def folder(tmp_path: Path, *parts: pa.Table, compression: str = "snappy") -> Path:
    """As Spark writes it."""
    path = tmp_path / "lab.parquet"
    path.mkdir()
    for number, part in enumerate(parts):
        pq.write_table(part, path / f"part-0000{number}.{compression}.parquet", compression=compression)
        (path / f".part-0000{number}.{compression}.parquet.crc").write_bytes(b"crc\0")
    (path / "_SUCCESS").touch()
    return path


def part(rows: slice, **columns: Any) -> pa.Table:
    ids = IDS[rows]
    return pa.table({"id": pa.array(ids, pa.string()), "x": [float(of[1:]) for of in ids], **columns})


@pytest.mark.parametrize("compression", ["snappy", "zstd"])
def test_parts_of_parquet_are_one_table(tmp_path: Path, compression: str) -> None:
    some = [part(slice(0, 2)), part(slice(0, 0)).cast(part(slice(0, 1)).schema), part(slice(2, 6)).select(["x", "id"])]
    table = read(folder(tmp_path, *some, compression=compression))
    assert [id_.decode() for id_ in table.ids] == [f"text:{of}" for of in IDS]
    column = table.columns["x"]
    assert isinstance(column, NumericColumn)
    assert column.values.tolist() == [0, 1, 2, 3, 4, 5]


def test_parts_of_csv_may_be_empty_and_agree_on_decimals(tmp_path: Path) -> None:
    (tmp_path / "part-0.csv").write_text("id;x\nA0;1\nA1;2\n")
    (tmp_path / "part-1.csv").touch()
    (tmp_path / "part-2.csv").write_text("id;x\n")
    (tmp_path / "part-3.csv.gz").write_bytes(gzip.compress(b"id;x\nA2;2,5\nA3;\n"))
    column = read(tmp_path).columns["x"]
    assert isinstance(column, NumericColumn)
    assert column.values.tolist()[:3] == [1, 2, 2.5]


def test_text_that_repeats_in_one_part_alone_is_of_one_kind(tmp_path: Path) -> None:
    """It is read by its different values there, and as written text of any length in the other part, as pandas writes it."""
    rows, towns = 1000, [f"town {row}" for row in range(1000)]
    path = tmp_path / "parts"
    path.mkdir()
    for number, cells in enumerate((["Berlin", "Paris"] * (rows // 2), towns)):
        ids = pa.array([f"{number}-{row}" for row in range(rows)], pa.large_string())
        pq.write_table(pa.table({"id": ids, "town": pa.array(cells, pa.large_string())}), path / f"{number}.parquet")
    column = read(path).columns["town"]
    assert isinstance(column, CategoricalColumn)
    assert column.levels == tuple(sorted(["Berlin", "Paris", *towns]))


@pytest.mark.parametrize(("decimals", "values"), [("0,5", [1.234, 2.345]), ("0.5", [1234, 2345])])
def test_a_part_with_decimals_tells_thousands_from_decimals_in_all(tmp_path: Path, decimals: str, values: list[float]) -> None:
    (tmp_path / "1.csv").write_text(f"id;x;y\na;1,234;{decimals}\n")
    (tmp_path / "2.csv").write_text("id;x;y\nb;2,345;7\n")
    column = read(tmp_path).columns["x"]
    assert isinstance(column, NumericColumn)
    assert column.values.tolist() == values
    (tmp_path / "1.csv").write_text("id;x;y\na;1,234;5\n")
    with pytest.raises(DataError, match="the numbers of column 'x' can be read") as refused:
        read(tmp_path)
    assert refused.value.code == "E_NUMERIC"


def test_categories_with_codes_of_another_width(tmp_path: Path) -> None:
    names = pa.array(["red", "blue"])
    wide = pa.DictionaryArray.from_arrays(pa.array([1, 0], pa.int16()), names)
    narrow = pa.DictionaryArray.from_arrays(pa.array([0, 0], pa.int8()), names)
    column = read(folder(tmp_path, part(slice(0, 2), kind=narrow), part(slice(2, 4), kind=wide))).columns["kind"]
    assert isinstance(column, CategoricalColumn)
    assert [column.levels[code] for code in column.codes] == ["red", "red", "blue", "red"]


@pytest.mark.parametrize(
    ("second", "said"),
    [
        (part(slice(2, 4), y=[1, 2]), "part-00001.snappy.parquet: has other columns than part-00000.snappy.parquet"),
        (
            part(slice(2, 4)).set_column(1, "x", pa.array(["1", "canary"])),
            "part-00001.snappy.parquet: column 'x' is of the type string, and of double in the parts before",
        ),
    ],
)
def test_a_part_that_is_not_like_the_others_is_named(tmp_path: Path, second: pa.Table, said: str) -> None:
    with pytest.raises(DataError) as caught:
        read(folder(tmp_path, part(slice(0, 2)), second))
    assert said in caught.value.message
    assert caught.value.code == "E_COLUMN"
    assert "canary" not in str(caught.value)


def test_places_count_the_rows_of_all_parts(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"lab.parquet:row 3:id: 1 duplicate ids \(rows 1 and 3\)"):
        read(folder(tmp_path, part(slice(0, 2)), part(slice(0, 1))))


def test_a_folder_that_is_no_table_is_refused(tmp_path: Path) -> None:
    empty = folder(tmp_path)
    with pytest.raises(DataError, match="is a folder without part files") as caught:
        read(empty)
    assert caught.value.code == "E_FILE"
    (empty / "year=2024").mkdir()
    with pytest.raises(DataError, match=r"has a folder in it, year=2024, and not part files alone") as caught:
        read(empty)
    assert "data.query" in caught.value.hint
    (empty / "year=2024").rmdir()
    for log in ("_delta_log", ".hoodie"):
        (empty / log).mkdir()
        with pytest.raises(DataError, match="whose files also have rows of older versions") as caught:
            read(empty)
        assert caught.value.code == "E_FORMAT"
        (empty / log).rmdir()
    (empty / "part-0.csv").touch()
    with pytest.raises(DataError, match="has no rows") as caught:
        read(empty)
    assert caught.value.code == "E_EMPTY"
