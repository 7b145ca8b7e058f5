"""What passive parties see of each other's and the active party's data in training, alone and together; whose columns help."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tests.training.test_several import schedule_of
from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import PolicyError
from vfl_node.job import Evaluate
from vfl_node.metrics import classes as metrics
from vfl_node.privacy.attachment import TrainingStep
from vfl_node.privacy.audit import Audit
from vfl_node.privacy.defences.specs import NoiseParams
from vfl_node.privacy.outgoing import Sent
from vfl_node.privacy.peers import TOGETHER, AuditOfPeers
from vfl_node.settings.protection import Protection
from vfl_node.transport import codec
from vfl_node.transport.generated.vfl.v1 import training_pb2

pytestmark = pytest.mark.usefixtures("audits")

Make = Callable[..., Any]

ROWS = 256
SYNTHETIC = np.arange(ROWS) < ROWS // 2


def audit_of(peers: list[str], limit: float | None = None) -> AuditOfPeers:
    """Attacks of the gradients of rows of which the first half is synthetic."""
    return AuditOfPeers(peers, lambda: Audit("clinic", SYNTHETIC, np.arange(ROWS), Randomness(bytes(32)), limit=limit))


def sent(audit: AuditOfPeers, *of_each: Any) -> None:
    """One step that sends each peer its rows."""
    positions = np.arange(ROWS)
    rows = [torch.from_numpy(of.astype(np.float32)) for of in of_each]
    for peer, gradients in zip(("lab", "insurer"), rows, strict=False):
        audit.peer_audit(peer).see(Sent(positions, gradients, gradients))
    audit.step_done(TrainingStep(positions, rows, rows))


def random_rows(seed: int) -> Any:
    return np.random.default_rng(seed).normal(size=(ROWS, 4))


def twins(of: Any) -> Any:
    """Rows of which each equals the next one or the one before."""
    return np.repeat(of[::2], 2, axis=0)


def telling(seed: int) -> Any:
    """Rows of which the synthetic ones have twins, and the others none."""
    return np.where(SYNTHETIC[:, None], twins(random_rows(seed)), random_rows(seed + 1))


def test_the_worst_peer_is_reported() -> None:
    """Synthetic rows have twins in what one peer receives, and none in what the other one does."""
    for of_each in ((telling(1), random_rows(3)), (random_rows(3), telling(1))):
        audit = audit_of(["lab", "insurer"])
        sent(audit, *of_each)
        assert audit.epoch_done()["same_step_twin"] == 1
        assert audit.averages["same_step_twin"] == 1
        assert audit.judged["same_step_twin"] == ROWS
    audit = audit_of(["lab", "insurer"])
    sent(audit, random_rows(3), random_rows(4))
    assert audit.epoch_done()["same_step_twin"] == 0.5


def telling_together() -> tuple[Any, Any]:
    """Every row has a twin at each of two peers; only a synthetic one has the same twin at both."""
    other = np.where(SYNTHETIC[:, None], twins(random_rows(2)), np.roll(twins(random_rows(2)), 1, axis=0))
    other[[ROWS // 2, -1]] = random_rows(5)[0]  # the roll goes round among the real rows
    return twins(random_rows(1)), other


def test_what_only_all_peers_together_see_is_reported() -> None:
    one, other = telling_together()
    audit = audit_of(["lab", "insurer"])
    sent(audit, one, other)
    for peer in ("lab", "insurer"):
        assert audit.peer_audit(peer).epoch_done()["same_step_twin"] == 0.5
    together = audit_of(["lab", "insurer"])
    sent(together, one, other)
    assert together.epoch_done()["same_step_twin"] == 1


@pytest.mark.parametrize(
    ("of_each", "who"),
    [((twins(random_rows(1)), telling(2)), "what insurer receives"), (telling_together(), "what all peers together receive")],
)
def test_the_limit_holds_for_each_attacker_and_the_error_names_it(of_each: Any, who: str) -> None:
    limited = audit_of(["lab", "insurer"], limit=0.9)
    sent(limited, *of_each)
    with pytest.raises(PolicyError, match=f"attacks.rows allows 0.9. These are attacks on {who}"):
        limited.epoch_done()


def test_with_one_peer_the_error_names_none() -> None:
    limited = audit_of(["lab"], limit=0.9)
    sent(limited, telling(1))
    with pytest.raises(PolicyError) as caught:
        limited.epoch_done()
    assert caught.value.message.endswith("attacks.rows allows 0.9")


def test_an_audit_of_peers_goes_on_from_a_checkpoint() -> None:
    whole, first = audit_of(["lab", "insurer"]), audit_of(["lab", "insurer"])
    for audit in (whole, first):
        sent(audit, random_rows(1), twins(random_rows(2)))
        audit.epoch_done()
    resumed = audit_of(["lab", "insurer"])
    resumed.restore(first.tensors())
    for audit in (whole, resumed):
        sent(audit, twins(random_rows(3)), random_rows(4))
    assert whole.epoch_done() == resumed.epoch_done()
    assert whole.averages == resumed.averages
    assert {name.partition(".")[0] for name in whole.tensors()} == {"lab", "insurer", TOGETHER}
    following = audit_of(["lab", "insurer"])
    following.follow_on(whole.carry_over())
    sent(following, random_rows(1), random_rows(2))
    fresh = audit_of(["lab", "insurer"])
    sent(fresh, random_rows(1), random_rows(2))
    assert following.epoch_done() != fresh.epoch_done()


def test_of_one_peer_it_is_that_peers_audit() -> None:
    audit, single = audit_of(["lab"]), Audit("clinic", SYNTHETIC, np.arange(ROWS), Randomness(bytes(32)), limit=None)
    rows = random_rows(1)
    sent(audit, rows)
    gradients = torch.from_numpy(rows.astype(np.float32))
    single.see(Sent(np.arange(ROWS), gradients, gradients))
    assert audit.epoch_done() == single.epoch_done()
    assert (audit.judged, audit.averages) == (single.judged, single.averages)
    assert audit.tensors().keys() == single.tensors().keys()


def noisy(sigma: float) -> Protection:
    return Protection((NoiseParams(name="noise", sigma=sigma),))


def gradients(runs: Any, receiver: str) -> Any:
    """What was sent in the first step, float32[B, d]."""
    return decoded(next(runs.recorder.messages(training_pb2.Gradient, receiver=receiver)))


def decoded(message: Any) -> Any:
    return codec.decode(message.tensor, dtype=torch.float32, shape=tuple(message.tensor.shape)).numpy()


def test_each_peer_gets_noise_of_its_own(several_parties: Make, several_runs: Any) -> None:
    """Else two peers could subtract what they received and have the difference without noise."""
    parties = several_parties(2, 200, owned=0.8)
    clear, noised = several_runs(), several_runs(protections={"clinic": noisy(1.0)})
    for runs in (clear, noised):
        runs(parties)
    lab, insurer = (gradients(noised, name) - gradients(clear, name) for name in ("lab", "insurer"))
    for noise in (lab, insurer):
        assert noise.std() * 64 == pytest.approx(1, rel=0.2)  # the gradient of a mean over 64 rows
    correlation = np.corrcoef(lab.ravel(), insurer.ravel())[0, 1]
    assert abs(correlation) < 4 / math.sqrt(lab.size)
    again = several_runs(protections={"clinic": noisy(1.0)})
    again(parties)
    np.testing.assert_array_equal(gradients(again, "lab"), gradients(noised, "lab"))


def test_the_audit_sees_what_each_peer_and_all_together_receive(
    several_parties: Make, several_runs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[Audit, list[Any]] = {}
    see = Audit.see

    def spying(audit: Audit, step: Sent) -> None:
        seen.setdefault(audit, []).append(step.rows.numpy())
        see(audit, step)

    monkeypatch.setattr(Audit, "see", spying)
    runs = several_runs(protections={"clinic": noisy(1.0)})
    runs(several_parties(2, 200, owned=0.8))
    lab, insurer = (
        [decoded(of) for of in runs.recorder.messages(training_pb2.Gradient, receiver=name)] for name in ("lab", "insurer")
    )
    together = [np.concatenate(rows, axis=1) for rows in zip(lab, insurer, strict=True)]
    assert len(seen) == 5  # two of passive parties, which see embeddings
    for received in (lab, insurer, together):
        (_,) = (rows for rows in seen.values() if all(map(np.array_equal, rows, received)))


def test_peers_together_have_less_noise_than_each(several_parties: Make, several_runs: Any) -> None:
    """Gradients of all peers are images of one error of the row: k of them tell its label as one with 1/√k of the noise."""
    parties = several_parties(4, 600)
    runs = several_runs(protections={"clinic": Protection(noisy(0.3).defences, membership=False)})
    runs(parties)
    schedule = schedule_of(parties, runs)
    training = schedule.parts(0, runs.evaluate.test_fraction, 0).training
    batches = [of for epoch in range(runs.train.epochs) for of in schedule.batches(0, epoch, training, runs.train.batch_size)]
    last = np.concatenate(batches[-(len(batches) // runs.train.epochs) :])
    positive = parties.tables["clinic"].labels[parties.views["clinic"].rows[last]] == 1

    def received(name: str) -> Any:
        """Gradients of the rows' own losses in the last epoch."""
        messages = runs.recorder.messages(training_pb2.Gradient, receiver=name)
        return np.concatenate([len(of) * decoded(next(messages)) for of in batches])[-len(last) :]

    def apart(rows: Any) -> tuple[float, float]:
        """Labels along the line between the classes' means: how many deviations apart, and the AUC."""
        scores = rows @ (rows[positive].mean(0) - rows[~positive].mean(0))
        deviations = (scores[positive].mean() - scores[~positive].mean()) / scores[~positive].std()
        return deviations, metrics.auc(positive, scores)

    each = {name: received(name) for name in parties.names[1:]}
    alone = np.array([apart(rows) for rows in each.values()])
    together = apart(np.concatenate(list(each.values()), axis=1))
    assert together[0] == pytest.approx(np.sqrt((alone[:, 0] ** 2).sum()), rel=0.2)
    assert alone[:, 1].max() + 0.03 < together[1] < 1


