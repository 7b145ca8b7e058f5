"""Predictions with all halves of a regression in one place, for a trial whose tables have one owner; nothing is sent."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vfl_node.data.design import LinearEncoder
from vfl_node.training.glm import plain
from vfl_node.training.glm.measuring import output_of
from vfl_node.training.serving import KeptHalf
from vfl_node.training.targets import TargetScale


def predict(active: KeptHalf, passives: Sequence[KeptHalf], positions: NDArray[np.int64]) -> NDArray[np.float64]:
    """What the model says of the rows at shared ``positions``, which all own: float64[k], or float64[k, K].

    They are probabilities; in a regression numbers in the target's unit.
    """
    halves = active, *passives
    values = [_columns(half, positions) for half in halves]
    weights = [half.model.weights["weight"].numpy().T for half in halves]
    scores = plain.logits(values, weights, active.model.weights["bias"].numpy())
    unit = active.model.weights.get("target")
    return output_of(scores).probabilities if unit is None else TargetScale(*unit.tolist()).original(scores[:, 0])


def _columns(half: KeptHalf, positions: NDArray[np.int64]) -> NDArray[np.float64]:
    design = LinearEncoder.from_json(half.model.encoder).transform(half.table)
    return design.integers[half.alignment.rows[positions]] * design.steps
