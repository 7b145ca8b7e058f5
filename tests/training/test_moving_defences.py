"""Defences that move the bottom, in training and predictions: from which weights embeddings leave, and what does not change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tests.thorough import every
from tests.training.predicting import CPU, World
from tests.training.several import USUAL
from tests.training.test_defences import Fatal, KilledError, bodies, decoded, same
from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import UsageError
from vfl_node.job import Evaluate, Serve
from vfl_node.models.initial_weights import initialise
from vfl_node.models.layers import hidden_layers
from vfl_node.models.settings import LayerOptions
from vfl_node.privacy.defences.splitting import Splitting
from vfl_node.privacy.features.decoder import decoder
from vfl_node.privacy.features.targets import Target, Targets
from vfl_node.settings.defences import read_params
from vfl_node.settings.protection import Protection
from vfl_node.training.checkpoints import MemoryCheckpoints
from vfl_node.training.network import journal
from vfl_node.training.network.learner import Learner
from vfl_node.training.split.missing.section import Missing
from vfl_node.training.split.prediction import Embedder
from vfl_node.training.split.trainer import SplitTrainer
from vfl_node.transport.generated.vfl.v1 import training_pb2
from vfl_node.transport.memory import memory_channels

SMALL = {"decoder": [8], "warm_up": 5, "rounds": 3}
FBS = {"name": "fbs", "columns": ["z0", "colour"], **SMALL}
FIXED = {"name": "fbs-fixed", "columns": "all", **SMALL, "distance": "features", "every": 2}
BASIC = {"name": "basic", "columns": ["colour"], **SMALL}
NAIVE = {"name": "naive", "columns": "all", "strength": 0.5, "decoder": [8]}
NOPEEK = {"name": "nopeek", "columns": "all", "strength": 0.5}
EACH = [FBS, FIXED, BASIC, NAIVE, NOPEEK]
SLOWER = [pytest.param(keys, 0.0, marks=pytest.mark.slow) for keys in (NOPEEK, FBS, FIXED, BASIC, NAIVE)]


def under(*defences: Mapping[str, Any]) -> tuple[Protection, Protection]:
    return USUAL, replace(USUAL, defences=tuple(read_params(keys) for keys in defences))


def sent(both: Any) -> list[Tensor]:
    return [decoded(of) for of in both.transcript if isinstance(of, training_pb2.Embedding)]


@dataclass
class Spy:
    """Keeps the bottom's weights each time that a defence has moved it, and computes what leaves of it."""

    monkeypatch: pytest.MonkeyPatch
    weights: list[dict[str, Tensor]] = field(default_factory=list)
    settled: list[dict[str, Tensor]] = field(default_factory=list)

    def __post_init__(self) -> None:
        before, settle = Splitting.prepare, Splitting.settle

        def spying(of: Any, leaving: Any) -> None:
            before(of, leaving)
            self.defence = of
            self.weights.append(self._now())

        def settling(of: Any, rows: Any) -> None:
            settle(of, rows)
            self.settled.append(self._now())

        self.monkeypatch.setattr(Splitting, "prepare", spying)
        self.monkeypatch.setattr(Splitting, "settle", settling)

    def _now(self) -> dict[str, Tensor]:
        return {name: tensor.clone() for name, tensor in self.defence._model.state_dict().items()}

    def embedding(self, weights: Mapping[str, Tensor], positions: NDArray[np.int64]) -> Tensor:
        model: nn.Module = self.defence._model
        model.load_state_dict(weights)
        with torch.no_grad():
            embedding: Tensor = model(self.defence._inputs(positions))
        return embedding


@pytest.mark.parametrize("keys", every(2, [FBS, FIXED, BASIC]))
def test_uploads_of_training_evaluation_and_predictions_are_those_of_the_moved_bottom(
    synthetic: Any, run: Any, monkeypatch: pytest.MonkeyPatch, keys: Any
) -> None:
    parties, spy = synthetic(300), Spy(monkeypatch)
    both = run(protections=under(keys), evaluate=Evaluate(test_fraction=0.3))
    results = both(parties)
    schedule, train = both.schedule(parties), both.train
    training, testing = schedule.split(0, 0.3)
    batches = [of for epoch in range(train.epochs) for of in schedule.batches(0, epoch, training, train.batch_size)]
    uploads = sent(both)
    assert len(batches) == len(spy.weights)
    for weights, positions, embedding in zip(spy.weights, batches, uploads, strict=False):
        assert torch.equal(spy.embedding(weights, positions), embedding)
    (frozen,) = spy.settled
    assert torch.equal(spy.embedding(frozen, testing), torch.cat(uploads[len(batches) :]))
    assert not torch.allclose(spy.embedding(spy.weights[-1], testing), spy.embedding(frozen, testing), atol=1e-4)
    lab = results[1]
    assert all(torch.equal(tensor, lab.weights[f"bottom.{name}"]) for name, tensor in frozen.items())

    world = World(parties, results, train, Serve(to="both", batch_size=16))
    side = Embedder(world.kept(1), parties.lab_view, parties.lab, CPU, under(keys)[1].defences)
    assert torch.allclose(side.embed_shared(testing), spy.embedding(frozen, testing), atol=1e-6)