def test_noise_takes_from_all_peers_together_what_gradients_tell(several_parties: Make, several_runs: Any) -> None:
    parties = several_parties(2, 600, owned=0.7)

    def strongest(**settings: Any) -> float:
        audit = several_runs(**settings)(parties)["clinic"].audits.membership
        return max(abs(value - 0.5) for value in audit.values() if value is not None)

    assert strongest() > 0.2
    assert strongest(protections={"clinic": noisy(1000.0)}) < 0.12  # of 21 figures, each with a standard deviation of .03
    stopped = several_runs(protections={"clinic": Protection(max_attack_auc=0.6)}).raw(parties)["clinic"]
    assert isinstance(stopped, PolicyError)


@pytest.mark.slow
@pytest.mark.parametrize("told", [True, False])
def test_gradients_tell_something_of_another_passive_party(several_parties: Make, several_runs: Any, told: bool) -> None:
    """What docs/explanations/privacy/index.md says, and chance where that party's columns do not help to predict."""
    parties = several_parties(2, 1500, owned=0.7, noise=() if told else ("insurer",))
    runs = several_runs(protections=dict.fromkeys(parties.names, Protection(membership=False)))
    runs.train = runs.train.model_copy(update={"epochs": 10, "bottom": (16, 8)})
    runs(parties)
    schedule = schedule_of(parties, runs)
    training = schedule.parts(0, runs.evaluate.test_fraction, 0).training
    received = runs.recorder.messages(training_pb2.Gradient, receiver="lab")
    lengths = np.zeros(len(parties.people))
    for epoch in range(runs.train.epochs):
        for positions in schedule.batches(0, epoch, training, runs.train.batch_size):
            lengths[positions] += np.linalg.norm(decoded(next(received)), axis=1)
    view, active = parties.views["insurer"], parties.views["clinic"]
    lacks = metrics.auc((~view.owned)[training], lengths[training])
    scores = sum(column.values for column in parties.tables["insurer"].columns.values())[view.rows]
    labels = parties.tables["clinic"].labels[active.rows]
    both = np.intersect1d(training, np.flatnonzero(view.owned & active.owned))
    negative, positive = (both[labels[both] == label] for label in (0, 1))
    columns = np.corrcoef(lengths[negative], scores[negative])[0, 1] - np.corrcoef(lengths[positive], scores[positive])[0, 1]
    assert (lacks > 0.54) == told
    assert (columns / 2 > 0.1) == told


