"""The two halves compute what one model in one process computes."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from tests.thorough import every
from vfl_node.alignment.alignment import NOT_MINE
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.features import Encoder
from vfl_node.models import OPTIMISERS
from vfl_node.models.initial_weights import initialise
from vfl_node.models.inputs import ModelInput
from vfl_node.models.schema import InputSchema
from vfl_node.training.candidates.methods import METHODS
from vfl_node.training.candidates.network import ActiveNetwork, LinearCut
from vfl_node.training.targets import TargetScale


class JointModel:
    """Both halves with their own initial weights, over B·K candidates a batch as FedSim writes them: no record is sent once."""

    def __init__(self, linkage: Any, both: Any) -> None:
        self.train, self.linkage = both.train, linkage
        self.schedule = both.schedule(linkage)
        self.training = self.schedule.parts(0, both.evaluate.test_fraction, 0.0).training
        own = Encoder.fit(linkage.clinic, self.training, self.train.scaling, self.train.least_rows).transform(linkage.clinic)
        theirs = Encoder.fit(linkage.lab, np.arange(len(linkage.lab)), self.train.scaling, self.train.least_rows)
        theirs = theirs.transform(linkage.lab)
        self.own = ModelInput(torch.from_numpy(own.numeric), torch.from_numpy(own.categorical))
        mean = torch.from_numpy(theirs.numeric).double().mean(dim=0, keepdim=True).float()
        none = torch.zeros(1, theirs.categorical.shape[1], dtype=torch.int64)
        self.theirs = ModelInput(
            torch.cat([torch.from_numpy(theirs.numeric), mean]), torch.cat([torch.from_numpy(theirs.categorical), none])
        )
        self.similarities = torch.from_numpy(linkage.clinic_view.similarities)
        self.bottom = LinearCut(InputSchema(theirs.numeric.shape[1], theirs.cardinalities), self.train.bottom, self.train)
        self.active = ActiveNetwork(
            self.train, InputSchema(own.numeric.shape[1], own.cardinalities), linkage.clinic_view.similarities[self.training]
        )
        for seed, half in zip(both.seeds, (self.active, self.bottom), strict=True):
            initialise(half, Randomness(seed).derive("weights/0"))
        self.optimizers = [
            OPTIMISERS[self.train.optimizer](half.parameters(), self.train) for half in (self.active, self.bottom)
        ]
        if self.train.task == "regression":
            scaled = TargetScale.fit(linkage.clinic.labels[self.training]).apply(linkage.clinic.labels)
            self.targets = torch.from_numpy(scaled.astype(np.float32))
        else:
            self.targets = torch.from_numpy(linkage.clinic.labels.astype(np.float32))

    def loss(self, rows: Any) -> torch.Tensor:
        candidates = self.linkage.lab_view.rows[rows]  # (B, K)
        candidates = np.where(candidates == NOT_MINE, len(self.linkage.lab), candidates)
        embeddings = self.bottom(self.theirs.take(torch.from_numpy(candidates.ravel())))
        index = torch.arange(candidates.size).view(candidates.shape)
        logits = self.active(self.own.take(torch.from_numpy(rows)), embeddings, index, self.similarities[rows])
        targets = self.targets[rows]
        if logits.dim() == 2 and self.train.classes == 2:  # pairs that are samples
            targets = targets[:, None].expand_as(logits)
        if self.train.task == "regression":
            return torch.nn.functional.mse_loss(logits, targets)
        if self.train.classes > 2:
            return torch.nn.functional.cross_entropy(logits, targets.long())
        return torch.nn.functional.binary_cross_entropy_with_logits(logits, targets)

    def epoch(self, number: int) -> float:
        total = 0.0
        for batch in self.schedule.batches(0, number, self.training, self.train.batch_size):
            for optimizer in self.optimizers:
                optimizer.zero_grad()
            loss = self.loss(batch)
            loss.backward()
            for optimizer in self.optimizers:
                optimizer.step()
            total += loss.item() * len(batch)
        return total / len(self.training)


def weights_of(linkage: Any, both: Any) -> tuple[list[float], dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    joint = JointModel(linkage, both)
    losses = [joint.epoch(number) for number in range(both.train.epochs)]
    return losses, joint.active.state_dict(), {f"bottom.{name}": of for name, of in joint.bottom.state_dict().items()}


@pytest.mark.parametrize(
    ("gone", "method"), every(3, list(product([0.0, 0.3], [name for name, method in METHODS.items() if not method.equal])))
)
def test_after_twenty_steps_the_weights_are_those_of_one_model(
    linked: Any, linked_run: Any, small: Any, method: str, gone: float
) -> None:
    linkage = linked()
    linkage = linkage.without(np.random.default_rng(1).random((300, 6)) < gone)
    layers = {} if METHODS[method].gates else {"pair_outputs": 10, "channels": 8, "kernel": 7, "merge_hidden": (400,)}
    train = small.model_copy(update={"method": method, "dropout": 0.0, "epochs": 5, **layers})
    both = linked_run(train=train)
    ours, theirs = both(linkage)
    losses, active, bottom = weights_of(linkage, both)
    assert ours.steps == 20
    assert [epoch.loss for epoch in ours.epochs] == pytest.approx(losses, abs=1e-5)
    for found, expected in ((ours.weights, active), (theirs.weights, bottom)):
        assert found.keys() == expected.keys()
        for name, tensor in expected.items():
            torch.testing.assert_close(found[name], tensor, rtol=1e-4, atol=1e-5)
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("classes", [2, 3])
def test_of_classes_too(linked: Any, linked_run: Any, small: Any, classes: int) -> None:
    linkage = linked(labels=lambda x, mean: np.clip(np.digitize(x + mean, [0, 1]), 0, classes - 1).astype(np.float32))
    update = {"task": "classification", "classes": classes, "dropout": 0.0, "merge": "mean", "epochs": 5}
    both = linked_run(train=small.model_copy(update=update))
    both.evaluate = both.evaluate.model_copy(update={"metrics": ("nll", "accuracy")})
    ours, _ = both(linkage)
    losses, active, _ = weights_of(linkage, both)
    assert [epoch.loss for epoch in ours.epochs] == pytest.approx(losses, abs=1e-5)
    for name, tensor in active.items():
        torch.testing.assert_close(ours.weights[name], tensor, rtol=1e-4, atol=1e-5)


def test_another_start_gives_other_losses(linked: Any, linked_run: Any, small: Any) -> None:
    linkage, train = linked(), small.model_copy(update={"dropout": 0.0})
    ours, _ = linked_run(train=train)(linkage)
    other = linked_run(train=train, seeds=(b"clinic's private randomness, 32b", b"x" * 32))
    assert np.abs(np.subtract([epoch.loss for epoch in ours.epochs], weights_of(linkage, other)[0])).max() > 1e-4
