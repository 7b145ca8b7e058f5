"""Predictions by opened weights with all halves in one place, for a trial whose tables have one owner; nothing is sent."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vfl_node.data.design import LinearEncoder
from vfl_node.training.glm.measuring import output_of
from vfl_node.training.hidden import alone
from vfl_node.training.hidden.inputs import CLIP
from vfl_node.training.serving import KeptHalf
from vfl_node.training.targets import TargetScale


def predict(active: KeptHalf, passives: Sequence[KeptHalf], positions: NDArray[np.int64]) -> NDArray[np.float64]:
    """What the model says of the rows at shared ``positions``: float64[k], or float64[k, K].

    They are probabilities; in a regression numbers in the target's unit. Columns of a party that does not own a row count as
    zeros, which are their means where ``scaling`` centres them.
    """
    halves, own = (active, *passives), active.model.weights
    values = np.concatenate([*(_columns(half, positions) for half in halves), np.ones((len(positions), 1))], axis=1)
    first = [half.model.weights["weight"].numpy().T for half in halves]
    later = [own[f"layer {index}"].numpy() for index in range(sum(name.startswith("layer ") for name in own))]
    z = alone.scores(values, [np.concatenate([*first, own["bias"].numpy()[None]]), *later])
    unit = own.get("target")
    return output_of(z).probabilities if unit is None else TargetScale(*unit.tolist()).original(z[:, 0])


def _columns(half: KeptHalf, positions: NDArray[np.int64]) -> NDArray[np.float64]:
    values = LinearEncoder.from_json(half.model.encoder).transform(half.table).values
    rows = half.alignment.rows[positions]
    columns = np.zeros((len(rows), values.shape[1]))
    columns[rows >= 0] = np.clip(values[rows[rows >= 0]], -CLIP, CLIP)
    return columns
