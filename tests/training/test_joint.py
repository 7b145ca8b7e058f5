"""With every row real, the two halves compute what one model in one process computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from vfl_node import metrics
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.features import Encoder
from vfl_node.models import ARCHITECTURES, OPTIMISERS, architecture_of, cut_width
from vfl_node.models.building import build_classifier
from vfl_node.models.initial_weights import initialise
from vfl_node.training.split.positioned_input import PositionedInput


def joint_curves(parties: Any, both: Any) -> tuple[list[float], list[float]]:
    """Loss and AUC of each epoch of one model that sees both parties' columns; no channel, no halves."""
    train, ours, theirs = both.train, Randomness(both.clinic_seed), Randomness(both.lab_seed)
    schedule = both.schedule(parties)
    training, _ = schedule.split(0, both.evaluate.test_fraction)

    def inputs(table: Any, view: Any) -> PositionedInput:
        features = Encoder.fit(table, view.rows[training]).transform(table)
        return PositionedInput.of(features, view.rows, torch.device("cpu"))

    own, other = inputs(parties.clinic, parties.clinic_view), inputs(parties.lab, parties.lab_view)
    architecture = architecture_of(train.model)
    bottom = architecture.bottom(other.schema, train.bottom, train)
    model = build_classifier(architecture, train, own.schema, [cut_width(train)])
    initialise(model, ours.derive("weights/0"))
    initialise(bottom, theirs.derive("weights/0"))
    optimizer = OPTIMISERS[train.optimizer]([*model.parameters(), *bottom.parameters()], train)
    labels = torch.from_numpy(parties.clinic.labels[parties.clinic_view.rows])
    losses, aucs = [], []
    for epoch in range(train.epochs):
        total, order, scores = 0.0, [], []
        for batch in schedule.batches(0, epoch, training, train.batch_size):
            logits = model(own.at(batch), [bottom(other.at(batch))])
            loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
            order.append(batch)
            scores.append(logits.detach().numpy())
        losses.append(total / len(training))
        aucs.append(metrics.auc(labels.numpy()[np.concatenate(order)], np.concatenate(scores)))
    return losses, aucs


@pytest.mark.parametrize("active_features", [True, False])
@pytest.mark.parametrize("optimizer", sorted(OPTIMISERS))
@pytest.mark.parametrize("model", sorted(ARCHITECTURES))
def test_split_training_is_joint_training(
    synthetic: Callable[..., Any], run: Any, model: str, optimizer: str, active_features: bool
) -> None:
    parties = synthetic(200, (1.0, 1.0), active_features=active_features)
    rate = 1e-2 if optimizer == "adam" else 0.1
    both = run()
    both.train = both.train.model_copy(update={"model": model, "optimizer": optimizer, "learning_rate": rate})
    result, _ = both(parties)
    losses, aucs = joint_curves(parties, both)
    assert [epoch.loss for epoch in result.epochs] == pytest.approx(losses, abs=1e-6)
    assert [epoch.auc for epoch in result.epochs] == pytest.approx(aucs, abs=1e-3)  # two scores may change places by rounding
    assert losses[-1] < losses[0]


def test_another_start_gives_another_loss_curve(synthetic: Callable[..., Any], run: Any) -> None:
    parties = synthetic(200, (1.0, 1.0))
    result, _ = run(lab_seed=b"x" * 32)(parties)
    expected, aucs = joint_curves(parties, run(lab_seed=b"y" * 32))
    assert np.abs(np.subtract([epoch.loss for epoch in result.epochs], expected)).max() > 1e-4
    assert np.abs(np.subtract([epoch.auc for epoch in result.epochs], aucs)).max() > 1e-2
