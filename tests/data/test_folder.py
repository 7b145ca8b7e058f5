"""A folder of part files is one table, and whatever part does not fit is named."""

from __future__ import annotations

import gzip
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.thorough import examples
from vfl_node.data.readers.opening import open_auto
from vfl_node.data.readers.parts import is_table
from vfl_node.data.reading import read_table
from vfl_node.data.tables import CategoricalColumn, NumericColumn, Table
from vfl_node.errors import DataError
from vfl_node.settings.node import Data

IDS = [f"A{row}" for row in range(6)]


def read(path: Path, **said: Any) -> Table:
    return read_table(Data(path=path, **said), id_form="text", needs_label=False, party="lab")


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
        (
            part(slice(2, 4), y=[1, 2]),
            "part-00001.snappy.parquet: has a column 'y', which part-00000.snappy.parquet lacks",
        ),
        (
            part(slice(2, 4)).select(["id"]),
            "part-00001.snappy.parquet: has no column 'x', which part-00000.snappy.parquet has",
        ),
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


def test_places_name_the_part_and_its_row_or_line(tmp_path: Path) -> None:
    first, second = "part-00000.snappy.parquet", "part-00001.snappy.parquet"
    with pytest.raises(DataError) as caught:
        read(folder(tmp_path, part(slice(0, 2)), part(slice(1, 3))))
    assert caught.value.message == (
        f"lab: {tmp_path}/lab.parquet/{second}:row 1:id: 1 duplicate ids (rows {first}:2 and {second}:1)"
    )
    (tmp_path / "1.csv").write_text("id,x\nA,1\nB,2\n")
    (tmp_path / "2.csv").write_text('id,x\n\nC,"3"\nD,oops\n')
    with pytest.raises(DataError) as caught:
        read(tmp_path / "?.csv", columns={"x": "numeric"})
    assert caught.value.message == f"lab: {tmp_path}/2.csv:4:x: text in numeric column 'x' (1 such cell of 4)"
    with pytest.raises(DataError) as caught:
        read(tmp_path / "?.csv", label="x", id="who")
    assert caught.value.message == f"lab: {tmp_path}/1.csv:1: there is no column 'who' (data.id)"


def test_rows_of_records_from_several_parts(tmp_path: Path) -> None:
    """Their places are counted over all parts, as a record may be of several."""
    (tmp_path / "1.csv").write_text("id,x\nA,1\nB,2\n")
    (tmp_path / "2.csv").write_text("id,x\nA,1\nC,2\n")
    table = read(tmp_path, aggregate={"columns": {"x": ["sum"]}})
    assert len(table) == 3
    (tmp_path / "2.csv").write_text("id,x\nA,3\nC,2\n")
    with pytest.raises(DataError, match=r"the first of such rows is in line 1.csv:2"):
        read(tmp_path, aggregate={"rows": "visits", "columns": {}}, group="x")


