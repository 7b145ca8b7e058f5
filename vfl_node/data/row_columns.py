"""Columns that say something of whole records and are no features: their order in time, their groups, how much each counts.

All of them stay with their owner. Of the order the other parties learn which shared records are the last ones
(:mod:`vfl_node.training.time_order`), of groups nothing. What weights
show is said by :mod:`vfl_node.training.split.disclosures`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vfl_node.data.accumulators import FeatureCells
from vfl_node.data.dates import seconds_of
from vfl_node.data.tables import CategoricalColumn
from vfl_node.data.text_columns import TextColumns
from vfl_node.errors import DataError
from vfl_node.roles import Task
from vfl_node.settings.declared import Kind
from vfl_node.settings.node import Data

MOST_WEIGHT = 100.0
"""A row counts so many times as the mean row at the most: a model would learn heavier ones by heart, and their gradients stand
out."""


MOST_OFFSET = 1e100
"""As for targets, whose unit an offset may have."""


def read_order(text: TextColumns, name: str, kind: Kind | None) -> NDArray[np.float64]:
    """The place of each record in the order of column ``name``, float64[n], finite: its number, or seconds since 1970-01-01.

    Args:
        text: the input; the column is kept as text.
        name: of the column (``data.order``).
        kind: as the settings declare it; with none, or with another one than numeric and date, the column has numbers if at
            least half of its values are, else dates.

    Cost: as of a feature.

    Raises:
        DataError: a cell is missing, or is no number or no date (``E_ROW_ORDER``), with the place of the first one.
    """
    numbers = None if kind == "date" else text.numbers(name)
    what, places = "number", numbers
    if numbers is None or (kind != "numeric" and 2 * np.count_nonzero(np.isfinite(numbers)) < _present(numbers)):
        what, places = "date", seconds_in(text, name)
    assert places is not None
    wrong = np.flatnonzero(~np.isfinite(places))
    if len(wrong):
        missing = bool(np.isnan(places[wrong[0]]))
        raise DataError(
            f"{text.locate(name, int(wrong[0]))}: {'no value' if missing else f'no {what}'} in column {name!r}, which orders "
            f"the records ({_cells(len(wrong), len(places))})",
            code="E_ROW_ORDER",
            hint="evaluate.hold_out takes the last records, so each needs its number or date in data.order: correct them, "
            "leave out these records, or name another column",
        )
    return places


def read_groups(text: TextColumns, name: str) -> NDArray[np.int64]:
    """The group of each record, int64[n]: the place of its cell, as text, among the sorted different ones; −1: missing."""
    column = text.feature(name, "categorical")
    assert isinstance(column, CategoricalColumn)
    return column.codes


def read_weights(text: TextColumns, name: str, *, whole: bool = True) -> NDArray[np.float64] | None:
    """How many times each record counts in a loss, float64[n], finite and from 0; None where all count alike.

    Args:
        text: the input; the column is kept as text.
        name: of the column (``data.weight``).
        whole: whether these are all rows; of some of them the mean is not known.

    Raises:
        DataError: a cell is missing, is no number, is negative or is more than :data:`MOST_WEIGHT` times their mean; or no
            weight is above 0 (``E_WEIGHT``).
    """
    weights = text.numbers(name)
    total = float(weights.sum()) if np.isfinite(weights).all() else 0.0
    of_mean = weights / (total / len(weights)) if whole and 0 < total < np.inf else np.zeros(len(weights))
    for wrong, what in (
        (np.isnan(weights), "no weight"),
        (np.isinf(weights), "no finite number, and a weight is one"),
        (weights < 0, "a weight below 0"),
        (of_mean > MOST_WEIGHT, f"a weight of more than {MOST_WEIGHT:.0f} times their mean"),
    ):
        if rows := np.flatnonzero(wrong).tolist():
            raise DataError(
                f"{text.locate(name, rows[0])}: {what} ({_cells(len(rows), len(weights))})",
                code="E_WEIGHT",
                hint="data.weight says how many times each row counts: write a number from 0 in each cell, correct very large "
                "ones, or leave out these rows",
            )
    if whole and not 0 < total < np.inf:
        raise DataError(
            f"{text.source}: the weights in column {name!r} {'are all 0' if total == 0 else 'are too large to be added up'}",
            code="E_WEIGHT",
            hint="name another column in data.weight, or none",
        )
    return None if weights.min() == weights.max() else weights


def read_offsets(text: TextColumns, data: Data, task: Task | None) -> NDArray[np.float64] | None:
    """What is added to the score of each record, float64[n], finite; None without such a column.

    Args:
        text: the input; the column is kept as text.
        data: of the settings.
        task: of the job; None: not known.

    Raises:
        DataError: a cell is missing, no finite number or too large, or an exposure is not above 0 (``E_OFFSET``); or the job
            has another task than an exposure is for (``E_CONFIG``).
    """
    name = data.offset or data.exposure
    if name is None:
        return None
    if data.exposure and task not in (None, "poisson"):
        raise DataError(
            f"{text.source}: data.exposure is for jobs with train.task: poisson, and this one has {task}",
            code="E_CONFIG",
            hint="leave data.exposure out for this job, or name a column of data.offset",
        )
    values, what = text.numbers(name), "exposure" if data.exposure else "offset"
    wrong = np.isnan(values) | (np.abs(values) > MOST_OFFSET) | ((values <= 0) & (data.exposure is not None))
    if rows := np.flatnonzero(wrong).tolist():
        first = values[rows[0]]
        said = f"no {what}" if np.isnan(first) else "no finite number" if np.isinf(first) else f"no usable {what}"
        raise DataError(
            f"{text.locate(name, rows[0])}: {said} in column {name!r} ({_cells(len(rows), len(values))})",
            code="E_OFFSET",
            hint=f"data.{what} says what is known of each row's score: write a number "
            f"{'above 0' if data.exposure else 'between ±1e100'} in each cell, or leave out these rows",
        )
    return np.log(values) if data.exposure else values


def _cells(wrong: int, rows: int) -> str:
    """How many cells are as the first one is."""
    return f"{wrong} such {'cell' if wrong == 1 else 'cells'} of {rows}"


def _present(numbers: NDArray[np.float64]) -> int:
    """How many cells are not missing."""
    return len(numbers) - int(np.count_nonzero(np.isnan(numbers)))


def seconds_in(text: TextColumns, name: str) -> NDArray[np.float64]:
    """The dates in a column that is kept as text: seconds since 1970-01-01, float64[n]; NaN: missing, infinity: none."""
    cells = FeatureCells("categorical", decimal=text.decimal, repeatable=False)
    for chunk in text.chunks(name):
        cells.extend(chunk)
    column = cells.column()
    assert isinstance(column, CategoricalColumn)
    return np.append(seconds_of(column.levels), np.nan)[column.codes]  # −1, missing, takes the last element
