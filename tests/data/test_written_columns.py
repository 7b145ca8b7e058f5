"""Columns as people write them: a file with signs, words and other dates gives what the clean one gives, by every reader."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from vfl_node.data.features import Encoder
from vfl_node.data.readers.arrow import ArrowReader
from vfl_node.data.reading import read_table
from vfl_node.data.tables import CategoricalColumn, Table
from vfl_node.settings import Data

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


WORDS = ["NULL", "null", r"\N", "#N/A", "n/a", "<NA>", ".", "-", "none", "NaT", "missing", "Missing", "NAN", "#DIV/0!", "–"]

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
    "a minus of Unicode": ([str(x).replace("-", "−") for x in DECIMALS], list(map(str, DECIMALS))),
    **{
        f"dates as {form}": ([day.strftime(form) for day in DAYS], list(map(str, DAYS)))
        for form in ("%d/%m/%Y", "%d.%m.%Y", "%m/%d/%Y", "%Y/%m/%d", "%d-%b-%Y", "%-d/%-m/%Y", "%d %B %Y", "%Y-%-m-%-d")
    },
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
