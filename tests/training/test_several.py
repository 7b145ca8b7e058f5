"""Split training with several passive parties: it is the training of one joint model, and it goes on after a kill."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch

from tests.thorough import every
from tests.training.test_resume import Fatal, KilledError, assert_same_bits
from vfl_node.configuration.models import parse
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.features import Encoder
from vfl_node.errors import ProtocolError, UsageError
from vfl_node.job import Evaluate, Job
from vfl_node.models import OPTIMISERS, architecture_of, cut_width
from vfl_node.models.building import build_classifier
from vfl_node.models.initial_weights import initialise
from vfl_node.privacy.defences.specs import NoiseParams
from vfl_node.session.toss import toss
from vfl_node.settings.protection import Protection
from vfl_node.training.network import journal
from vfl_node.training.network.positioned_input import PositionedInput
from vfl_node.training.schedule import Schedule
from vfl_node.training.split.costs import cost
from vfl_node.training.split.missing.calibration import Composition
from vfl_node.training.split.missing.section import missing_of
from vfl_node.transport.generated.vfl.v1 import training_pb2
from vfl_node.transport.memory import run_together

Make = Callable[..., Any]


def schedule_of(parties: Any, runs: Any) -> Schedule:
    """The schedule that all parties follow."""
    sessions = type(runs)(train=runs.train, seeds=runs.seeds).sessions(parties)
    tosses = (toss(of, Randomness(runs.seed(name)).derive("toss")) for name, of in sessions.items())
    seed, *_ = run_together(*zip(tosses, (of.peers.values() for of in sessions.values()), strict=True))
    return Schedule(seed, len(parties.people), runs.train.seed)


def joint_weights(parties: Any, runs: Any) -> dict[str, dict[str, torch.Tensor]]:
    """Each party's weights after training one model that sees the columns of all of them; no channel, no halves."""
    train, schedule = runs.train, schedule_of(parties, runs)
    training = schedule.parts(0, runs.evaluate.test_fraction, 0).training
    active, *passive = parties.names

    def inputs(name: str) -> PositionedInput:
        view = parties.views[name]
        features = Encoder.fit(parties.tables[name], view.rows[training]).transform(parties.tables[name])
        return PositionedInput.from_features(features, view.rows, torch.device("cpu"), images=architecture.reads_images())

    architecture = architecture_of(train.model)
    read = {name: inputs(name) for name in parties.names}
    modules: dict[str, torch.nn.Module] = {
        active: build_classifier(architecture, train, read[active].schema, [cut_width(train)] * len(passive))
    }
    for name in passive:
        modules[name] = torch.nn.ModuleDict({"bottom": architecture.bottom(read[name].schema, train.bottom, train)})
    for name, module in modules.items():
        initialise(module, Randomness(runs.seed(name)).derive("weights/0"))
    optimizer = OPTIMISERS[train.optimizer]([weight for of in modules.values() for weight in of.parameters()], train)
    labels = torch.from_numpy(parties.tables[active].labels[parties.views[active].rows])
    for epoch in range(train.epochs):
        for batch in schedule.batches(0, epoch, training, train.batch_size):
            embeddings = [modules[name]["bottom"](read[name].take(batch)) for name in passive]  # type: ignore[index]
            logits = modules[active](read[active].take(batch), embeddings)
            optimizer.zero_grad()
            torch.nn.functional.binary_cross_entropy_with_logits(logits, labels[batch]).backward()
            optimizer.step()
    return {name: dict(module.state_dict()) for name, module in modules.items()}


def largest_difference(results: Mapping[str, Any], joint: Mapping[str, Mapping[str, torch.Tensor]]) -> float:
    differences = []
    for name, result in results.items():
        assert result.weights.keys() == joint[name].keys()
        differences += [(result.weights[key] - weight).abs().max().item() for key, weight in joint[name].items()]
    return max(differences)


@pytest.mark.parametrize(
    ("passive", "model", "optimizer", "active_columns"),
    every(
        2, [(2, "mlp", "adam", True), (2, "wide_deep", "sgd", True), (4, "wide_deep", "adam", True), (4, "mlp", "adam", False)]
    ),
)
def test_split_training_is_joint_training(
    several_parties: Make, several_runs: Any, passive: int, model: str, optimizer: str, active_columns: bool
) -> None:
    parties = several_parties(passive, 200, active_columns=active_columns)
    runs = several_runs()
    runs.train = runs.train.model_copy(update={"model": model, "optimizer": optimizer})
    results = runs(parties)
    assert largest_difference(results, joint_weights(parties, runs)) < 1e-6
    runs.seeds = {"insurer": b"another start of one passive party"[:32]}
    assert largest_difference(results, joint_weights(parties, runs)) > 1e-2


def test_a_network_of_an_owner_takes_an_embedding_of_each(several_parties: Make, several_runs: Any) -> None:
    runs = several_runs(models={"own": "tests.models.own_models:Everything"})
    runs.train = runs.train.model_copy(update={"model": "own", "epochs": 12})
    results = runs(several_parties(3, 400))
    assert results["clinic"].results.metrics["auc"] > results["clinic"].results.alone.metrics["auc"] + 0.05


