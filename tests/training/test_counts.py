"""``train.task: poisson``, and offsets of any task: one model's loss curve in plain torch, sklearn's metrics, predictions."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from sklearn import metrics as oracle
from sklearn.linear_model import PoissonRegressor
from torch.nn.functional import binary_cross_entropy_with_logits, mse_loss

from tests.training.predicting import TO_ACTIVE, TO_PASSIVE, World
from tests.training.test_regression import section
from tests.training.test_resume import Fatal, KilledError
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.features import Encoder
from vfl_node.data.tables import NumericColumn
from vfl_node.errors import DataError, UsageError
from vfl_node.job import Evaluate
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.metrics.counts import PredictedCounts
from vfl_node.models import OPTIMISERS, architecture_of, cut_width
from vfl_node.models.building import build_classifier
from vfl_node.models.initial_weights import initialise
from vfl_node.settings.defences import read_params
from vfl_node.settings.protection import Compare, Protection
from vfl_node.training.checkpoints import MemoryCheckpoints
from vfl_node.training.network import journal
from vfl_node.training.network.positioned_input import PositionedInput
from vfl_node.training.split.config import Train
from vfl_node.training.split.randomised import check_randomised
from vfl_node.training.split.table_use import SplitTableUse
from vfl_node.training.split.tasks import ScaledRates, task_of
from vfl_node.training.targets import TargetScale

Make = Callable[..., Any]
COUNTS = Evaluate(metrics=("deviance", "d2", "mae"))


def of_all(parties: Any) -> Any:
    """The same federation, whose parties own all rows and know it."""
    views = {"clinic_view": parties.clinic_view, "lab_view": parties.lab_view}
    return dataclasses.replace(parties, **{k: dataclasses.replace(v, spec=ALIGNMENTS["psi"]) for k, v in views.items()})


def with_counts(parties: Any, *, exposure: bool = True, seed: int = 5) -> Any:
    """The same federation, whose clinic counts events that depend on the columns of both, in times that differ."""
    rng, numbers = np.random.default_rng(seed), {}
    for table in (parties.clinic, parties.lab):
        columns = [column.values for column in table.columns.values() if isinstance(column, NumericColumn)]
        for row, identifier in enumerate(table.ids):
            numbers[identifier] = numbers.get(identifier, 0.0) + sum(float(column[row]) for column in columns)
    score = 0.3 * np.array([numbers[identifier] for identifier in parties.clinic.ids]) + 0.5
    times = rng.uniform(0.2, 5, len(parties.clinic)) if exposure else np.ones(len(parties.clinic))
    given = {"offsets": np.log(times), "offset_columns": {"exposure": "years"}}
    given = given if exposure else {"offsets": None, "offset_columns": {}}
    labels = rng.poisson(times * np.exp(score)).astype(np.float64)
    return dataclasses.replace(parties, clinic=dataclasses.replace(parties.clinic, labels=labels, **given))


def with_offsets(parties: Any, task: str) -> Any:
    """Offsets in the unit of each task."""
    if task == "poisson":
        return with_counts(parties)
    offsets = np.random.default_rng(3).normal(size=len(parties.clinic))
    clinic = dataclasses.replace(parties.clinic, offsets=offsets, offset_columns={"offset": "known"})
    if task == "regression":
        labels = 40 + 7 * offsets + np.random.default_rng(4).normal(size=len(offsets))
        clinic = dataclasses.replace(clinic, labels=labels, offsets=7 * offsets)
    return dataclasses.replace(parties, clinic=clinic)


def joint_losses(parties: Any, both: Any) -> list[float]:
    """Loss of each epoch of one model that sees both parties' columns and adds the offset to its output; in plain torch."""
    train, ours, theirs = both.train, Randomness(both.clinic_seed), Randomness(both.lab_seed)
    schedule = both.schedule(parties)
    training, _ = schedule.split(0, both.evaluate.test_fraction)

    def inputs(table: Any, view: Any) -> PositionedInput:
        features = Encoder.fit(table, view.rows[training]).transform(table)
        return PositionedInput.from_features(features, view.rows, torch.device("cpu"))

    own, other = inputs(parties.clinic, parties.clinic_view), inputs(parties.lab, parties.lab_view)
    architecture = architecture_of(train.model)
    bottom = architecture.bottom(other.schema, train.bottom, train)
    model = build_classifier(architecture, train, own.schema, [cut_width(train)])
    initialise(model, ours.derive("weights/0"))
    initialise(bottom, theirs.derive("weights/0"))
    optimizer = OPTIMISERS[train.optimizer]([*model.parameters(), *bottom.parameters()], train)
    rows = parties.clinic_view.rows
    targets, offsets = parties.clinic.labels[rows].astype(np.float64), parties.clinic.offsets[rows]
    if train.task == "regression":
        mean, deviation = targets[training].mean(), targets[training].std()
        targets, offsets = (targets - mean) / deviation, offsets / deviation
    if train.task == "poisson":
        targets = targets * np.exp(offsets)[training].sum() / targets[training].sum()
    y, o = torch.from_numpy(targets).float(), torch.from_numpy(offsets).float()
    losses = {
        "classification": binary_cross_entropy_with_logits,
        "regression": mse_loss,
        "poisson": lambda s, t: (s.exp() - t * s).mean(),
    }
    found = []
    for epoch in range(train.epochs):
        total = 0.0
        for batch in schedule.batches(0, epoch, training, train.batch_size):
            loss = losses[train.task](model(own.take(batch), [bottom(other.take(batch))]) + o[batch], y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
        found.append(total / len(training))
    return found


@pytest.mark.parametrize("task", ["classification", "regression", "poisson"])
def test_split_training_is_joint_training_with_the_offset_added_to_the_score(synthetic: Make, run: Make, task: str) -> None:
    parties = with_offsets(synthetic(200, (1.0, 1.0)), task)
    both = run(train=section(task=task), evaluate=COUNTS if task == "poisson" else Evaluate(metrics=METRIC[task]))
    clinic, _ = both(parties)
    losses = joint_losses(parties, both)
    assert [epoch.loss for epoch in clinic.epochs] == pytest.approx(losses, abs=2e-6)
    assert losses[-1] < losses[0]


METRIC: dict[str, Any] = {"classification": ("nll",), "regression": ("rmse",)}


def test_a_model_of_counts_is_as_good_as_sklearn_s_on_the_joint_table(synthetic: Make, run: Make) -> None:
    """Its metrics are sklearn's, too; the clinic alone and the constant rate are worse, and the times do count."""
    parties = of_all(with_counts(synthetic(1500, (1.0, 1.0))))
    both = run(train=section(task="poisson", epochs=25), evaluate=COUNTS, compare=Compare(boosted_tree=True))
    results = both(parties)
    found = results[0].results
    training, testing = both.schedule(parties).split(0, both.evaluate.test_fraction)
    rows, lab_rows = parties.clinic_view.rows, parties.lab_view.rows
    counts, times = parties.clinic.labels[rows], np.exp(parties.clinic.offsets[rows])
    world = World(parties, results, both.train)
    (said,) = world.ask(TO_ACTIVE, world.known(parties.clinic, rows))
    (told,) = world.ask(TO_PASSIVE, world.known(parties.lab, lab_rows))
    assert (said == told).all()
    assert found.metrics["deviance"] == pytest.approx(oracle.mean_poisson_deviance(counts[testing], said[testing]), rel=1e-5)
    assert found.metrics["mae"] == pytest.approx(oracle.mean_absolute_error(counts[testing], said[testing]), rel=1e-5)

    def cells(table: Any, of: Any) -> Any:
        return np.column_stack([c.values[of] for c in table.columns.values() if isinstance(c, NumericColumn)])

    joint = np.column_stack([cells(parties.clinic, rows), cells(parties.lab, lab_rows)])
    regressor = PoissonRegressor(alpha=0, max_iter=500)
    regressor.fit(joint[training], counts[training] / times[training], sample_weight=times[training])
    rival = oracle.mean_poisson_deviance(counts[testing], times[testing] * regressor.predict(joint[testing]))
    rate = counts[training].sum() / times[training].sum()
    constant = oracle.mean_poisson_deviance(counts[testing], times[testing] * rate)
    assert found.constant["deviance"] == pytest.approx(constant)
    assert rival < 0.6 * constant
    assert found.metrics["deviance"] < 1.2 * rival
    assert found.alone.metrics["deviance"] > 1.3 * found.metrics["deviance"]
    assert found.rival.metrics["deviance"] < constant
    own_rate = times[testing] * counts[testing].sum() / times[testing].sum()
    d2 = 1 - found.metrics["deviance"] / oracle.mean_poisson_deviance(counts[testing], own_rate)
    assert found.metrics["d2"] == pytest.approx(d2, abs=1e-6)
    for name, interval in found.intervals.items():
        assert interval["low"] < found.metrics[name] < interval["high"]
        assert interval["method"] == "bootstrap"
    assert found.alone.gains["deviance"]["high"] < 0 < found.alone.gains["d2"]["low"]


def test_the_metrics_are_those_of_sklearn_with_weights_too() -> None:
    rng = np.random.default_rng(0)
    counts, said, weights = rng.poisson(2, 300).astype(float), rng.gamma(2, 1, 300), rng.integers(0, 4, (2, 300)).astype(float)
    found = PredictedCounts(said).compute_weighted(("deviance", "d2", "mae"), counts, weights)
    for row, each in enumerate(weights):
        assert found["deviance"][row] == pytest.approx(oracle.mean_poisson_deviance(counts, said, sample_weight=each))
        assert found["d2"][row] == pytest.approx(oracle.d2_tweedie_score(counts, said, sample_weight=each, power=1))
    nothing = PredictedCounts(said[:0]).metrics(("deviance", "d2"), counts[:0])
    assert nothing == {"deviance": None, "d2": None}
    assert PredictedCounts(said).metrics(("d2",), np.zeros(300)) == {"d2": None}  # no deviance to explain


def test_the_loss_goes_on_as_a_straight_line() -> None:
    """Control: within ±20 it is exp(s) − y·s."""
    task = ScaledRates(TargetScale(0.0, 1.0))
    scores = torch.tensor([-50.0, -20.0, -1.0, 0.0, 3.0, 19.5, 60.0], requires_grad=True)
    counts = torch.tensor([0.0, 1.0, 2.0, 0.0, 7.0, 1.0, 2.0])
    losses = task.losses(scores, counts)
    inside = scores.detach()[1:6]
    torch.testing.assert_close(losses[1:6], inside.exp() - counts[1:6] * inside)
    (slope,) = torch.autograd.grad(losses.sum(), scores)
    torch.testing.assert_close(slope, scores.detach().clamp(-20, 20).exp() - counts)
    assert torch.isfinite(losses).all()


def test_targets_are_scaled_by_their_rate() -> None:
    counts, times = np.array([0.0, 2.0, 4.0]), np.array([1.0, 1.0, 4.0])
    train = Train.model_validate({"task": "poisson"})
    assert task_of(train, counts).targets(counts).tolist() == [0, 1, 2]
    task = task_of(train, counts, np.log(times))
    assert task.constant(3, np.log(times)).values.tolist() == pytest.approx([1, 1, 4])
    assert task.prediction(np.array([1.0])).tolist() == pytest.approx([1])
    with pytest.raises(DataError) as refused:
        task_of(train, np.zeros(3))
    assert refused.value.code == "E_ONE_CLASS"


def test_a_union_ends_with_the_same_bits_after_a_kill(synthetic: Make, run: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """With counts that are made up, times that are drawn, and weights."""
    monkeypatch.setattr(journal, "STEPS_BETWEEN", 1)
    parties = with_counts(synthetic(200, (0.6, 0.8)))
    weights = np.random.default_rng(1).choice([0.5, 2.0], len(parties.clinic))
    parties = dataclasses.replace(parties, clinic=dataclasses.replace(parties.clinic, weights=weights))
    whole = run(train=section(task="poisson"), evaluate=COUNTS)(parties)
    killed = run(train=section(task="poisson"), evaluate=COUNTS, checkpoints=(MemoryCheckpoints(), Fatal("r000-e000002")))
    assert isinstance(killed.raw(parties)[1], KilledError)
    newest = max(set(killed.checkpoints[0].names()) & set(killed.checkpoints[1].names()))
    again = run(train=section(task="poisson"), evaluate=COUNTS, checkpoints=killed.checkpoints, resume_from=newest)(parties)
    for ours, theirs in zip(again, whole, strict=True):
        assert all(torch.equal(ours.weights[name], theirs.weights[name]) for name in ours.weights)
        assert ours.results == theirs.results
        assert ours.servable.state == theirs.servable.state
    assert np.isfinite(list(whole[0].results.metrics.values())).all()
    assert all(figure is None or 0 <= figure <= 1 for figure in whole[0].epochs[-1].labels.values())  # the meter reads counts


def test_a_stored_model_knows_its_offset(synthetic: Make, run: Make) -> None:
    """And refuses a table without it. Control: a model without one stores nothing of it."""
    parties = of_all(with_counts(synthetic(120, (1.0, 1.0))))
    both = run(train=section(task="poisson", epochs=1), evaluate=COUNTS)
    results = both(parties)
    assert json.loads(results[0].servable.state)["offset"] == {"exposure": "years"}
    world = World(parties, results, both.train)
    before, _ = world.sides
    without = dataclasses.replace(parties, clinic=dataclasses.replace(parties.clinic, offsets=None, offset_columns={}))
    with pytest.raises(DataError, match="the model reads an offset"):
        _ = World(without, results, both.train).sides
    longer = dataclasses.replace(parties.clinic, offsets=parties.clinic.offsets + np.log(3))
    after, _ = World(dataclasses.replace(parties, clinic=longer), results, both.train).sides
    positions, parts = np.arange(20), [torch.zeros(20, 8)]
    assert after.probability(positions, parts) == pytest.approx(3 * before.probability(positions, parts), rel=1e-5)
    plain = run(train=section(task="poisson", epochs=1), evaluate=COUNTS)(with_counts(parties, exposure=False))
    assert "offset" not in json.loads(plain[0].servable.state)


@pytest.mark.parametrize(
    ("train", "text"),
    [
        ({"classes": 3}, "a poisson predicts a number"),
        ({"class_weight": "balanced"}, "class_weight is for classes"),
        ({"missing": {"labels": "mean"}}, "mean makes up numbers, and this is a poisson"),
        ({"missing": {"labels": "sampling", "calibration": "test"}}, "missing.calibration is not for task: poisson"),
        ({"algorithm": "candidates"}, "Input should be 'split'"),
    ],
)
def test_what_suits_no_counts_is_refused(train: dict[str, Any], text: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Train.model_validate({"task": "poisson", **train})
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("train", "text"),
    [
        ({"classes": 3}, r"data\.offset does not go with train\.classes"),
        ({"missing": {"labels": "majority", "calibration": "test"}}, r"data\.offset does not go with train\.missing"),
    ],
)
def test_what_does_not_go_with_an_offset_is_refused(synthetic: Make, train: dict[str, Any], text: str) -> None:
    parties = with_offsets(synthetic(40, (1.0, 1.0)), "classification")
    with pytest.raises(UsageError, match=text):
        SplitTableUse(Train.model_validate(train)).check("active", parties.clinic)
    SplitTableUse(Train()).check("active", parties.clinic)
    with pytest.raises(UsageError, match="columns of its own"):
        SplitTableUse(Train()).check("active", dataclasses.replace(parties.clinic, columns={}))


def test_randomised_labels_are_not_for_counts(run: Make) -> None:
    from vfl_node.transport.memory import memory_channels

    params = {"name": "randomised-labels", "epsilon": 1, "target_range": [0, 5]}
    channel, _ = memory_channels("clinic", "lab")
    both = run(train=section(task="poisson"), protections=(Protection(defences=(read_params(params),)), Protection()))
    with pytest.raises(UsageError, match="a count is none"):
        check_randomised(both.session("clinic", channel, bytes(32), 0))
