"""Predictions with both halves of a regression in one place, for a trial whose tables have one owner; nothing is sent."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vfl_node.data.design import LinearEncoder
from vfl_node.training.logistic import plain
from vfl_node.training.logistic.measuring import output_of
from vfl_node.training.serving import KeptHalf


def predict(active: KeptHalf, passive: KeptHalf, positions: NDArray[np.int64]) -> NDArray[np.float64]:
    """What the model says of the rows at shared ``positions``, which both own: float64[k], or float64[k, K]."""
    halves = active, passive
    values = [_columns(half, positions) for half in halves]
    weights = [half.model.weights["weight"].numpy().T for half in halves]
    return output_of(plain.logits(values, weights, active.model.weights["bias"].numpy())).probabilities


def _columns(half: KeptHalf, positions: NDArray[np.int64]) -> NDArray[np.float64]:
    design = LinearEncoder.from_json(half.model.encoder).transform(half.table)
    return design.integers[half.alignment.rows[positions]] * design.steps
