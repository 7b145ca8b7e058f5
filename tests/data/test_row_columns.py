"""``data.order`` and ``data.group``: columns that say something of whole records, and are no features."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from vfl_node.configuration.models import parse
from vfl_node.data.reading import read_table
from vfl_node.data.sampling import sample
from vfl_node.data.tables import DateColumn, NumericColumn, Table
from vfl_node.errors import DataError, UsageError
from vfl_node.settings.node import Data, Settings

HEAD = "id,x,when,user,label\n"


def written(folder: Path, rows: str, head: str = HEAD) -> Path:
    path = folder / "table.csv"
    path.write_text(head + rows)
    return path


def read(path: Path, *, ordered: bool = True, **data: Any) -> Table:
    data = {"order": "when", "group": "user"} | data
    return read_table(Data(path=path, **data), id_form="text", needs_label=True, party="clinic", needs_order=ordered)


ROWS = "a,1.5,2024-03-01,u2,0\nb,2.5,2024-02-29T12:00,u1,1\nc,0.5,2024-02-29 10:00:00Z,,0\nd,0.25,2023-12-31,u2,1\n"


def test_dates_order_the_records_and_users_group_them(tmp_path: Path) -> None:
    table = read(written(tmp_path, ROWS))
    assert table.order is not None
    assert np.argsort(table.order).tolist() == [3, 2, 1, 0]
    assert table.groups is not None
    assert table.groups.dtype == np.int64
    assert table.groups.tolist() == [1, 0, -1, 1]
    assert list(table.columns) == ["x"]


@pytest.mark.parametrize("decimal", [".", ","])
def test_numbers_order_them_too(tmp_path: Path, decimal: str) -> None:
    rows = "".join(f"{name};1;{value.replace('.', decimal)};u;{at % 2}\n" for at, (name, value) in enumerate(NUMBERS.items()))
    table = read(written(tmp_path, rows, HEAD.replace(",", ";")), decimal=decimal)
    assert table.order is not None
    assert table.order.tolist() == [float(value) for value in NUMBERS.values()]


NUMBERS = {"a": "3", "b": "1.5", "c": "-2", "d": "1e3"}


def test_a_typed_column_orders_them(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    when = pa.array(["2024-01-02T00:00:01", "2024-01-02T00:00:00"]).cast(pa.timestamp("us"))
    parquet.write_table(pa.table({"id": ["a", "b"], "x": [1, 2], "when": when, "user": [7, 7], "label": [0, 1]}), path)
    table = read(path)
    assert table.order is not None
    assert (table.order[0] - table.order[1], table.groups.tolist()) == (1, [0, 0])  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("cell", "said"),
    [("", "no value"), ("NA", "no value"), ("yesterday", "no date"), ("2024-02-30", "no date"), ("20240101", "no date")],
)
def test_a_date_that_is_missing_or_none_is_refused_with_its_place(tmp_path: Path, cell: str, said: str) -> None:
    path = written(tmp_path, ROWS.replace("2024-02-29T12:00", cell))
    with pytest.raises(DataError) as refused:
        read(path)
    assert refused.value.code == "E_ROW_ORDER"
    assert f"table.csv:3:when: {said} in column 'when'" in refused.value.message
    assert "(1 such cell of 4)" in refused.value.message
    assert not cell or cell not in refused.value.message.replace("NA", "")
    assert read(path, ordered=False).order is None  # a job that needs no order does not look at it


@pytest.mark.parametrize(("cell", "said"), [("soon", "no number"), ("inf", "no number"), ("?", "no value")])
def test_a_number_that_is_missing_or_none_is_refused_with_its_place(tmp_path: Path, cell: str, said: str) -> None:
    rows = "".join(f"r{row},1,{row if row != 2 else cell},u,{row % 2}\n" for row in range(5))
    with pytest.raises(DataError) as refused:
        read(written(tmp_path, rows))
    assert refused.value.code == "E_ROW_ORDER"
    assert f"table.csv:4:when: {said}" in refused.value.message


def test_a_declared_kind_says_how_the_order_is_read(tmp_path: Path) -> None:
    """And a declared column of order is a feature, too. Control: what is not declared is none."""
    path = written(tmp_path, "a,1,1,u,0\nb,2,2,u,1\n")
    numeric = read(path, columns={"when": "numeric"})
    assert isinstance(numeric.columns["when"], NumericColumn)
    assert numeric.order is not None
    assert numeric.order.tolist() == [1, 2]
    assert isinstance(read(path, columns={"when": "numeric"}, ordered=False).columns["when"], NumericColumn)
    assert list(read(path, columns={"when": "ignore"}).columns) == ["x"]
    with pytest.raises(DataError, match="not a date"):
        read(path, columns={"when": "date"})
    dated = read(written(tmp_path, ROWS), columns={"when": {"kind": "date", "scaling": "standard"}})
    assert isinstance(dated.columns["when"], DateColumn)


def test_a_job_that_needs_an_order_is_refused_without_one(tmp_path: Path) -> None:
    path = written(tmp_path, ROWS)
    with pytest.raises(DataError) as refused:
        read(path, order=None)
    assert refused.value.code == "E_CONFIG"
    assert "evaluate.hold_out" in refused.value.message
    assert "data.order" in refused.value.hint
    assert "when" in read(path, order=None, ordered=False).columns


@pytest.mark.parametrize("key", ["order", "group"])
def test_a_column_that_does_not_exist_is_refused(tmp_path: Path, key: str) -> None:
    with pytest.raises(DataError) as refused:
        read(written(tmp_path, ROWS), **{key: "whan"})
    assert refused.value.code == "E_COLUMN"
    assert f"'whan' (data.{key})" in refused.value.message
    assert "did you mean 'when'?" in refused.value.hint


def test_a_column_of_groups_is_no_feature(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is the group column and cannot be a categorical one"):
        read(written(tmp_path, ROWS), columns={"user": "categorical"})
    assert list(read(written(tmp_path, ROWS), columns={"user": "ignore"}).columns) == ["x"]


def test_a_part_of_the_records_keeps_their_order_and_groups(tmp_path: Path) -> None:
    rows = "".join(f"r{row},1,{100 - row},u{row % 7},{row % 2}\n" for row in range(40))
    table = read(written(tmp_path, rows))
    part = sample(table, 10, bytes(32))
    assert part.order is not None
    assert part.groups is not None
    numbers = [int(identifier.rpartition(b"r")[2]) for identifier in part.ids]
    assert part.order.tolist() == [100 - number for number in numbers]
    assert part.groups.tolist() == [number % 7 for number in numbers]


def settings(role: str, data: str) -> Settings:
    return parse(
        f"name: a\nrole: {role}\ninsecure_loopback: true\ndata: {{path: t.csv, {data}}}\n", Settings, source="node.yaml"
    )


@pytest.mark.parametrize("key", ["order", "group"])
@pytest.mark.parametrize(
    ("rest", "of"),
    [
        ("id: when", "data.id"),
        ("id: [when, b]", "data.id"),
        ("label: when", "data.label"),
        ("label: {column: when, positive: 1}", "data.label"),
    ],
)
def test_the_id_and_the_label_are_neither_order_nor_group(key: str, rest: str, of: str) -> None:
    with pytest.raises(UsageError) as refused:
        settings("active", f"{key}: when, {rest}")
    assert f"data.{key} names column 'when', which is already that of {of}" in refused.value.message


@pytest.mark.parametrize("key", ["order", "group"])
def test_the_label_that_is_not_named_is_neither_of_them(key: str) -> None:
    with pytest.raises(UsageError, match=r"already that of data.label"):
        settings("active", f"{key}: label")


def test_order_and_group_are_two_columns() -> None:
    with pytest.raises(UsageError, match=r"data.group names column 'when', which is already that of data.order"):
        settings("active", "order: when, group: when")


@pytest.mark.parametrize("key", ["order", "group"])
@pytest.mark.parametrize("data", ["{key}: when", "ignored"])
def test_only_an_active_node_has_them(key: str, data: str) -> None:
    if data == "ignored":
        assert settings("passive", "columns: {when: ignore}").role == "passive"
        return
    with pytest.raises(UsageError, match=f"data.{key} is for an active node"):
        settings("passive", data.format(key=key))
    assert settings("active", data.format(key=key)).role == "active"
