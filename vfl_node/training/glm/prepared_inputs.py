"""A party's own side before it exchanges anything with the other: columns, initial weights, and labels at the shared rows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.randomness import Randomness
from vfl_node.data.design import Design, LinearEncoder
from vfl_node.data.evidence import weigh
from vfl_node.data.tables import LabelColumn
from vfl_node.errors import DataError
from vfl_node.session.session import Session
from vfl_node.training.class_weight import weight_of_classes
from vfl_node.training.glm import plain
from vfl_node.training.glm.config import GeneralisedLinear
from vfl_node.training.glm.scales import SCORE_RANGE
from vfl_node.training.glm.side import Floats, Positions, Side, find_varied
from vfl_node.training.glm.table_use import no_column
from vfl_node.training.own_columns import find_evidence, find_squeezed, scaling_warnings
from vfl_node.training.targets import TargetScale
from vfl_node.training.trainer import TrainingData


@dataclass(frozen=True, eq=False)
class PreparedInputs:
    """One party's side.

    Attributes:
        encoder: how its columns are encoded; holds its own data.
        design: its columns, all its rows.
        side: its linear model.
        targets: float64[m, K] of 0 and 1, or scaled numbers, zeros where a shared row is not its own; None without labels.
        labels: of all its rows as targets are made of them: classes, or scaled numbers; None without labels.
        scale: of numbers; None of classes, and without labels.
        used: bool[columns of the design]: which of them enter the model. Weights of evidence of which one does not are
            columns of zeros in it, so that nobody sees by their number what these weights are.
        dropped: names of the columns left out, or zeros.
        warnings: whole sentences about the scaling of columns, for the owner.
        row_weights: float64[m], the weight of each row by its class, 0 where it is not its own; None where all count alike.
    """

    encoder: LinearEncoder
    design: Design
    side: Side
    targets: Floats | None
    labels: LabelColumn | None
    scale: TargetScale | None
    used: NDArray[np.bool_]
    dropped: tuple[str, ...]
    warnings: tuple[str, ...] = ()
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
            (``E_NO_LABEL``), one class or target only (``E_ONE_CLASS``) or one too far from the others (``E_OVERFLOW``) where
            they belong.
    """
    if len(training) == 0:
        raise DataError(
            f"{len(data.alignment)} shared rows leave none to train on",
            code="E_EMPTY",
            hint="use more records, or a smaller evaluate.test_fraction",
        )
    train, active = GeneralisedLinear.section_of(session.job), session.role == "active"
    labelled = session.role == train.label_holder
    encoder = LinearEncoder.fit(data.table, train.scaling, find_evidence(session))
    design = encoder.transform(data.table)
    rows = data.alignment.rows
    own = training[rows[training] >= 0]
    used = np.count_nonzero(design.integers, axis=0) > 0 if encoder.evidence else np.ones(len(design.steps), np.bool_)
    if not (active and labelled):  # this party's gradient would show it residuals, or the other's scores
        used &= find_varied(design.integers[rows[own]], train.least_rows)
    entering = used
    if encoder.evidence:
        design, entering = replace(design, integers=design.integers * used), np.ones_like(used)
    if not active and not entering.any():
        raise no_column()
    side = Side(rows, design, entering, train, randomness, intercept=active)
    if active and len(own):
        side.spread(own, randomness.derive("spread"))
    dropped = (*encoder.dropped, *(name for name, stays in zip(design.shown, used, strict=True) if not stays))
    labels, scale = _labels(data, train, own) if labelled else (None, None)
    targets = None if labels is None else _targets(labels, data, train)
    weights = _row_weights(data, train, own) if labelled else None
    squeezed = find_squeezed(weigh(data.table, encoder.evidence), train.scaling)
    warnings = scaling_warnings(squeezed, encoder.columns)
    return PreparedInputs(encoder, design, side, targets, labels, scale, used, dropped, warnings, weights)


def _labels(data: TrainingData, train: GeneralisedLinear, own: Positions) -> tuple[LabelColumn, TargetScale | None]:
    """The table's labels, or its targets in deviations from the mean of those trained on, ``own``; these must differ."""
    if data.table.labels is None:
        raise DataError("the table has no label column", code="E_NO_LABEL", hint="set data.label")
    labels = data.table.labels
    trained = labels[data.alignment.rows[own]]
    if len(trained) == 0:
        return labels, None
    if not plain.LOSSES[train.objective].numbers:
        if trained.min() == trained.max():
            raise DataError(
                "all records that are shared have the same label",
                code="E_ONE_CLASS",
                hint="a classifier needs shared records of both classes",
                for_peer="its owner does not go on",
                peer_code="E_STOPPED",
            )
        return labels, None
    scale = TargetScale.fit(trained)
    if not (np.abs(scale.apply(trained)) < 2.0**SCORE_RANGE).all():
        raise DataError(
            f"a target lies {2**SCORE_RANGE} or more standard deviations from the mean of those trained on",
            code="E_OVERFLOW",
            hint="correct or leave out such records, or predict the logarithm of the target",
            for_peer="its owner does not go on",
            peer_code="E_STOPPED",
        )
    return scale.apply(labels), scale


def _targets(labels: LabelColumn, data: TrainingData, train: GeneralisedLinear) -> Floats:
    """What scores are compared with, at all shared rows that are this party's."""
    rows = data.alignment.rows
    targets = np.zeros((len(rows), train.outputs))
    mine = rows >= 0
    targets[mine] = plain.LOSSES[train.objective].targets(labels[rows[mine]], train.outputs)
    return targets


def _row_weights(data: TrainingData, train: GeneralisedLinear, own: Positions) -> Floats | None:
    """The weight of each shared row by its class; ``balanced`` follows the labels of the rows trained on, ``own``."""
    labels, rows = data.table.labels, data.alignment.rows
    if labels is None or not len(own):
        return None
    weights = weights_of_rows(labels[rows], train, labels[rows[own]])
    return None if weights is None else np.where(rows >= 0, weights, 0.0)


def weights_of_rows(labels: LabelColumn, train: GeneralisedLinear, followed: LabelColumn) -> Floats | None:
    """The weight of each row by its class, float64[n]; None where all count alike.

    Args:
        labels: float32[n], of the rows.
        train: the job's section.
        followed: labels that ``balanced`` follows: those trained on.
    """
    if train.weights is None or not len(followed):
        return None
    shares = np.bincount(followed.astype(np.int64), minlength=train.classes) / len(followed)
    return np.asarray(weight_of_classes(train.weights, shares)[labels.astype(np.int64)])
