"""The active party alone: the network that it would have without the other party.

Same kind of bottom and top, same epochs, batch size and optimiser as the joint one, trained on all its own labelled records
that are neither held out nor set apart for validation, also those outside of the alignment. Its columns are encoded as these
rows suggest. Where the joint training learns from rows outside, too, another such network learns from aligned rows alone.

The peer waits meanwhile. How long must not tell how many of the shared rows are this party's, nor, where sizes are padded,
how many records it has. So an epoch always takes as many rows as both parties know of; where there are fewer, some rows
are computed once more and do not count.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vfl_node.alignment.sizes import announced_count
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.features import Encoder
from vfl_node.models import architecture_of
from vfl_node.models.building import build_classifier
from vfl_node.models.initial_weights import initialise
from vfl_node.session.session import Session
from vfl_node.training.evaluation import RivalOutput
from vfl_node.training.network.config import NetworkConfig
from vfl_node.training.network.local import local_logits, train_local
from vfl_node.training.network.positioned_input import PositionedInput
from vfl_node.training.network.tasks import NetworkTask
from vfl_node.training.own_rows import OwnRows
from vfl_node.training.row_weights import scale_weights
from vfl_node.training.trainer import TrainingData

KIND = "a network of the same kind"


@dataclass(frozen=True, eq=False)
class Places:
    """Where the rows of an epoch come from; its length depends on nothing but what both parties know.

    Attributes:
        source: int64[w], the row of the table at each place.
        counted: bool[w], whether it is learnt from there.
    """

    source: NDArray[np.int64]
    counted: NDArray[np.bool_]

    @classmethod
    def from_rows(cls, training: NDArray[np.int64], width: int) -> Places:
        """``training``, int64[n], n ≥ 1, each counted once, at ``width`` places, w ≥ n."""
        return cls(training[np.arange(width) % len(training)], np.arange(width) < len(training))

    def join(self, other: Places) -> Places:
        """These places, then those of ``other``."""
        return Places(np.concatenate([self.source, other.source]), np.concatenate([self.counted, other.counted]))


def logits_alone(
    session: Session,
    data: TrainingData,
    own: OwnRows,
    task: NetworkTask,
    randomness: Randomness,
    *,
    width: int | None = None,
) -> Tensor | None:
    """Train the network of the active party alone, and ask it about the rows measured on; nothing is sent.

    Args:
        session: the attempt at the job.
        data: its table and the alignment.
        own: the rows it learns from and those it is measured on.
        task: what the labels are, as the joint training has them.
        randomness: its own for this model: initial weights, the order of the rows, masks of dropout.
        width: rows an epoch, n of ``own.training`` at least; by default as many as are shared, or as this party announces, if
            that is more.

    Returns:
        Logits float32[k] or float32[k, K] of ``own.tested``; None without a column or a row to learn from, and where the joint
        training goes on from an earlier model: one that begins anew would have had fewer epochs.

    Cost: ``width`` rows an epoch.

    Raises:
        DataError: the loss is no longer a number (``E_DIVERGED``).
    """
    train = NetworkConfig.section_of(session.job)
    labels = data.table.labels
    if not data.table.columns or labels is None or len(own.training) == 0 or session.attempt.start:
        return None
    if width is None:
        width = max(len(data.alignment), announced_count(len(data.table), session.job.align, "active"))
    places = Places.from_rows(own.training, width)
    if len(own.validation):
        places = places.join(Places.from_rows(own.validation, own.validation_positions))
    features = Encoder.fit(data.table, own.training, train.scaling, train.least_rows).transform(data.table)
    architecture = architecture_of(train.model, session.policy.models)
    images = architecture.reads_images()
    rows = PositionedInput.from_features(features, np.arange(len(features)), session.machine.device, images=images)
    if rows.schema.empty:
        return None
    model = build_classifier(architecture, train, rows.schema, []).to(session.machine.device)
    initialise(model, randomness)
    weights = None if data.table.weights is None else scale_weights(data.table.weights, own.training)
    offsets = None if data.table.offsets is None else task.offsets(data.table.offsets).to(session.machine.device)
    train_local(
        model,
        train,
        PositionedInput.from_features(features, places.source, session.machine.device, images=images),
        task.targets(labels[places.source]).to(session.machine.device),
        np.arange(width),
        randomness,
        session.progress,
        counted=torch.from_numpy(places.counted).to(session.machine.device),
        validation=np.arange(width, len(places.source)),
        losses=task.losses,
        weights=None if weights is None else torch.from_numpy(weights[places.source]).float().to(session.machine.device),
        offsets=None if offsets is None else offsets[torch.from_numpy(places.source)],
    )
    asked = np.resize(own.tested if len(own.tested) else own.training, own.positions)
    return local_logits(model, rows, asked, offsets)[: len(own.tested)]


def train_on_aligned_rows(
    session: Session,
    data: TrainingData,
    own: OwnRows,
    outside: NDArray[np.int64],
    task: NetworkTask,
    randomness: Randomness,
) -> RivalOutput | None:
    """The same network, trained on the aligned rows among ``own`` alone and asked about the same rows.

    It tells how much of what the active party has by itself comes from its rows ``outside``, int64[u]: FedAds' "Local" may be
    either. None without such rows, since the two networks are one then; so it costs nothing where ``train.unaligned`` is not
    used, and never learns which rows are aligned where the alignment hides that. Arguments else as of :func:`logits_alone`.

    Cost: as many rows an epoch as are shared, which both parties know.
    """
    if not len(outside):
        return None
    aligned = own.exclude(outside)
    logits = logits_alone(session, data, aligned, task, randomness, width=len(data.alignment))
    offsets = None if data.table.offsets is None else data.table.offsets[own.tested]
    output = None if logits is None else task.output(task.plain_scores(logits), offsets)
    return RivalOutput(output, KIND, len(aligned.training))