def test_every_passive_party_meets_the_active_one_only(several_parties: Make, several_runs: Any) -> None:
    parties, runs = several_parties(3, 100, owned=0.8), several_runs(evaluate=Evaluate(share_with_passive=True))
    results = runs(parties)
    assert {(entry.sender, entry.receiver) for entry in runs.recorder.entries} == {
        pair for name in ("lab", "insurer", "telco") for pair in (("clinic", name), (name, "clinic"))
    }
    for name in ("lab", "insurer", "telco"):
        kinds = [entry.kind for entry in runs.recorder.entries if entry.sender == "clinic" and entry.receiver == name]
        assert {"Gradient", "Shared"} <= set(kinds) <= {"TossCommit", "TossShare", "Gradient", "Shared", "PhaseEnd"}
        assert results[name].results.metrics == {
            key: pytest.approx(of, abs=6e-4) for key, of in results["clinic"].results.metrics.items()
        }


def test_embeddings_are_sent_without_waiting_for_another_party(several_parties: Make, several_runs: Any) -> None:
    """A step is an embedding of each and a gradient for each: nothing asks a party for its embedding, or tells it to wait."""
    runs = several_runs()
    runs(several_parties(3, 200))
    entries = [entry for entry in runs.recorder.entries if not entry.kind.startswith(("Toss", "PhaseEnd"))]
    steps = sum(entry.kind == "Gradient" for entry in entries) // 3
    step = [("Embedding", name) for name in ("lab", "insurer", "telco")] + 3 * [("Gradient", "clinic")]
    assert steps >= 9
    assert [(entry.kind, entry.sender) for entry in entries[: 6 * steps]] == step * steps
    assert {entry.kind for entry in entries[6 * steps :]} == {"Embedding"}  # of the rows held out


@pytest.mark.usefixtures("audits")
@pytest.mark.parametrize(
    ("killed", "repeats", "names"),
    [
        ("insurer", 1, ["r000-e000002"]),
        pytest.param("insurer", 2, ["r000-e000001", "r000-e000003", "r001-e000002"], marks=pytest.mark.slow),
        pytest.param("clinic", 2, ["r000-e000001", "r000-e000003", "r001-e000002"], marks=pytest.mark.slow),
    ],
)
def test_resumed_from_any_checkpoint_the_result_has_the_same_bits(
    several_parties: Make, several_runs: Any, killed: str, repeats: int, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "STEPS_BETWEEN", 1)
    parties = several_parties(2, 160, owned=0.8)
    train = several_runs().train.model_copy(update={"batch_size": 16})
    settings = {
        "train": train,
        "evaluate": Evaluate(repeats=repeats, validation_fraction=0.1, contributions=True),
        "protections": {"clinic": Protection((NoiseParams(name="noise", sigma=0.1),))},
    }
    whole = several_runs(**settings)(parties)
    assert whole["clinic"].section.contributions
    for name in names:
        run = several_runs(**settings, checkpoints={killed: Fatal(name)})
        assert isinstance(run.raw(parties)[killed], KilledError)
        newest = max(set.intersection(*(set(of.names()) for of in run.checkpoints.values())))
        resumed = several_runs(**settings, checkpoints=run.checkpoints, resume_from=newest)(parties)
        for party, result in resumed.items():
            assert_same_bits(result, whole[party])


def test_all_stop_after_the_same_epoch(several_parties: Make, several_runs: Any) -> None:
    train = several_runs().train.model_copy(update={"epochs": 30, "patience": 2, "learning_rate": 0.05})
    runs = several_runs(train=train, evaluate=Evaluate(validation_fraction=0.2))
    parties = several_parties(2, 200, noise=("lab", "insurer"))
    results = runs(parties)
    (stopped,) = {result.section.early_stopping.last_epochs for result in results.values()}
    assert stopped[0] < 30

    def keep_on(sender: str, receiver: str, message: Any) -> None:
        if receiver == "insurer" and isinstance(message, training_pb2.EpochEnd):
            message.improved = True

    results = several_runs(train=train, evaluate=runs.evaluate, tamper=keep_on).raw(parties)
    assert isinstance(results["insurer"], ProtocolError)
    assert "clinic stops after epoch" in results["insurer"].message


@pytest.mark.parametrize("wrong", ["step", "shape", "type"])
def test_the_party_that_sends_something_else_is_named(several_parties: Make, several_runs: Any, wrong: str) -> None:
    def spoil(sender: str, receiver: str, message: Any) -> None:
        if sender == "insurer" and isinstance(message, training_pb2.Embedding) and message.step == 1:
            if wrong == "step":
                message.step = 2
            elif wrong == "shape":
                message.tensor.shape[1] += 1
            else:
                message.tensor.dtype = "float64"

    error = several_runs(tamper=spoil).raw(several_parties(3, 200))["clinic"]
    assert isinstance(error, ProtocolError)
    assert error.message.startswith("insurer sent ")
    assert error.code == ("E_ORDER" if wrong == "step" else "E_SHAPE")


