"""How good the model is, as the active party sees it: with the other parties' scores, and alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from vfl_node.data.tables import LabelColumn
from vfl_node.metrics.classes import ModelOutput
from vfl_node.metrics.numbers import PredictedNumbers
from vfl_node.session.session import Session
from vfl_node.training import boosted_tree
from vfl_node.training.evaluation import Evaluation, assess, class_shares
from vfl_node.training.glm import plain
from vfl_node.training.glm.config import GeneralisedLinear
from vfl_node.training.glm.prepared_inputs import PreparedInputs, weights_of_rows
from vfl_node.training.glm.side import Floats, Positions
from vfl_node.training.intervals import Output
from vfl_node.training.own_rows import OwnRows
from vfl_node.training.trainer import TrainingData

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
        theirs: the other parties' scores of them, summed up, float64[B, K].
    """
    assert data.table.labels is not None
    table_rows, genuine = data.alignment.rows, own.side.owned[testing]
    labels = data.table.labels[table_rows[testing[genuine]]]
    trained_on = data.table.labels[table_rows[training[own.side.owned[training]]]]
    rows = OwnRows.select(data.alignment, testing, held_out=session.job.evaluate.test_fraction > 0, records=len(data.table))
    joint = _interpret(own, (theirs + own.side.scores(testing))[genuine])
    alone = _interpret(own, _score_alone(session, own, data, rows, trained_on)) if len(own.design.steps) else None
    constant: Output | None
    if own.scale is not None:
        constant = PredictedNumbers.constant(own.scale.mean, len(labels))
    else:
        shares = class_shares(trained_on, GeneralisedLinear.section_of(session.job).classes)
        constant = None if shares is None else ModelOutput.constant(shares, len(labels))
    undefined = OF_TWO_CLASSES if isinstance(joint, ModelOutput) and joint.scores.ndim > 1 else ()
    randomness = session.randomness.derive("resampling")
    tree = boosted_tree.train(session, data, rows, session.randomness.derive("tree"))
    measured = assess(session.job.evaluate, labels, joint, alone, constant, randomness, rival=tree, undefined=undefined)
    return replace(measured, local_rows=None if alone is None else len(rows.training))


def _interpret(own: PreparedInputs, scores: Floats) -> Output:
    """What linear scores float64[n, K] say: numbers in the target's unit, or classes."""
    return output_of(scores) if own.scale is None else PredictedNumbers(own.scale.undo(scores[:, 0]))


def output_of(scores: Floats) -> ModelOutput:
    """What linear scores float64[n, K] say: of class 1 for K = 1, else of each of K classes."""
    probabilities = plain.probabilities(scores)
    return ModelOutput(scores[:, 0], probabilities[:, 0]) if scores.shape[1] == 1 else ModelOutput(scores, probabilities)


def labels_of(targets: Floats) -> Floats:
    """Labels float64[n] of targets float64[n, K]."""
    return targets[:, 0] if targets.shape[1] == 1 else targets.argmax(axis=1).astype(np.float64)


def _score_alone(session: Session, own: PreparedInputs, data: TrainingData, rows: OwnRows, joint: LabelColumn) -> Floats:
    """Scores float64[n, K] of the active party's own model at ``rows.tested``, trained alike on its own columns.

    Its classes weigh as in the federated model, whose labels ``joint`` are.
    """
    train, design = GeneralisedLinear.section_of(session.job), own.design
    assert own.labels is not None
    assert data.table.labels is not None
    fitted = plain.fit(
        [design.integers[rows.training] * design.steps],
        own.labels[rows.training],
        [np.zeros((len(design.steps), train.outputs))],
        loss=plain.LOSSES[train.objective],
        l2=train.l2,
        learning_rate=train.learning_rate,
        iterations=train.iterations,
        tolerance=train.tolerance,
        row_weights=weights_of_rows(data.table.labels[rows.training], train, joint),
    )
    return plain.logits([design.integers[rows.tested] * design.steps], fitted.weights, fitted.intercepts)
