"""A half without hidden layers as one SELECT, and its comparison with the half. DuckDB and SQLite agree to a billionth."""

from __future__ import annotations

import math
import sqlite3
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vfl_node.data.tables import CategoricalColumn, NumericColumn, Table
from vfl_node.export.checks import MOST_ROWS, largest_difference, refuse_difference
from vfl_node.halves.graph import export_error
from vfl_node.halves.half import Floats, OwnHalf
from vfl_node.halves.statement import TABLE, Statement, number, quote
from vfl_node.training.additive.exported import SummedHalf

BOUND = 1e-9
"""The largest difference, in units of the larger of 1 and the partial score."""


@dataclass(frozen=True)
class Select:
    """A half in SQL.

    Attributes:
        text: the statement.
        ids: the id columns, which come first.
        width: how many partial scores follow.
    """

    text: str
    ids: tuple[str, ...]
    width: int


def select_of(half: OwnHalf, ids: tuple[str, ...]) -> Select:
    """The SELECT of a half.

    Raises:
        UsageError: it cannot be written in SQL (``E_EXPORT``).
    """
    if not isinstance(half, SummedHalf) or half.layers:
        raise export_error("a network has no SQL", "export it as ONNX")
    if not half.width:
        raise export_error("this half has no columns: there is nothing to compute", "export the other halves")
    parts = Statement(ids)
    cells = half.write_cells(parts)
    names = ["partial_score"] if half.weight.shape[1] == 1 else [f"partial_score_{k}" for k in range(half.weight.shape[1])]
    sums = [
        " + ".join(f"{cell} * {number(weight)}" for cell, weight in zip(cells, column, strict=True))
        for column in half.weight.T.tolist()
    ]
    parts.step([*parts.ids, *(f"{total} AS {name}" for total, name in zip(sums, names, strict=True))])
    head = f"-- The half of {half.about.party}, job {half.about.job}. Add the partial scores of all parties"
    if half.bias is not None:
        bias = ", ".join(number(value) for value in half.bias.ravel().tolist())
        head += f" and the bias {bias}"
    if half.target is not None:
        head += f"; times {number(half.target[1])}, plus {number(half.target[0])} is the prediction"
    elif half.about.predicts:
        head += "; 1 / (1 + exp(-sum)) is the probability" + (
            " of each class, before they are scaled to 1" if len(names) > 1 else ""
        )
    return Select(f"{head}.\n{parts.text()};\n", ids, len(names))


def check_select(half: SummedHalf, select: Select, own: Table | None) -> None:
    """Compare a SELECT with its half, in SQLite.

    Raises:
        UsageError: they differ by more than :data:`BOUND` (``E_EXPORT``).
    """
    for table in filter(None, (half.probes(), None if own is None else own.take(np.arange(min(len(own), MOST_ROWS))))):
        try:
            found = run_in_sqlite(select, table)
        except sqlite3.Error as error:
            raise export_error(f"SQLite cannot run the SELECT: {error}", "export the half as ONNX") from None
        expected = half.part(table)
        refuse_difference(largest_difference(expected, found), BOUND, "the SELECT")


def run_in_sqlite(select: Select, table: Table) -> Floats:
    """The partial scores float64[n, width] that a SELECT gives of a table, whose ids become row numbers."""
    cells = [list(range(len(table)))] * len(select.ids) + [_cells(column) for column in table.columns.values()]
    names = [*select.ids, *table.columns]
    with sqlite3.connect(":memory:") as database:
        database.execute(f"CREATE TABLE {TABLE} ({', '.join(map(quote, names))})")
        database.executemany(
            f"INSERT INTO {TABLE} VALUES ({', '.join('?' * len(names))})",  # noqa: S608 - question marks
            zip(*cells, strict=True),
        )
        rows = database.execute(select.text).fetchall()
    database.close()
    found: NDArray[np.float64] = np.array(sorted(rows), dtype=np.float64)
    return found[:, len(select.ids) :]


def _cells(column: object) -> list[object]:
    if isinstance(column, CategoricalColumn):
        return [*np.array([*column.levels, None], dtype=object)[column.codes]]
    assert isinstance(column, NumericColumn)
    return [None if math.isnan(value) else value for value in column.values.tolist()]
