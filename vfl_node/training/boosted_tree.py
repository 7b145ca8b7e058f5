"""A boosted tree of the active party alone: what a user would otherwise reach for, beside the federated model.

scikit-learn's histogram gradient boosting with its default settings, on all own labelled rows that are not held out and on own
columns only, as the table has them: numbers with missing values, and categories as categories. Nothing of it crosses the wire,
is stored for predictions or shared.

How long it takes depends on the rows and on their values, and the peer waits. So by default there is none where the job hides
from the peer how many records this party has, or shares (``compare.boosted_tree: true`` trains it even so).
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.randomness import Randomness
from vfl_node.data.dates import parts_of
from vfl_node.data.tables import CategoricalColumn, Table, values_of
from vfl_node.metrics.classes import ModelOutput
from vfl_node.metrics.counts import PredictedCounts
from vfl_node.metrics.numbers import PredictedNumbers
from vfl_node.session.session import Session
from vfl_node.training.evaluation import RivalOutput
from vfl_node.training.intervals import Output
from vfl_node.training.own_rows import OwnRows
from vfl_node.training.trainer import TrainingData

Cells = NDArray[np.float64]

MOST_CODES = 255
"""Distinct values of a category that the tree can tell apart; of more levels the rarest share one code."""

MISSING_LIBRARY = (
    "No boosted tree was trained for comparison: scikit-learn is not installed at this node (pip install 'vfl-node[compare]')."
)
SWITCHED_OFF = "No boosted tree was trained for comparison: this node's settings say so (compare.boosted_tree: false)."
HIDDEN_SIZES = (
    "No boosted tree was trained for comparison: the other party waits for it, and this job hides from it numbers of records "
    "of which the time would tell something (compare.boosted_tree: true trains it even so)."
)
NO_OFFSET = "No boosted tree was trained for comparison: it takes no offset (data.offset)."
NOTHING_TO_LEARN = "No boosted tree was trained for comparison: it has no column to learn from, or all labels are the same."


def train(session: Session, data: TrainingData, own: OwnRows, randomness: Randomness) -> RivalOutput:
    """Train the tree, unless the owner's settings or this machine say otherwise, and ask it about the rows measured on.

    Args:
        session: the attempt at the job.
        data: the party's table, with labels, and the alignment.
        own: the rows it learns from, and those it is measured on.
        randomness: of this party for this tree alone. The library takes 32 bits of it. They choose rows for its bins and, of
            more than 10,000 rows, those that tell it when to stop: nothing secret.

    Returns:
        What it says; without output, and with the reason, where there is none.

    Cost: 8 bytes a cell; about 4 s for 100,000 rows of 50 columns (one core of a small, busy server). It is trained on
        ``compare.most_rows`` rows at most, a random part of more.
    """
    if reason := _reason(session, data):
        return RivalOutput(None, note=reason)
    rows, table, classes = own.not_held_out, data.table, session.job.classes
    if len(rows) > session.policy.compare.most_rows:
        rows = np.sort(rows[randomness.derive("rows").permutation(len(rows))[: session.policy.compare.most_rows]])
    assert table.labels is not None
    if table.offsets is not None and session.job.task != "poisson":
        return RivalOutput(None, note=NO_OFFSET)
    labels = table.labels[rows]
    weights = None if table.weights is None else table.weights[rows]
    cells, categorical = design(table, rows)
    if not categorical or len(labels) == 0 or labels.min() == labels.max():
        return RivalOutput(None, note=NOTHING_TO_LEARN)
    import sklearn  # takes a second, and is an extra
    import torch
    from threadpoolctl import threadpool_limits

    state = int.from_bytes(randomness.bytes(4), "big")
    with threadpool_limits(torch.get_num_threads()):
        if session.job.task == "poisson":
            exposure = np.ones(len(table)) if table.offsets is None else np.exp(table.offsets)
            told = exposure[own.tested]
            of_rows = exposure[rows] if weights is None else weights * exposure[rows]  # so that a rate is learnt as a count is
            asked = cells[own.tested]
            name, said = _regressed(cells[rows], labels / exposure[rows], of_rows, asked, categorical, state, "poisson")
            output: Output = PredictedCounts(said * told, None if table.offsets is None else told)
        elif session.job.task == "regression":
            name, said = _regressed(cells[rows], labels, weights, cells[own.tested], categorical, state)
            output = PredictedNumbers(said)
        else:
            of_class, asked = labels.astype(np.int64), cells[own.tested]
            name, output = _classified(cells[rows], of_class, weights, asked, classes, categorical, state)
    return RivalOutput(output, f"a boosted tree ({name} of scikit-learn {sklearn.__version__})", len(rows))


def _classified(
    cells: Cells,
    labels: NDArray[np.int64],
    weights: NDArray[np.float64] | None,
    asked: Cells,
    classes: int,
    categorical: list[bool],
    state: int,
) -> tuple[str, Output]:
    """The library's name for the tree, and what it says of the rows ``asked`` once it has learnt from ``cells``."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    single = np.bincount(labels)[labels].min() == 1  # then the library cannot set rows of each class apart to stop early
    early = {"early_stopping": False} if single else {}
    model = HistGradientBoostingClassifier(categorical_features=categorical, random_state=state, **early)
    model.fit(cells, labels, weights)
    said = np.zeros((len(asked), classes))
    if len(asked):
        said[:, model.classes_] = model.predict_proba(asked)
    return type(model).__name__, ModelOutput.clip(said[:, 1] if classes == 2 else said)


