"""One party's half of a model, and all halves in one place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vfl_node.alignment.alignment import Alignment
from vfl_node.configuration.versions import damage_error
from vfl_node.data.tables import Table
from vfl_node.training.glm.measuring import output_of
from vfl_node.training.predictor import KeptHalf, StoredModel
from vfl_node.training.targets import TargetScale

Floats = NDArray[np.float64]

WHAT, HINT = "what a training stored of its model", "restore it from a backup, or train again"


@dataclass(frozen=True)
class AdditiveHalf:
    """One party's half.

    Attributes:
        columns: a table → its columns as they were trained on, float64[n, d]. It raises DataError for a column that is missing
            or of another kind (``E_COLUMN``).
        weight: float64[d, width].
        predicted: at the active party, sums of all parts float64[n, width] → what the model says of the rows: probabilities
            float64[n], or of K > 2 classes float64[n, K]; in a regression numbers in the target's unit, float64[n]. None at a
            passive party.
    """

    columns: Callable[[Table], Floats]
    weight: Floats = field(repr=False)
    predicted: Callable[[Floats], Floats] | None = None

    def part(self, columns: Floats, alignment: Alignment, positions: NDArray[np.int64]) -> Floats:
        """This party's partial scores at shared ``positions``, float64[k, width]; 0 where it does not own the row.

        Each row is computed by itself: its last bits do not depend on the batch that it is in. Takes 2 µs a row.

        Args:
            columns: of all rows of its table.
            alignment: of that table.
            positions: int64[k].
        """
        rows = alignment.rows[positions]
        own = np.where((rows >= 0)[:, None], columns[rows], 0.0)
        return np.matmul(own[:, None], self.weight)[:, 0]


Opened = Callable[[StoredModel], AdditiveHalf]
"""What a trainer makes of one party's stored weights. It raises StateError where they are damaged (``E_STATE_CORRUPT``)."""


def kept_weights(model: StoredModel, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Floats]:
    """The stored weights by name: finite float64 of exactly these names and shapes. Raises StateError (``E_STATE_CORRUPT``)."""
    kept: dict[str, Tensor] = dict(model.weights)
    if {name: tuple(weight.shape) for name, weight in kept.items()} != dict(shapes):
        raise damage_error(WHAT, HINT)
    if not all(weight.dtype == torch.float64 and torch.isfinite(weight).all() for weight in kept.values()):
        raise damage_error(WHAT, HINT)
    return {name: weight.numpy() for name, weight in kept.items()}


def interpret(z: Floats, unit: Floats | None) -> Floats:
    """What scores z, float64[n, K], say: probabilities, or with a ``unit`` (mean, deviation) numbers in it."""
    return output_of(z).probabilities if unit is None else TargetScale(*unit.tolist()).undo(z[:, 0])


def predict_jointly(opened: Opened, active: KeptHalf, passives: Sequence[KeptHalf], positions: NDArray[np.int64]) -> Floats:
    """What the model says of the rows at shared ``positions``, with all halves in one place; as `AdditiveHalf.predicted`."""
    first = opened(active.model)
    parts = [
        half.part(half.columns(kept.table), kept.alignment, positions)
        for half, kept in [(first, active), *((opened(kept.model), kept) for kept in passives)]
    ]
    if first.predicted is None:
        raise damage_error(WHAT, HINT)
    return first.predicted(np.sum(parts, axis=0))
