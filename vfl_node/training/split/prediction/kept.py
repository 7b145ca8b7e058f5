"""What the halves of a split network say that their owner has kept; nothing is sent for it.

All halves in one place predict, for a trial whose tables have one owner. A passive party's half makes the embeddings that it
would send, so that its owner can attack them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vfl_node.crypto.randomness import Randomness
from vfl_node.job import Serve
from vfl_node.job.costs import ROWS_AT_ONCE
from vfl_node.models import architecture_of
from vfl_node.models.inputs import ModelInput
from vfl_node.training.prediction.sides import Positions
from vfl_node.training.predictor import KeptHalf
from vfl_node.training.schedule import cut
from vfl_node.training.split.config import Train
from vfl_node.training.split.prediction.model import VERSION, SplitModel
from vfl_node.training.split.prediction.sides import Embedder, Scorer


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
    scorer = Scorer(split_model(active), active.alignment, active.table, cpu)
    embedders = [Embedder(split_model(half), half.alignment, half.table, cpu, half.defences) for half in passives]
    parts = cut(positions, ROWS_AT_ONCE) or [positions]
    return np.concatenate([scorer.own_probability(part, [side.embed_shared(part) for side in embedders]) for part in parts])


def split_model(half: KeptHalf) -> SplitModel:
    """The half as it is for predictions; a job that does not serve has no batches, and the default's do."""
    model = half.model
    if model.job.serve is None:
        model = replace(model, job=model.job.model_copy(update={"serve": Serve(to="active")}))
    return SplitModel.load(model)


class KeptEmbeddings:
    """As :class:`vfl_node.training.predictor.Embeddings`.

    Args:
        half: of a passive party. Where its job does not serve, only its weights and its encoder are kept
            (``half.model.state`` is empty): then what a defence draws is drawn anew.
        randomness: for these draws.
        device: where to compute.
    """

    def __init__(self, half: KeptHalf, randomness: Randomness, device: torch.device) -> None:
        model = half.model
        if not model.state:
            version = architecture_of(Train.section_of(model.job).model, model.models).version
            draws = {name: randomness.derive(name).bytes(32).hex() for name in ("draws", "batches")}
            model = replace(model, state=json.dumps({"version": VERSION, "model_version": version, **draws}))
        self._side = Embedder(split_model(replace(half, model=model)), half.alignment, half.table, device, half.defences)

    def inputs(self, positions: Positions) -> ModelInput:
        """As :meth:`Embeddings.inputs`."""
        return self._side.inputs.take(positions)

    def rows(self, positions: Positions) -> Tensor:
        """As :meth:`Embeddings.rows`."""
        return torch.cat([self._side.embed_shared(part) for part in cut(positions, ROWS_AT_ONCE) or [positions]])