def test_a_part_without_names_in_its_first_line_shows_none_of_its_cells(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("id,x,y\ncanary-1,1,2\n")
    (tmp_path / "2.csv").write_text("canary-2,3,4\ncanary-3,5,6\n")
    for text, said in (
        ("canary-2,3,4\n", "2.csv: has other columns than 1.csv: it lacks column 1"),
        ("id,x,y,canary,canary2,canary3\n", "2.csv: has other columns than 1.csv: it alone has its column 4"),
        ("id,x,y,z\n", "2.csv: has a column 'z', which 1.csv lacks"),
        ("id,x\n", "2.csv: has no column 'y', which 1.csv has"),
        ("id,x,7\n", "2.csv: has other columns than 1.csv: it lacks column 3"),
    ):
        (tmp_path / "2.csv").write_text(text + "canary-9,1,2\n")
        with pytest.raises(DataError) as caught:
            read(tmp_path)
        assert caught.value.message == f"lab: {tmp_path}/{said}"
        assert caught.value.code == "E_COLUMN"


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


def write_parts(folder: Path, table: pa.Table, cuts: list[int], suffix: str) -> None:
    """The rows of ``table`` in files whose names are in the order of the rows, with files between that are no parts."""
    for number, (start, end) in enumerate(pairwise([0, *cuts, len(table)])):
        part = table.slice(start, end - start)
        if suffix == "csv":
            pa.csv.write_csv(part, folder / f"part-{number:03}.csv")
        else:
            pq.write_table(part, folder / f"part-{number:03}.parquet")
    for name in ("_SUCCESS", ".part-000.crc", "_part-000.csv", ".part-001.parquet"):
        (folder / name).write_bytes(b"\0")


@settings(deadline=None, derandomize=True, max_examples=examples(100, fewer=20))
@given(
    cells=st.lists(
        st.tuples(st.none() | st.floats(-1e9, 1e9), st.none() | st.sampled_from(["red", "blue, or", "ж"])),
        min_size=1,
        max_size=40,
    ),
    cuts=st.lists(st.integers(0, 40), max_size=6),
    suffix=st.sampled_from(["csv", "parquet"]),
)
def test_the_digest_of_parts_is_that_of_one_file_with_the_same_rows(
    cells: list[Any], cuts: list[int], suffix: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("parts")
    columns = {"id": [f"号{row}" for row in range(len(cells))], "x": [x for x, _ in cells], "kind": [kind for _, kind in cells]}
    table = pa.table(columns, schema=pa.schema({"id": pa.string(), "x": pa.float64(), "kind": pa.string()}))
    write_parts(folder, table, sorted(min(cut, len(cells)) for cut in cuts), suffix)
    pa.csv.write_csv(table, folder.with_suffix(".csv"))
    digests = {read(path).digest() for path in (folder.with_suffix(".csv"), folder, folder / "part-*", folder / f"*.{suffix}")}
    assert len(digests) == 1


def test_a_pattern_may_be_of_folders_and_a_name_with_its_signs_is_a_file_first(tmp_path: Path) -> None:
    for month in ("01", "02"):
        (tmp_path / "[lab]" / f"month={month}").mkdir(parents=True)
        (tmp_path / "[lab]" / f"month={month}" / "part-0.csv").write_text(f"id\n{month}\n")
    assert list(read(tmp_path / "[lab]" / "month=*" / "part-*.csv").ids) == [b"text:01", b"text:02"]
    (tmp_path / "[lab]" / "*.csv").write_text("id\nx\n")
    assert list(read(tmp_path / "[lab]" / "*.csv").ids) == [b"text:x"]


def test_a_pattern_that_is_no_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "_part-0.csv").write_text("id\n1\n")
    for pattern in ("part-*.csv", "*", "none/*.csv"):
        with pytest.raises(DataError, match="is a folder without part files, or a pattern that no file fits") as caught:
            read(tmp_path / pattern)
        assert caught.value.code == "E_FILE"
        assert not is_table(tmp_path / "part-*.csv")
    (tmp_path / "part-0.csv").write_text("id\n1\n")
    assert is_table(tmp_path / "part-*.csv")
    (tmp_path / "part-1").mkdir()
    with pytest.raises(DataError, match=r"has a folder in it, part-1, and not part files alone"):
        read(tmp_path / "part-*")
    (tmp_path / "_delta_log").mkdir()
    with pytest.raises(DataError, match="is a table of Delta Lake"):
        read(tmp_path / "part-*.csv")


def change(path: Path) -> None:
    path.write_text("id,x\nB,200\n")


CHANGES: dict[str, tuple[Any, str]] = {
    "changed": (lambda path: change(path / "2.csv"), "the part 2.csv changed while the table was read"),
    "new": (lambda path: change(path / "3.csv"), "the part 3.csv is new while the table was read"),
    "gone": (lambda path: (path / "1.csv").unlink(), "the part 1.csv was removed while the table was read"),
    "hidden": (lambda path: change(path / "_3.csv"), ""),
}


@pytest.mark.parametrize("name", ["", "*.csv"])
@pytest.mark.parametrize("what", CHANGES)
def test_parts_that_change_while_they_are_read_are_refused(tmp_path: Path, name: str, what: str) -> None:
    (tmp_path / "1.csv").write_text("id,x\nA,1\n")
    (tmp_path / "2.csv").write_text("id,x\nB,2\n")
    act, said = CHANGES[what]
    for when in ("between two readings", "in one"):
        with closing(open_auto(tmp_path / name, party="lab")) as reader:
            rows = reader.batches()
            if when == "in one":
                next(rows)
            act(tmp_path)
            if not said:
                assert sum(batch.columns.num_rows for batch in rows) == 2 - (when == "in one")
                continue
            with pytest.raises(DataError) as caught:
                list(rows)
            assert (caught.value.code, caught.value.hint) == ("E_CSV", "begin again")
            assert caught.value.message == f"lab: {tmp_path / name}: {said}"
        (tmp_path / "1.csv").write_text("id,x\nA,1\n")
        (tmp_path / "2.csv").write_text("id,x\nB,2\n")
        (tmp_path / "3.csv").unlink(missing_ok=True)
