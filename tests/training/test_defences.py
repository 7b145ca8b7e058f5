"""Defences in training and predictions: what leaves is changed, and what the party learns from is not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from tests.training.predicting import CPU, NEW_TO_ACTIVE, TO_ACTIVE, World, taken, unseen
from tests.training.test_resume import Fatal, KilledError
from vfl_node.alignment.alignment import Alignment
from vfl_node.crypto.randomness import Randomness
from vfl_node.job import Evaluate, Serve
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.privacy.defences.defence import Defence, Leaving
from vfl_node.privacy.defences.specs import NoiseParams
from vfl_node.privacy.outgoing import Exit
from vfl_node.settings.protection import Protection
from vfl_node.training.checkpoints import MemoryCheckpoints
from vfl_node.training.network import journal
from vfl_node.training.network.half import RepeatStart
from vfl_node.training.split.active import ActiveHalf
from vfl_node.training.split.missing.section import Missing
from vfl_node.training.split.passive import PassiveHalf
from vfl_node.training.split.prediction import Embedder
from vfl_node.training.trainer import TrainingData
from vfl_node.transport import codec
from vfl_node.transport.generated.vfl.v1 import training_pb2
from vfl_node.transport.memory import memory_channels, run_together

pytestmark = pytest.mark.usefixtures("audits")

NONE = Protection()
STEPS = 5
SENT = {"lab": training_pb2.Embedding, "clinic": training_pb2.Gradient}


def noisy(sigma: float) -> Protection:
    return Protection(defences=(NoiseParams(name="noise", sigma=sigma),))


class Doubling(Defence):
    """What no mean takes away: twice the tensor."""

    def __init__(self) -> None: ...

    def protect(self, tensor: Tensor, leaving: Leaving) -> Tensor:
        return 2 * tensor


class Careless(PassiveHalf):
    """The mistake: the own update goes through what was sent."""

    async def step(self, number: int, positions: NDArray[np.int64]) -> None:
        self.learner.begin(number)
        sent = 2 * self._embedding(f"step/{number}", positions, learn=True)
        await self._send(number, sent.detach())
        gradient = await self._gradient(number, sent)
        sent.backward(gradient)  # type: ignore[no-untyped-call]
        self.learner.step()


def alone(run: Any, parties: Any, party: str, half_of: Callable[..., Any], exit_: Exit | None = None, **how: Any) -> Any:
    """(weights, tensors sent) of one half after a few steps with a peer that sends the same tensors whatever it gets."""
    both, number = run(**how), ["clinic", "lab"].index(party)
    views = parties.clinic_view, parties.lab_view
    channels = memory_channels("clinic", "lab")
    own = both.session(party, channels[number], b"s" * 32, number)
    data = TrainingData(views[number], (parties.clinic, parties.lab)[number])
    batches = np.split(np.arange(64 * STEPS) % len(views[0]), STEPS)
    half = half_of(own, data, RepeatStart(Randomness(b"r" * 32), Randomness(b"d" * 32), 0, np.unique(batches)))
    if exit_ is not None and party == "lab":
        half.exit = exit_
    elif exit_ is not None:
        half._peers.exits["lab"] = exit_
    received, fixed = [], Randomness(b"p" * 32)

    async def learn() -> None:
        for at, positions in enumerate(batches):
            await half.step(at, positions)

    async def play(channel: Any) -> None:
        for at in range(STEPS):
            tensor = codec.encode(torch.from_numpy(fixed.derive(str(at)).normal((64, 8))))
            if party == "clinic":
                await channel.send(training_pb2.Embedding(step=at, tensor=tensor))
            message = await channel.receive(SENT[party])
            received.append(decoded(message))
            if party == "lab":
                await channel.send(training_pb2.Gradient(step=at, tensor=tensor))

    other = channels[1 - number]
    for result in run_together((learn(), channels[number]), (play(other), other)):
        if isinstance(result, Exception):
            raise result
    return half.learner.weights(), torch.cat(received)


def decoded(message: Any) -> Tensor:
    return codec.decode(message.tensor, dtype=torch.float32, shape=tuple(message.tensor.shape))


def same(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> bool:
    return all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items())


@pytest.mark.parametrize(("party", "half"), [("lab", PassiveHalf), ("clinic", ActiveHalf)])
def test_own_updates_use_the_clean_tensor_and_the_peer_gets_the_other_one(
    synthetic: Any, run: Any, party: str, half: Any
) -> None:
    parties = synthetic(400)
    weights, sent = alone(run, parties, party, half)
    noised, changed = alone(run, parties, party, half, protections=(noisy(1.0), noisy(1.0)))
    assert same(weights, noised)
    scale = 1.0 if party == "lab" else 1 / 64  # gradients of a mean over the batch
    assert (changed - sent).std().item() == pytest.approx(scale, rel=0.05)
    doubled, twice = alone(run, parties, party, half, Exit([Doubling()]))
    assert same(weights, doubled)
    assert torch.equal(twice[:64], 2 * sent[:64])


def test_an_update_through_what_was_sent_would_be_seen(synthetic: Any, run: Any) -> None:
    parties = synthetic(400)
    sgd = run().train.model_copy(update={"optimizer": "sgd"})
    weights, _ = alone(run, parties, "lab", PassiveHalf, Exit([Doubling()]), train=sgd)
    careless, _ = alone(run, parties, "lab", Careless, train=sgd)
    assert not same(weights, careless)


def bodies(both: Any) -> list[bytes]:
    return [message.SerializeToString() for message in both.transcript if isinstance(message, tuple(SENT.values()))]


def test_messages_have_the_sizes_and_the_order_that_they_have_without(synthetic: Any, run: Any) -> None:
    parties = synthetic(200)
    plain, noised, silent = run(), run(protections=(noisy(0.5), noisy(0.5))), run(protections=(noisy(0), noisy(0)))
    for both in (plain, noised, silent):
        both(parties)
    assert [(type(of), of.ByteSize()) for of in plain.transcript] == [(type(of), of.ByteSize()) for of in noised.transcript]
    assert bodies(plain) == bodies(silent)
    assert all(ours != theirs for ours, theirs in zip(bodies(plain), bodies(noised), strict=True))


@pytest.mark.parametrize("at", [pytest.param("r000-e000002", marks=pytest.mark.slow), "r001-e000001"])
def test_a_run_that_was_killed_sends_the_same_bytes(synthetic: Any, run: Any, at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "STEPS_BETWEEN", 1)  # a checkpoint after each epoch, however short
    parties = synthetic(140)
    train = run().train.model_copy(update={"batch_size": 16})
    how = {"train": train, "evaluate": Evaluate(repeats=2), "protections": (noisy(0.3), noisy(0.3))}
    whole = run(**how)
    results = whole(parties)
    killed = run(**how, checkpoints=(MemoryCheckpoints(), Fatal(at)))
    assert isinstance(killed.raw(parties)[1], KilledError)
    newest = max(set(killed.checkpoints[0].names()) & set(killed.checkpoints[1].names()))
    resumed = run(**how, checkpoints=killed.checkpoints, resume_from=newest)
    for ours, theirs in zip(resumed(parties), results, strict=True):
        assert same(ours.weights, theirs.weights)
        assert ours.audits.membership == theirs.audits.membership
        assert ours.section.held_out == theirs.section.held_out
    again = bodies(resumed)
    assert again == bodies(whole)[-len(again) :]
    assert len(again) < len(bodies(whole))


def test_the_audit_sees_what_the_peer_gets(synthetic: Any, run: Any) -> None:
    """Copies have exact twins; noise on what is sent takes them away, from the audit's sight as well."""
    parties = synthetic(600, (0.8, 0.5))
    train = run().train.model_copy(update={"batch_size": 300, "missing": Missing(features="sampling")})
    how = {"train": train, "evaluate": Evaluate(test_fraction=0.5)}
    _, plain = run(**how)(parties)
    _, noised = run(**how, protections=(NONE, noisy(1.0)))(parties)
    for attack in ("same_step_twin", "near_duplicate"):
        assert (plain.audits.membership[attack] or 0) > 0.6
        assert (plain.section.held_out.attacks[attack] or 0) > 0.6
        assert noised.audits.membership[attack] == pytest.approx(0.5, abs=0.1)
        assert noised.section.held_out.attacks[attack] == pytest.approx(0.5, abs=0.1)


