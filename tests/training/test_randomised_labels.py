"""Training on randomised answers: what is learnt, what leaves, and what many trainings tell of the labels."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.thorough import every
from tests.training.conftest import SMALL, synthetic
from tests.training.outside_rows import QUICK, intersected, settings
from tests.training.several import USUAL, several_parties
from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import StateError, UsageError
from vfl_node.job import Evaluate
from vfl_node.metrics.classes import auc
from vfl_node.privacy.defences.randomised.answers import (
    STEPS,
    answer_classes,
    answer_numbers,
    keep_probability,
    move_probability,
)
from vfl_node.privacy.labels.spectrum import leading
from vfl_node.session.memory import MemoryOfOneRun
from vfl_node.settings.defences import read_params
from vfl_node.settings.protection import Protection
from vfl_node.training.split.config import Train
from vfl_node.training.split.missing.section import Missing
from vfl_node.training.split.randomised import RandomisedClasses, corrected_losses
from vfl_node.training.split.trainer import SplitTrainer
from vfl_node.transport import codec
from vfl_node.transport.generated.vfl.v1 import training_pb2
from vfl_node.transport.memory import memory_channels

EVALUATE = Evaluate(test_fraction=0.2)
NUMBERS = {"task": "regression", "missing": {"labels": "sampling"}}


def answered(epsilon: float = 1.0, *more: Any, **keys: Any) -> tuple[Protection, Protection]:
    entries = ({"name": "randomised-labels", "epsilon": epsilon, **keys}, *more)
    return dataclasses.replace(USUAL, defences=tuple(map(read_params, entries))), USUAL


def answers_to_both(monkeypatch: pytest.MonkeyPatch, both: Any, parties: Any) -> tuple[np.ndarray, np.ndarray]:
    """Train, and say what is answered about each record of the active party if its label is 0, and if it is 1."""
    from vfl_node.training.split import randomised

    called: list[Any] = []

    def noted(secret: Randomness, ids: Any, labels: Any, *terms: Any) -> Any:
        called.append((secret, ids, terms))
        return answer_classes(secret, ids, labels, *terms)

    monkeypatch.setattr(randomised, "answer_classes", noted)
    both(parties)
    secret, ids, terms = called[0]
    if_0, if_1 = (answer_classes(secret, ids, np.full(len(ids), label), *terms) for label in (0, 1))
    return if_0, if_1


def with_labels(parties: Any, labels: np.ndarray) -> Any:
    return dataclasses.replace(parties, clinic=dataclasses.replace(parties.clinic, labels=labels))


def test_the_corrected_loss_is_smallest_at_the_labels_probability() -> None:
    """Its mean over answers; and its gradient there is 0, of a plain loss on answers it is not."""
    for classes, epsilon in ((2, 0.5), (2, 2.0), (4, 1.0)):
        generator = np.random.default_rng(classes)
        true = torch.tensor(generator.dirichlet(np.ones(classes), size=50))
        answers = (
            move_probability(classes, epsilon)
            + (keep_probability(classes, epsilon) - move_probability(classes, epsilon)) * true
        )
        if classes == 2:
            logits, shown = torch.logit(true[:, 1]), answers[:, 1]
        else:
            logits, shown = true.log(), answers
        logits.requires_grad_()
        found = corrected_losses(logits, shown, classes, epsilon)
        (gradient,) = torch.autograd.grad(found.sum(), logits)
        assert gradient.abs().max() < 1e-12
        assert torch.allclose(found, -(answers * answers.log()).sum(dim=1))
        off = corrected_losses(logits.detach() + torch.randn(logits.shape, dtype=torch.float64), shown, classes, epsilon)
        assert (off > found).all()
        plain = RandomisedClasses(classes, None, 0.5, epsilon=20.0).losses(logits, shown)
        (gradient,) = torch.autograd.grad(plain.sum(), logits)
        assert gradient.abs().mean() > 0.02


def test_the_corrected_loss_is_finite_for_the_surest_model() -> None:
    for logits in (torch.tensor([200.0, -200.0]), torch.tensor([[200.0, -200.0, 0.0], [-200.0, 0.0, 200.0]])):
        logits.requires_grad_()
        answers = torch.zeros_like(logits) if logits.dim() == 1 else torch.eye(3)[:2]
        losses = corrected_losses(logits, answers, 2 if logits.dim() == 1 else 3, 1.0)
        (gradient,) = torch.autograd.grad(losses.sum(), logits)
        assert losses.isfinite().all()
        assert gradient.isfinite().all()
        assert losses.max() <= -math.log(move_probability(3, 1.0)) + 1e-6


def test_probabilities_are_of_labels_and_not_of_answers(run: Any) -> None:
    """20 % positives; of answers of ε 1 34 % are. Without the correction the mean probability would be theirs."""
    parties = synthetic(2500, (1.0, 1.0), positives=0.2)
    evaluate = Evaluate(test_fraction=0.4, metrics=("auc", "nll", "ace"))
    clinic, _ = run(evaluate=evaluate, protections=answered())(parties)
    plain, _ = run(evaluate=evaluate)(parties)
    shown = sum(share * frequency[0] for *frequency, share in clinic.results.curve)
    rows = sum(share for *_, share in clinic.results.curve)
    assert shown / rows == pytest.approx(0.2, abs=0.05)
    assert clinic.results.metrics["auc"] > plain.results.metrics["auc"] - 0.06
    assert clinic.results.metrics["auc"] > 0.8


def test_a_regression_learns_the_mean(run: Any) -> None:
    parties = regression()
    train = Train.model_validate({**SMALL.model_dump(), **NUMBERS, "epochs": 6})
    evaluate = Evaluate(test_fraction=0.3, metrics=("r2", "rmse"))
    protections = answered(8.0, target_range=[-12, 12])
    clinic, _ = run(train=train, evaluate=evaluate, protections=protections)(parties)
    assert clinic.results.metrics["r2"] > 0.5
    assert clinic.section.label_privacy.epsilon == 8.0
    assert clinic.results.constant["rmse"] == pytest.approx(parties.clinic.labels.std(), rel=0.05)  # of the targets themselves


def regression(people: int = 3000) -> Any:
    parties = synthetic(people, (1.0, 1.0))
    clinic, lab = parties.clinic, parties.lab
    own = sum(column.values for name, column in clinic.columns.items() if name.startswith("x"))
    theirs = sum(column.values for name, column in lab.columns.items() if name.startswith("z"))
    lab_row = np.empty(people, np.int64)
    lab_row[[int(id_) for id_ in lab.ids]] = np.arange(people)
    theirs = theirs[lab_row[[int(id_) for id_ in clinic.ids]]]
    labels = own + theirs + np.random.default_rng(0).normal(size=people)
    return with_labels(parties, labels.astype(np.float64))


SPIED: dict[str, dict[str, Any]] = {
    "stopping": {"evaluate": Evaluate(test_fraction=0.2, validation_fraction=0.2, repeats=2)},
    "union": {"train": SMALL.model_copy(update={"missing": Missing(labels="random-pos")})},
    "predicted": {"train": SMALL.model_copy(update={"missing": Missing(labels="random-pred")})},
    "neighbours": {"train": SMALL.model_copy(update={"missing": Missing(labels="neighbors")})},
    "matched": {"evaluate": Evaluate(test_fraction=0.5, matched=True)},
}


@pytest.mark.parametrize("how", every(2, list(SPIED)))
def test_other_labels_with_the_same_answers_send_the_same_bytes(run: Any, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Controls: one answer that differs, and labels without the defence, change bytes."""
    given = dict(SPIED[how])
    parties = synthetic(500, (1.0, 1.0) if how == "stopping" else (0.8, 0.8))
    plain, protected = run(**given), run(**given, protections=answered())
    if_0, if_1 = answers_to_both(monkeypatch, protected, parties)
    same, labels = if_0 == if_1, parties.clinic.labels
    assert 0.2 < same.mean() < 0.6
    flipped = np.where(same, 1 - labels, labels)
    other = run(**given, protections=answered())
    clinic, _ = other(with_labels(parties, flipped))
    assert sent(other) == sent(protected)
    assert clinic.results.metrics["auc"] is not None

    one = int(np.flatnonzero(~same & np.isin(np.arange(len(labels)), trained(protected, parties)))[0])
    single = labels.copy()
    single[one] = 1 - single[one]
    differing = run(**given, protections=answered())
    differing(with_labels(parties, single))
    assert sent(differing) != sent(protected)
    plain(parties)
    unprotected = run(**given)
    unprotected(with_labels(parties, flipped))
    assert sent(unprotected) != sent(plain)


