"""Training ends where the validation loss falls no more, and the best epoch's weights count, at both parties."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from google.protobuf.message import Message

from tests.thorough import every
from tests.training.predicting import CPU, World
from tests.training.test_joint import Joint
from tests.training.test_resume import Fatal, KilledError, assert_same_bits
from vfl_node.configuration.models import parse
from vfl_node.errors import DataError, PolicyError, ProtocolError, UsageError
from vfl_node.job import Evaluate, Job, Serve
from vfl_node.metrics import classes as metrics
from vfl_node.privacy.defences.specs import NoiseParams
from vfl_node.progress import Advanced, EpochTrained, LocalEpochTrained, PhaseBegan, Silent
from vfl_node.settings.protection import Protection
from vfl_node.training.checkpoints import MemoryCheckpoints
from vfl_node.training.network import journal
from vfl_node.training.network.overfitting import judge_classes, judge_numbers
from vfl_node.training.network.rate import rate_factor
from vfl_node.training.network.stopping import Stopping
from vfl_node.training.split.config import Train
from vfl_node.training.split.missing.section import Missing
from vfl_node.training.split.prediction import Embedder
from vfl_node.training.trainer import Epoch
from vfl_node.transport import codec
from vfl_node.transport.generated.vfl.v1 import training_pb2

EAGER = Train(bottom=(32, 16), active_bottom=(16,), top=(16,), epochs=12, patience=2, batch_size=64, learning_rate=3e-2)
"""So many weights and so high a rate that it soon learns its few rows by heart."""

VALIDATED = Evaluate(test_fraction=0.2, validation_fraction=0.2)


def ended(results: Any) -> tuple[int, int]:
    """Best and last epoch of the first repeat, on which both parties agree."""
    ours, theirs = (result.section.early_stopping for result in results)
    assert ours == theirs
    return ours.best_epochs[0], ours.last_epochs[0]


def test_the_rule() -> None:
    def best_and_last(patience: int, *losses: float) -> tuple[int, int]:
        stopping = Stopping(patience, len(losses))
        for loss in losses:
            assert not stopping.over
            stopping.count(stopping.improves(loss), loss)
            if stopping.over:
                break
        assert stopping.over
        return stopping.best, stopping.epoch

    assert best_and_last(2, 0.5, 0.4, 0.41, 0.42, 0.1) == (2, 4)
    assert best_and_last(3, 0.5, 0.4, 0.41, 0.42, 0.1) == (5, 5)
    assert best_and_last(2, 0.5, 0.5, 0.5, 0.4) == (1, 3)  # an equal loss is no better one
    assert best_and_last(1, 0.5, 0.6) == (1, 2)
    assert best_and_last(9, 0.5, 0.4, 0.3) == (3, 3)


def test_it_stops_at_the_epoch_of_one_joint_model_and_keeps_its_best_weights(synthetic: Callable[..., Any], run: Any) -> None:
    """Controls: the joint model's last weights give other metrics than its best ones, and more epochs another last one."""
    parties = synthetic(300, (1.0, 1.0))
    both = run(train=EAGER, evaluate=VALIDATED)
    ours, _ = results = both(parties)
    joint = Joint(parties, both)

    def nll(rows: Any) -> float:
        with torch.no_grad():
            probabilities = torch.sigmoid(joint.logits(rows).double()).numpy()
        return metrics.compute(["nll"], joint.labels[rows].numpy(), probabilities, probabilities)["nll"] or 0.0

    on_validation, on_test = [], []
    for number in range(EAGER.epochs):
        joint.epoch(number)
        on_validation.append(nll(joint.parts.validation))
        on_test.append(nll(joint.parts.testing))
        if number - int(np.argmin(on_validation)) >= EAGER.patience:
            break
    best, last = int(np.argmin(on_validation)) + 1, len(on_validation)
    assert ended(results) == (best, last)
    assert 1 < best < last < EAGER.epochs
    assert [epoch.validation_loss for epoch in ours.epochs] == pytest.approx(on_validation, abs=1e-5)
    assert ours.results.metrics["nll"] == pytest.approx(on_test[best - 1], abs=1e-5)
    assert abs(on_test[-1] - on_test[best - 1]) > 1e-3
    assert ours.steps == last * -(-ours.rows[0] // EAGER.batch_size)
    longer = run(train=EAGER.model_copy(update={"patience": 5}), evaluate=VALIDATED)
    assert ended(longer(parties)) != ended(results)


def test_the_best_epochs_weights_with_their_averages_are_kept_by_both(synthetic: Callable[..., Any], run: Any) -> None:
    """As if training had been asked for so many epochs: norms and averages of embeddings with the weights."""
    train = EAGER.model_copy(update={"batch_norm": True, "missing": Missing(features="random", calibration="none")})
    parties = synthetic(400)
    results = run(train=train, evaluate=VALIDATED)(parties)
    best, last = ended(results)
    assert best < last
    exactly = run(train=train.model_copy(update={"epochs": best}), evaluate=VALIDATED)(parties)
    further = run(train=train.model_copy(update={"epochs": last, "patience": 99}), evaluate=VALIDATED)(parties)
    for stopped, as_long, beyond in zip(results, exactly, further, strict=True):
        names = [name for name in stopped.weights if not name.startswith("local.")]
        assert any("running" in name for name in names)
        assert all(torch.equal(stopped.weights[name], as_long.weights[name]) for name in names)
        assert all(torch.equal(stopped.weights[name], beyond.weights[name]) for name in names)
    assert any(name.startswith("substitute.") for name in results[1].weights)


def test_the_model_of_one_party_alone_stops_by_the_same_rule(synthetic: Callable[..., Any], run: Any) -> None:
    class Seen(Silent):
        def __init__(self) -> None:
            self.epochs: list[int] = []

        def emit(self, event: Any) -> None:
            if isinstance(event, LocalEpochTrained):
                self.epochs.append(event.epoch)

    def alone(evaluate: Evaluate, train: Train) -> tuple[Any, list[int]]:
        seen, both = Seen(), run(train=train, evaluate=evaluate)
        session = both.session
        both.session = lambda *arguments: replace(session(*arguments), progress=seen)
        return both(parties)[0], seen.epochs

    parties = synthetic(300)
    train = EAGER.model_copy(update={"learning_rate": 0.1, "missing": Missing(calibration="train")})
    stopped, epochs = alone(VALIDATED, train)
    ends = [number for number, after in zip(epochs, [*epochs[1:], 1], strict=True) if after == 1]
    assert len(ends) == 4  # one that gives calibration its q, two that give q of each other's half, and the one compared with
    assert min(ends) < train.epochs
    assert alone(Evaluate(), train)[1] == [*range(1, train.epochs + 1)] * 4
    until = ends[0] - train.patience
    as_long, _ = alone(VALIDATED, train.model_copy(update={"epochs": until}))
    local = [name for name in stopped.weights if name.startswith("local.")]
    assert local
    assert all(torch.equal(stopped.weights[name], as_long.weights[name]) for name in local)


def test_each_repeat_stops_by_itself_and_figures_may_be_shared(synthetic: Callable[..., Any], run: Any) -> None:
    evaluate = VALIDATED.model_copy(update={"repeats": 3, "share_with_passive": True})
    ours, theirs = run(train=EAGER, evaluate=evaluate)(synthetic(300))
    ends = ours.section.early_stopping
    assert theirs.section.early_stopping == ends
    assert len(set(zip(ends.best_epochs, ends.last_epochs, strict=True))) > 1
    assert len(ours.epochs) == ends.last_epochs[0]
    assert ours.steps == sum(ends.last_epochs) * -(-ours.rows[0] // EAGER.batch_size)
    for one, other in zip(ours.epochs, theirs.epochs, strict=True):
        assert other.validation_loss == round(one.validation_loss, 3)
        assert other.validation_auc == round(one.validation_auc, 3)
    alone, untold = run(train=EAGER, evaluate=VALIDATED)(synthetic(300))
    assert all(epoch.validation_auc is not None for epoch in alone.epochs)
    assert all(epoch.validation_loss is epoch.validation_auc is None for epoch in untold.epochs)


def test_without_validation_the_messages_are_those_of_a_training_that_knows_none(
    synthetic: Callable[..., Any], run: Any
) -> None:
    both = run(evaluate=Evaluate(share_with_passive=True))
    both(synthetic(200))
    kinds = {type(message).__name__ for message in both.transcript}
    assert kinds == {"TossCommit", "TossShare", "Embedding", "Gradient", "Shared", "PhaseEnd"}
    shared = next(message for message in both.transcript if isinstance(message, training_pb2.Shared))
    assert "validation" not in shared.json


@pytest.mark.usefixtures("audits")
def test_killed_at_any_checkpoint_it_ends_with_the_same_bytes(
    synthetic: Callable[..., Any], run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after the best epoch, of which no party has more than the checkpoint says."""
    monkeypatch.setattr(journal, "STEPS_BETWEEN", 1)
    missing = Missing(features="random", calibration="test")
    train = EAGER.model_copy(update={"missing": missing, "dropout": 0.1})
    train = train.model_copy(update={"learning_rate_schedule": "cosine", "warmup_steps": 4})
    settings = {"train": train, "evaluate": VALIDATED.model_copy(update={"repeats": 2})}
    parties = synthetic(170)
    whole = run(**settings)(parties)
    best, last = ended(whole)
    assert best < last < train.epochs
    assert whole[0].section.early_stopping.last_epochs[1] > 2
    for repeat, epoch in every(3, [(0, last), (0, best), (0, best + 1), (1, 2)]):
        name = f"r{repeat:03d}-e{epoch:06d}"
        killed = run(**settings, checkpoints=(MemoryCheckpoints(), Fatal(name)))
        assert isinstance(killed.raw(parties)[1], KilledError)
        newest = max(set(killed.checkpoints[0].names()) & set(killed.checkpoints[1].names()))
        resumed = run(**settings, checkpoints=killed.checkpoints, resume_from=newest)(parties)
        for ours, theirs in zip(resumed, whole, strict=True):
            assert_same_bits(ours, theirs)
            assert [epoch.validation_loss for epoch in ours.epochs] == [epoch.validation_loss for epoch in theirs.epochs]
            assert ours.servable.tested.tolist() == theirs.servable.tested.tolist()


def test_what_is_done_adds_up_to_what_was_announced_wherever_it_stops(synthetic: Callable[..., Any], run: Any) -> None:
    events: list[Any] = []
    noted = Silent()
    noted.emit = events.append  # type: ignore[method-assign]
    both = run(train=EAGER, evaluate=VALIDATED.model_copy(update={"repeats": 2}))
    session = both.session
    both.session = lambda name, *others: replace(session(name, *others), progress=noted if name == "clinic" else Silent())
    ours, _ = both(synthetic(300))
    (phase,) = (event for event in events if isinstance(event, PhaseBegan))
    assert sum(event.steps for event in events if isinstance(event, Advanced)) == phase.total
    losses = [event.validation_loss for event in events if isinstance(event, EpochTrained)]
    assert losses[: len(ours.epochs)] == [epoch.validation_loss for epoch in ours.epochs]


# What the peer says, and what it learns.


def forged(of: int, **fields: Any) -> Callable[[Message], None]:
    def tamper(message: Message) -> None:
        if isinstance(message, training_pb2.EpochEnd) and message.epoch == of:
            for name, value in fields.items():
                setattr(message, name, value)

    return tamper


@pytest.mark.parametrize(
    ("tamper", "text"),
    [
        (forged(2, epoch=3), "clinic ended epoch 3 where epoch 2 was due"),
        (forged(1, improved=False), "clinic says that the first epoch has no smallest validation loss"),
        (forged(2, last=True), "clinic stops after epoch 2, which train.patience does not allow"),
        (forged(3, last=False), "clinic goes on after epoch 3, which train.patience does not allow"),
    ],
)
def test_another_decision_than_the_job_allows_is_refused(
    synthetic: Callable[..., Any], run: Any, tamper: Callable[[Message], None], text: str
) -> None:
    train = EAGER.model_copy(update={"epochs": 3})
    _, error = run(train=train, evaluate=VALIDATED, tamper=tamper).raw(synthetic(200))
    assert isinstance(error, ProtocolError)
    assert (error.code, error.message) == ("E_ORDER", text)


def test_the_ledger_counts_and_says_what_each_learns_by_it(synthetic: Callable[..., Any], run: Any) -> None:
    both = run(train=EAGER, evaluate=VALIDATED)
    ours, theirs = results = both(synthetic(300))
    best, last = ended(results)
    sent = {kind: sum(len(codec_rows(m)) for m in both.transcript if isinstance(m, kind)) for kind in WITH_ROWS}
    for result in results:
        entries = {(party, entry.what): entry for party, of in result.disclosures.items() for entry in of}
        assert entries["clinic", "embeddings"].count == sent[training_pb2.Embedding]
        assert entries["lab", "gradients"].count == sent[training_pb2.Gradient]
        assert f"in each of {last} epochs" in entries["clinic", "embeddings"].text
        told = entries["lab", "early stopping"]
        assert told.count == last
        assert f"that epoch {best} was the best and epoch {last} the last" in told.text
        assert "which it kept to itself" in entries["clinic", "early stopping"].text
    plain, _ = run()(synthetic(200))
    assert not any(entry.what == "early stopping" for of in plain.disclosures.values() for entry in of)
    assert len(ours.validated) == len(theirs.validated) == 60


WITH_ROWS = (training_pb2.Embedding, training_pb2.Gradient)


def codec_rows(message: Any) -> torch.Tensor:
    return codec.decode(message.tensor, dtype=torch.float32, shape=tuple(message.tensor.shape))


def test_validation_rows_are_judged_before_they_are_sent(synthetic: Callable[..., Any], run: Any) -> None:
    """Copies among them are equal: with a limit none leaves, without one the final figure has them beside the held-out rows."""
    train = replace_train(EAGER, epochs=2, learning_rate=1e-3)
    evaluate = Evaluate(test_fraction=0.1, validation_fraction=0.4)
    parties = synthetic(600, (0.8, 0.5))

    def limited(limit: float | None) -> Any:
        return run(train=train, evaluate=evaluate, protections=(Protection(), Protection(max_attack_auc=limit)))

    free, stopped = limited(None), limited(0.65)
    _, lab = free(parties)
    assert lab.section.held_out.judged["same_step_twin"] == lab.rows[1] + len(lab.validated)
    _, error = stopped.raw(parties)
    assert isinstance(error, PolicyError)
    assert "before they are sent" in str(error)
    assert sum(isinstance(m, training_pb2.Embedding) for m in stopped.transcript) == -(-lab.rows[0] // train.batch_size)


def replace_train(train: Train, **values: Any) -> Train:
    return train.model_copy(update=values)


def test_under_one_set_of_weights_a_row_has_one_noise_and_under_others_another(synthetic: Callable[..., Any], run: Any) -> None:
    """The mean over epochs takes noise away as in training; predictions, by the best epoch's weights, add nothing to it."""
    parties, noise = synthetic(250), NoiseParams(name="noise", sigma=0.5)
    protections = Protection(membership=False), Protection(membership=False, defences=(noise,))
    both = run(train=EAGER, evaluate=VALIDATED, protections=protections)
    world = World(parties, both(parties), EAGER, Serve(to="both", batch_size=16))
    best, last = ended(world.results)
    parts = both.schedule(parties).parts(0, 0.2, 0.2)
    training, testing, validation = (-(-len(rows) // EAGER.batch_size) for rows in parts)
    embeddings = [codec_rows(m) for m in both.transcript if isinstance(m, training_pb2.Embedding)]
    each = training + validation
    assert len(embeddings) == last * each + testing
    sent = {epoch: torch.cat(embeddings[epoch * each - validation : epoch * each]) for epoch in range(1, last + 1)}
    side, clean = (Embedder(world.kept(1), parties.lab_view, parties.lab, CPU, of) for of in ((noise,), ()))
    assert torch.allclose(side.embed_shared(parts.validation), sent[best], atol=1e-5)
    assert torch.allclose(side.embed_shared(parts.testing), torch.cat(embeddings[-testing:]), atol=1e-5)
    assert not torch.allclose(side.embed_shared(parts.validation), sent[last], atol=0.1)
    ours = side.embed_shared(parts.validation) - clean.embed_shared(parts.validation)
    others = sent[best - 1 or best + 1] - clean.embed_shared(parts.validation)
    assert abs(np.corrcoef(ours.ravel(), others.ravel())[0, 1]) < 0.3
    tested = world.results[1].servable.tested
    assert tested.tolist() == sorted([*parts.testing, *parts.validation])


# What is refused, and what an owner is told.


def job(text: str) -> Job:
    return parse(f"name: t\nparties: {{active: a, passive: b}}\n{text}\n", Job, source="job")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "align: {protocol: psi}\ntrain: {algorithm: logistic}\nevaluate: {validation_fraction: 0.1}",
            "must be 0 with logistic",
        ),
        ("evaluate: {validation_fraction: 0.1}", "chooses the best epoch of a model that is trained, and the job trains none"),
        ("train: {}\nevaluate: {validation_fraction: 0.5, test_fraction: 0.5}", "together may be 0.9 at most"),
        ("train: {patience: 0}", "'train.patience': 0 is not 1 or more"),
        ("train: {patience: 3}", "train.patience counts epochs by the loss on validation rows, and there are none"),
    ],
)
def test_what_cannot_be_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        job(text)
    assert said in caught.value.message


@pytest.mark.parametrize("section", ["train: {KEY: true}", "evaluate: {KEY: 3}", "train: {}\nKEY: {patience: 3}"])
@pytest.mark.parametrize("key", ["early_stopping", "early_stopping_rounds", "n_iter_no_change"])
def test_keys_of_other_tools_lead_to_both_of_ours(section: str, key: str) -> None:
    with pytest.raises(UsageError) as caught:
        job(section.replace("KEY", key))
    assert caught.value.hint.endswith(f"{key}': evaluate.validation_fraction and train.patience do that here")


def test_no_label_among_the_validation_rows_is_said(synthetic: Callable[..., Any], run: Any) -> None:
    parties = synthetic(60, (0.5, 1.0), independent=True)
    both = run(evaluate=Evaluate(validation_fraction=0.02))
    position = both.schedule(parties).parts(0, 0.2, 0.02).validation
    owned = parties.clinic_view.owned
    if owned[position].any():  # give up exactly these rows
        view = replace(
            parties.clinic_view, rows=np.where(np.isin(np.arange(len(owned)), position), -1, parties.clinic_view.rows)
        )
        parties = replace(parties, clinic_view=view)
    error, _ = both.raw(parties)
    assert isinstance(error, DataError)
    assert error.code == "E_EMPTY"
    assert "set apart for validation" in error.message


@pytest.mark.usefixtures("audits")
def test_an_owner_is_told_of_overfitting_and_what_to_do(synthetic: Callable[..., Any], run: Any) -> None:
    parties = synthetic(200, (1.0, 1.0))
    hasty = EAGER.model_copy(update={"learning_rate": 0.1, "epochs": 30})
    ours, theirs = run(train=hasty, evaluate=Evaluate(test_fraction=0.5))(parties)
    (warning,) = ours.warnings
    assert "The network overfits: its loss on training rows fell to" in warning
    assert "Set evaluate.validation_fraction: 0.1" in warning
    assert theirs.warnings == ()
    validated = run(train=hasty, evaluate=VALIDATED)
    ours, theirs = results = validated(parties)
    (warning,) = ours.warnings
    assert f"The weights of epoch {ended(results)[0]} are used" in warning
    assert theirs.warnings == ()
    calm, _ = run()(parties)
    assert calm.warnings == ()
    curve = [Epoch(0.7, None, 0, 0), Epoch(0.1, None, 0, 0)]
    for judge in (judge_classes, judge_numbers):
        assert judge(curve, 0.9, 0.6)
        for measured, constant in ((0.6, 0.6), (None, 0.6), (0.9, None)):
            assert judge(curve, measured, constant) == ()
    assert judge_classes(curve[::-1], 0.9, 0.6) == ()  # it never learnt anything
    assert judge_numbers([Epoch(1.02, None, 0, 0)], 0.9, 0.6) == ()


@pytest.mark.usefixtures("audits")
def test_class_weights_are_not_overfitting_and_numbers_overfit_too(synthetic: Callable[..., Any], run: Any) -> None:
    """A weighted loss is no NLL, and the weights shift probabilities; of numbers the RMSE tells."""
    parties = synthetic(200, (1.0, 1.0))
    hasty = EAGER.model_copy(update={"learning_rate": 0.1, "epochs": 30})
    weighted, _ = run(train=hasty.model_copy(update={"class_weight": (0.05, 0.3)}), evaluate=Evaluate(test_fraction=0.5))(
        parties
    )
    assert weighted.results.metrics["nll"] > weighted.results.constant["nll"] > weighted.epochs[-1].loss
    assert weighted.warnings == ()
    noise = np.random.default_rng(0).normal(size=len(parties.clinic)) * 1000
    parties = replace(parties, clinic=replace(parties.clinic, labels=noise))
    numbers = Train.model_validate(
        EAGER.model_dump() | {"task": "regression", "learning_rate": 0.02, "epochs": 60, "missing": {}}
    )
    ours, _ = run(train=numbers, evaluate=Evaluate(test_fraction=0.5, metrics=("rmse",)))(parties)
    (warning,) = ours.warnings
    assert "times that of the mean target, and on held-out rows its RMSE" in warning
    assert "Set evaluate.validation_fraction: 0.1" in warning


# Learning rates.


def factors(steps: int = 10, **settings: Any) -> list[float]:
    return [rate_factor(Train(**settings), step, steps) for step in range(steps)]


def test_learning_rates_are_those_of_torchs_schedulers() -> None:
    def torchs(made: Callable[[Any], Any]) -> Iterator[float]:
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
        scheduler = made(optimizer)
        for _ in range(10):
            yield optimizer.param_groups[0]["lr"]
            optimizer.step()
            scheduler.step()

    schedulers = torch.optim.lr_scheduler
    cosine = partial(schedulers.CosineAnnealingLR, T_max=10)
    linear = partial(schedulers.LinearLR, start_factor=1.0, end_factor=0.0, total_iters=10)
    assert factors() == [1.0] * 10
    assert factors(learning_rate_schedule="cosine") == pytest.approx(list(torchs(cosine)))
    assert factors(learning_rate_schedule="linear") == pytest.approx(list(torchs(linear)))
    assert factors(warmup_steps=4)[:5] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert factors(warmup_steps=2, learning_rate_schedule="linear") == [0.5, 1.0, *(1 - n / 8 for n in range(8))]
    assert factors(warmup_steps=20)[-1] == 0.5  # longer than all steps: it never gets there


@pytest.mark.parametrize("settings", [{"learning_rate_schedule": "cosine"}, {"warmup_steps": 5}])
def test_both_halves_follow_the_learning_rate_of_one_joint_model(
    synthetic: Callable[..., Any], run: Any, settings: Mapping[str, Any]
) -> None:
    parties = synthetic(200, (1.0, 1.0))
    both = run()
    both.train = both.train.model_copy(update={"optimizer": "sgd", "learning_rate": 0.3, **settings})
    result, _ = both(parties)
    joint = Joint(parties, both)
    steps = both.train.epochs * -(-len(joint.parts.training) // both.train.batch_size)
    joint.optimizer = torch.optim.SGD(joint.optimizer.param_groups[0]["params"], lr=0.3)  # a schedule of torch wants its own
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        joint.optimizer, lambda step: rate_factor(both.train, min(step, steps - 1), steps)
    )
    losses = [joint.epoch(number, scheduler.step)[0] for number in range(both.train.epochs)]
    assert [epoch.loss for epoch in result.epochs] == pytest.approx(losses, abs=1e-6)
    constant = run(train=both.train.model_copy(update={"learning_rate_schedule": "constant", "warmup_steps": 0}))(parties)[0]
    assert abs(constant.epochs[-1].loss - losses[-1]) > 1e-3
    local = [name for name in result.weights if name.startswith("local.") and name.endswith("weight")]
    assert not any(torch.equal(result.weights[name], constant.weights[name]) for name in local)