def _regressed(
    cells: Cells,
    targets: NDArray[np.float64],
    weights: NDArray[np.float64] | None,
    asked: Cells,
    categorical: list[bool],
    state: int,
    loss: Literal["squared_error", "poisson"] = "squared_error",
) -> tuple[str, NDArray[np.float64]]:
    """As :func:`_classified`: numbers in the target's unit, float64[k]."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    model = HistGradientBoostingRegressor(loss=loss, categorical_features=categorical, random_state=state)
    model.fit(cells, targets, weights)
    return type(model).__name__, model.predict(asked) if len(asked) else np.zeros(0)


def design(table: Table, rows: NDArray[np.int64]) -> tuple[Cells, list[bool]]:
    """What the tree reads of all rows of ``table``, float64[n, d], NaN: missing; and which of the columns are categories.

    Levels are numbered by how often they occur among ``rows``; those that do not are missing. A column without a value in
    ``rows`` is left out: it says nothing, and the library refuses it. Of a list the tree reads how many items it has.
    """
    columns: list[NDArray[np.float64]] = []
    categorical: list[bool] = []
    for column in (part for whole in table.columns.values() for _, part in parts_of(whole)):
        numeric = not isinstance(column, CategoricalColumn)
        values = (
            _codes(column.codes, rows, len(column.levels))
            if isinstance(column, CategoricalColumn)
            else values_of(column).astype(np.float64, copy=False)
        )
        if not np.isnan(values[rows]).all():
            columns.append(values)
            categorical.append(not numeric)
    return np.column_stack(columns) if columns else np.empty((len(table), 0)), categorical


def _codes(codes: NDArray[np.int64], rows: NDArray[np.int64], levels: int) -> NDArray[np.float64]:
    seen = codes[rows]
    counts = np.bincount(seen[seen >= 0], minlength=levels)
    rank = np.empty(levels + 1)
    rank[np.argsort(-counts, kind="stable")] = np.minimum(np.arange(levels), MOST_CODES - 1)
    rank[:levels][counts == 0] = np.nan
    rank[levels] = np.nan  # where −1, missing, looks it up
    return np.asarray(rank[codes])


def _reason(session: Session, data: TrainingData) -> str:
    """Why there is no tree; empty where there may be one."""
    wish: Any = session.policy.compare.boosted_tree
    if wish is False:
        return SWITCHED_OFF
    if find_spec("sklearn") is None:
        return MISSING_LIBRARY
    view, align = data.alignment, session.job.align
    unknown = any(facts.missing is None for facts in view.peers.values())
    hidden = view.hides_intersection or unknown or align.padding > 0
    return HIDDEN_SIZES if hidden and wish is not True else ""
