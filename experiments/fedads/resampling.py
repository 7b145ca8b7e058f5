"""How sure an AUC is on rows held out that are the same in every training: the bootstrap, paired by row.

Rows held out by time cannot be drawn anew. That other rows would give other figures shows only where these are resampled:
each training keeps its AUC on the same resamples, so that differences are paired by row, of trainings at other times, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from experiments.fedads.data import ACTIVE, PASSIVE
from vfl_node.crypto.randomness import Randomness
from vfl_node.job import Job, Serve
from vfl_node.metrics.classes import auc
from vfl_node.session.session import Session
from vfl_node.training.intervals import DRAWS, NORMAL
from vfl_node.training.network.alone import logits_alone
from vfl_node.training.own_rows import OwnRows
from vfl_node.training.predictor import StoredModel
from vfl_node.training.split.config import Train
from vfl_node.training.split.prediction.model import SplitModel
from vfl_node.training.split.prediction.sides import Embedder, Scorer
from vfl_node.training.split.tasks import task_of
from vfl_node.training.trainer import Trained, TrainingData

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Said:
    """What the models of one training say of each row held out; a result has figures alone.

    Attributes:
        labels: float32[k], in the order of the shared positions.
        joint: float64[k], of the joint model.
        alone: float64[k], of the label party's own model.
    """

    labels: NDArray[np.float32]
    joint: Floats
    alone: Floats


def said(job: Job, own: Session, data: Mapping[str, TrainingData], trained: Mapping[str, Trained]) -> Said:
    """The joint model's as its halves predict, and those of the label party's own network, which is trained once more.

    Args:
        job: what was trained.
        own: the label party's session of it.
        data: party → what it trained on; all its shared rows are owned.
        trained: party → its result.
    """
    cpu, rows = torch.device("cpu"), trained[ACTIVE].held_out
    asked = job.model_copy(update={"serve": Serve(to="active")})

    def served(party: str) -> SplitModel:
        result = trained[party]
        assert result.servable is not None
        return SplitModel.load(StoredModel(asked, result.weights, result.encoder, result.servable.state))

    label_party, other = data[ACTIVE], data[PASSIVE]
    embeddings = Embedder(served(PASSIVE), other.alignment, other.table, cpu).embed_shared(rows)
    joint = Scorer(served(ACTIVE), label_party.alignment, label_party.table, cpu).own_probability(rows, [embeddings])

    table, view = label_party.table, label_party.alignment
    assert table.labels is not None
    shared = table.labels[view.rows]
    places = OwnRows.select(view, rows, held_out=True, records=len(table), order=table.order)
    task = task_of(Train.section_of(job), np.delete(shared, rows))
    logits = logits_alone(own, label_party, places, task, own.randomness.derive("alone/0").derive("network"))
    assert logits is not None
    return Said(shared[rows], joint, task.plain_scores(logits))


def resampled(labels: NDArray[np.float32], scores: Floats) -> list[float]:
    """AUC on each of :data:`DRAWS` resamples, which are the same for equally many rows, to four digits.

    Cost: about 0.2 s for 2,000 rows.
    """
    rows, drawn = len(labels), Randomness(bytes(32)).derive("fedads resamples")
    resamples = drawn.choices(rows, DRAWS * rows).reshape(DRAWS, rows)
    values = [auc(labels[rows], scores[rows]) for rows in resamples]
    return [round(value, 4) for value in values if value is not None]


def half_width(one: Floats, other: Floats) -> float:
    """Half the 95 % interval of a difference of two AUCs, by both on the same resamples, float64[DRAWS] each.

    It is of the normal approximation, as in :mod:`vfl_node.training.intervals`.
    """
    return NORMAL * float(np.std(one - other, ddof=1))
