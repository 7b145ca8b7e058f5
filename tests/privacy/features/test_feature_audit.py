"""A party's audit of its columns: what it follows, what it chooses, where it stops, and that it goes on with the same bits."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import numpy as np
import pytest
import torch

from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import PolicyError, UsageError
from vfl_node.models.inputs import ModelInput
from vfl_node.privacy.features.attacks import Adaptive, rebuild
from vfl_node.privacy.features.audit import REPLAYED, DecoderAudit
from vfl_node.privacy.features.fitting import Effort
from vfl_node.privacy.features.measures import measure
from vfl_node.privacy.features.rows import choose
from vfl_node.privacy.features.worst import Worst
from vfl_node.privacy.outgoing import Sent

N, TRAINED, WIDTH = 1100, 800, 8
POSITIONS = np.arange(N)


class World:
    """A flag, a category and a number, and embeddings of each epoch that tell of them as loudly as is said."""

    def __init__(self, targets: Any, *, rows: int = N, copies: bool = False) -> None:
        rng = self.rng = np.random.default_rng(0)
        whose = rng.integers(0, rows // 30, rows) if copies else np.arange(rows)
        self.hidden = rng.normal(size=(rows, 3))[whose]
        self.names = {
            "flag": (self.hidden[:, 0] > 0).astype(float),
            "kind": np.array(list("abcd"))[np.digitize(self.hidden[:, 1], [-0.7, 0, 0.7])],
            "size": self.hidden[:, 2],
        }
        if copies:  # nothing but who a row is says what its flag is
            self.names["flag"] = (rng.random(rows) < 0.5).astype(float)[whose]
        self.targets = targets(self.names)
        self.mix = rng.normal(size=(3, WIDTH))

    def inputs(self, positions: Any) -> ModelInput:
        return ModelInput.from_tensors(torch.from_numpy(self.hidden[positions]).float())

    def audit(self, **changes: Any) -> DecoderAudit:
        real = np.ones(len(self.hidden), dtype=bool)
        keys = {"real": real, "share": 0.15, "randomness": Randomness(bytes(32)), "party": "lab", **changes}
        return DecoderAudit(self.targets, POSITIONS[:TRAINED], inputs=self.inputs, **keys)

    def embedding(self, loud: float, epoch: int) -> torch.Tensor:
        noise = np.random.default_rng(1 + epoch).normal(size=(len(self.hidden), WIDTH))
        with np.errstate(invalid="ignore"):  # of a loudness that is no number
            return torch.from_numpy(loud * self.hidden @ self.mix + noise).float()

    def train(self, audit: DecoderAudit, epoch: int, loud: float) -> Any:
        rows = self.embedding(loud, epoch)
        for batch in np.split(np.random.default_rng(epoch).permutation(TRAINED), range(128, TRAINED, 128)):
            audit.see(Sent(batch, rows[torch.from_numpy(batch)], torch.zeros(len(batch), WIDTH)))
        return audit.epoch_done()


@pytest.fixture
def world(targets: Any) -> World:
    return World(targets)


def test_what_is_sent_is_rebuilt_and_the_worst_epoch_is_named(world: World) -> None:
    audit = world.audit()
    shown = [world.train(audit, epoch, loud) for epoch, loud in enumerate((0.2, 2.0, 0.2))]
    found = audit.result()
    assert set(found) == set(shown[0]) == {"flag", "kind", "size"}
    for name, (metric, least) in {"flag": ("auc", 0.9), "kind": ("accuracy", 0.7), "size": ("r2", 0.8)}.items():
        column = found[name]
        assert column["metric"] == metric
        assert column["worst"] > least > column["constant"]
        assert column["worst"] == column[column["attack"]] == column["figures"][metric]
        assert (column["epoch"], column["known"], column["held_out"]) == (2, 120, None)
        assert column["judged"] == (TRAINED - 120) // 2
        assert column["static"] == shown[1][name]["static"] > shown[0][name]["static"]
        assert column["constants"].keys() == column["figures"].keys()
    assert shown[0]["flag"]["stacked"] == shown[0]["flag"]["static"]  # of one epoch they are the same


def test_numbers_of_no_use_rebuild_nothing(world: World) -> None:
    """A job does not end for that, and what was found before stays."""
    audit = world.audit(limit=0.9)
    before = world.train(audit, 0, 0.2)
    for epoch, loud in enumerate((np.inf, np.nan), start=1):
        shown = world.train(audit, epoch, loud)
        audit.judge(POSITIONS[TRAINED:], world.embedding(loud, epoch)[TRAINED:])
    assert shown["size"]["static"] is None
    assert audit.result()["size"]["figures"]["r2"] == before["size"]["static"]
    world.audit().restore(audit.tensors())


def test_a_limit_stops_at_the_epoch_that_exceeds_it_and_tells_the_peer_nothing(world: World) -> None:
    audit = world.audit(limit=0.25)
    world.train(audit, 0, 0.05)
    with pytest.raises(PolicyError) as caught:
        world.train(audit, 1, 3.0)
    error = caught.value
    assert (error.code, error.peer_code, error.for_peer) == ("E_LEAK", "E_STOPPED", "stopped by lab's policy")
    assert "attacks.columns allows (0.25)" in error.message
    assert not any(f"{value:.2f}" in error.message for value in (0.5, *map(itemgetter("worst"), audit.result().values())))
    assert not any(name in error.message for name in world.names)  # a message is logged
    assert error.hint is not None
    assert any(repr(name) in error.hint for name in world.names)
    assert any(f"{column['worst']:.2f}" in error.hint for column in audit.result().values())
    generous = world.audit(limit=1.0)
    assert [world.train(generous, epoch, loud)["flag"] for epoch, loud in enumerate((0.05, 3.0))]


def test_held_out_rows_are_tried_before_they_leave(world: World) -> None:
    audit = world.audit(limit=0.25)
    world.train(audit, 0, 0.05)
    audit.judge(POSITIONS[TRAINED:], world.embedding(0.05, 9)[TRAINED:])
    quiet = audit.result()["flag"]["held_out"]
    assert quiet < 0.75
    with pytest.raises(PolicyError):
        audit.judge(POSITIONS[TRAINED:], world.embedding(4.0, 9)[TRAINED:])
    assert audit.result()["size"]["held_out"] > 0.5  # although only 45 of these rows are known
    few = world.audit(limit=0.25)
    world.train(few, 0, 0.05)
    few.judge(POSITIONS[TRAINED : TRAINED + 90], world.embedding(4.0, 9)[TRAINED : TRAINED + 90])
    assert few.result()["flag"]["held_out"] is None


def test_the_worst_of_many_epochs_at_chance_is_at_chance(targets: Any) -> None:
    """Control: the largest figure of all epochs is above chance although the answers are drawn at random."""
    rng = np.random.default_rng(0)
    of = targets({f"flag {number}": (rng.random(800) < 0.5).astype(float) for number in range(200)})
    worst, halves, largest = Worst(of, ["static"]), (torch.arange(400), torch.arange(400, 800)), np.zeros(200)
    for epoch in range(1, 21):
        choosing, measured = (measure(of, torch.from_numpy(rng.normal(size=(400, 200))), half) for half in halves)
        worst.take("static", epoch, choosing, measured)
        largest = np.maximum(largest, [score.success or 0 for score in measured.values()])
    found = [worst.find("static", column.name) for column in of.columns]
    assert np.mean(largest) > 0.54
    assert abs(np.mean([each.score.success or 0 for each in found if each]) - 0.5) < 0.01
    assert np.mean([each.chosen_by for each in found if each]) > 0.04  # the choosing half has the bias


def test_a_checkpoint_has_all_that_an_audit_goes_on_with(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuild, "__defaults__", (Effort(steps=30),))
    whole, begun, resumed = world.audit(), world.audit(), world.audit()
    resumed.restore(begun.tensors())
    shown = [world.train(whole, epoch, 0.3) for epoch in range(3)]
    for epoch in range(2):
        world.train(begun, epoch, 0.3)
    resumed.restore(begun.tensors())
    assert world.train(resumed, 2, 0.3) == shown[2]
    for audit in (whole, resumed):
        audit.judge(POSITIONS[TRAINED:], world.embedding(0.3, 9)[TRAINED:])
    assert resumed.result() == whole.result()
    assert whole.result()["flag"]["held_out"] is not None
    ours, theirs = whole.tensors(), resumed.tensors()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name].nan_to_num(-1), theirs[name].nan_to_num(-1)) for name in ours)


def test_no_decoder_learns_between_two_steps(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the time between two messages would tell which batches have known rows, and these are real ones."""
    audit, rows, steps = world.audit(), world.embedding(1.0, 0), []
    step = torch.optim.Adam.step
    monkeypatch.setattr(torch.optim.Adam, "step", lambda self: (steps.append(1), step(self))[1])
    known = np.isin(POSITIONS[:TRAINED], audit._rows.known)
    batches = [np.flatnonzero(~known)[:100], np.flatnonzero(known)[:100], np.flatnonzero(known)[100:]]
    alone = Adaptive(WIDTH, world.targets, audit._randomness.derive("adaptive"), replay=REPLAYED)
    for batch in batches:
        audit.see(Sent(batch, rows[torch.from_numpy(batch)], torch.zeros(len(batch), WIDTH)))
        assert not steps
    for batch in batches:
        sent, own = rows[torch.from_numpy(batch)], known[batch]
        alone.see(sent, sent[torch.from_numpy(own)], torch.from_numpy(batch[own]))
    assert len(steps) == 2  # one batch has no known row
    audit.epoch_done()
    assert audit._adaptive is not None
    assert torch.equal(audit._adaptive.rebuild(rows), alone.rebuild(rows))