@pytest.mark.usefixtures("audits")
@pytest.mark.parametrize("features", ["sampling", "smoothed", "gaussian"])
def test_each_passive_party_makes_up_the_rows_it_lacks(several_parties: Make, several_runs: Any, features: str) -> None:
    train = several_runs().train
    missing = {"labels": "neighbors", "features": features}
    train = train.model_copy(update={"missing": missing_of(missing)(**missing)})
    parties = several_parties(2, 400, owned=0.7)
    assert len({len(view) - view.missing for view in parties.views.values()}) > 1
    results = several_runs(train=train)(parties)
    assert results["clinic"].results.metrics["auc"] > 0.5
    assert results["clinic"].results.population.real_share == pytest.approx(0.7 * 0.7, abs=0.08)
    for result in results.values():
        assert (result.section.strategies.labels, result.section.strategies.features) == ("neighbors", features)
        assert result.audits.membership


@pytest.mark.usefixtures("audits")
def test_no_row_is_synthetic_where_all_own_it(several_parties: Make, several_runs: Any) -> None:
    results = several_runs()(several_parties(2, 300, owned=0.8, protocol="psi"))
    assert results["clinic"].results.population.real_share == 1
    for result in results.values():
        assert result.audits.membership == {}
        assert (result.section.strategies.labels, result.section.strategies.features) == (None, None)


def test_labels_are_calibrated_by_the_share_of_synthetic_ones(several_parties: Make, several_runs: Any) -> None:
    """Synthetic labels of the majority pull probabilities down; calibration takes that back, whoever owns the columns."""
    parties = several_parties(3, 800, owned=0.6)
    view = parties.views["clinic"]
    mix = Composition.from_view(view, None, "labels")
    assert (mix.w11, mix.w10, mix.w01) == pytest.approx((1 - view.missing / len(view), 0, view.missing / len(view)))

    def too_low(calibration: str) -> float:
        """By how much the mean probability is below the rate of positives, on held-out rows."""
        missing = {"calibration": calibration, "calibration_for": "labels" if calibration != "none" else "both"}
        train = several_runs().train.model_copy(update={"missing": missing_of(missing)(**missing), "epochs": 6})
        unaudited = dict.fromkeys(parties.names, Protection(membership=False))
        curve = np.array(several_runs(train=train, protections=unaudited)(parties)["clinic"].results.curve)
        confidence, frequency, rows = curve.T
        return float((rows * (frequency - confidence)).sum() / rows.sum())

    assert too_low("none") > 0.1
    assert abs(too_low("test")) < 0.06


def job(passive: int, train: str = "{}", **sections: str) -> Job:
    names = ", ".join(f"p{number}" for number in range(passive))
    text = f"name: t\nparties: {{active: a, passive: [{names}]}}\ntrain: {train}\n"
    return parse(text + "\n".join(f"{name}: {of}" for name, of in sections.items()), Job, source="job")


@pytest.mark.parametrize("protocol", ["psu", "psi"])
def test_a_job_may_have_eight_passive_parties(protocol: str) -> None:
    assert len(job(8, align=f"{{protocol: {protocol}}}").parties.passive) == 8
    with pytest.raises(UsageError, match="at most"):
        job(9, align=f"{{protocol: {protocol}}}")


def test_what_is_about_one_passive_party_is_refused_with_several() -> None:
    train = "{missing: {calibration: train}}"
    assert job(1, train)
    with pytest.raises(UsageError, match=r"calibration_for: labels.*calibration: none"):
        job(2, train)
    assert job(2, "{missing: {calibration: train, calibration_for: labels}}")
    assert job(1, evaluate="{matched: true}")
    with pytest.raises(UsageError, match=r"evaluate\.matched counts rows under one passive party's key"):
        job(2, evaluate="{matched: true}")


@pytest.mark.parametrize("passive", [1, 3])
def test_bytes_and_steps_are_those_of_a_run(several_parties: Make, several_runs: Any, passive: int) -> None:
    evaluate = Evaluate(validation_fraction=0.1)
    runs = several_runs(evaluate=evaluate)
    runs.train = runs.train.model_copy(update={"bottom": (64,), "batch_size": 128})
    parties = several_parties(passive, 600)
    runs(parties)
    expected = cost(runs.train, evaluate, len(parties.people), "psu", passive)
    sent = {"clinic": 0}
    for entry in runs.recorder.entries:
        sent[entry.sender] = sent.get(entry.sender, 0) + entry.frame.ByteSize()
    assert sent.pop("clinic") == pytest.approx(expected.active_bytes, rel=0.01)
    assert sum(sent.values()) == pytest.approx(expected.passive_bytes, rel=0.01)
    assert expected.steps == cost(runs.train, evaluate, len(parties.people), "psu").steps
