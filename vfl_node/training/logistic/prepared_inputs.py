"""A party's own side before it has met the other: columns, start, and labels at the shared rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vfl_node.crypto.randomness import Randomness
from vfl_node.data.design import Design, LinearEncoder
from vfl_node.errors import DataError
from vfl_node.training.logistic import plain
from vfl_node.training.logistic.side import Floats, Positions, Side, common_enough
from vfl_node.training.logistic.task import Regression


@dataclass(frozen=True, eq=False)
class PreparedInputs:
    """One party's side.

    Attributes:
        encoder: how its columns are encoded; holds its own data.
        design: its columns, all its rows.
        side: its linear model.
        targets: float64[m, K] of 0 and 1, zeros where a shared row is not its own; None without labels.
        dropped: names of the columns left out.
    """

    encoder: LinearEncoder
    design: Design
    side: Side
    targets: Floats | None
    dropped: tuple[str, ...]


def prepare(task: Regression, training: Positions, randomness: Randomness) -> PreparedInputs:
    """Encode this party's table and start its model.

    Args:
        task: what it brings.
        training: shared positions trained on.
        randomness: its own, kept with the job.

    Raises:
        DataError: nothing to train on (``E_EMPTY``), no columns at the passive party (``E_NO_FEATURES``), no labels
            (``E_NO_LABEL``) or one class only (``E_ONE_CLASS``) where they belong.
    """
    if len(training) == 0:
        raise DataError(
            f"{len(task.alignment)} shared rows leave none to train on",
            code="E_EMPTY",
            hint="use more records, or a smaller evaluate.test_fraction",
        )
    encoder = LinearEncoder.fit(task.table, task.train.scaling)
    design = encoder.transform(task.table)
    rows = task.alignment.rows
    own = training[rows[training] >= 0]
    kept = np.ones(len(design.steps), np.bool_)
    if task.role == "passive" or not task.labelled:  # its gradient is a linear image of what it must not know
        kept = common_enough(design.integers[rows[own]], task.train.least_rows)
    if task.role == "passive" and not kept.any():
        raise DataError(
            "the passive party's table has no column to train on",
            code="E_NO_FEATURES",
            hint="add columns that vary, or declare ignored ones in data.columns; train.least_rows leaves rare ones out",
        )
    side = Side(rows, design, kept, task.train, randomness, intercept=task.role == "active")
    if task.role == "active" and len(own):
        side.spread(own, randomness.derive("spread"))
    dropped = (*encoder.dropped, *(name for name, stays in zip(design.names, kept, strict=True) if not stays))
    return PreparedInputs(encoder, design, side, _targets(task, own) if task.labelled else None, dropped)


def _targets(task: Regression, own: Positions) -> Floats:
    """Labels of all shared rows that are this party's; those trained on, ``own``, must be of two classes at least."""
    if task.table.labels is None:
        raise DataError("the table has no label column", code="E_NO_LABEL", hint="set data.label")
    rows = task.alignment.rows
    labels = task.table.labels[rows[own]]
    if len(labels) and labels.min() == labels.max():
        raise DataError(
            "all records that are shared have the same label",
            code="E_ONE_CLASS",
            hint="a classifier needs shared records of both classes",
            for_peer="its owner does not go on",
            peer_code="E_STOPPED",
        )
    targets = np.zeros((len(rows), task.train.outputs))
    mine = rows >= 0
    targets[mine] = plain.one_hot(task.table.labels[rows[mine]], task.train.classes)
    return targets
