"""Columns as people write them: a file with signs, words and other dates gives what the clean one gives, by every reader."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from vfl_node.data.features import Encoder
from vfl_node.data.readers.arrow import ArrowReader
from vfl_node.data.reading import read_table
from vfl_node.data.tables import CategoricalColumn, DateColumn, NumericColumn, Table
from vfl_node.errors import DataError
from vfl_node.settings.node import Data

ROWS = 400
DRAW = random.Random(5)
AMOUNTS = [DRAW.randrange(20, 3_000_000) for _ in range(ROWS)]
DECIMALS = [DRAW.randrange(-90_000, 90_000) / 100 for _ in range(ROWS)]
DAYS = [dt.date(2020, 1, 1) + dt.timedelta(days=DRAW.randrange(900)) for _ in range(ROWS)]
GAPS = [DRAW.random() < 0.12 for _ in range(ROWS)]


def with_gaps(word: str, cells: list[Any] = AMOUNTS) -> list[str]:
    return [word if gap else str(cell) for gap, cell in zip(GAPS, cells, strict=True)]


def european(number: float) -> str:
    return f"{number:,.2f}".translate(str.maketrans(",.", ".,"))


SENTINEL = [9999 if gap else row % 80 for row, gap in enumerate(GAPS)]

WORDS = [
    "NULL",
    "null",
    r"\N",
    "#N/A",
    "n/a",
    "<NA>",
    ".",
    "-",
    "none",
    "NaT",
    "missing",
    "Missing",
    "NAN",
    "#DIV/0!",
    "–",
    "0000-00-00",
]

KINDS: dict[str, tuple[list[str], list[str]]] = {
    **{f"numbers and {word}": (with_gaps(word), with_gaps("")) for word in WORDS},
    **{f"dates and {word}": (with_gaps(word, DAYS), with_gaps("", DAYS)) for word in WORDS},
    "dollars": ([f"${x:,}" for x in AMOUNTS], list(map(str, AMOUNTS))),
    "thousands": ([f"{x:,}" for x in AMOUNTS], list(map(str, AMOUNTS))),
    "thousands by spaces": ([f"{x:,}".replace(",", "\u202f") for x in AMOUNTS], list(map(str, AMOUNTS))),
    "thousands by apostrophes": ([f"CHF {x:,}".replace(",", "’") for x in AMOUNTS], list(map(str, AMOUNTS))),
    "thousands and decimals": ([f"{x:,.2f}" for x in DECIMALS], list(map(str, DECIMALS))),
    "percent": ([f"{x}%" for x in DECIMALS], list(map(str, DECIMALS))),
    "a percent apart, and a bare zero": ([f"{x} %" for x in DECIMALS] + ["0"], [*map(str, DECIMALS), "0"]),
    "a unit": ([f"{x} EUR" for x in AMOUNTS], list(map(str, AMOUNTS))),
    "a unit without a space": ([f"{x}kg" for x in DECIMALS], list(map(str, DECIMALS))),
    "brackets for minus": ([f"({-x:,})" if x < 0 else f"{x:,}" for x in DECIMALS], list(map(str, DECIMALS))),
    "a currency and brackets": ([f"$({-x:,})" if x < 0 else f"${x:,}" for x in DECIMALS], list(map(str, DECIMALS))),
    "a minus at the end": ([f"{-x}-" if x < 0 else str(x) for x in DECIMALS], list(map(str, DECIMALS))),
    "hundreds of thousands, as in India": (
        ["12,34,567", "1,23,456", "12,345", "999"] * 30,
        ["1234567", "123456", "12345", "999"] * 30,
    ),
    "exponents after a comma": ([f"{x:.3E}".replace(".", ",") for x in DECIMALS], [f"{x:.3E}" for x in DECIMALS]),
    "a minus of Unicode": ([str(x).replace("-", "−") for x in DECIMALS], list(map(str, DECIMALS))),
    **{
        f"dates as {form}": ([day.strftime(form) for day in DAYS], list(map(str, DAYS)))
        for form in (
            "%d/%m/%Y",
            "%d.%m.%Y",
            "%m/%d/%Y",
            "%Y/%m/%d",
            "%d-%b-%Y",
            "%-d/%-m/%Y",
            "%d %B %Y",
            "%Y-%-m-%-d",
            "%B %-d, %Y",
        )
    },
    "times and UTC": ([f"{day} 10:00:00 UTC" for day in DAYS], [f"{day}T10:00:00Z" for day in DAYS]),
    "dates with Sept": ([day.strftime("%d-%b-%Y").replace("Sep", "Sept") for day in DAYS], list(map(str, DAYS))),
    "dates with a point": ([day.strftime("%d %b. %Y").upper() for day in DAYS], list(map(str, DAYS))),
    "American dates": ([day.strftime("%b. %d, %Y") for day in DAYS], list(map(str, DAYS))),
    "times": (
        [f"{day:%m/%d/%Y} {1 + k % 12}:05 {'AP'[k % 2]}M" for k, day in enumerate(DAYS)],
        [f"{day}T{(1 + k % 12) % 12 + 12 * (k % 2):02}:05" for k, day in enumerate(DAYS)],
    ),
}


def quoted(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"'


def by_csv(folder: Path, cells: list[str], **settings: Any) -> Table:
    path = folder / "table.csv"
    path.write_text("id,v\n" + "".join(f"k{row},{quoted(cell)}\n" for row, cell in enumerate(cells)))
    return read_table(Data(path=path, **settings), id_form="text", needs_label=False, party="lab")


def in_arrow(cells: list[str]) -> pa.Table:
    return pa.table({"id": [f"k{row}" for row in range(len(cells))], "v": pa.array(cells, pa.string())})


def by_parquet(folder: Path, cells: list[str], **settings: Any) -> Table:
    path = folder / "table.parquet"
    pq.write_table(in_arrow(cells), path)
    return read_table(Data(path=path, **settings), id_form="text", needs_label=False, party="lab")


def from_memory(folder: Path, cells: list[str], **settings: Any) -> Table:
    data = Data(path=folder, **settings)
    reader = ArrowReader(in_arrow(cells), source="lab: the table in memory")
    return read_table(data, id_form="text", needs_label=False, party="lab", reader=reader)


def by_query(folder: Path, cells: list[str], **settings: Any) -> Table:
    path = folder / "queried.parquet"
    pq.write_table(in_arrow(cells), path)
    data = Data(query=f"select * from '{path}'", **settings)
    return read_table(data, id_form="text", needs_label=False, party="lab")


Reading = Callable[..., Table]
READERS: dict[str, Reading] = {"csv": by_csv, "parquet": by_parquet, "memory": from_memory, "query": by_query}


def encoded(table: Table) -> tuple[bytes, bytes, tuple[int, ...]]:
    features = Encoder.fit(table, np.arange(len(table))).transform(table)
    return features.numeric.tobytes(), features.categorical.tobytes(), features.cardinalities


@pytest.mark.parametrize("kind", KINDS)
def test_a_column_is_what_it_is_without_its_signs(kind: str, tmp_path: Path) -> None:
    dirty, clean = KINDS[kind]
    expected = by_csv(tmp_path, clean)
    assert not isinstance(expected.columns["v"], CategoricalColumn)
    for read in (by_csv, from_memory):
        assert encoded(read(tmp_path, dirty)) == encoded(expected)


def alone(cells: list[str]) -> list[str]:
    """Many of the cells, each several times."""
    return cells * math.ceil(120 / len(cells))


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", ["numbers and NULL", "dates and -", "thousands and decimals", "percent", "dates as %d.%m.%Y"])
def test_every_reader_reads_the_same(reader: str, kind: str, tmp_path: Path) -> None:
    dirty, clean = KINDS[kind]
    assert encoded(READERS[reader](tmp_path, dirty)) == encoded(READERS[reader](tmp_path, clean))


@pytest.mark.parametrize("reader", ["parquet", "memory", "query"])
def test_numbers_that_can_be_read_in_two_ways_are_refused_until_their_owner_says_which(reader: str, tmp_path: Path) -> None:
    cells = alone(["1,234", "12,500", "999"])
    with pytest.raises(DataError) as refused:
        READERS[reader](tmp_path, cells)
    assert refused.value.code == "E_NUMERIC"
    assert refused.value.message.endswith(
        "the numbers of column 'v' can be read in two ways: with ',' between thousands and '.' before decimals, or with "
        "nothing between thousands and ',' before decimals"
    )
    assert "data.columns: {v: {kind: numeric, thousands: ','}}, or decimal: ','; data.thousands" in refused.value.hint
    assert "1,234" not in str(refused.value) + refused.value.for_peer
    said: list[tuple[dict[str, Any], float]] = [
        ({"thousands": ","}, 1234),
        ({"columns": {"v": {"kind": "numeric", "thousands": ","}}}, 1234),
        ({"columns": {"v": {"kind": "numeric", "decimal": ","}}, "thousands": ","}, 1.234),
    ]
    for settings, first in said:
        column = READERS[reader](tmp_path, cells, **settings).columns["v"]
        assert isinstance(column, NumericColumn)
        assert column.values[:3].tolist() == [first, 12500 if first > 2 else 12.5, 999]


def numbers(table: Table) -> list[float]:
    column = table.columns["v"]
    assert isinstance(column, NumericColumn)
    return column.values.tolist()


def test_where_commas_separate_cells_they_separate_thousands(tmp_path: Path) -> None:
    assert numbers(by_csv(tmp_path, alone(["1,234", "999"])))[:2] == [1234, 999]
    assert numbers(by_csv(tmp_path, alone(["1,23", "999"])))[:2] == [1.23, 999]  # no thousands
    assert numbers(by_csv(tmp_path, alone(["1,234", "12345"])))[:2] == [1234, 12345]


@pytest.mark.parametrize(
    ("cells", "read"),
    [
        (["1.234,5", "7"], [1234.5, 7]),
        (["1.234 EUR", "1.234.567 EUR"], [1234, 1234567]),
        (["1,234 EUR", "0,5 EUR"], [1.234, 0.5]),
        (["-$1,234.50", "$-7"], [-1234.5, -7]),
        (["US$ 5", "US$ 1e3"], [5, 1000]),
        (["10 m²", "20 m²"], [10, 20]),
        (["12 %", "−3 %"], [12, -3]),
        (["0,123", "1,234"], [0.123, 1.234]),
    ],
)
def test_one_cell_may_decide(cells: list[str], read: list[float], tmp_path: Path) -> None:
    assert numbers(from_memory(tmp_path, alone(cells)))[:2] == read


@pytest.mark.parametrize(
    "cells",
    [
        ["1st", "2nd", "3rd"],
        ["12 kg", "500 g"],
        ["10-19", "20-29"],
        ["5 kg", "5"],
        ["1,2,3", "2,3,4"],
        ["192.168.1.1", "10.0.0.12"],
        ["12:30", "9:15"],
        ["T1", "T2"],
        ["2024_01", "2024_02"],
        ["north", "1,234"],
        ["none", "missing"],
        ["1/2", "3/4"],
    ],
)
def test_other_texts_stay_categories(cells: list[str], tmp_path: Path) -> None:
    column = from_memory(tmp_path, alone(cells)).columns["v"]
    assert isinstance(column, CategoricalColumn)
    assert column.levels == tuple(sorted(cells))


def test_words_that_may_be_a_category_are_one_among_texts(tmp_path: Path) -> None:
    column = from_memory(tmp_path, ["none", "-", "unknown", "red", "NULL", "<NA>", r"\N", "nat"]).columns["v"]
    assert isinstance(column, CategoricalColumn)
    assert column.levels == ("-", "none", "red", "unknown")
    assert column.codes.tolist() == [1, 0, 3, 2, -1, -1, -1, -1]


@pytest.mark.parametrize("of", [1, 50])
@pytest.mark.parametrize("word", ["inf", "-Infinity", "1e999"])
def test_infinite_numbers_are_refused_at_every_share_unless_they_are_missing_values(of: int, word: str, tmp_path: Path) -> None:
    cells = [word] * of + [str(x) for x in AMOUNTS[of:200]]
    for read in (by_csv, from_memory):
        with pytest.raises(DataError, match=f"an infinite number in numeric column 'v' \\({of} such cells? of 200") as refused:
            read(tmp_path, cells)
        assert (refused.value.code, "data.missing: [inf]" in refused.value.hint) == ("E_NUMERIC", True)
        assert np.isnan(numbers(read(tmp_path, cells, missing=["inf"]))).sum() == of
    typed = pa.table({"id": [f"k{row}" for row in range(200)], "v": [float(cell) for cell in cells]})
    reader = ArrowReader(typed, source="lab")
    table = read_table(Data(path=tmp_path, missing="inf"), id_form="text", needs_label=False, party="lab", reader=reader)
    assert np.isnan(numbers(table)).sum() == of


def test_an_owner_has_words_of_its_own(tmp_path: Path) -> None:
    cells = [*map(str, AMOUNTS[:90]), "-9", "-9.0", *["not asked"] * 8]
    for settings in ({"missing": ["not asked", -9]}, {"columns": {"v": {"kind": "numeric", "missing": ["Not Asked", "-9"]}}}):
        assert np.isnan(numbers(by_csv(tmp_path, cells, **settings))).sum() == 10
    dates = by_csv(tmp_path, [*map(str, DAYS[:90]), *["not asked"] * 10], missing="not asked").columns["v"]
    assert isinstance(dates, DateColumn)
    assert np.isnan(dates.seconds).sum() == 10
    declared = {"v": {"kind": "categorical", "missing": ["none"]}}
    far = [*map(str, DAYS[:90]), *["9999-12-31"] * 10]
    for read, cells in ((by_csv, far), (from_memory, [f"{day}T00:00:00" for day in far])):
        for word in ("9999-12-31", dt.date(9999, 12, 31)):  # YAML makes a date of it
            column = read(tmp_path, cells, columns={"v": {"kind": "date", "missing": [word]}}).columns["v"]
            assert isinstance(column, DateColumn)
            assert np.isnan(column.seconds).sum() == 10
    colours = by_csv(tmp_path, ["red", "none", "blue"], columns=declared).columns["v"]
    assert isinstance(colours, CategoricalColumn)
    assert (colours.levels, colours.codes.tolist()) == (("blue", "red"), [1, -1, 0])


@pytest.mark.parametrize("reader", ["csv", "query"])
def test_dates_of_which_no_day_is_above_12_are_refused_until_their_owner_says_the_order(reader: str, tmp_path: Path) -> None:
    read = READERS[reader]
    cells = alone(["01/02/2020", "03/04/2021", "11/12/2019"])
    with pytest.raises(DataError) as refused:
        read(tmp_path, cells)
    assert refused.value.code == "E_DATE"
    assert refused.value.message.endswith("the dates of column 'v' can be read as d/m/Y, or as m/d/Y")
    assert "{v: {kind: date, date_format: d/m/Y}}, or m/d/Y; data.date_format says it of all columns" in refused.value.hint
    said: list[tuple[dict[str, Any], str]] = [
        ({"date_format": "d/m/Y"}, "2020-02-01"),
        ({"date_format": "%m/%d/%Y"}, "2020-01-02"),
        ({"columns": {"v": {"kind": "date", "date_format": "m/d/Y"}}, "date_format": "d/m/Y"}, "2020-01-02"),
    ]
    for settings, day in said:
        column = read(tmp_path, cells, **settings).columns["v"]
        assert isinstance(column, DateColumn)
        assert column.seconds[0] == np.datetime64(day, "s").astype(np.int64)
    decided = read(tmp_path, [*cells, "13/02/2020"]).columns["v"]
    assert isinstance(decided, DateColumn)
    assert decided.seconds[0] == np.datetime64("2020-02-01", "s").astype(np.int64)
    same = read(tmp_path, alone(["01/01/2020", "02/02/2020"])).columns["v"]  # one date either way
    assert isinstance(same, DateColumn)


def test_dates_without_end_are_refused_unless_they_are_missing_values(tmp_path: Path) -> None:
    for kind, last in ((pa.timestamp("us"), 2**63 - 1), (pa.timestamp("us", "UTC"), 1 - 2**63), (pa.date32(), 2**31 - 1)):
        day = 1 if pa.types.is_date32(kind) else 86_400_000_000
        moments = pa.array([last if gap else row * day for row, gap in enumerate(GAPS)], pa.int32() if day == 1 else pa.int64())
        typed = pa.table({"id": [f"k{row}" for row in range(ROWS)], "v": moments.cast(kind)})
        pq.write_table(typed, tmp_path / "table.parquet")
        data = Data(path=tmp_path / "table.parquet")
        with pytest.raises(DataError, match=f"not a date in date column 'v' \\({sum(GAPS)} such cells of 400"):
            read_table(data, id_form="text", needs_label=False, party="lab")
        said = data.model_copy(update={"missing": ("inf",)})
        column = read_table(said, id_form="text", needs_label=False, party="lab").columns["v"]
        assert isinstance(column, DateColumn)
        assert np.isnan(column.seconds).tolist() == GAPS


def test_dates_of_two_years_digits_or_without_a_sign_are_declared(tmp_path: Path) -> None:
    for form, cells in (("d-b-y", ["01-Feb-20", "31-DEC-68"]), ("Ymd", ["20200201", "20681231"])):
        column = by_csv(tmp_path, cells, columns={"v": {"kind": "date", "date_format": form}}).columns["v"]
        assert isinstance(column, DateColumn)
        assert column.seconds.astype("datetime64[s]").astype(str).tolist() == ["2020-02-01T00:00:00", "2068-12-31T00:00:00"]


@pytest.mark.parametrize("wrong", ["31/02/2020", "00/01/2020", "01/13/2020", "soon", "01/02/2020 25:00", "01/02/2020 13:05 PM"])
def test_a_cell_that_is_no_such_date_is_named(wrong: str, tmp_path: Path) -> None:
    cells = [*alone(["13/02/2020", "14/02/2020"]), wrong]
    with pytest.raises(DataError, match=r":122:v: not a date in date column 'v' \(1 such cell of 121\)") as refused:
        by_csv(tmp_path, cells)
    assert "write dates as d/m/Y" in refused.value.hint
    assert wrong not in str(refused.value)


def test_zero_led_digits_are_counted_unless_the_column_is_declared(tmp_path: Path) -> None:
    cells = alone(["01234", "98765", "00420", "0"])
    for read in (by_csv, from_memory, by_query):
        column = read(tmp_path, cells).columns["v"]
        assert isinstance(column, NumericColumn)
        assert column.zero_led == 60
    for kind in ("numeric", "categorical"):
        assert getattr(by_csv(tmp_path, cells, columns={"v": kind}).columns["v"], "zero_led", 0) == 0
    fractions = by_csv(tmp_path, alone(["0.5", "00.25", "3"])).columns["v"]
    assert isinstance(fractions, NumericColumn)
    assert fractions.zero_led == 0


def read_number(read: Reading, tmp_path: Path, cells: list[str], **settings: Any) -> NumericColumn:
    column = read(tmp_path, cells, **settings).columns["v"]
    assert isinstance(column, NumericColumn)
    return column


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("last", [7, 12, 23, 31])
def test_months_days_and_hours_are_no_codes(first: int, last: int, tmp_path: Path) -> None:
    cells = alone([f"{part:02}" for part in range(first, last + 1)])
    for read in (by_csv, from_memory):
        for written in (cells, [*cells, "NULL", ""], [*cells, "n.a. of it"]):
            assert read_number(read, tmp_path, written, missing="n.a. of it").zero_led == 0
        assert read_number(read, tmp_path, [f"0{cell}" for cell in cells]).zero_led > 0
        assert read_number(read, tmp_path, [*cells, "56"]).zero_led > 0  # as of a state


GROUPED_CODES = [f"{x:,}".replace(",", " ") for x in DRAW.sample(range(100_000_000, 999_999_999), 300)]


@pytest.mark.parametrize(
    ("cells", "seems"),
    [
        (GROUPED_CODES, "codes"),
        ([code.replace(" ", ".") for code in GROUPED_CODES], "codes"),
        ([code[:7] for code in GROUPED_CODES], "codes"),
        ([code[:7].replace(" ", "\u00a0") for code in GROUPED_CODES], "codes"),
        ([code[:7].replace(" ", "'") for code in GROUPED_CODES], None),  # amounts may have six digits
        ([*GROUPED_CODES, "12 345"], None),
        ([f"{code[:7]} 000" for code in GROUPED_CODES], None),
        (GROUPED_CODES[:30] * 10, None),
        ([f"{x:,}" for x in AMOUNTS], None),
    ],
)
def test_codes_in_groups_are_told_from_amounts(cells: list[str], seems: str | None, tmp_path: Path) -> None:
    for read in (by_csv, from_memory):
        assert read_number(read, tmp_path, cells).seems == seems
        assert read_number(read, tmp_path, cells, columns={"v": "numeric"}).seems is None


@pytest.mark.parametrize(
    ("cells", "seems"),
    [
        (["1.234", "12.500"], "thousands"),
        (["1.234", "12.571", "999", "3.456", "7.891"], "thousands"),
        (["-1.234", "+12.500", "0", "NULL"], "thousands"),
        (["1.234", "0.567", "12.500"], None),
        (["1.234", "12.5", "123"], None),
        (["1.234", "12.500", "1234"], None),
        (["1.234", "9.876"], None),  # all as long: one unit or another
        (["2.333", "2.667", "3", "1"], None),  # thirds
        (["1.250", "12.0"], None),
        (["999", "12"], None),
    ],
)
def test_points_that_may_separate_thousands_are_noticed(cells: list[str], seems: str | None, tmp_path: Path) -> None:
    for read in (by_csv, from_memory):
        column = read_number(read, tmp_path, alone(cells))
        assert (column.values[0], column.seems) == (float(cells[0]), seems)
        for said in ({"decimal": "."}, {"thousands": ""}):
            assert read_number(read, tmp_path, alone(cells), columns={"v": {"kind": "numeric", **said}}).seems is None


@pytest.mark.parametrize("reader", ["csv", "memory", "query"])
@pytest.mark.parametrize("unit", ["", " EUR"])
def test_points_that_most_likely_separate_thousands_are_refused_until_their_owner_says_so(
    reader: str, unit: str, tmp_path: Path
) -> None:
    cells = [f"{x:,}{unit}".replace(",", ".") for x in AMOUNTS if x < 1_000_000] + [f"999{unit}"]
    with pytest.raises(DataError) as refused:
        READERS[reader](tmp_path, cells)
    assert refused.value.code == "E_NUMERIC"
    assert "data.columns: {v: {kind: numeric, decimal: '.'}}, or thousands: '.'; data.thousands" in refused.value.hint
    amounts = [x for x in AMOUNTS if x < 1_000_000]
    for settings in ({"thousands": "."}, {"columns": {"v": {"kind": "numeric", "thousands": "."}}}):
        assert numbers(READERS[reader](tmp_path, cells, **settings))[:-1] == amounts
    decimals = {"columns": {"v": {"kind": "numeric", "decimal": "."}}}
    assert numbers(READERS[reader](tmp_path, cells, **decimals))[-1] == 999
    assert READERS[reader](tmp_path, cells, columns={"v": "ignore"}).columns == {}


def test_thousands_by_points_do_not_make_the_point_a_sign_of_decimals(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text(
        "id;a;b;v\n" + "".join(f"k{row};{row % 9 + 1}.500;{row % 80 + 10}.250;0,{row % 7 + 1}\n" for row in range(200))
    )
    columns = read_table(Data(path=path), id_form="text", needs_label=False, party="lab").columns
    assert [column.values[0] for column in columns.values() if isinstance(column, NumericColumn)] == [1500, 10250, 0.1]


@pytest.mark.parametrize(
    "settings",
    [
        {"date_format": "d/m"},
        {"date_format": "d/m/d"},
        {"thousands": ";"},
        {"columns": {"v": {"kind": "categorical", "thousands": ","}}},
        {"columns": {"v": {"kind": "date", "decimal": ","}}},
        {"columns": {"v": {"kind": "numeric", "date_format": "d/m/Y"}}},
        {"columns": {"v": {"kind": "numeric", "decimal": ",", "thousands": ","}}},
        {"missing": [["a"]]},
        {"missing": [False]},  # YAML's no
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ValidationError):
        Data(path=tmp_path, **settings)