def test_each_validation_pass_is_settled_and_the_best_epoch_s_bottom_is_kept(
    synthetic: Any, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    parties, spy = synthetic(300), Spy(monkeypatch)
    both = run(protections=under(FBS), evaluate=Evaluate(test_fraction=0.2, validation_fraction=0.2))
    _, lab = both(parties)
    assert len(spy.settled) == both.train.epochs
    schedule, size = both.schedule(parties), both.train.batch_size
    training, testing, validation = schedule.parts(0, 0.2, 0.2)
    steps, passed = -(-len(training) // size), -(-len(validation) // size)
    uploads = sent(both)
    for epoch, weights in enumerate(spy.settled):
        at = (epoch + 1) * (steps + passed) - passed
        assert torch.equal(spy.embedding(weights, validation), torch.cat(uploads[at : at + passed]))
    best = spy.settled[lab.section.early_stopping.best_epochs[0] - 1]
    assert torch.equal(spy.embedding(best, testing), torch.cat(uploads[both.train.epochs * (steps + passed) :]))
    assert all(torch.equal(tensor, lab.weights[f"bottom.{name}"]) for name, tensor in best.items())


@pytest.mark.parametrize("keys", every(2, EACH), ids=lambda keys: keys["name"])
def test_sizes_types_and_order_of_messages_are_those_without(synthetic: Any, run: Any, keys: Any) -> None:
    parties = synthetic(150)
    plain, defended = run(), run(protections=under(keys))
    plain(parties)
    _, lab = defended(parties)
    assert [(type(of), of.ByteSize()) for of in plain.transcript] == [(type(of), of.ByteSize()) for of in defended.transcript]
    assert bodies(plain)[-1] != bodies(defended)[-1]
    ledger = " ".join(entry.text for entry in lab.disclosures["clinic"])
    assert f"({keys['name']}" in ledger
    figures = [epoch.defences[0] for epoch in lab.epochs]
    if keys["name"] in ("fbs", "fbs-fixed", "basic"):
        assert all(figure.keys() == {"tau1", "tau2"} for figure in figures)
        assert 0 < lab.section.defence_seconds_share <= 1
    if keys["name"] == "fbs":
        assert all(0.3 <= tau <= 3 for figure in figures for tau in figure.values())
        assert figures[-1]["tau2"] < 1


@pytest.mark.parametrize(("keys", "dropout"), [(FBS, 0.3), *SLOWER], ids=str)
def test_a_run_that_was_killed_goes_on_with_the_same_bytes_from_every_checkpoint(
    synthetic: Any, run: Any, keys: Any, dropout: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "STEPS_BETWEEN", 1)
    parties = synthetic(140)
    train = run().train.model_copy(update={"batch_size": 16, "epochs": 2, "dropout": dropout, "batch_norm": dropout > 0})
    how = {"train": train, "protections": under(keys), "evaluate": Evaluate(repeats=2)}
    whole = run(**how)
    results = whole(parties)
    assert all(epoch.defences for epoch in results[1].epochs)
    for at in ("r000-e000002", "r001-e000002"):
        killed = run(**how, checkpoints=(MemoryCheckpoints(), Fatal(at)))
        assert isinstance(killed.raw(parties)[1], KilledError)
        newest = max(set(killed.checkpoints[0].names()) & set(killed.checkpoints[1].names()))
        resumed = run(**how, checkpoints=killed.checkpoints, resume_from=newest)
        for ours, theirs in zip(resumed(parties), results, strict=True):
            assert same(ours.weights, theirs.weights)
            assert [epoch.defences for epoch in ours.epochs] == [epoch.defences for epoch in theirs.epochs]
        again = bodies(resumed)
        assert again == bodies(whole)[-len(again) :]


def accuracy(embeddings: Tensor, truth: NDArray[np.bool_]) -> float:
    """Of a fresh decoder of a flag that knows half of the rows, on the other half."""
    embeddings = (embeddings - embeddings.mean(0)) / (embeddings.std(0) + 1e-6)
    flag = torch.from_numpy(truth.astype(np.float32))
    known, half = torch.ones(len(flag), dtype=torch.bool), len(flag) // 2
    targets = Targets([Target("s", "flag", 1, flag, known, 0.69)])
    fresh = decoder(embeddings.shape[1], (64,), 1, Randomness(b"a" * 32))
    optimizer = torch.optim.Adam(fresh.parameters(), lr=3e-3, weight_decay=1e-3)
    for _ in range(150):
        optimizer.zero_grad()
        targets.losses(fresh(embeddings[:half]), torch.arange(half)).sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    with torch.no_grad():
        guessed = fresh(embeddings[half:])[:, 0].numpy() > 0
    return float((guessed == truth[half:]).mean())


@pytest.fixture
def flagged(federation: Any) -> Any:
    """Records whose flag ``s`` says nothing of the label, and the flag."""
    rng = np.random.default_rng(5)
    s, z, x = rng.integers(0, 2, 1200).astype(np.float64), rng.normal(size=(1200, 3)), rng.normal(size=1200)
    labels = (z[:, 0] + z[:, 1] + x + rng.normal(size=1200) > 0).astype(np.float32)
    every = np.ones(1200, dtype=bool)
    return federation({"x": x}, {"s": s, **{f"z{at}": z[:, at] for at in range(3)}}, labels, every, every), s > 0.5


SLOW = {"learning_rate": 1e-3, "batch_size": 60}


def held_out(both: Any, parties: Any, s: NDArray[np.bool_]) -> float:
    """How well the flag is rebuilt from the embeddings sent for evaluation."""
    both(parties)
    _, testing = both.schedule(parties).split(0, 0.5)
    batches = -(-len(testing) // both.train.batch_size)
    return accuracy(torch.cat(sent(both)[-batches:]), s[parties.people[testing]])


DEFENDED = under({"name": "fbs", "columns": ["s"], "decoder": [32]})


def test_without_settling_the_evaluation_pass_is_not_protected(flagged: Any, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the task has moved the bottom since Minimax last ran; here it runs before the first batch only."""
    parties, s = flagged
    how = {"train": run().train.model_copy(update=SLOW), "evaluate": Evaluate(test_fraction=0.5)}
    seldom = under(
        {"name": "basic", "columns": ["s"], "decoder": [64], "decoder_steps": 4, "warm_up": 0, "rounds": 20, "every": 1000}
    )
    plain, settled = held_out(run(**how), parties, s), held_out(run(**how, protections=seldom), parties, s)
    monkeypatch.setattr(Splitting, "settle", lambda self, rows: None)
    left = held_out(run(**how, protections=seldom), parties, s)
    assert plain > 0.85
    assert left > 0.8
    assert settled < 0.65


def test_uploads_that_are_normalised_over_their_batch_are_protected(flagged: Any, run: Any) -> None:
    """The bottom that Minimax moves computes as the one that sends, which in training reads no running averages."""
    parties, s = flagged
    train = run().train.model_copy(update={**SLOW, "batch_size": 120, "batch_norm": True, "epochs": 2})
    defence = under({"name": "fbs", "columns": ["s"], "decoder": [64], "warm_up": 200})
    for protections, least, most in ((under(), 0.95, 1.0), (defence, 0.4, 0.8)):
        both = run(train=train, protections=protections)
        both(parties)
        schedule = both.schedule(parties)
        training, _ = schedule.split(0, 0.2)
        batches = [schedule.batches(0, epoch, training, 120) for epoch in range(train.epochs)]
        uploads = iter(sent(both))
        for of in batches:
            told = accuracy(torch.cat([next(uploads) for _ in of]), s[parties.people[np.concatenate(of)]])
            assert least < told <= most


def test_a_model_that_is_looked_at_before_a_step_draws_no_masks_and_keeps_its_averages(run: Any) -> None:
    model = hidden_layers(4, [8], LayerOptions(batch_norm=True, dropout=0.5))
    initialise(model, Randomness(b"w" * 32))
    of = Learner(model, run().train, Randomness(b"m" * 32))
    rows = torch.from_numpy(np.random.default_rng(1).normal(3, 2, (50, 4)).astype(np.float32))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with of.rehearse():
        first, second = model(rows), model(rows)
    assert same(before, model.state_dict())
    assert torch.equal(first, second)
    of.begin(1)
    dropped = model(rows)
    assert not same(before, model.state_dict())
    assert torch.equal(dropped, torch.where(dropped > 0, 2 * first, 0.0))
    assert (dropped == 0).float().mean() > (first == 0).float().mean() + 0.15


def test_naive_lags_by_one_upload(flagged: Any, run: Any) -> None:
    """What leaves first is what leaves without a defence, and the step after it changes what the same rows would give."""
    parties, s = flagged
    train = run().train.model_copy(update={"learning_rate": 0.02, "batch_size": 960, "epochs": 30})
    naive = {"name": "naive", "columns": ["s"], "strength": 20.0, "decoder": [32], "decoder_steps": 20}
    runs = [run(train=train, protections=of) for of in (under(), under(naive))]
    runs.append(run(train=train.model_copy(update={"epochs": 1}), protections=DEFENDED))
    for both in runs:
        both(parties)
    schedule = runs[0].schedule(parties)
    training, _ = schedule.split(0, 0.2)
    (rows,) = schedule.batches(0, 0, training, 960)
    plain, lagging, ahead = (sent(both)[0] for both in runs)
    assert torch.equal(lagging, plain)
    truth = s[parties.people[rows]]
    after = [accuracy(sent(of)[29], s[parties.people[schedule.batches(0, 29, training, 960)[0]]]) for of in runs[:2]]
    without, later = after
    assert without > 0.85
    assert later < without - 0.2
    assert accuracy(ahead, truth) < accuracy(lagging, truth) - 0.1


def embeddings(runs: Any) -> list[tuple[str, bytes]]:
    """Each sender and its embeddings, in their order."""
    entries = [of for of in runs.recorder.entries if isinstance(of.message, training_pb2.Embedding)]
    return [(of.sender, of.message.SerializeToString()) for of in entries]


def test_each_of_several_passive_parties_has_its_own_defence(several_parties: Any, several_runs: Any) -> None:
    """What a party sends depends on its own settings, and another one's defence changes no size."""
    parties = several_parties(3)
    own = {"lab": {**FBS, "columns": ["lab0"], "warm_up": 50}, "insurer": {**NAIVE, "columns": ["insurer1"]}}
    protections = {name: under(keys)[1] for name, keys in own.items()}
    plain, defended = several_runs(), several_runs(protections=protections)
    results, both = plain(parties), defended(parties)
    assert results["clinic"].results.metrics["auc"] == pytest.approx(both["clinic"].results.metrics["auc"], abs=0.2)
    sizes = [[(of.sender, of.receiver, of.message.ByteSize()) for of in run_.recorder.entries] for run_ in (plain, defended)]
    assert sizes[0] == sizes[1]
    first = [dict(reversed(embeddings(each))) for each in (plain, defended)]
    assert first[0].keys() == {"lab", "insurer", "telco"}
    assert {name for name in first[0] if first[0][name] != first[1][name]} == {"lab"}  # naive lags, and telco has none
    for name in ("lab", "insurer", "telco"):
        changed = not same(results[name].weights, both[name].weights)
        assert changed
        texts = " ".join(of.text for entries in both[name].disclosures.values() for of in entries)
        assert all((column in texts) == (column.startswith(name)) for column in ("lab0", "insurer1"))
    texts = " ".join(of.text for entries in both["clinic"].disclosures.values() for of in entries)
    assert "lab0" not in texts
    assert "insurer1" not in texts


@pytest.mark.parametrize("features", ["gaussian", "random"])
def test_embeddings_that_no_bottom_makes_are_refused_before_anything_leaves(run: Any, features: str) -> None:
    made = run(train=run().train.model_copy(update={"missing": Missing(features=features)}), protections=under(FBS))
    clinic, lab = memory_channels("clinic", "lab")
    with pytest.raises(UsageError, match=features) as caught:
        SplitTrainer().prepare(made.session("lab", lab, b"s" * 32, 1))
    assert caught.value.code == "E_CONFIG"
    assert "fbs" not in caught.value.for_peer
    SplitTrainer().prepare(made.session("clinic", clinic, b"s" * 32, 0))
    others = run(train=run().train, protections=under(FBS))
    SplitTrainer().prepare(others.session("lab", lab, b"s" * 32, 1))


def test_the_columns_that_no_defence_names_are_told_to_the_owner_alone(synthetic: Any, run: Any) -> None:
    clinic, lab = run(protections=under(FBS))(synthetic(120))
    (warning,) = (text for text in lab.warnings if "No defence protects" in text)
    assert "z1, z2, z3" in warning
    assert "z0" not in warning
    _, covered = run(protections=under(FIXED))(synthetic(120))
    assert not any("No defence protects" in text for of in (clinic, covered) for text in of.warnings)
