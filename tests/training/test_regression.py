"""Split training of a regression: one model's loss curve, metrics in the target's unit, and rows without a target."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from pydantic import ValidationError
from sklearn import metrics as oracle

from tests.thorough import every
from tests.training.predicting import TO_ACTIVE, TO_PASSIVE, Requests, World
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.features import Encoder
from vfl_node.data.tables import NumericColumn, Table
from vfl_node.errors import DataError, ProtocolError, StateError
from vfl_node.job import Evaluate
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.models import OPTIMISERS, architecture_of, cut_width
from vfl_node.models.building import build_classifier
from vfl_node.models.initial_weights import initialise
from vfl_node.privacy.defences.specs import NoiseParams
from vfl_node.settings.protection import Protection
from vfl_node.training.network.positioned_input import PositionedInput
from vfl_node.training.split.config import Train
from vfl_node.training.split.missing.calibration import Composition
from vfl_node.training.split.missing.labels.contract import Known, Step, build
from vfl_node.training.split.missing.number_calibration import number_calibration
from vfl_node.training.split.missing.strategies import LABELS
from vfl_node.training.split.tasks import ScaledTargets
from vfl_node.training.targets import TargetScale
from vfl_node.transport import codec
from vfl_node.transport.generated.vfl.v1 import prediction_pb2, training_pb2

ALL = Evaluate(metrics=("rmse", "mae", "r2", "mse"))
UNIT = 1000.0


def section(**given: Any) -> Train:
    """A small network for numbers."""
    small = {"bottom": (16, 8), "active_bottom": (8,), "top": (8,), "epochs": 3, "batch_size": 64, "learning_rate": 1e-2}
    return Train.model_validate({"task": "regression", **small, **given})


def with_targets(parties: Any, *, decimals: int = 2) -> Any:
    """The same federation, whose clinic has a target around 50,000 that needs the columns of both."""
    rng, numbers = np.random.default_rng(5), {}
    for table in (parties.clinic, parties.lab):
        columns = [column.values for column in table.columns.values() if isinstance(column, NumericColumn)]
        for row, identifier in enumerate(table.ids):
            numbers[identifier] = numbers.get(identifier, 0.0) + sum(float(column[row]) for column in columns)
    score = np.array([numbers[identifier] for identifier in parties.clinic.ids]) + 0.3 * rng.normal(size=len(parties.clinic))
    clinic = Table(parties.clinic.ids, parties.clinic.columns, np.round(50_000 + UNIT * score, decimals))
    return dataclasses.replace(parties, clinic=clinic)


def joint_losses(parties: Any, both: Any) -> list[float]:
    """Loss of each epoch of one model that sees both parties' columns; no channel, no halves."""
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
    targets = parties.clinic.labels[parties.clinic_view.rows]
    mean, deviation = targets[training].mean(), targets[training].std()
    scaled = torch.from_numpy(((targets - mean) / deviation).astype(np.float32))
    losses = []
    for epoch in range(train.epochs):
        total = 0.0
        for batch in schedule.batches(0, epoch, training, train.batch_size):
            loss = torch.nn.functional.mse_loss(model(own.take(batch), [bottom(other.take(batch))]), scaled[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
        losses.append(total / len(training))
    return losses


@pytest.mark.parametrize("active_features", [True, False])
@pytest.mark.parametrize("model", ["mlp", "wide_deep"])
def test_split_training_is_joint_training(synthetic: Callable[..., Any], run: Any, model: str, active_features: bool) -> None:
    parties = with_targets(synthetic(200, (1.0, 1.0), active_features=active_features))
    both = run(train=section(model=model), evaluate=ALL)
    clinic, lab = both(parties)
    losses = joint_losses(parties, both)
    assert [epoch.loss for epoch in clinic.epochs] == pytest.approx(losses, abs=1e-6)
    assert losses[-1] < losses[0]
    assert [epoch.auc for epoch in clinic.epochs] == [epoch.loss for epoch in lab.epochs] == [None] * 3


def test_metrics_are_in_the_targets_own_unit(synthetic: Callable[..., Any], run: Any) -> None:
    parties = with_targets(synthetic(400, (1.0, 1.0)))
    both = run(train=section(epochs=12), evaluate=ALL.model_copy(update={"share_with_passive": True}))
    clinic, lab = both(parties)
    training, testing = both.schedule(parties).split(0, both.evaluate.test_fraction)
    targets = parties.clinic.labels[parties.clinic_view.rows]
    assert 0.8 < clinic.results.metrics["r2"] <= 1
    assert 0.1 * UNIT < clinic.results.metrics["mae"] < clinic.results.metrics["rmse"] < 1.5 * UNIT
    assert clinic.results.metrics["mse"] == pytest.approx(clinic.results.metrics["rmse"] ** 2)
    assert clinic.results.metrics["r2"] == pytest.approx(1 - clinic.results.metrics["mse"] / targets[testing].var())
    constant = np.full(len(testing), targets[training].mean())
    assert clinic.results.constant == {
        "rmse": pytest.approx(oracle.root_mean_squared_error(targets[testing], constant)),
        "mse": pytest.approx(oracle.mean_squared_error(targets[testing], constant)),
    }
    assert clinic.results.alone.metrics["rmse"] > 1.5 * clinic.results.metrics["rmse"]  # half of the score is the lab's
    assert clinic.results.confusion is clinic.results.alone.confusion is None
    assert sum(rows for *_, rows in clinic.results.curve) == len(testing)
    assert all(abs(said - actual) < UNIT for said, actual, _ in clinic.results.curve)
    for name, interval in clinic.results.intervals.items():
        assert interval["method"] == "bootstrap"
        assert interval["low"] < clinic.results.metrics[name] < interval["high"]
        assert interval["low"] >= 0 or name == "r2"
    assert clinic.results.intervals["r2"]["high"] <= 1
    assert set(clinic.results.alone.gains) == set(clinic.results.intervals) == set(ALL.metrics)
    assert clinic.results.alone.gains["rmse"]["high"] < 0 < clinic.results.alone.gains["r2"]["low"]
    assert lab.results.metrics == {name: float(f"{value:.4g}") for name, value in clinic.results.metrics.items()} | {
        "r2": round(clinic.results.metrics["r2"], 3)
    }
    told = {entry.what: entry.text for entry in clinic.disclosures["lab"]}
    assert "the residual of every row trained on can be read from them" in told["gradients"]
    assert "how far the targets spread" in told["figures"]


def test_the_unit_does_not_matter(synthetic: Callable[..., Any], run: Any) -> None:
    """Scaled by the rows trained on, another unit and another zero give the same network."""
    parties = with_targets(synthetic(200, (1.0, 1.0)))
    other = dataclasses.replace(
        parties, clinic=Table(parties.clinic.ids, parties.clinic.columns, parties.clinic.labels * 2.0**-30 + 2.0**-4)
    )
    first, second = (run(train=section(), evaluate=ALL)(of)[0] for of in (parties, other))
    assert first.results.metrics["r2"] == pytest.approx(second.results.metrics["r2"], abs=1e-5)
    assert first.results.metrics["rmse"] * 2.0**-30 == pytest.approx(second.results.metrics["rmse"], rel=1e-4)
    for name in ("rmse", "mse"):
        assert second.results.intervals[name]["low"] > 0


@pytest.mark.parametrize(("strategy", "calibration"), [("sampling", "none"), ("mean", "train"), ("neighbors", "test")])
def test_a_union_trains_and_ends_with_the_same_bits_after_a_restart(
    synthetic: Callable[..., Any], run: Any, strategy: str, calibration: str
) -> None:
    parties = with_targets(synthetic(300, (0.6, 0.8)))
    train = section(missing={"labels": strategy, "calibration": calibration})
    whole = run(train=train, evaluate=ALL)
    first = whole(parties)[0]
    resumed = run(train=train, evaluate=ALL, checkpoints=whole.checkpoints, resume_from=min(whole.checkpoints[0].names()))
    again = resumed(parties)[0]
    assert 0 < len(resumed.transcript) < len(whole.transcript)
    assert all(torch.equal(first.weights[name], again.weights[name]) for name in first.weights)
    assert first.results.metrics == again.results.metrics
    assert first.servable.state == again.servable.state
    assert np.isfinite(list(first.results.metrics.values())).all()


@pytest.mark.parametrize("labels", ["sampling", pytest.param("mean", marks=pytest.mark.slow)])
def test_made_up_targets_draw_predictions_to_the_mean_and_calibration_puts_them_back(
    synthetic: Callable[..., Any], run: Any, labels: str
) -> None:
    parties = with_targets(synthetic(3000, (0.5, 0.7), active_features=False, seed=1))
    slope = {}
    for calibration in every(2, ("none", "test", "train")):
        train = section(epochs=8, batch_size=128, missing={"labels": labels, "calibration": calibration})
        curve = run(train=train, evaluate=ALL)(parties)[0].results.curve
        slope[calibration] = np.polyfit([said for said, *_ in curve], [actual for _, actual, _ in curve], 1)[0]
    lacking = 1 - parties.clinic_view.owned.mean()
    assert slope["none"] == pytest.approx(1 / (1 - lacking), rel=0.2)
    for calibration in slope.keys() - {"none"}:
        assert slope[calibration] == pytest.approx(1, abs=0.2)
    assert slope["none"] > 1.3


@pytest.mark.parametrize("rate", [0.4, "model"])
def test_calibration_undoes_the_mixture(rate: Any) -> None:
    """Networks that know what is shown, by ``test``, or what is wanted, by ``train``, agree on both."""
    mix = Composition(0.3, 0.2, 0.5)
    wanted, base = torch.tensor([-1.2, 0.0, 2.5]), torch.tensor([0.3, -0.4, 0.1])
    real = (mix.w11 * wanted + mix.w10 * base) / mix.labelled
    shown = real if rate == "model" else mix.labelled * real + mix.w01 * rate
    at_training, at_test = (number_calibration(name, mix, rate) for name in ("train", "test"))
    torch.testing.assert_close(at_training.observed_output(wanted, base), shown)
    for calibration, output in ((at_training, wanted), (at_test, shown)):
        np.testing.assert_allclose(calibration.probability(output, base), wanted.numpy(), atol=1e-6)
        np.testing.assert_allclose(calibration.expectation(output, base), real.numpy(), atol=1e-6)
        assert calibration.loss(output, shown, base) == pytest.approx(0, abs=1e-12)


def known(targets: NDArray[np.float64], shared: int = 4000) -> Known:
    scale = TargetScale.fit(targets)
    return Known(scale.apply(targets), shared, 0, Randomness(b"the label holder's own randomness"[:32]), scale)


def step(shared: int) -> Step:
    nothing = torch.zeros(shared)
    return Step(0, np.arange(shared), torch.zeros(shared, dtype=torch.bool), nothing, nothing, torch.zeros(shared, 2))


def made(strategy: str, of: Known) -> NDArray[np.float64]:
    """Its targets in the original unit, as exactly as float32 has them."""
    assert of.scale is not None
    return of.scale.undo(build(LABELS[strategy](), of).targets(step(of.shared)).numpy())


@pytest.mark.parametrize("decimals", [0, 2, 15])
def test_sampled_targets_do_not_stand_out_and_means_do(decimals: int) -> None:
    """Whoever reads targets exactly: the decimals of sampled ones, their distribution and their repetitions are real ones'."""
    targets = np.round(np.random.default_rng(0).gamma(3, 40, 4000), decimals)
    of = known(targets)
    sampled, means = made("sampling", of), made("mean", of)
    for share in (0.1, 0.5, 0.9):
        assert np.quantile(sampled, share) == pytest.approx(np.quantile(targets, share), rel=0.05)
    if decimals < 15:
        np.testing.assert_allclose(sampled, np.round(sampled, decimals), atol=1e-4)
    repeated = len(np.unique(sampled)) / len(np.unique(targets))
    assert 0.8 < repeated < 1.25
    assert not np.isin(sampled, targets).all() or decimals == 0
    assert len(np.unique(means)) == 1  # and so each made-up row is known to whoever sees that


def test_neighbors_give_the_mean_target_of_the_nearest_real_rows() -> None:
    targets = torch.tensor([1.0, 2.0, 3.0, 100.0, torch.nan, torch.nan])
    real = torch.tensor([True, True, True, True, False, False])
    angles = torch.tensor([0.1, 0.2, 0.3, 3.0, 0.25, 2.9])
    embedding = torch.stack([angles.cos(), angles.sin()], dim=1)
    labels = build(LABELS["neighbors"](), known(np.arange(9.0)))
    found = labels.targets(Step(0, np.arange(6), real, targets, torch.zeros(6), embedding))
    torch.testing.assert_close(found[4], torch.tensor(2.0))
    torch.testing.assert_close(found[5], torch.tensor(105 / 3))
    nobody = labels.targets(Step(0, np.arange(6), real & False, targets, torch.zeros(6), embedding))
    assert nobody.tolist() == [0.0] * 6
    assert labels.rate == "model"


def test_predictions_are_in_the_targets_unit(synthetic: Callable[..., Any], run: Any) -> None:
    """Both parties get the same; on the rows held out they have the reported error. A number that is none is refused."""
    parties = with_targets(synthetic(200, (1.0, 1.0)))
    views = {"clinic_view": parties.clinic_view, "lab_view": parties.lab_view}
    parties = dataclasses.replace(parties, **{k: dataclasses.replace(v, spec=ALIGNMENTS["psi"]) for k, v in views.items()})
    both = run(train=section(epochs=6), evaluate=ALL)
    results = both(parties)
    world = World(parties, results, both.train)
    (ours,) = world.ask(TO_ACTIVE, world.known(parties.clinic, parties.clinic_view.rows))
    (theirs,) = world.ask(TO_PASSIVE, world.known(parties.lab, parties.lab_view.rows))
    assert (ours == theirs).all()
    _, testing = both.schedule(parties).split(0, both.evaluate.test_fraction)
    targets = parties.clinic.labels[parties.clinic_view.rows]
    error = oracle.root_mean_squared_error(targets[testing], ours[testing])
    assert error == pytest.approx(results[0].results.metrics["rmse"], rel=1e-5)

    def no_number(message: Any) -> None:
        if isinstance(message, prediction_pb2.Probabilities):
            message.values = np.full(len(message.values) // 8, np.inf).tobytes()

    _, refused = world.talk(TO_PASSIVE, Requests(world.known(parties.lab, [0])), tamper=no_number)
    assert isinstance(refused, ProtocolError)
    assert (refused.code, "not finite" in refused.message) == ("E_NAN", True)


def test_a_stored_model_without_its_unit_is_damaged(synthetic: Callable[..., Any], run: Any) -> None:
    parties = with_targets(synthetic(100, (1.0, 1.0)))
    both = run(train=section(epochs=1), evaluate=ALL)
    world = World(parties, both(parties), both.train)
    kept = world.kept(0)
    without = {name: value for name, value in json.loads(kept.state).items() if name != "target"}
    with pytest.raises(StateError):
        _ = dataclasses.replace(kept, state=json.dumps(without)).scoring


@pytest.mark.parametrize(
    ("section", "text"),
    [
        (
            {"task": "regression", "missing": {"labels": "majority"}},
            "majority makes up classes, and this is a regression",
        ),
        ({"task": "regression", "missing": {"labels": "random-pred"}}, "choose neighbors, sampling or mean"),
        ({"missing": {"labels": "mean"}}, "mean makes up numbers, and this is a classification: choose majority"),
        ({"task": "regression", "classes": 3}, "a regression predicts a number: leave it out"),
    ],
)
def test_what_suits_no_regression_is_refused(section: dict[str, Any], text: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Train.model_validate({"missing": {"labels": "mean"}, **section})
    assert text in str(caught.value)


def test_targets_that_do_not_differ_are_refused(synthetic: Callable[..., Any], run: Any) -> None:
    parties = with_targets(synthetic(100, (1.0, 1.0)))
    same = Table(parties.clinic.ids, parties.clinic.columns, np.full(len(parties.clinic), 7.5))
    with pytest.raises(DataError) as caught:
        run(train=section(), evaluate=ALL)(dataclasses.replace(parties, clinic=same))
    assert caught.value.code == "E_ONE_CLASS"
    assert "7.5" not in caught.value.message


def test_scaling_comes_back() -> None:
    scale = TargetScale.fit(np.array([1e6, 3e6]))
    assert ScaledTargets(scale).prediction(np.array([-1.0, 0.0, 2.0])).tolist() == [1e6, 2e6, 4e6]
    np.testing.assert_allclose(scale.undo(scale.apply(np.array([5.0, 1e9]))), [5.0, 1e9])


@pytest.mark.parametrize(("noise", "readable"), [(0.0, True), (4.0, False)])
def test_targets_can_be_read_from_the_first_gradients(
    synthetic: Callable[..., Any], run: Any, noise: float, readable: bool
) -> None:
    """But for scale and zero: what the ledger says. A defence of the active party prevents it."""
    parties = with_targets(synthetic(1000, (1.0, 1.0)))
    own = Protection(defences=(NoiseParams(name="noise", sigma=noise),)) if noise else Protection()
    both = run(train=section(epochs=1, batch_size=128), evaluate=ALL, protections=(own, Protection()))
    both(parties)
    schedule = both.schedule(parties)
    batches = schedule.batches(0, 0, schedule.split(0, 0.2)[0], 128)
    sent = [message.tensor for message in both.transcript if isinstance(message, training_pb2.Gradient)]
    targets = parties.clinic.labels[parties.clinic_view.rows]
    found = []
    for positions, tensor in list(zip(batches, sent, strict=True))[:3]:
        rows = codec.decode(tensor, dtype=torch.float32, shape=(len(positions), both.train.bottom[-1])).double().numpy()
        *_, directions = np.linalg.svd(rows, full_matrices=False)
        found.append(abs(np.corrcoef(rows @ directions[0], targets[positions])[0, 1]))
    assert (np.mean(found) > 0.85) == readable
    assert np.mean(found) > 0.85 or np.mean(found) < 0.4
