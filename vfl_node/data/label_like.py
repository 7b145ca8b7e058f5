"""Columns that alone say almost surely what the label is: often they were recorded with the label, or after it.

A model that reads such a column looks perfect, and is useless for new records, which do not have it yet.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vfl_node.data.tables import CategoricalColumn, Column, Table, values_of
from vfl_node.metrics.classes import auc

ALMOST_SURELY = 0.99
"""An AUC, or with more than two classes a share of rows, above which a column is label-like.

Measured: the best single column has .71 on default_credit, .78 on adult, .69 on criteo_10k, .976 on scikit-learn's table of
breast cancer; talkingdata's time of the event, which is recorded with its label, has 1.
"""

LEAST_ROWS = 30
"""A class of fewer rows proves nothing: among many columns one may separate them by chance."""

MOST_ROWS = 50_000
"""So many rows are looked at, in equal distances: 40 ms a column (one core), however long the table is."""

MOST_LEVELS = 1000
"""Numbers of more different values are compared by their order alone."""


@dataclass(frozen=True)
class LabelLike:
    """A column that alone predicts the label.

    Attributes:
        name: of the column.
        score: AUC; with more than two classes the share of rows whose class it predicts.
        rows: that were looked at.
    """

    name: str
    score: float
    rows: int


def label_like(table: Table, classes: int) -> tuple[LabelLike, ...]:
    """The label-like columns of a table with labels of so many classes, the most telling one first.

    Numbers are judged by their order, and categories (and numbers of few different values) by what is most frequent in other
    rows of the same value: each half of the rows is judged by the other one, so that ids and other values that occur once tell
    nothing.

    Cost: a sort of at most :data:`MOST_ROWS` values for each column.
    """
    if table.labels is None:
        return ()
    rows = np.arange(0, len(table), -(-len(table) // MOST_ROWS))
    cells = table.labels[rows]
    if not np.isin(cells, np.arange(classes)).all():  # numbers to predict
        return ()
    labels = cells.astype(np.int64)
    counts = np.bincount(labels, minlength=classes)
    if np.count_nonzero(counts >= LEAST_ROWS) < 2:
        return ()
    wanted = ALMOST_SURELY if classes == 2 else max(ALMOST_SURELY, 1 - (1 - counts.max() / len(labels)) / 10)
    scores = {name: _score(_part(column, rows), labels, classes) for name, column in table.columns.items()}
    found = [LabelLike(name, score, len(rows)) for name, score in scores.items() if score > wanted]
    return tuple(sorted(found, key=lambda column: -column.score))


def _part(column: Column, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """The values of a column as numbers, NaN where missing: a category is its code, a date its seconds, a list its length."""
    values = values_of(column)[rows]
    if isinstance(column, CategoricalColumn):
        return np.where(values < 0, np.nan, values)
    return values.astype(np.float64)


def _score(values: NDArray[np.float64], labels: NDArray[np.int64], classes: int) -> float:
    distinct, level = np.unique(values, return_inverse=True)
    by_level = _predict_by_level(level, labels, classes) if len(distinct) <= MOST_LEVELS else 0.0
    if classes > 2:
        return by_level
    return max(by_level, *(_fold_auc(labels, np.where(np.isnan(values), missing, values)) for missing in (-np.inf, np.inf)))


def _predict_by_level(level: NDArray[np.int64], labels: NDArray[np.int64], classes: int) -> float:
    """How well each half of the rows is predicted by what is frequent at the same level in the other half."""
    half = (np.arange(len(labels), dtype=np.uint64) * np.uint64(2654435761) >> np.uint64(16)) & np.uint64(1)  # evenly mixed
    shares = np.empty((len(labels), classes))
    for own in (0, 1):
        learnt, judged = half != own, half == own
        cells = np.bincount(level[learnt] * classes + labels[learnt], minlength=(level.max() + 1) * classes)
        counts = cells.reshape(-1, classes) + np.bincount(labels[learnt], minlength=classes) / max(learnt.sum(), 1)
        shares[judged] = (counts / counts.sum(axis=1, keepdims=True))[level[judged]]
    if classes == 2:
        return auc(labels, shares[:, 1]) or 0.0
    return float((shares.argmax(axis=1) == labels).mean())


def _fold_auc(labels: NDArray[np.int64], values: NDArray[np.float64]) -> float:
    """AUC of the values, in the direction in which it is larger."""
    area = auc(labels, values)
    return 0.0 if area is None else max(area, 1 - area)
