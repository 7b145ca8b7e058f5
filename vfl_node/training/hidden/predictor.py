"""Predictions by a model of hidden training: between nodes, and in one place for a trial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from vfl_node.crypto.shares.ring import WEIGHT_FRACTION, Ring, decode
from vfl_node.job import Job
from vfl_node.settings.declared import Declared
from vfl_node.training.hidden import alone
from vfl_node.training.hidden.config import Hidden
from vfl_node.training.hidden.kept import HiddenForm, KeptShares
from vfl_node.training.hidden.rows import RowEncoder
from vfl_node.training.predictor import KeptHalf, StoredModel
from vfl_node.training.shares.prediction import answers
from vfl_node.training.shares.prediction.predictor import SharesPredictor


class HiddenPredictor(SharesPredictor):
    """Predictions between nodes, as a `Predictor`."""

    @override
    def kept(self, model: StoredModel) -> KeptShares:
        return KeptShares.from_model(model)

    @override
    def form(self, trained: Job, widths: Sequence[int]) -> HiddenForm:
        return HiddenForm(trained, widths)

    @override
    def column_kinds(self, encoder: str) -> Mapping[str, Declared]:
        stored = RowEncoder.from_json(encoder)
        return stored.declare(stored.kinds)


def predict(active: KeptHalf, passives: Sequence[KeptHalf], positions: NDArray[np.int64]) -> NDArray[np.float64]:
    """Predictions in one place, for a trial whose tables have one owner, who so has all shares.

    Scores have the steps of predictions between nodes, each rounded to the nearest. Columns of a party that does not own a row
    count as zeros.

    Args:
        active: its part.
        passives: theirs, in the job's order.
        positions: shared ones, int64[k].

    Returns:
        As :func:`vfl_node.training.shares.prediction.answers.interpret`.
    """
    halves = [active, *passives]
    kept = [KeptShares.from_model(half.model) for half in halves]
    form, train = kept[0].form, Hidden.section_of(active.model.job)
    weights = [
        decode(np.sum(parts, axis=0, dtype=np.uint64), WEIGHT_FRACTION)
        for parts in zip(*(party.shares for party in kept), strict=True)
    ]
    first = sum(_columns(party, half, positions) @ weight for party, half, weight in zip(kept, halves, weights, strict=False))
    z = alone.scores_from_sums(np.asarray(first), weights[len(halves) :])
    return answers.interpret(answers.round_scores(z, form), train, kept[0].stored.target)


def _columns(kept: KeptShares, half: KeptHalf, positions: NDArray[np.int64]) -> NDArray[np.float64]:
    """A party's columns of the rows at ``positions``, float64[k, d]."""
    rows = half.alignment.rows[positions]
    columns: Ring = kept.columns(half.table)
    return decode(np.where((rows >= 0)[:, None], columns[rows], np.uint64(0)))
