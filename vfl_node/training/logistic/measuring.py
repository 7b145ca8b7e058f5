"""How good the model is, as the active party sees it: with the other party's scores, and alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vfl_node import metrics
from vfl_node.session.session import Session
from vfl_node.training.evaluation import Curve, Values
from vfl_node.training.logistic import plain
from vfl_node.training.logistic.config import Logistic
from vfl_node.training.logistic.prepared_inputs import PreparedInputs
from vfl_node.training.logistic.side import Floats, Positions
from vfl_node.training.trainer import TrainingData


@dataclass(frozen=True)
class Measured:
    """Results on the rows held out for measuring.

    Attributes:
        metrics: of the model of both parties.
        local_metrics: of a model of the active party's columns alone; None if it has no columns.
        curve: calibration curve of the model of both parties; empty for several classes.
        local_curve: likewise, of the active party's model.
        rows: how many rows were measured on.
    """

    metrics: Values
    local_metrics: Values | None
    curve: Curve
    local_curve: Curve
    rows: int


def measure(
    session: Session, data: TrainingData, own: PreparedInputs, training: Positions, testing: Positions, theirs: Floats
) -> Measured:
    """Results on those of ``testing`` that are this party's own.

    Args:
        session: the attempt at the job.
        data: what this party trains on.
        own: its side, trained.
        training: shared positions trained on.
        testing: shared positions measured on.
        theirs: the other party's scores of them, float64[B, K].
    """
    assert own.targets is not None
    genuine = own.side.owned[testing]
    targets = own.targets[testing][genuine]
    scores = (theirs + own.side.scores(testing))[genuine]
    names = session.job.evaluate.metrics
    local, local_curve = None, []
    if len(own.design.steps):
        alone = _alone(session, data, own, training, testing[genuine])
        local, local_curve = of_scores(names, targets, alone), _curve(targets, alone)
    return Measured(of_scores(names, targets, scores), local, _curve(targets, scores), local_curve, len(scores))


def of_scores(names: tuple[str, ...], targets: Floats, scores: Floats) -> Values:
    """The metrics ``names`` of scores float64[n, K]; of several classes accuracy and the mean AUC only."""
    probabilities = plain.probabilities(scores)
    if scores.shape[1] == 1:
        return metrics.compute(names, targets[:, 0], scores[:, 0], probabilities[:, 0])
    labels = targets.argmax(axis=1)
    several = {"accuracy": metrics.multiclass_accuracy(labels, probabilities), "auc": metrics.macro_auc(labels, scores)}
    return {name: several.get(name) for name in names}


def _alone(session: Session, data: TrainingData, own: PreparedInputs, training: Positions, testing: Positions) -> Floats:
    """Scores float64[n, K] of the active party's own model, trained alike on its own columns; ``testing`` are all its own."""
    train = Logistic.of(session.job)
    rows, design = data.alignment.rows, own.design
    mine = rows[training[own.side.owned[training]]]
    assert data.table.labels is not None
    fitted = plain.fit(
        [design.integers[mine] * design.steps],
        data.table.labels[mine],
        [np.zeros((len(design.steps), train.outputs))],
        loss=plain.LOSSES[train.loss],
        l2=train.l2,
        learning_rate=train.learning_rate,
        iterations=train.iterations,
        tolerance=train.tolerance,
    )
    return plain.logits([design.integers[rows[testing]] * design.steps], fitted.weights, fitted.intercepts)


def _curve(targets: Floats, scores: Floats) -> Curve:
    if scores.shape[1] > 1:
        return []
    return metrics.calibration_curve(targets[:, 0], plain.probabilities(scores)[:, 0])
