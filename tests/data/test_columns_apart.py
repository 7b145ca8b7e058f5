"""Columns that are no features though nobody says so: a copy of the labels, and row numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from vfl_node.data.reading import read_table
from vfl_node.data.sampling import sample
from vfl_node.data.tables import Table
from vfl_node.errors import DataError
from vfl_node.execution import column_cautions
from vfl_node.settings.node import Data

SHUFFLED = (2, 0, 1)


def read(path: Path, *, needs_label: bool = False, **settings: Any) -> Table:
    return read_table(Data(path=path, **settings), id_form="text", needs_label=needs_label, party="lab")


def written(folder: Path, name: str, values: tuple[Any, ...] = SHUFFLED) -> Path:
    path = folder / "table.csv"
    frame = pd.DataFrame({"id": list("abc"), "x": [1.5, 2.5, 4.5], "label": [0, 1, 1], name: values})
    frame.to_csv(path, index=False)
    return path


def test_a_copy_of_the_labels_is_no_feature_of_a_party_that_needs_none(tmp_path: Path) -> None:
    path = written(tmp_path, "y", (0, 1, 1))
    assert read(path).left_out == sample(read(path), 2, b"key").left_out == {"label": "label"}
    assert list(read(path).columns) == ["x", "y"]
    assert list(read(path, label="y").columns) == ["x", "label"]
    assert list(read(path, label="z").columns) == ["x", "label", "y"]  # the settings name another one, which is not there
    assert list(read(path, columns={"label": "numeric"}).columns) == ["x", "label", "y"]
    ignored = read(path, columns={"label": "ignore"})
    assert (list(ignored.columns), ignored.left_out) == (["x", "y"], {})
    assert read(path, id="x", keys={"place": ("label", "y")}).left_out == {}


@pytest.mark.parametrize("needs_label", [False, True])
@pytest.mark.parametrize("name", ["Unnamed: 0", "Unnamed: 0.1", "__index_level_0__", "index", "level_0", "X"])
def test_row_numbers_are_no_feature_of_either_party(tmp_path: Path, name: str, needs_label: bool) -> None:
    table = read(written(tmp_path, name), needs_label=needs_label)
    assert list(table.columns) == ["x"]
    said = column_cautions.table_cautions(table)
    assert [name in sentence for sentence in said] == ([True] if needs_label else [False, True])
    assert list(read(written(tmp_path, name), columns={name: "numeric"}).columns) == ["x", name]
    assert list(read(written(tmp_path, name, (2, 3, 1))).columns) == ["x"]


@pytest.mark.parametrize("name", ["index", "level_0", "Unnamed: 5"])
def test_a_measurement_that_is_called_alike_is_a_feature(tmp_path: Path, name: str) -> None:
    assert list(read(written(tmp_path, name, (7, 8, 9))).columns) == ["x", name]


def test_row_labels_of_a_frame_may_be_the_ids(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    pd.DataFrame({"x": [1.0, 2.0]}, index=["a", "b"]).to_parquet(path)
    table = read(path, id="__index_level_0__")
    assert (list(table.ids), list(table.columns), table.left_out) == ([b"text:a", b"text:b"], ["x"], {})
    with pytest.raises(DataError) as refused:
        read(path)
    assert refused.value.code == "E_COLUMN"
    assert refused.value.hint.endswith(
        "__index_level_0__ has row labels of pandas without a name: frame.rename_axis('id') names them"
    )
    numbered = tmp_path / "numbered.parquet"
    pd.DataFrame({"id": ["a", "b"], "x": [1.0, 2.0]}).sample(frac=1, random_state=1).to_parquet(numbered)
    assert list(read(numbered).columns) == ["x"]


def test_a_job_that_only_aligns_leaves_nothing_out(tmp_path: Path) -> None:
    data = Data(path=written(tmp_path, "index"))
    table = read_table(data, id_form="text", needs_label=False, party="lab", features=False)
    assert (table.columns, table.left_out) == ({}, {})
