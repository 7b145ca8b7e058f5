"""With every row real, the two halves compute what one model in one process computes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from tests.thorough import every
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.features import Encoder
from vfl_node.metrics import classes as metrics
from vfl_node.models import ARCHITECTURES, OPTIMISERS, architecture_of, cut_width
from vfl_node.models.building import build_classifier
from vfl_node.models.initial_weights import initialise
from vfl_node.training.network.positioned_input import PositionedInput


class Joint:
    """One model that sees both parties' columns; no channel, no halves."""

    def __init__(self, parties: Any, both: Any) -> None:
        self.train, ours, theirs = both.train, Randomness(both.clinic_seed), Randomness(both.lab_seed)
        self.schedule = both.schedule(parties)
        evaluate, architecture = both.evaluate, architecture_of(self.train.model)
        self.parts = self.schedule.parts(0, evaluate.test_fraction, evaluate.validation_fraction)

        def inputs(table: Any, view: Any) -> PositionedInput:
            features = Encoder.fit(table, view.rows[self.parts.training]).transform(table)
            return PositionedInput.from_features(features, view.rows, torch.device("cpu"), images=architecture.reads_images())

        self.own, self.other = inputs(parties.clinic, parties.clinic_view), inputs(parties.lab, parties.lab_view)
        self.bottom = architecture.bottom(self.other.schema, self.train.bottom, self.train)
        self.model = build_classifier(architecture, self.train, self.own.schema, [cut_width(self.train)])
        initialise(self.model, ours.derive("weights/0"))
        initialise(self.bottom, theirs.derive("weights/0"))
        parameters = [*self.model.parameters(), *self.bottom.parameters()]
        self.optimizer = OPTIMISERS[self.train.optimizer](parameters, self.train)
        self.labels = torch.from_numpy(parties.clinic.labels[parties.clinic_view.rows])

    def logits(self, rows: Any) -> torch.Tensor:
        return self.model(self.own.take(rows), [self.bottom(self.other.take(rows))])

    def epoch(self, number: int, after_step: Callable[[], None] = lambda: None) -> tuple[float, float | None]:
        """Train one; its loss and AUC."""
        total, order, scores = 0.0, [], []
        for batch in self.schedule.batches(0, number, self.parts.training, self.train.batch_size):
            logits = self.logits(batch)
            loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, self.labels[batch])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            after_step()
            total += loss.item() * len(batch)
            order.append(batch)
            scores.append(logits.detach().numpy())
        auc = metrics.auc(self.labels.numpy()[np.concatenate(order)], np.concatenate(scores))
        return total / len(self.parts.training), auc


def joint_curves(parties: Any, both: Any) -> tuple[list[float], list[float | None]]:
    """Loss and AUC of each epoch of one model that sees both parties' columns."""
    joint = Joint(parties, both)
    losses, aucs = zip(*(joint.epoch(number) for number in range(both.train.epochs)), strict=True)
    return list(losses), list(aucs)


@pytest.mark.parametrize(
    ("model", "optimizer", "active_features"),
    every(3, list(product(sorted(ARCHITECTURES), sorted(OPTIMISERS), [True, False]))),
)
def test_split_training_is_joint_training(
    synthetic: Callable[..., Any], run: Any, model: str, optimizer: str, active_features: bool
) -> None:
    parties = synthetic(200, (1.0, 1.0), active_features=active_features)
    rate = 0.1 if optimizer == "sgd" else 1e-2
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
