"""What a party brings to statistics: the bins of its columns, and which rows are its own."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vfl_node.data.bins import Cuts
from vfl_node.data.tables import Table
from vfl_node.errors import DataError
from vfl_node.session.session import Session
from vfl_node.training.statistics.columns import CountedColumns
from vfl_node.training.statistics.computation import LABEL_BITS, StatisticsOwn
from vfl_node.training.statistics.config import Statistics
from vfl_node.training.statistics.correlations import scale_rows
from vfl_node.training.statistics.figures import find_evidence, pool
from vfl_node.training.statistics.plan import SCORE_GROUPS
from vfl_node.training.trainer import TrainingData


@dataclass(frozen=True, eq=False)
class StatisticsInputs:
    """What one party brings.

    Attributes:
        columns: how its table becomes bins; holds its own data.
        dropped: names of columns that are not counted.
        own: the same in the shared order.
    """

    columns: CountedColumns
    dropped: tuple[str, ...]
    own: StatisticsOwn


def prepare(session: Session, data: TrainingData) -> StatisticsInputs:
    """Cut this party's table into bins, and bring them and labels into the shared order.

    Raises:
        DataError: no rows (``E_EMPTY``), no columns that can be counted (``E_NO_FEATURES``), no labels (``E_NO_LABEL``).
    """
    section, rows = Statistics.section_of(session.job), data.alignment.rows
    if len(rows) == 0:
        raise DataError("there is no shared row to count", code="E_EMPTY", hint="use more records")
    whole = data.whole or data.table
    least = max(section.least_rows, session.policy.limits.least_rows)
    columns = CountedColumns.fit(whole, section.bins, least)
    if not columns.columns:
        raise DataError(
            "this party's table has no column to count",
            code="E_NO_FEATURES",
            hint=f"add columns that vary: some value that sets {least} records or more apart (least_rows)",
        )
    mine = rows >= 0
    marks = mine.astype(np.uint64)
    if session.role == "active":
        if data.table.labels is None:
            raise DataError("the table has no label column", code="E_NO_LABEL", hint="set data.label")
        ones = mine.copy()
        ones[mine] = data.table.labels[rows[mine]] > 0
        marks[ones] = 1 << LABEL_BITS
    read = {each.name for each in columns.columns}
    dropped = tuple(name for name in whole.columns if name not in read)
    scored = np.zeros(len(rows), np.int64)
    if section.worth and session.role == "active":
        scored = own_score(columns, data.table, whole, least)[np.maximum(rows, 0)]
    labels = (marks > 1).astype(np.int64) if session.role == "active" else None
    numbers = np.zeros((len(rows), 0), np.uint64)
    if section.correlations:
        deviations = columns.standardise(whole, data.table)[np.maximum(rows, 0)]
        numbers = scale_rows(deviations, label=labels) * mine[:, None].astype(np.uint64)
    return StatisticsInputs(columns, dropped, StatisticsOwn(columns.cells(data.table, rows), marks, numbers, scored))


def own_score(columns: CountedColumns, table: Table, whole: Table, least: int) -> NDArray[np.int64]:
    """The tenth in which each of the active party's records is by its own score, int64[n].

    The score adds up the weights of evidence of its own columns, by all its own labels.
    """
    assert whole.labels is not None
    ones, total = (whole.labels > 0).astype(np.int64), np.zeros(len(table))
    for number, (of_whole, of_table) in enumerate(zip(columns.find_bins(whole).T, columns.find_bins(table).T, strict=True)):
        counts = np.zeros((columns.bins + 1, 2))
        np.add.at(counts, (of_whole, ones), 1)
        ordered = isinstance(columns.columns[number], Cuts)
        total += find_evidence(pool(counts, least, 0.0, ordered=ordered))[of_table]
    ends = np.quantile(total, np.arange(1, SCORE_GROUPS) / SCORE_GROUPS)
    return np.searchsorted(ends, total, side="right")


def digest_of(own: StatisticsOwn, salt: bytes) -> bytes:
    """SHA-256 of all that a party's values are made of; ``salt`` is secret, so that nobody can try tables."""
    hashed = hashlib.sha256(b"vfl-node statistics inputs 1" + salt)
    for values in (own.cells.bins, own.marks, own.numbers, own.scored):
        hashed.update(np.array(values.shape, "<u8").tobytes())
        hashed.update(np.ascontiguousarray(values).astype(values.dtype.newbyteorder("<"), copy=False).data)
    return hashed.digest()