def test_switched_off_no_attack_runs_and_the_bytes_are_the_same(synthetic: Any, run: Any) -> None:
    parties = synthetic(300)
    off = Protection(membership=False)
    plain, quiet = run(), run(protections=(off, off))
    plain(parties)
    clinic, lab = quiet(parties)
    for result in (clinic, lab):
        assert all(epoch.attacks == epoch.judged == {} for epoch in result.epochs)
        assert result.audits.membership == {}
        assert result.section.held_out is None
    assert bodies(plain) == bodies(quiet)


def test_the_owner_s_own_ledger_names_its_defences_and_the_peer_s_does_not(synthetic: Any, run: Any) -> None:
    clinic, lab = run(protections=(noisy(0.25), noisy(0.5)))(synthetic(100))

    def text(of: Any, party: str) -> str:
        return " ".join(entry.text for entry in of.disclosures[party])

    assert "normal noise of standard deviation 0.25 is added to each number of every gradient" in text(clinic, "lab")
    assert "almost surely" not in text(clinic, "lab")
    assert "normal noise of standard deviation 0.5 is added to each number of every embedding" in text(lab, "clinic")
    assert "noise" not in text(clinic, "clinic") + text(lab, "lab")
    assert "unless clinic has a defence" in text(lab, "lab")


