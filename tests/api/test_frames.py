"""Frames as people have them: each is read as the table that it is, or refused by an error of ours that names the column."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from vfl_node.data.readers.arrow import ArrowReader
from vfl_node.data.reading import read_table
from vfl_node.data.tables import NumericColumn, Table
from vfl_node.errors import DataError
from vfl_node.settings.node import Data


def read(frame: Any) -> Table:
    reader = ArrowReader(frame, source="lab: the table in memory")
    return read_table(Data(path="memory"), id_form="text", needs_label=False, party="lab", reader=reader)


def test_texts_without_a_name_may_be_the_ids_and_are_no_feature() -> None:
    frame = pd.DataFrame({"x": [1.0, 2.0]}, index=["a", "b"])
    with pytest.raises(DataError, match="there is no column 'id'") as caught:
        read(frame)
    assert "__index_level_0__" in caught.value.hint
    reader = ArrowReader(frame, source="lab: the table in memory")
    data = Data(path="memory", id="__index_level_0__")
    assert len(read_table(data, id_form="text", needs_label=False, party="lab", reader=reader)) == 2
    table = read(frame.assign(id=["c", "d"]))
    assert (list(table.columns), table.left_out) == (["x"], {"__index_level_0__": "row number"})


def ids(frame: Any) -> list[str]:
    return [id_.decode().removeprefix("text:") for id_ in read(frame).ids]


LABELLED = {
    "named": pd.DataFrame({"x": [1.0, 2.0]}, index=pd.Index(["a", "b"], name="id")),
    "also a column": pd.DataFrame({"id": ["a", "b"], "x": [1.0, 2.0]}).set_index("id", drop=False),
    "one of two levels": pd.DataFrame(
        {"x": [1.0, 2.0]}, index=pd.MultiIndex.from_tuples([(0, "a"), (1, "b")], names=[None, "id"])
    ),
    "numbered, beside a column": pd.DataFrame({"id": ["a", "b"], "x": [1.0, 2.0]}, index=[5, 7]),
}


@pytest.mark.parametrize("kind", LABELLED)
def test_row_labels_with_a_name_are_a_column(kind: str) -> None:
    table = read(LABELLED[kind])
    assert ids(LABELLED[kind]) == ["a", "b"]
    assert list(table.columns) == ["x"]


def test_row_numbers_with_a_name_are_a_column() -> None:
    assert ids(pd.DataFrame({"x": [1.0, 2.0]}, index=pd.RangeIndex(2, name="id"))) == ["0", "1"]


def test_integers_beyond_64_bits_are_exact_as_ids_and_numbers_as_features() -> None:
    huge = [2**70, 2**70 + 1, 3]
    table = read(pd.DataFrame({"id": huge, "x": huge}))
    assert [id_.decode() for id_ in table.ids] == [f"text:{id_}" for id_ in huge]
    column = table.columns["x"]
    assert isinstance(column, NumericColumn)
    assert column.values.tolist() == [float(of) for of in huge]
    missing = read(pd.DataFrame({"id": ["a", "b"], "x": pd.Series([2**70, None], dtype=object)})).columns["x"]
    assert isinstance(missing, NumericColumn)
    assert np.isnan(missing.values).tolist() == [False, True]


def test_sparse_columns_are_numbers() -> None:
    column = read(pd.DataFrame({"id": ["a", "b"], "x": pd.arrays.SparseArray([0.0, 2.0])})).columns["x"]
    assert isinstance(column, NumericColumn)
    assert column.values.tolist() == [0.0, 2.0]


@pytest.mark.parametrize("cells", [[Decimal("Infinity"), 1], [1, "canary"], [1j, 2], [object(), None], [2**70, "canary"]])
def test_a_column_that_arrow_cannot_hold_is_named(cells: Any) -> None:
    with pytest.raises(DataError, match="lab: the table in memory: column 'x' has cells that Arrow cannot hold") as caught:
        read(pd.DataFrame({"id": ["a", "b"], "x": cells}, dtype=object))
    assert caught.value.code == "E_COLUMN"
    assert "canary" not in str(caught.value)


def test_two_columns_of_one_name_are_refused() -> None:
    frame = pd.DataFrame([["a", 1.0, 2.0]], columns=["id", "x", "x"])
    with pytest.raises(DataError, match="columns 2 and 3 have the same name") as caught:
        read(frame)
    assert caught.value.hint.startswith("give every column a name of its own")


def test_a_frame_of_another_library_that_arrow_cannot_hold_is_refused() -> None:
    with pytest.raises(DataError, match="is no table that Arrow can hold"):
        read(pl.DataFrame({"id": [2**70, 1]}))
