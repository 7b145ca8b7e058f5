"""Linear regression under encryption: in every flow the weights of plaintext regression, and in the end those of ridge's."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from sklearn import metrics as oracle
from sklearn.linear_model import Ridge

from tests.training.logistic.several import PASSIVE, among, attempt_of
from tests.training.logistic.test_resume import CutError, assert_same, cut
from vfl_node.alignment.alignment import Alignment, PeerFacts
from vfl_node.configuration.models import validate
from vfl_node.crypto.fixed_point import SPARE_BITS, encode
from vfl_node.data.design import MOST, LinearEncoder
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import Table
from vfl_node.errors import DataError, UsageError
from vfl_node.job import Evaluate, Job
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.training.glm.blind import DITHER
from vfl_node.training.glm.plain import LOSSES
from vfl_node.training.glm.prepared_inputs import _labels
from vfl_node.training.glm.scales import SCORE, SCORE_RANGE, WEIGHT, Scales, loss_fraction
from vfl_node.training.linear.config import LinearRegression
from vfl_node.training.trainer import TrainingData

FLOWS = [
    {},
    {"mask": "multiplicative"},
    {"flow": "coordinator-open-scores"},
    {"flow": "coordinator"},
    {"flow": "coordinator", "mask": "multiplicative"},
    {"flow": "coordinator", "labels": "passive"},
]
ALL = ("rmse", "mae", "r2", "mse")


def named(given: dict[str, Any]) -> str:
    return "-".join(map(str, given.values())) or "two-party"


@pytest.mark.parametrize("given", FLOWS, ids=named)
def test_it_equals_plaintext_on_the_genuine_rows(attempt: Any, numbers: Any, linear: Any, difference: Any, given: Any) -> None:
    over = numbers(labels=given.get("labels", "active"))
    made = attempt(linear(l2=0.05, **given))
    results, fit = made(over), made.reference(over)
    assert difference(results, fit) < 1e-9
    losses = [epoch.loss for epoch in results[0].epochs]
    if given.get("flow") == "coordinator":
        assert losses == [None] * 3
    else:
        np.testing.assert_allclose(losses, fit.losses, atol=1e-9)
    holder = results[given.get("labels", "active") == "passive"]
    assert holder.weights["target"].shape == (2,)
    assert "target" not in results[given.get("labels", "active") == "active"].weights


@pytest.mark.parametrize("given", [{}, pytest.param({"flow": "coordinator"}, marks=pytest.mark.slow)], ids=named)
def test_it_ends_where_ridge_regression_does(attempt: Any, numbers: Any, linear: Any, given: Any) -> None:
    """Over all rows of both parties, in the target's own unit, from scikit-learn's closed form."""
    over, l2 = numbers(rows=40, genuine=40, protocol="psi"), 0.1
    clinic, lab = attempt(linear(iterations=60, learning_rate=0.5, l2=l2, **given))(over)
    parts = []
    for table, view in ((over.clinic, over.clinic_view), (over.lab, over.lab_view)):
        parts.append(LinearEncoder.fit(table, "standard").transform(table).values[view.rows])
    joint = np.concatenate(parts, axis=1)
    closed = Ridge(alpha=len(joint) * l2, tol=1e-12).fit(joint, over.labels)
    mean, deviation = clinic.weights["target"].numpy()
    found = deviation * np.concatenate([clinic.weights["weight"][0].numpy(), lab.weights["weight"][0].numpy()])
    np.testing.assert_allclose(found, closed.coef_, rtol=1e-4, atol=1e-3)
    assert mean + deviation * clinic.weights["bias"].item() == pytest.approx(closed.intercept_, rel=1e-6)
    assert np.abs(closed.coef_).min() > 1


@pytest.mark.parametrize("given", [FLOWS[0], FLOWS[2], FLOWS[3], FLOWS[5]], ids=named)
def test_the_loss_is_the_mean_squared_error_in_deviations(
    attempt: Any, numbers: Any, linear: Any, difference: Any, given: Any
) -> None:
    """Where it decides on the end it is computed under encryption, too."""
    over = numbers(labels=given.get("labels", "active"))
    long = attempt(linear(iterations=8, **given)).reference(over)
    changes = np.abs(np.diff(long.losses)) / np.maximum(1, np.abs(long.losses[:-1]))
    made = attempt(linear(iterations=8, tolerance=float(changes[3] + changes[2]) / 2, **given))
    results, fit = made(over), made.reference(over)
    assert [result.steps for result in results] == [5, 5]
    assert difference(results, fit) < 1e-9
    knows = results[given.get("labels", "active") == "passive"]
    np.testing.assert_allclose([epoch.loss for epoch in knows.epochs], fit.losses, atol=1e-9)


def test_what_is_held_out_is_measured_in_the_targets_unit(attempt: Any, numbers: Any, linear: Any) -> None:
    over = numbers(rows=60, genuine=60, protocol="psi")
    evaluate = Evaluate(test_fraction=0.3, metrics=ALL, share_with_passive=True)
    made = attempt(linear(iterations=40), evaluate)
    clinic, lab = made(over)
    training, testing = made.schedule(over).split(0, 0.3)
    parts = []
    for table, view in ((over.clinic, over.clinic_view), (over.lab, over.lab_view)):
        parts.append(LinearEncoder.fit(table, "standard").transform(table).values[view.rows[testing]])
    scores = parts[0] @ clinic.weights["weight"][0].numpy() + parts[1] @ lab.weights["weight"][0].numpy()
    mean, deviation = clinic.weights["target"].numpy()
    said, actual = mean + deviation * (scores + clinic.weights["bias"].item()), over.labels[testing]
    assert (mean, deviation) == (
        pytest.approx(over.labels[training].mean()),
        pytest.approx(over.labels[training].std()),
    )
    assert clinic.results.metrics == {
        "rmse": pytest.approx(oracle.root_mean_squared_error(actual, said)),
        "mae": pytest.approx(oracle.mean_absolute_error(actual, said)),
        "r2": pytest.approx(oracle.r2_score(actual, said)),
        "mse": pytest.approx(oracle.mean_squared_error(actual, said)),
    }
    assert clinic.results.metrics["r2"] > 0.9 > clinic.results.alone.metrics["r2"]
    constant = np.full(len(testing), mean)
    assert clinic.results.constant["rmse"] == pytest.approx(oracle.root_mean_squared_error(actual, constant))
    assert clinic.results.confusion is None
    assert set(clinic.results.intervals) == set(ALL)
    assert clinic.results.intervals["r2"]["high"] <= 1
    assert [epoch.auc for epoch in clinic.epochs] == [None] * 40
    assert lab.results.metrics["rmse"] == float(f"{clinic.results.metrics['rmse']:.4g}")
    assert "how far the targets spread" in {entry.what: entry.text for entry in clinic.disclosures["lab"]}["figures"]


@pytest.mark.parametrize("given", [FLOWS[0], FLOWS[5]], ids=named)
@pytest.mark.parametrize("at", [9, 17])
def test_a_regression_that_was_cut_ends_with_the_same_bytes(
    attempt: Any, numbers: Any, linear: Any, given: Any, at: int
) -> None:
    over = numbers(labels=given.get("labels", "active"))
    whole = attempt(linear(**given))(over)
    broken = attempt(linear(**given), tamper=cut(at))
    with pytest.raises(CutError):
        broken(over)
    assert_same(broken.again()(over), whole)


def test_a_target_far_from_all_others_is_refused() -> None:
    """It would leave the range of the fixed point, and rule the model; of fewer than 65,536 rows none can lie so far."""
    train, rows = LinearRegression(algorithm="linear"), 70_000
    targets = np.random.default_rng(0).normal(size=rows)
    view = Alignment(
        ALIGNMENTS["psi"], "curve25519", np.arange(rows), rows, {"lab": PeerFacts(rows, intersection=rows, missing=0)}
    )
    ids = Identifiers.from_items(str(row).encode() for row in range(rows))

    def prepared(targets: np.ndarray[Any, Any]) -> Any:
        return _labels(TrainingData(view, Table(ids, {}, targets)), train, np.arange(rows))

    _, scale = prepared(targets)
    assert scale.deviation == pytest.approx(1, abs=0.02)
    targets[7] = 1e9
    with pytest.raises(DataError) as caught:
        prepared(targets)
    assert (caught.value.code, caught.value.peer_code) == ("E_OVERFLOW", "E_STOPPED")
    assert "256 or more standard deviations" in caught.value.message
    assert "logarithm" in caught.value.hint


def test_targets_that_do_not_differ_are_refused(attempt: Any, numbers: Any, linear: Any) -> None:
    over = numbers()
    same = Table(over.clinic.ids, over.clinic.columns, np.full(len(over.clinic), 3.25))
    with pytest.raises(DataError) as caught:
        attempt(linear())(dataclasses.replace(over, clinic=same))
    assert (caught.value.code, caught.value.peer_code) == ("E_ONE_CLASS", "E_STOPPED")
    assert "3.25" not in caught.value.message


@pytest.mark.parametrize("given", FLOWS, ids=named)
@pytest.mark.parametrize("bits", [2048, 3072])
def test_the_widest_values_fit(given: Any, bits: int) -> None:
    """Scores of both parties and targets at the end of their range, columns at their largest, noise in each row."""
    train = LinearRegression(algorithm="linear", key_bits=bits, **given)
    scales, most, genuine = Scales.from_config(train), 2**SCORE_RANGE, 1000
    assert max(scales.groups) * scales.slot <= bits - SPARE_BITS
    if train.flow == "coordinator":
        one = round(2**WEIGHT / genuine) * (most << SCORE) + (2 * most << (SCORE + WEIGHT)) // genuine + 2**DITHER
        assert one * genuine * MOST < 2**scales.gradient
        rounding = 2**32 * 2.0 ** (loss_fraction(train) - SCORE)
        assert (3 * most) ** 2 / 2 * 2 ** loss_fraction(train) + rounding < 2**scales.loss
    else:
        bound = 2.0**10
        assert 3 * most <= bound  # more is refused where residuals are formed
        sums = sum(encode(np.full(genuine, bound / genuine), scales.fraction)) * MOST
        assert 2 ** (scales.gradient - 1) - genuine * MOST < sums < 2**scales.gradient
        assert sums + 2**32 * MOST < 2**scales.gradient


def test_the_squares_are_their_polynomial() -> None:
    rng = np.random.default_rng(0)
    z, y, loss = rng.normal(size=(9, 1)), rng.normal(size=(9, 1)), LOSSES["squares"]
    assert loss.polynomial is not None
    np.testing.assert_allclose(loss.polynomial.derivative(z, y), loss.residual(z, y))
    np.testing.assert_allclose(loss.polynomial.reported * loss.polynomial.value(z, y).mean(), loss.loss(z, y))
    np.testing.assert_allclose(loss.loss(z, y), oracle.mean_squared_error(y, z))


@pytest.mark.parametrize(
    ("section", "text"),
    [
        ({"task": "classification"}, "task: classification is not for algorithm: linear, but for split and logistic"),
        ({"classes": 3}, "a regression predicts a number: leave it out"),
        ({"labels": "passive"}, "labels: passive needs flow: coordinator"),
    ],
)
def test_what_it_cannot_do_is_refused(section: dict[str, Any], text: str) -> None:
    with pytest.raises(ValidationError) as caught:
        LinearRegression(algorithm="linear", **section)
    assert text in str(caught.value)


def job(**sections: Any) -> Job:
    document = {
        "name": "a",
        "parties": {"active": "clinic", "passive": "lab"},
        "align": {"protocol": "apsi", "obfuscation": "private"},
    }
    return validate({**document, **sections}, Job, source="job")


def test_metrics_follow_the_task() -> None:
    assert job(train={"algorithm": "linear"}).evaluate.metrics == ALL
    assert job(train={"task": "regression"}).evaluate.metrics == ALL
    assert "auc" in job(train={}).evaluate.metrics
    assert job(train={"algorithm": "linear"}, evaluate={"metrics": ["mae"]}).evaluate.metrics == ("mae",)


@pytest.mark.parametrize(
    ("sections", "text"),
    [
        (
            {"train": {"algorithm": "linear"}, "evaluate": {"metrics": ["auc", "mae"]}},
            "evaluate.metrics: auc is not for train.task: regression; choose among rmse, mae, r2, mse",
        ),
        ({"train": {}, "evaluate": {"metrics": ["rmse"]}}, "rmse is not for train.task: classification; choose among auc"),
        ({"train": {"algorithm": "linear"}, "evaluate": {"threshold": 0.4}}, "evaluate.threshold is for classes"),
        ({"train": {"algorithm": "linear"}, "evaluate": {"repeats": 2}}, "evaluate.repeats must be 1 with linear"),
        ({"train": {"algorithm": "linear"}, "align": {"protocol": "psu"}}, "linear regression does not train on the union"),
        (
            {"train": {"task": "regression"}, "align": {"protocol": "psu"}, "evaluate": {"matched": True}},
            "numbers have no classes to count",
        ),
    ],
)
def test_what_a_job_cannot_ask_of_a_regression(sections: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError) as caught:
        job(**sections)
    assert text in caught.value.message


@pytest.mark.parametrize("flow", ["coordinator-open-scores", "coordinator"])
def test_so_it_does_with_several_passive_parties(numbers: Any, linear: Any, attempt: Any, difference: Any, flow: str) -> None:
    over = among(numbers(genuine=40, lab=6, protocol="psi"), *PASSIVE)
    long = attempt_of(over, linear(flow=flow, iterations=8), attempt).reference(over)
    changes = np.abs(np.diff(long.losses)) / np.maximum(1, np.abs(long.losses[:-1]))
    made = attempt_of(over, linear(flow=flow, iterations=8, l2=0.05, tolerance=float(changes[3])), attempt)
    results, fit = made(over), made.reference(over)
    assert results[0].steps == len(fit.losses) < 8
    assert difference(results, fit) < 1e-9
    np.testing.assert_allclose([epoch.loss for epoch in results[0].epochs], fit.losses, atol=1e-9)


def test_weights_are_the_same_again(attempt: Any, numbers: Any, linear: Any) -> None:
    over = numbers()
    first, second = attempt(linear())(over), attempt(linear())(over)
    assert torch.equal(first[1].weights["weight"], second[1].weights["weight"])
