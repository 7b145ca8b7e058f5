"""Predictions with all halves of a split network in one place, for a trial whose tables have one owner; nothing is sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from vfl_node.job import Serve
from vfl_node.training.network.local import ROWS_AT_ONCE
from vfl_node.training.schedule import cut
from vfl_node.training.serving import KeptHalf
from vfl_node.training.split.serving.served_model import ServedModel
from vfl_node.training.split.serving.sides import Embedder, Scorer


def predict(active: KeptHalf, passives: Sequence[KeptHalf], positions: NDArray[np.int64]) -> NDArray[np.float64]:
    """What the active party would expect of the labels at shared ``positions`` that it owns, float64[k] or float64[k, K].

    As in the evaluation: where the active party does not know whether a passive party's columns are real, the expectation.
    Embeddings are defended as those that are sent.

    Args:
        active: its half.
        passives: that of each passive party, in the job's order.
        positions: int64[k].
    """
    cpu = torch.device("cpu")
    scorer = Scorer(served(active), active.alignment, active.table, cpu)
    embedders = [Embedder(served(half), half.alignment, half.table, cpu, half.defences) for half in passives]
    parts = cut(positions, ROWS_AT_ONCE) or [positions]
    return np.concatenate([scorer.expected(part, [embedder.shared(part) for embedder in embedders]) for part in parts])


def served(half: KeptHalf) -> ServedModel:
    """The half as it is for predictions; a job that does not serve has no batches, and the default's do."""
    model = half.model
    if model.job.serve is None:
        model = replace(model, job=model.job.model_copy(update={"serve": Serve(to="active")}))
    return ServedModel.of(model)
