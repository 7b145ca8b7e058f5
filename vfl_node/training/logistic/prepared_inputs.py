"""A party's own side before it exchanges anything with the other: columns, initial weights, and labels at the shared rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.randomness import Randomness
from vfl_node.data.design import Design, LinearEncoder
from vfl_node.errors import DataError
from vfl_node.session.session import Session
from vfl_node.training.class_weight import weight_of_classes
from vfl_node.training.logistic import plain
from vfl_node.training.logistic.config import Logistic, no_column
from vfl_node.training.logistic.side import Floats, Positions, Side, common_enough
from vfl_node.training.trainer import TrainingData


@dataclass(frozen=True, eq=False)
class PreparedInputs:
    """One party's side.

    Attributes:
        encoder: how its columns are encoded; holds its own data.
        design: its columns, all its rows.
        side: its linear model.
        targets: float64[m, K] of 0 and 1, zeros where a shared row is not its own; None without labels.
        dropped: names of the columns left out.
        row_weights: float64[m], the weight of each row by its class, 0 where it is not its own; None where all count alike.
    """

    encoder: LinearEncoder
    design: Design
    side: Side
    targets: Floats | None
    dropped: tuple[str, ...]
    row_weights: Floats | None = None


def prepare(session: Session, data: TrainingData, training: Positions, randomness: Randomness) -> PreparedInputs:
    """Encode this party's table and start its model.

    Args:
        session: the attempt at the job.
        data: what this party trains on.
        training: shared positions trained on.
        randomness: this party's own for the job.

    Raises:
        DataError: nothing to train on (``E_EMPTY``), no columns at the passive party (``E_NO_FEATURES``), no labels
            (``E_NO_LABEL``) or one class only (``E_ONE_CLASS``) where they belong.
    """
    if len(training) == 0:
        raise DataError(
            f"{len(data.alignment)} shared rows leave none to train on",
            code="E_EMPTY",
            hint="use more records, or a smaller evaluate.test_fraction",
        )
    train, active = Logistic.of(session.job), session.role == "active"
    labelled = session.role == train.label_holder
    encoder = LinearEncoder.fit(data.table, train.scaling)
    design = encoder.transform(data.table)
    rows = data.alignment.rows
    own = training[rows[training] >= 0]
    used = np.ones(len(design.steps), np.bool_)
    if not (active and labelled):  # this party's gradient would show it residuals, or the other's scores
        used = common_enough(design.integers[rows[own]], train.least_rows)
    if not active and not used.any():
        raise no_column()
    side = Side(rows, design, used, train, randomness, intercept=active)
    if active and len(own):
        side.spread(own, randomness.derive("spread"))
    dropped = (*encoder.dropped, *(name for name, stays in zip(design.shown, used, strict=True) if not stays))
    targets = _targets(data, train, own) if labelled else None
    return PreparedInputs(encoder, design, side, targets, dropped, _row_weights(data, train, own) if labelled else None)


def _targets(data: TrainingData, train: Logistic, own: Positions) -> Floats:
    """Labels of all shared rows that are this party's; those trained on, ``own``, must be of two classes at least."""
    if data.table.labels is None:
        raise DataError("the table has no label column", code="E_NO_LABEL", hint="set data.label")
    rows = data.alignment.rows
    labels = data.table.labels[rows[own]]
    if len(labels) and labels.min() == labels.max():
        raise DataError(
            "all records that are shared have the same label",
            code="E_ONE_CLASS",
            hint="a classifier needs shared records of both classes",
            for_peer="its owner does not go on",
            peer_code="E_STOPPED",
        )
    targets = np.zeros((len(rows), train.outputs))
    mine = rows >= 0
    targets[mine] = plain.one_hot(data.table.labels[rows[mine]], train.classes)
    return targets


def _row_weights(data: TrainingData, train: Logistic, own: Positions) -> Floats | None:
    """The weight of each shared row by its class; ``balanced`` follows the labels of the rows trained on, ``own``."""
    labels, rows = data.table.labels, data.alignment.rows
    if labels is None or not len(own):
        return None
    weights = weights_of_rows(labels[rows], train, counted=own)
    return None if weights is None else np.where(rows >= 0, weights, 0.0)


def weights_of_rows(labels: NDArray[np.float32], train: Logistic, *, counted: Positions | None = None) -> Floats | None:
    """The weight of each row by its class, float64[n]; None where all count alike.

    Args:
        labels: float32[n], of the rows.
        train: the job's section.
        counted: rows whose labels ``balanced`` follows; None: all.
    """
    if train.class_weight is None or not len(labels):
        return None
    followed = labels if counted is None else labels[counted]
    shares = np.bincount(followed.astype(np.int64), minlength=train.classes) / len(followed)
    return np.asarray(weight_of_classes(train.class_weight, shares)[labels.astype(np.int64)])
