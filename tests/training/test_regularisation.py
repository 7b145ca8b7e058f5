"""Norms, dropout, weight decay and clipping: in both halves, in evaluation, in predictions and after a restart."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from tests.thorough import every
from tests.training.predicting import TO_PASSIVE
from tests.training.test_resume import NAMES, Fatal, KilledError, assert_same_bits
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.features import Encoder
from vfl_node.job import Evaluate
from vfl_node.models import architecture_of, cut_width
from vfl_node.models.building import build_classifier
from vfl_node.models.initial_weights import initialise
from vfl_node.training.checkpoints import MemoryCheckpoints
from vfl_node.training.network import journal
from vfl_node.training.network.positioned_input import PositionedInput
from vfl_node.training.network.tasks import probabilities
from vfl_node.training.split.config import Train

Make = Callable[..., Any]

EVERYTHING = {"batch_norm": True, "dropout": 0.3, "weight_decay": 1e-3, "clip": 0.5}


def plain(layers: nn.Sequential) -> nn.Sequential:
    """The same layers as torch has them, with the same weights."""

    def same(layer: nn.Module) -> nn.Module:
        if isinstance(layer, nn.Linear):
            copy: nn.Module = nn.Linear(layer.in_features, layer.out_features)
        elif isinstance(layer, nn.BatchNorm1d):
            copy = nn.BatchNorm1d(layer.num_features)
        elif isinstance(layer, nn.LayerNorm):
            copy = nn.LayerNorm(layer.normalized_shape)
        else:
            copy = nn.ReLU()
        copy.load_state_dict(layer.state_dict())
        return copy

    return nn.Sequential(*(same(layer) for layer in layers))


class Joint(nn.Module):
    """One model that sees both parties' numeric columns, written in plain torch."""

    def __init__(self, train: Train, schemas: Any, seeds: tuple[bytes, bytes]) -> None:
        super().__init__()
        architecture = architecture_of(train.model)
        ours = build_classifier(architecture, train, schemas[0], [cut_width(train)])
        theirs = architecture.bottom(schemas[1], train.bottom, train)
        initialise(ours, Randomness(seeds[0]).derive("weights/0"))
        initialise(theirs, Randomness(seeds[1]).derive("weights/0"))
        self.active, self.passive, self.top = plain(ours.bottom.layers), plain(theirs.layers), plain(ours.top.layers)
        self.output = nn.Linear(ours.top.output.in_features, 1)
        self.output.load_state_dict(ours.top.output.state_dict())

    def halves(self) -> Iterator[list[nn.Parameter]]:
        active = [self.active, self.top, self.output]
        for modules in (active, [self.passive]):
            yield [parameter for module in modules for parameter in module.parameters()]

    def forward(self, own: Tensor, other: Tensor) -> Tensor:
        return self.output(self.top(torch.cat([self.active(own), self.passive(other)], dim=1))).squeeze(1)


def jointly(parties: Any, both: Any, *, clip_halves: bool = True) -> tuple[list[float], float]:
    """Loss of each epoch, and the loss over the held-out rows."""
    train, schedule = both.train, both.schedule(parties)
    training, testing = schedule.split(0, both.evaluate.test_fraction)

    def inputs(table: Any, view: Any) -> PositionedInput:
        encoded = Encoder.fit(table, view.rows[training]).transform(table)
        return PositionedInput.from_features(encoded, view.rows, torch.device("cpu"))

    own, other = inputs(parties.clinic, parties.clinic_view), inputs(parties.lab, parties.lab_view)
    model = Joint(train, (own.schema, other.schema), (both.clinic_seed, both.lab_seed))
    kind = {"adam": partial(torch.optim.Adam, fused=True), "sgd": torch.optim.SGD}[train.optimizer]
    optimizer = kind(model.parameters(), lr=train.learning_rate, weight_decay=train.weight_decay)
    labels = torch.from_numpy(parties.clinic.labels[parties.clinic_view.rows])

    def loss(rows: Any) -> Tensor:
        return binary_cross_entropy_with_logits(model(own.take(rows).numeric, other.take(rows).numeric), labels[rows])

    losses = []
    for epoch in range(train.epochs):
        total = 0.0
        for batch in schedule.batches(0, epoch, training, train.batch_size):
            batch_loss = loss(batch)
            optimizer.zero_grad()
            batch_loss.backward()
            if train.clip is not None:
                for parameters in model.halves() if clip_halves else [model.parameters()]:
                    torch.nn.utils.clip_grad_norm_(parameters, train.clip)
            optimizer.step()
            total += batch_loss.item() * len(batch)
        losses.append(total / len(training))
    with torch.no_grad():
        return losses, loss_of(model.eval(), loss, testing)


def loss_of(model: nn.Module, loss: Callable[[Any], Tensor], rows: Any) -> float:
    assert not model.training
    return loss(rows).item()


def numbers_only(synthetic: Make, people: int = 200) -> Any:
    """Every row real, at both parties, and no categories."""
    parties = synthetic(people, (1.0, 1.0))
    for table in (parties.clinic, parties.lab):
        for name in ("kind", "colour"):
            table.columns.pop(name, None)
    return parties


NORMS = [{"batch_norm": True}, {"layer_norm": True}, {"weight_decay": 0.3}, {"clip": 0.05}, {"batch_norm": True, "clip": 0.2}]


