"""One party's half of a model whose weights are open to their owners: its part of the first layer, and all behind that."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from vfl_node.alignment.alignment import Alignment
from vfl_node.crypto.shares.ring import decode, encode
from vfl_node.data.design import LinearEncoder
from vfl_node.data.tables import Table
from vfl_node.training.glm.measuring import output_of
from vfl_node.training.hidden import alone
from vfl_node.training.hidden.config import Hidden
from vfl_node.training.hidden.inputs import CLIP
from vfl_node.training.serving import StoredModel
from vfl_node.training.targets import TargetScale
from vfl_node.versions import damaged

Floats = NDArray[np.float64]

WHAT, HINT = "what a training in shares stored of its model", "restore it from a backup, or train again"


class OpenedHalf:
    """One party's weights, as they are stored.

    Args:
        model: what the party has stored.

    Raises:
        StateError: weights are missing, or have other shapes than the job's model (``E_STATE_CORRUPT``).
    """

    def __init__(self, model: StoredModel) -> None:
        train = Hidden.of(model.job)
        kept = {name: tensor.numpy() for name, tensor in model.weights.items()}
        self._encoder = LinearEncoder.from_json(model.encoder)
        if {name: of.shape for name, of in kept.items()} != _shapes(train, self._encoder.width, active="bias" in kept):
            raise damaged(WHAT, HINT)
        self._weight, self._bias = kept["weight"].T, kept.get("bias")
        self._layers = [kept[name] for name in _layers(train) if name in kept]
        self._unit = TargetScale(*kept["target"].tolist()) if "target" in kept else None

    @property
    def active(self) -> bool:
        """Whether it is the active party's, with a bias and all layers behind the first."""
        return self._bias is not None

    def columns(self, table: Table) -> Floats:
        """The columns of all rows as they were trained on, float64[n, d], multiples of 2⁻¹⁸.

        Raises:
            DataError: a column is missing or of another kind (``E_COLUMN``).
        """
        return decode(encode(np.clip(self._encoder.transform(table).values, -CLIP, CLIP)))

    def part(self, columns: Floats) -> Floats:
        """This party's part of the sums that the first layer reads, float64[n, width].

        Columns are multiples of 2⁻¹⁸, weights of 2⁻²⁶: as long as sums are below 512, no bit is rounded. So a row has the same
        part in whichever batch and on whichever machine it is computed.
        """
        return columns @ self._weight

    def predicted(self, sums: Floats) -> Floats:
        """At the active party, what the model says of the ``sums`` of all parts, float64[n, width].

        Returns:
            Probabilities, float64[n] or of K > 2 classes float64[n, K]; in a regression float64[n], in the target's unit.
        """
        assert self._bias is not None  # an active party's half
        z = alone.behind(sums + self._bias, self._layers)
        return output_of(z).probabilities if self._unit is None else self._unit.original(z[:, 0])


def placed(columns: Floats, alignment: Alignment, positions: NDArray[np.int64]) -> Floats:
    """The ``columns`` of a table's rows at shared ``positions``, int64[k]: zeros where the party does not own the row."""
    rows = alignment.rows[positions]
    return np.where((rows >= 0)[:, None], columns[rows], 0.0)


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
