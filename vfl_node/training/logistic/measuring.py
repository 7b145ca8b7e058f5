"""How good the model is, as the active party sees it: with the other party's scores, and alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from vfl_node.metrics import ModelOutput
from vfl_node.session.session import Session
from vfl_node.training import boosted_tree
from vfl_node.training.evaluation import Evaluation, assess, class_shares
from vfl_node.training.logistic import plain
from vfl_node.training.logistic.config import Logistic
from vfl_node.training.logistic.prepared_inputs import PreparedInputs
from vfl_node.training.logistic.side import Floats, Positions
from vfl_node.training.own_rows import OwnRows
from vfl_node.training.trainer import TrainingData

KIND = "a logistic regression of the same kind"
"""What the active party's own model is."""

OF_TWO_CLASSES = ("ace", "nll")
"""Metrics that are null with more classes, whose models are fitted one against the rest."""


def measure(
    session: Session, data: TrainingData, own: PreparedInputs, training: Positions, testing: Positions, theirs: Floats
) -> Evaluation:
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
    rows = OwnRows.of(data.alignment, testing, held_out=session.job.evaluate.test_fraction > 0, records=len(data.table))
    joint = output_of((theirs + own.side.scores(testing))[genuine])
    alone = output_of(_alone(session, data, own, rows)) if len(own.design.steps) else None
    trained_on = labels_of(own.targets[training][own.side.owned[training]])
    shares = class_shares(trained_on, Logistic.of(session.job).classes)
    labels, randomness = labels_of(own.targets[testing][genuine]), session.randomness.derive("resampling")
    undefined = OF_TWO_CLASSES if joint.scores.ndim > 1 else ()
    tree = boosted_tree.train(session, data, rows, session.randomness.derive("tree"))
    measured = assess(session.job.evaluate, labels, joint, alone, shares, randomness, rival=tree, undefined=undefined)
    return replace(measured, local_rows=None if alone is None else len(rows.training))


def output_of(scores: Floats) -> ModelOutput:
    """What linear scores float64[n, K] say: of class 1 for K = 1, else of each of K classes."""
    probabilities = plain.probabilities(scores)
    return ModelOutput(scores[:, 0], probabilities[:, 0]) if scores.shape[1] == 1 else ModelOutput(scores, probabilities)


def labels_of(targets: Floats) -> Floats:
    """Labels float64[n] of targets float64[n, K]."""
    return targets[:, 0] if targets.shape[1] == 1 else targets.argmax(axis=1).astype(np.float64)


def _alone(session: Session, data: TrainingData, own: PreparedInputs, rows: OwnRows) -> Floats:
    """Scores float64[n, K] of the active party's own model at ``rows.tested``, trained alike on its own columns."""
    train, design = Logistic.of(session.job), own.design
    assert data.table.labels is not None
    fitted = plain.fit(
        [design.integers[rows.training] * design.steps],
        data.table.labels[rows.training],
        [np.zeros((len(design.steps), train.outputs))],
        loss=plain.LOSSES[train.loss],
        l2=train.l2,
        learning_rate=train.learning_rate,
        iterations=train.iterations,
        tolerance=train.tolerance,
    )
    return plain.logits([design.integers[rows.tested] * design.steps], fitted.weights, fitted.intercepts)