@pytest.mark.parametrize(("optimizer", "options"), every(2, list(product(["adam", "sgd"], NORMS))))
def test_two_halves_are_one_model_of_plain_torch(synthetic: Make, run: Any, options: dict[str, Any], optimizer: str) -> None:
    parties = numbers_only(synthetic)
    both = run(evaluate=Evaluate(metrics=("nll",)))
    rate = 1e-2 if optimizer == "adam" else 0.1
    both.train = both.train.model_copy(update={"optimizer": optimizer, "learning_rate": rate, **options})
    result, _ = both(parties)
    losses, held_out = jointly(parties, both)
    assert [epoch.loss for epoch in result.epochs] == pytest.approx(losses, abs=1e-5)
    assert result.results.metrics["nll"] == pytest.approx(held_out, abs=1e-5)
    without = run(train=both.train.model_copy(update={name: type(both.train)().model_dump()[name] for name in options}))
    others, _ = jointly(parties, without)
    assert np.abs(np.subtract(losses, others)).max() > 1e-4  # the option does something


def test_each_half_is_clipped_by_itself(synthetic: Make, run: Any) -> None:
    """The control: clipping the joint gradient is another training."""
    parties = numbers_only(synthetic)
    both = run(train=run().train.model_copy(update={"optimizer": "sgd", "learning_rate": 0.1, "clip": 0.2}))
    result, _ = both(parties)
    jointly_clipped, _ = jointly(parties, both, clip_halves=False)
    assert np.abs(np.subtract([epoch.loss for epoch in result.epochs], jointly_clipped)).max() > 1e-4


@pytest.mark.usefixtures("audits")
@pytest.mark.parametrize("options", [EVERYTHING, pytest.param({"layer_norm": True, "dropout": 0.5}, marks=pytest.mark.slow)])
def test_a_killed_training_ends_with_the_same_bits(
    synthetic: Make, run: Any, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "STEPS_BETWEEN", 1)
    settings = {"train": run().train.model_copy(update={"batch_size": 16, **options}), "evaluate": Evaluate(repeats=2)}
    parties = synthetic(140)
    whole = run(**settings)(parties)
    for name in (NAMES[1], NAMES[4]):
        killed = run(**settings, checkpoints=(MemoryCheckpoints(), Fatal(name)))
        assert isinstance(killed.raw(parties)[1], KilledError)
        newest = max(set(killed.checkpoints[0].names()) & set(killed.checkpoints[1].names()))
        resumed = run(**settings, checkpoints=killed.checkpoints, resume_from=newest)(parties)
        for ours, theirs in zip(whole, resumed, strict=True):
            assert_same_bits(ours, theirs)


def test_masks_are_the_partys_own_and_others_in_each_step(synthetic: Make, run: Any) -> None:
    """Weights that hardly move: what changes between the epochs is the mask."""
    still = run().train.model_copy(update={"dropout": 0.5, "optimizer": "sgd", "learning_rate": 1e-30, "epochs": 2})
    parties = synthetic(200, (1.0, 1.0))

    def embeddings(lab_seed: bytes) -> tuple[list[bytes], list[bytes]]:
        both = run(train=still, lab_seed=lab_seed, evaluate=Evaluate(test_fraction=0))
        both(parties)
        sent = [message.tensor for message in both.transcript if type(message).__name__ == "Embedding"]
        trained = sum(type(message).__name__ == "Gradient" for message in both.transcript)
        return [tensor.data for tensor in sent[:trained]], [tensor.data for tensor in sent[trained:]]

    def zeros(tensors: list[bytes]) -> float:
        return float(np.mean(np.frombuffer(b"".join(tensors), np.float32) == 0))

    first, tested = embeddings(b"l" * 32)
    assert embeddings(b"l" * 32) == (first, tested)
    assert len(set(first)) == len(first)
    assert embeddings(b"m" * 32)[0] != first
    assert zeros(first) > zeros(tested) + 0.1  # evaluation drops nothing


def test_an_epoch_may_end_with_a_batch_of_one_row(synthetic: Make, run: Any) -> None:
    parties = synthetic(3 * 64 + 1, (1.0, 1.0))
    both = run(train=run().train.model_copy(update={"batch_norm": True, "epochs": 10}), evaluate=Evaluate(test_fraction=0))
    result, _ = both(parties)
    assert min(message.tensor.shape[0] for message in both.transcript if type(message).__name__ == "Gradient") == 1
    assert result.results.metrics["auc"] > 0.6


@pytest.mark.parametrize("options", [EVERYTHING, {"layer_norm": True, "dropout": 0.5}])
def test_predictions_use_running_averages_and_no_dropout(world: Make, options: dict[str, Any]) -> None:
    made = world(owned=(1.0, 1.0), **options)
    table = made.known(made.parties.lab, range(10))
    (answered,) = made.ask(TO_PASSIVE, table)
    scorer, embedder = made.sides
    positions = embedder.positions(made.parties.lab.ids)[:10]
    alone = []
    with torch.no_grad():
        for position in positions:  # a row by itself, as torch's own layers in evaluation compute it
            row = np.array([position])
            embedding = plain(embedder._bottom.layers).eval()(columns(embedder, row))
            own = plain(scorer._model.bottom.layers).eval()(columns(scorer, row))
            top = plain(scorer._model.top.layers).eval()(torch.cat([own, embedding], dim=1))
            alone.append(scorer._model.top.output(top).squeeze())
    assert answered == pytest.approx(probabilities(torch.stack(alone)), abs=1e-5)


def columns(side: Any, positions: Any) -> Tensor:
    """What the first layer reads: numbers, and categories as their embeddings."""
    bottom = side._bottom if hasattr(side, "_bottom") else side._model.bottom
    rows = side.inputs.take(positions)
    return torch.cat([rows.numeric, *(t(rows.categorical[:, c]) for c, t in enumerate(bottom.categories))], dim=1)
