"""What a party has of a model that was opened to its owners, and predictions by it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.shares.ring import decode
from vfl_node.data.declared import Declared
from vfl_node.data.tables import Table
from vfl_node.training.additive import half
from vfl_node.training.additive.half import AdditiveHalf, Floats, kept_weights, said
from vfl_node.training.additive.predictor import AdditivePredictor
from vfl_node.training.hidden import alone
from vfl_node.training.hidden.config import Hidden
from vfl_node.training.hidden.rows import Rows, columns_of
from vfl_node.training.serving import KeptHalf, StoredModel


class HiddenPredictor(AdditivePredictor):
    """Predictions between nodes."""

    def opened(self, model: StoredModel) -> AdditiveHalf:
        """As :func:`opened`."""
        return opened(model)

    def column_kinds(self, encoder: str) -> Mapping[str, Declared]:
        """As the base."""
        rows = Rows.from_json(encoder)
        return rows.written(rows.kinds)


def predict(active: KeptHalf, passives: Sequence[KeptHalf], positions: NDArray[np.int64]) -> NDArray[np.float64]:
    """Predictions in one place, for a trial whose tables have one owner: as :func:`vfl_node.training.additive.half.joined`.

    Columns of a party that does not own a row count as zeros, which are their means where ``scaling`` centres them.
    """
    return half.joined(opened, active, passives, positions)


def opened(model: StoredModel) -> AdditiveHalf:
    """One party's half.

    Columns are multiples of 2⁻¹⁸, as they were trained on, and weights of 2⁻²⁶: as long as sums are below 512, no bit is
    rounded. So a row has the same part in whichever batch and on whichever machine it is computed.

    Raises:
        StateError: weights are missing, or have other shapes than the job's model (``E_STATE_CORRUPT``).
    """
    train, rows, active = Hidden.of(model.job), Rows.from_json(model.encoder), "bias" in model.weights
    kept = kept_weights(model, _shapes(train, rows.width, active=active))

    def columns(table: Table) -> Floats:
        return decode(columns_of(rows, table, active=False))  # the intercept's part is the bias

    def predicted(sums: Floats) -> Floats:
        return said(alone.behind(sums + kept["bias"], [kept[name] for name in _layers(train)]), kept.get("target"))

    return AdditiveHalf(columns, kept["weight"].T, predicted if active else None)


def _layers(train: Hidden) -> dict[str, tuple[int, int]]:
    """Name → shape of what is stored of the layers behind the first: weights and a bias of each."""
    widths = [*train.hidden, train.outputs]
    shapes = [shape for inputs, outputs in pairwise(widths) for shape in ((inputs, outputs), (1, outputs))]
    return {f"layer {index}": shape for index, shape in enumerate(shapes)}


def _shapes(train: Hidden, columns: int, *, active: bool) -> dict[str, tuple[int, ...]]:
    """Name → shape of all that a party with so many columns stores."""
    shapes: dict[str, tuple[int, ...]] = {"weight": (train.first_width, columns)}
    if active:
        shapes |= {"bias": (train.first_width,), **_layers(train)}
        shapes |= {"target": (2,)} if train.task == "regression" else {}
    return shapes