def test_the_ledger_names_no_defence_that_changes_nothing(synthetic: Any, run: Any) -> None:
    for result in run(protections=(noisy(0), noisy(0)))(synthetic(100)):
        texts = " ".join(entry.text for entries in result.disclosures.values() for entry in entries)
        assert "normal noise" not in texts
        assert "almost surely" in texts


@pytest.fixture
def world(synthetic: Any, run: Any) -> World:
    """A training of which half is held out, under the lab's noise."""
    parties = synthetic(250)
    train = run().train
    both = run(train=train, evaluate=Evaluate(test_fraction=0.5), protections=(NONE, noisy(0.5)))
    made = World(parties, both(parties), train, Serve(to="both", batch_size=16))
    made.both = both  # type: ignore[attr-defined]
    return made


def embedder(world: World, sigma: float | None, view: Alignment | None = None, table: Any = None) -> Embedder:
    params = () if sigma is None else (NoiseParams(name="noise", sigma=sigma),)
    return Embedder(world.kept(1), view or world.parties.lab_view, table or world.parties.lab, CPU, params)


def test_held_out_rows_and_predictions_have_the_same_noise_however_often_they_are_asked_for(world: World) -> None:
    both: Any = world.both  # type: ignore[attr-defined]
    _, tested = both.schedule(world.parties).split(0, 0.5)
    embeddings = [decoded(of) for of in both.transcript if isinstance(of, training_pb2.Embedding)]
    held_out = torch.cat(embeddings)[-len(tested) :]
    side, clean = embedder(world, 0.5), embedder(world, None)
    assert torch.allclose(side.embed_shared(tested), held_out, atol=1e-5)
    assert (side.embed_shared(tested) - clean.embed_shared(tested)).std().item() == pytest.approx(0.5, rel=0.1)
    assert torch.equal(side.embed_shared(tested), embedder(world, 0.5).embed_shared(tested))
    alone = torch.cat([side.embed_shared(tested[at : at + 1]) for at in range(5)])
    assert torch.allclose(alone, side.embed_shared(tested[:5]), atol=1e-5)
    other = embedder(world, 0.25).embed_shared(tested) - clean.embed_shared(tested)
    ours = side.embed_shared(tested) - clean.embed_shared(tested)
    assert np.corrcoef(other.ravel(), ours.ravel())[0, 1] == pytest.approx(0, abs=0.1)


def test_what_a_service_sends_is_protected(world: World) -> None:
    scorer, _ = world.sides
    side, clean = embedder(world, 0.5), embedder(world, None)
    asked = world.known(world.parties.clinic, range(40))
    world.ask(TO_ACTIVE, asked, sides=(scorer, side))
    sent = torch.from_numpy(world.embeddings())
    numbers, _ = side.batches.find(scorer.positions(asked.table.ids))
    positions = np.concatenate([side.batches.positions(number) for number in numbers.tolist()])
    assert torch.equal(sent, torch.cat([side.embed_shared(part) for part in np.split(positions, len(numbers))]))
    assert (sent - clean.embed_shared(positions)).std().item() == pytest.approx(0.5, rel=0.1)


def test_a_row_without_a_name_has_the_noise_of_its_columns(world: World) -> None:
    side, clean = embedder(world, 0.5), embedder(world, None)

    def rows(of: Embedder, table: Any) -> Tensor:
        hidden = of.hide_rows(table)
        return torch.cat([hidden.embedding(number) for number in range(hidden.count)])[torch.from_numpy(hidden.places)]

    new = unseen(20)
    drawn = rows(side, new) - rows(clean, new)
    assert drawn.std().item() == pytest.approx(0.5, rel=0.2)
    some = taken(new, np.arange(5), prefix=b"again ")
    assert torch.allclose(rows(side, some) - rows(clean, some), drawn[:5], atol=1e-5)
    moved = taken(new, np.arange(5), prefix=b"moved ", shift=1.0)
    assert not torch.allclose(rows(side, moved) - rows(clean, moved), drawn[:5], atol=0.1)


def test_rows_of_a_new_alignment_are_protected_by_their_columns_too(world: World) -> None:
    assert NEW_TO_ACTIVE.rows == "new"
    new = unseen(30)
    order = Randomness(b"o" * 32).permutation(30)
    views = [
        Alignment(**{**vars(world.parties.lab_view), "spec": ALIGNMENTS["psi"], "rows": rows})
        for rows in (np.arange(30), order)
    ]
    sides = [embedder(world, 0.5, view, new) for view in views]
    clean = embedder(world, None, views[0], new)
    first, other = (side.embed_new(np.arange(30)) for side in sides)
    assert (first - clean.embed_new(np.arange(30))).std().item() == pytest.approx(0.5, rel=0.2)
    assert torch.allclose(first[torch.from_numpy(order)], other, atol=1e-5)
