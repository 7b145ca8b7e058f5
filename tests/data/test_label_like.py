"""A column that gives the label away is noticed, whatever its kind; a good one is not, and one that happens to fit neither."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from vfl_node.data.identifiers import Identifiers
from vfl_node.data.label_like import MOST_ROWS, label_like
from vfl_node.data.reading import read_table
from vfl_node.data.tables import CategoricalColumn, Column, NumericColumn, Table
from vfl_node.settings.node import Data

ROWS = 600


def table(labels: NDArray[Any], **columns: NDArray[Any]) -> Table:
    def column(values: NDArray[Any]) -> Column:
        if values.dtype.kind == "f":
            return NumericColumn(values)
        levels, codes = np.unique(values, return_inverse=True)
        codes = np.where(levels[codes] == "", -1, codes - int(levels[0] == ""))
        return CategoricalColumn(codes.astype(np.int64), tuple(level for level in levels if level))

    ids = Identifiers.from_items(str(row).encode() for row in range(len(labels)))
    made: Mapping[str, Column] = {name: column(values) for name, values in columns.items()}
    return Table(ids, made, labels.astype(np.float32))


def found(of: Table, classes: int = 2) -> list[str]:
    return [column.name for column in label_like(of, classes)]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def test_columns_that_give_one_of_two_classes_away(rng: np.random.Generator) -> None:
    labels = (rng.random(ROWS) < 0.2).astype(int)
    noise = rng.normal(size=ROWS)
    leaky = {
        "higher": labels * 10 + noise,
        "lower": -10.0 * labels + noise,
        "only where positive": np.where(labels == 1, noise, np.nan),
        "only where negative": np.where(labels == 0, noise, np.nan),
        "code": np.array(["paid", "late"])[labels],
        "one of many codes": np.array([f"{'a' if label else 'b'}{rng.integers(20)}" for label in labels]),
        "time of the event": np.array([f"t{row}" if label else "" for row, label in enumerate(labels)]),
        "middle": np.where(labels == 1, 5.0, np.where(noise > 0, 4.0, 6.0)),
    }
    good = {
        "strong": 2.0 * labels + noise,
        "ids": np.array([f"id{row}" for row in range(ROWS)]),
        "number of the row": np.arange(ROWS, dtype=float),
        "constant": np.zeros(ROWS),
        "missing": np.full(ROWS, np.nan),
        "kind": np.array([f"k{number}" for number in rng.integers(5, size=ROWS)]),
    }
    assert sorted(found(table(labels, **leaky, **good))) == sorted(leaky)
    first, *_ = label_like(table(labels, **leaky), 2)
    assert (first.score, first.rows) == (1.0, ROWS)


def test_columns_that_give_one_of_several_classes_away(rng: np.random.Generator) -> None:
    labels = rng.integers(3, size=ROWS)
    columns: dict[str, NDArray[Any]] = {
        "number": (2.0 - labels) ** 2,
        "name": np.array(["x", "y", "z"])[labels],
        "half": np.where(rng.random(ROWS) < 0.9, labels, 0.0),
        "noise": rng.normal(size=ROWS),
    }
    assert found(table(labels, **columns), classes=3) == ["number", "name"]
    common = np.where(rng.random(ROWS) < 0.993, 0, rng.integers(3, size=ROWS))
    assert found(table(common, noise=rng.normal(size=ROWS), kind=np.array(["a", "b"])[rng.integers(2, size=ROWS)]), 3) == []


def test_few_rows_of_a_class_prove_nothing(rng: np.random.Generator) -> None:
    labels = np.arange(ROWS) < 29
    assert found(table(labels, x=labels * 10.0)) == []
    labels = np.arange(ROWS) < 30
    assert found(table(labels, x=labels * 10.0)) == ["x"]
    assert found(table(rng.normal(size=ROWS), x=rng.normal(size=ROWS))) == []  # numbers to predict
    without = table(labels, x=labels * 10.0)
    assert label_like(Table(without.ids, without.columns), 2) == ()


def test_a_long_table_is_looked_at_in_part(rng: np.random.Generator) -> None:
    labels = (rng.random(2 * MOST_ROWS + 1) < 0.1).astype(int)
    (seen,) = label_like(table(labels, x=labels * 1.0), 2)
    assert MOST_ROWS / 2 < seen.rows <= MOST_ROWS


@pytest.mark.data
def test_the_time_of_a_click_that_led_to_a_download(shared_data: Path, tmp_path: Path) -> None:
    path = tmp_path / "clicks.csv"
    with gzip.open(shared_data / "talkingdata_100k" / "train_sample.csv.gz", "rt") as source, path.open("w") as target:
        head, *rows = csv.reader(source)
        csv.writer(target).writerows([["id", *head], *([number, *row] for number, row in enumerate(rows))])
    data = Data.model_validate({"path": path, "label": "is_attributed"})
    assert found(read_table(data, id_form="text", needs_label=True, party="shop")) == ["attributed_time"]