def test_the_ledger_names_every_peer_and_what_is_told_of_the_others(several_parties: Make, several_runs: Any) -> None:
    parties = several_parties(2, 160, owned=0.8)
    results = several_runs(evaluate=Evaluate(validation_fraction=0.1))(parties)
    for name, result in results.items():
        assert set(result.disclosures) == {"clinic", "lab", "insurer"}
        assert next(iter(result.disclosures)) == name
        active = result.disclosures["clinic"]
        assert [entry.what for entry in active] == ["embeddings", "early stopping", "membership", "embeddings", "membership"]
        for peer in ("lab", "insurer"):
            (lacks,) = (entry for entry in active if entry.what == "membership" and f" {peer} lacks" in entry.text)
            assert lacks.count == parties.views[peer].missing
            other = "insurer" if peer == "lab" else "lab"
            (indirect,) = (entry for entry in result.disclosures[peer] if entry.what == "other passive parties")
            assert indirect.count == 0
            assert f"depend on the embeddings of {other}" in indirect.text
    alone = several_runs()(several_parties(1, 160, owned=0.8))
    assert not [entry for entry in alone["lab"].disclosures["lab"] if entry.what == "other passive parties"]


def test_columns_that_help_are_told_from_noise(several_parties: Make, several_runs: Any) -> None:
    parties = several_parties(3, 1000, noise=("insurer",))
    train = several_runs().train.model_copy(update={"epochs": 8})
    quiet = dict.fromkeys(parties.names, Protection(membership=False, labels=False))
    evaluate = Evaluate(test_fraction=0.3, metrics=("auc", "nll"), contributions=True)
    asked = several_runs(train=train, evaluate=evaluate, protections=quiet)
    results = asked(parties)
    found = results["clinic"].section.contributions
    assert list(found) == ["clinic", "lab", "insurer", "telco"]
    for name, of in found.items():
        if name == "insurer":
            assert abs(of["auc"].mean) < 0.02
        else:
            assert of["auc"].mean > max(0.04, 3 * of["auc"].sd)
            assert of["nll"].mean > 0  # above 0 is worse, although a smaller NLL is better
    assert all(results[name].section.contributions is None for name in ("lab", "insurer", "telco"))
    without = several_runs(train=train, evaluate=evaluate.model_copy(update={"contributions": False}), protections=quiet)
    plain = without(parties)
    assert plain["clinic"].section.contributions is None
    assert plain["clinic"].results.metrics == results["clinic"].results.metrics
    assert [entry.frame for entry in without.recorder.entries] == [entry.frame for entry in asked.recorder.entries]


def test_contributions_with_one_passive_party_and_no_own_columns(several_parties: Make, several_runs: Any) -> None:
    evaluate = Evaluate(contributions=True)
    found = several_runs(evaluate=evaluate)(several_parties(1, 400, owned=0.8, active_columns=False))["clinic"]
    assert list(found.section.contributions) == ["lab"]
    assert set(found.section.contributions["lab"]) == set(evaluate.metrics)
    chance = found.results.metrics["auc"] - found.section.contributions["lab"]["auc"].mean
    assert chance == pytest.approx(0.5, abs=0.1)  # nothing is left to predict by