def test_synthetic_rows_are_neither_known_nor_judged(world: World) -> None:
    real = np.ones(N, dtype=bool)
    real[::2] = False
    audit = world.audit(real=real, share=0.3)
    rows = world.embedding(2.0, 0)
    rows[~torch.from_numpy(real)] = 0  # these tell nothing of the truth
    for batch in np.split(np.arange(TRAINED), range(200, TRAINED, 200)):
        audit.see(Sent(batch, rows[torch.from_numpy(batch)], torch.zeros(len(batch), WIDTH)))
    shown = audit.epoch_done()
    found = audit.result()["flag"]
    assert (found["known"], found["judged"]) == (120, (400 - 120) // 2)
    assert shown["flag"]["static"] > 0.9


def test_copies_of_known_rows_are_not_judged(targets: Any) -> None:
    """Of the rows of 50 people only who one is says what the flag is: who is known is looked up, the others are not."""
    world = World(targets, copies=True)
    rows = world.embedding(20.0, 0)
    at = POSITIONS[:TRAINED]

    def success(known: Any, judged: Any) -> float:
        known, judged = torch.from_numpy(known), torch.from_numpy(judged)
        said = rebuild(rows[known], known, rows[judged], world.targets, Randomness(bytes(32)))
        found = measure(world.targets, said, judged)["flag"].success
        assert found is not None
        return found

    chosen = choose(at, 0.05, world.inputs, Randomness(bytes(32)))
    known = {row.tobytes() for row in world.hidden[chosen.known]}
    copies = np.array([position for position in np.setdiff1d(at, chosen.known) if world.hidden[position].tobytes() in known])
    assert len(chosen.judged) > 100
    assert not any(world.hidden[position].tobytes() in known for position in chosen.judged)
    assert success(chosen.known, copies) > 0.9
    assert success(chosen.known, chosen.judged) < 0.7


def test_too_few_rows_are_refused(world: World, targets: Any) -> None:
    with pytest.raises(UsageError, match="at least 50 to learn from") as caught:
        world.audit(share=0.06)
    assert caught.value.for_peer == "its settings do not fit its table"
    with pytest.raises(UsageError, match="needs at least 100"):
        World(targets, copies=True).audit(share=0.5)  # every other row equals a known one
