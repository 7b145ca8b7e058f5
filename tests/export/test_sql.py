"""A SELECT gives the partial scores of its half, in SQLite and in DuckDB."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.export.worlds import WORDS, evidence_of, hidden_half, mixed_table, regression_half, split_half, unseen
from vfl_node.data.tables import CategoricalColumn, NumericColumn, Table
from vfl_node.errors import UsageError
from vfl_node.export.checks import largest_difference
from vfl_node.export.sql import BOUND, Select, check_select, run_in_sqlite, select_of
from vfl_node.halves.statement import TABLE, quote
from vfl_node.training.additive.exported import SummedHalf


def plain_table() -> Table:
    """What SQL can express: no dates, and of quantiles a few."""
    table = mixed_table(dates=False, transforms=False)
    draws = np.random.default_rng(5)
    wild = np.exp(draws.normal(0, 4, len(table)))
    wild[::9], wild[:2] = np.nan, [1e300, -1e300]
    codes = draws.integers(-1, len(WORDS), len(table))
    extra = {
        "amount 金额": NumericColumn(wild, scaling="log"),
        'a "quoted" name': CategoricalColumn(codes, tuple(sorted(WORDS))),
    }
    return Table(table.ids, {**table.columns, **extra})


def in_duckdb(select: Select, table: Table) -> Any:
    duckdb = pytest.importorskip("duckdb")
    pa = pytest.importorskip("pyarrow")
    columns: dict[str, Any] = {name: np.arange(len(table)) for name in select.ids}
    for name, column in table.columns.items():
        if isinstance(column, CategoricalColumn):
            columns[name] = pa.array([*np.array([*column.levels, None], dtype=object)[column.codes]], pa.string())
        else:
            assert isinstance(column, NumericColumn)
            columns[name] = pa.array(column.values)  # NaN stays NaN
    with duckdb.connect() as database:
        database.register(TABLE, pa.table(columns))
        found = np.array(sorted(database.execute(select.text).fetchall()), dtype=np.float64)
    return found[:, len(select.ids) :]


HALVES: dict[str, Any] = {
    "standard": lambda table, role: regression_half(table, role, {}),
    "unit": lambda table, role: regression_half(table, role, {}, "unit"),
    "three classes": lambda table, role: regression_half(table, role, {"classes": 3}),
    "linear": lambda table, role: regression_half(table, role, {"algorithm": "linear"}),
    "hidden": lambda table, role: hidden_half(table, role, {"epsilon": None}),
    "sums of a hidden layer": lambda table, role: hidden_half(table, "passive", {"epsilon": None, "layers": [3]}),
    "hidden, bounded": lambda table, role: hidden_half(table, role, {"epsilon": 1.0}),
    "weights of evidence": lambda table, role: regression_half(table, role, {}, evidence=evidence_of(table)),
    "hidden, weights of evidence": lambda table, role: hidden_half(table, role, {"epsilon": 1.0}, evidence=evidence_of(table)),
}


@pytest.mark.parametrize("role", ["active", "passive"])
@pytest.mark.parametrize("name", HALVES)
def test_partial_scores(name: str, role: str) -> None:
    half: SummedHalf = HALVES[name](plain_table(), role)
    select = select_of(half, ("id", "second id"))
    for table in (plain_table(), unseen(plain_table()), half.probes()):
        expected = half.part(table)
        assert largest_difference(expected, run_in_sqlite(select, table)) <= BOUND
        assert largest_difference(expected, in_duckdb(select, table)) <= BOUND
    check_select(half, select, plain_table())


def test_a_wrong_weight_is_found() -> None:
    half = regression_half(plain_table(), "passive", {})
    select = select_of(half, ("id",))
    half.weight[0] += 1e-6
    with pytest.raises(UsageError, match="SELECT") as refused:
        check_select(half, select, None)
    assert refused.value.code == "E_EXPORT"


def test_what_has_no_sql() -> None:
    for half, hint in (
        (split_half(mixed_table(), "passive", {}), "ONNX"),
        (hidden_half(mixed_table(), "active", {"epsilon": None, "layers": [4]}), "ONNX"),
        (regression_half(mixed_table(dates=True, transforms=False), "passive", {}), "ONNX"),
        (regression_half(mixed_table(dates=False), "passive", {}), "scaling: standard"),
        (regression_half(mixed_table(), "passive", {}, evidence=evidence_of(mixed_table())), "ONNX"),
    ):
        with pytest.raises(UsageError) as refused:
            select_of(half, ("id",))
        assert refused.value.code == "E_EXPORT"
        assert hint in refused.value.hint


def test_names_are_quoted() -> None:
    assert quote('a "b') == '"a ""b"'