def trained(both: Any, parties: Any) -> np.ndarray:
    """Rows of the active table that are trained on in the first repeat."""
    training = both.schedule(parties).parts(0, both.evaluate.test_fraction, both.evaluate.validation_fraction)[0]
    view = parties.clinic_view
    return np.asarray(view.rows[training][view.owned[training]])


def sent(both: Any) -> list[bytes]:
    return [message.SerializeToString() for message in both.transcript]


@pytest.mark.parametrize("method", every(2, ["jpl", "diffusion", "fedcvt"]))
def test_rows_outside_of_the_alignment_are_learnt_by_their_answers(
    run: Any, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parties, given = intersected(400, 200), settings(run, QUICK[method])
    protected = run(**given, protections=answered())
    if_0, if_1 = answers_to_both(monkeypatch, protected, parties)
    labels = parties.clinic.labels
    flipped = np.where(if_0 == if_1, 1 - labels, labels)
    assert (flipped != labels)[200:].any()
    other = run(**given, protections=answered())
    other(with_labels(parties, flipped))
    assert sent(other) == sent(protected)


def test_numbers_with_the_same_answers_send_the_same_bytes(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the range targets have one answer; within it two that round alike."""
    train = Train.model_validate({**SMALL.model_dump(), **NUMBERS})
    given = {"train": train, "evaluate": Evaluate(metrics=("rmse",)), "protections": answered(2.0, target_range=[-1, 1])}
    parties = regression(400)
    first, second = run(**given), run(**given)
    first(parties)
    labels = parties.clinic.labels
    assert 0.2 < (np.abs(labels) > 1).mean() < 0.9
    second(with_labels(parties, np.where(np.abs(labels) > 1, 3 * labels, labels)))
    assert sent(first) == sent(second)


def test_averaging_many_jobs_tells_no_more_than_one_answer(run: Any) -> None:
    """Labels that no column explains, in eight jobs of other batches and weights with one node: AUC about e^ε / (1 + e^ε).

    The judge has each row's gradients of all jobs along the leading direction, added up. 1,500 rows, 30 % positives: the
    deviation of an AUC is .015 at .73, so the bound of .80 is 4 of them above what the answers tell. Controls: without the
    defence the labels are read at 1.00; and if each job had another secret, their answers would average out.
    """
    parties = synthetic(1500, (1.0, 1.0), positives=0.3, active_features=False)
    np.random.default_rng(3).shuffle(parties.clinic.labels)
    truth = parties.clinic.labels[parties.clinic_view.rows] == 1

    def told(jobs: int, protections: Any, *, anew: bool = False) -> list[float]:
        sums, read = np.zeros(len(truth)), []
        for job in range(jobs):
            own = bytes([job + 1]) * 32
            both = run(
                evaluate=Evaluate(test_fraction=0.05),
                protections=protections,
                clinic_seed=own,
                remembered=own if anew else bytes(32),
            )
            both(parties)
            scores = by_gradients(both, parties)
            sums += scores * (1 if scores @ sums >= 0 else -1)
            value = auc(truth, sums)
            assert value is not None
            read.append(max(value, 1 - value))
        return read

    expected = keep_probability(2, 1.0)
    found = told(8, answered(1.0))
    assert expected - 0.06 < found[0] < 0.80
    assert found[-1] < 0.80
    assert found[-1] - found[0] < 0.04
    assert told(1, (USUAL, USUAL))[0] > 0.97
    renewed = told(8, answered(1.0), anew=True)
    assert renewed[-1] > 0.88


def by_gradients(both: Any, parties: Any) -> np.ndarray:
    """Where each shared row's mean gradient lies along the leading direction, standardised; 0 where it has none."""
    training = both.schedule(parties).parts(0, both.evaluate.test_fraction, 0.0)[0]
    messages = [message for message in both.transcript if isinstance(message, training_pb2.Gradient)]
    tensors = iter([codec.decode(of.tensor, dtype=torch.float32, shape=tuple(of.tensor.shape)) for of in messages])
    sums: Tensor | None = None
    for epoch in range(both.train.epochs):
        for positions in both.schedule(parties).batches(0, epoch, training, both.train.batch_size):
            gradient = next(tensors)
            sums = torch.zeros(len(parties.people), gradient.shape[1]) if sums is None else sums
            sums[torch.from_numpy(positions)] += len(positions) * gradient
    assert sums is not None
    scores = (sums @ leading(sums[torch.from_numpy(training)])).double().numpy()
    scores = (scores - scores[training].mean()) / scores[training].std()
    scores[np.setdiff1d(np.arange(len(scores)), training)] = 0
    return np.asarray(scores)


def test_several_partners_have_the_same_answers_and_the_report_says_what_they_come_to(several_runs: Any) -> None:
    parties = several_parties(passive=2, people=200, owned=1.0, protocol="psi")
    active = parties.names[0]
    results = several_runs(protections={active: answered(2.0)[0]})(parties)
    privacy = results[active].section.label_privacy
    assert (privacy.epsilon, privacy.delta, privacy.releases, privacy.epsilon_together) == (2.0, 0.0, 1, 2.0)
    for name in parties.names[1:]:
        (entry,) = [of for of in results[active].disclosures[name] if of.what == "randomised labels"]
        assert "ε = 2 " in entry.text
        assert "earlier jobs" not in entry.text
        assert results[name].section.label_privacy is None
        assert "randomised" not in str(results[name].disclosures)


class Remembering(MemoryOfOneRun):
    """A partner who has had answers of ε 0.5 and 1 before."""

    def answer(self, what: Any) -> float:
        return 1.5 if what.epsilon in (0.5, 1.0) else 1.5 + float(what.epsilon)


def test_the_ledger_adds_earlier_answers(run: Any) -> None:
    parties = synthetic(300, (1.0, 1.0))

    def trained_with(epsilon: float) -> Any:
        both = run(protections=answered(epsilon))
        made = both.session

        def session(*args: Any) -> Any:
            own = made(*args)
            return dataclasses.replace(own, memories={peer: Remembering(Randomness(bytes(32))) for peer in own.peers})

        both.session = session
        return both(parties)[0]

    for epsilon, together in ((1.0, 1.5), (2.0, 3.5)):
        clinic = trained_with(epsilon)
        assert clinic.section.label_privacy.epsilon_together == together
        (entry,) = [of for of in clinic.disclosures["lab"] if of.what == "randomised labels"]
        assert f"other terms: ε = {together:g}" in entry.text


class Lost(MemoryOfOneRun):
    """A node whose secret is gone."""

    def answer(self, what: Any) -> float:
        raise StateError("gone", code="E_STATE_LOST")


def test_nothing_is_sent_where_the_secret_of_earlier_answers_is_gone(run: Any) -> None:
    parties = synthetic(300, (1.0, 1.0))
    for protections, sent_some in ((answered(), False), ((Protection(), Protection()), True)):
        both = run(protections=protections)
        made = both.session

        def session(*args: Any, made: Any = made) -> Any:
            own = made(*args)
            return dataclasses.replace(own, memories={peer: Lost(Randomness(bytes(32))) for peer in own.peers})

        both.session = session
        clinic, _ = both.raw(parties)
        assert (getattr(clinic, "code", None) == "E_STATE_LOST") != sent_some
        assert any(isinstance(message, training_pb2.Gradient) for message in both.transcript) == sent_some


@pytest.mark.parametrize(
    ("train", "evaluate", "named"),
    [
        ({"task": "regression", "missing": {"labels": "mean"}}, {"metrics": ("rmse",)}, "target_range"),
        ({"class_weight": "balanced"}, {}, "class_weight"),
        ({"missing": {"calibration": "test"}}, {}, "calibration"),
        ({}, {"share_with_passive": True}, "share_with_passive"),
    ],
)
def test_what_the_promise_does_not_cover_is_refused(run: Any, train: Any, evaluate: Any, named: str) -> None:
    both = run(train=Train.model_validate({**SMALL.model_dump(), **train}), evaluate=Evaluate(**evaluate))
    channels = memory_channels("clinic", "lab")
    SplitTrainer().prepare(both.session("clinic", channels[0], b"s" * 32, 0))
    both.protections = answered()
    with pytest.raises(UsageError, match="randomised-labels") as raised:
        SplitTrainer().prepare(both.session("clinic", channels[0], b"s" * 32, 0))
    assert named in raised.value.message + raised.value.hint
    assert raised.value.code == "E_CONFIG"
    both.protections = answered()[::-1]
    SplitTrainer().prepare(both.session("lab", channels[1], b"s" * 32, 0))


def test_two_answers_about_a_label_in_one_job_are_refused(run: Any) -> None:
    both = run(protections=answered(1.0, {"name": "randomised-labels", "epsilon": 2}))
    with pytest.raises(UsageError, match="one answer"):
        SplitTrainer().prepare(both.session("clinic", memory_channels("clinic", "lab")[0], b"s" * 32, 0))


def test_steps_of_a_range_are_fine_enough() -> None:
    targets = np.linspace(-1, 1, 100)
    ids = [str(at).encode() for at in range(100)]
    one, other = (answer_numbers(Randomness(bytes(32)), ids, targets + d, (-1.0, 1.0), 20.0) for d in (0.0, 0.4 / STEPS))
    assert (one == other).mean() > 0.3
