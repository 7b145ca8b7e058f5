"""What a party has of a regression, and predictions by it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from vfl_node.data.design import LinearEncoder
from vfl_node.data.tables import Table
from vfl_node.training.additive import half
from vfl_node.training.additive.half import AdditiveHalf, Floats, interpret, kept_weights
from vfl_node.training.additive.predictor import AdditivePredictor
from vfl_node.training.glm.config import GeneralisedLinear
from vfl_node.training.predictor import KeptHalf, StoredModel


class GlmPredictor(AdditivePredictor):
    """Predictions between nodes."""

    @override
    def open_half(self, model: StoredModel) -> AdditiveHalf:
        return open_half(model)


def predict(active: KeptHalf, passives: Sequence[KeptHalf], positions: NDArray[np.int64]) -> NDArray[np.float64]:
    """Predictions in one place, for a trial whose tables have one owner: as :func:`.half.predict_jointly`."""
    return half.predict_jointly(open_half, active, passives, positions)


def open_half(model: StoredModel) -> AdditiveHalf:
    """One party's half; the party with the labels has the bias, and in a regression of numbers their unit.

    Raises:
        StateError: weights are missing, or have other shapes than the job's model (``E_STATE_CORRUPT``).
    """
    train, encoder, labelled = (
        GeneralisedLinear.section_of(model.job),
        LinearEncoder.from_json(model.encoder),
        "bias" in model.weights,
    )
    shapes: dict[str, tuple[int, ...]] = {"weight": (train.outputs, encoder.width)}
    if labelled:
        shapes |= {"bias": (train.outputs,)} | ({"target": (2,)} if train.task == "regression" else {})
    kept = kept_weights(model, shapes)

    def columns(table: Table) -> Floats:
        return encoder.transform(table).values

    def predicted(sums: Floats) -> Floats:
        return interpret(sums + kept["bias"], kept.get("target"))

    return AdditiveHalf(columns, kept["weight"].T, predicted if labelled else None)
