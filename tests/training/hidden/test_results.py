"""What parties have at the end: metrics, weights or shares of them, the active party's own model, and what reports say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, log_loss, r2_score, roc_auc_score

from tests.training.hidden.conftest import plain_inputs, weights_of
from tests.training.hidden.plain import forward
from vfl_node.crypto.shares.ring import WEIGHT_FRACTION, decode
from vfl_node.errors import DataError
from vfl_node.training.hidden.config import Hidden
from vfl_node.training.summary import Population
from vfl_node.training.words import ReportedTraining

pytestmark = pytest.mark.usefixtures("silent")

LARGE = {"batch_size": 128, "learning_rate": 0.2}


def scored(of: Any, over: Any, results: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """z and y of the held-out rows that all own, by the weights that were revealed; and these rows."""
    plan = of.plan(over)
    x, y = plain_inputs(over, Hidden.section_of(of.job(over)), plan)
    tested = plan.testing[over.both[plan.testing]]
    return forward(plan.form, weights_of(results), x[tested])[0], y[tested], tested


@pytest.mark.parametrize(("bins", "threshold", "told"), [(256, 0.5, False), (1024, 0.5, True), (1024, 0.7, False)])
def test_metrics_of_two_classes(world: Any, attempt: Any, bins: int, threshold: float, told: bool) -> None:
    evaluate = {"test_fraction": 0.4, "share_with_passive": told, "threshold": threshold, "metrics": ["auc", "nll", "accuracy"]}
    over, of = world(people=1000), attempt({**LARGE, "bins": bins}, evaluate)
    results = of(over)
    z, y, _ = scored(of, over, results)
    found = results[0].results.metrics
    assert list(found) == ["auc", "nll", "accuracy"]
    assert found["auc"] == pytest.approx(roc_auc_score(y, z), abs=3 / bins)  # of 196 rows
    probabilities = 1 / (1 + np.exp(-z))
    assert found["nll"] == pytest.approx(log_loss(y, probabilities), abs=5e-3)
    assert found["accuracy"] == pytest.approx(accuracy_score(y, probabilities > threshold), abs=0.02)
    assert results[1].results.metrics == (found if told else dict.fromkeys(found))


def test_metrics_of_several_classes_are_the_mean_area(world: Any, attempt: Any) -> None:
    over, of = world(people=1000, classes=3), attempt({"classes": 3, **LARGE}, {"test_fraction": 0.4})
    results = of(over)
    z, y, _ = scored(of, over, results)
    expected = np.mean([roc_auc_score(y[:, k], z[:, k]) for k in range(3)])
    assert results[0].results.metrics["auc"] == pytest.approx(expected, abs=6e-3)  # 196 rows; of 50 draws: −.002 ± .0015
    assert (results[0].results.metrics["nll"], results[0].results.metrics["accuracy"]) == (None, None)


@pytest.mark.parametrize("told", [False, True])
def test_metrics_of_numbers_are_in_their_own_unit(world: Any, attempt: Any, told: bool) -> None:
    over = world(people=600, numbers=True)
    train = {"task": "regression", "learning_rate": 0.1, "bins": 1024}
    of = attempt(train, {"test_fraction": 0.4, "share_with_passive": told, "metrics": ["rmse", "mae", "r2", "mse"]})
    results = of(over)
    z, _, tested = scored(of, over, results)
    mean, deviation = results[0].weights["target"].tolist()
    said = mean + deviation * z[:, 0]
    table, view = over.data["clinic"]
    truth = table.labels[view.rows[tested]]
    found = results[0].results.metrics
    assert found["r2"] > 0.5
    # The coins of 118 rows between bins of 1/32 deviation move it by .25 %, as a standard deviation.
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean((said - truth) ** 2)), rel=0.0125)
    assert found["mse"] == pytest.approx(found["rmse"] ** 2)
    own = table.labels[view.rows[results[0].held_out[view.owned[results[0].held_out]]]]
    assert found["r2"] == pytest.approx(1 - found["mse"] / own.var(), abs=1e-6)
    assert found["r2"] == pytest.approx(r2_score(truth, said), abs=0.05)  # which has the variance of shared ones
    assert found["mae"] is None  # no sum gives it
    assert results[1].results.metrics.keys() == found.keys()
    assert set(results[1].results.metrics.values()) == {None}  # without the unit
    assert "target" not in results[1].weights


def test_without_held_out_rows_it_is_measured_on_those_trained_on(world: Any, attempt: Any) -> None:
    over, of = world(), attempt(evaluate={"test_fraction": 0})
    results = of(over)
    assert results[0].rows == (len(over), len(over))
    assert results[0].results.metrics["auc"] > 0.7
    assert len(results[0].held_out) == 0


def test_nothing_is_measured_where_a_job_says_so(world: Any, attempt: Any) -> None:
    over, of = world(dummies=20), attempt({"metrics_by": "none"})
    active, passive = of(over)
    assert set(active.results.metrics.values()) == set(passive.results.metrics.values()) == {None}
    assert active.results.alone.metrics["auc"] > 0.5
    assert active.results.population is None


@pytest.mark.parametrize("metrics_by", ["histogram", "none"])
@pytest.mark.parametrize("hidden", [(), (4,)])
def test_without_shared_records_the_first_weights_are_left(
    world: Any, attempt: Any, hidden: tuple[int, ...], metrics_by: str
) -> None:
    over = world(disjoint=True)
    of = attempt({"layers": hidden, "weight_decay": 0.1, "metrics_by": metrics_by})
    results = of(over)
    for found, first in zip(weights_of(results), of.start(over), strict=True):  # to which they decay
        np.testing.assert_allclose(found, first, atol=1e-5)
    for result in results:
        assert set(result.results.metrics.values()) == {None}
    said = [warning for warning in results[0].warnings if "no record in common" in warning]
    assert len(said) == 1
    assert results[1].warnings == results[0].warnings


def test_numbers_without_shared_records_have_no_metrics(world: Any, attempt: Any) -> None:
    results = attempt({"task": "regression"})(world(disjoint=True, numbers=True))
    assert set(results[0].results.metrics.values()) == {None}


def test_where_the_number_is_hidden_nothing_is_said_of_it(world: Any, attempt: Any) -> None:
    over = world(disjoint=True, dummies=20)
    results = attempt({"metrics_by": "none"})(over)
    assert [result.warnings for result in results] == [(), ()]
    assert attempt()(world())[0].warnings == ()
    active, passive = attempt()(world(2, "apsi", disjoint=True))
    assert (len(active.warnings), passive.warnings) == (1, ())


@pytest.mark.parametrize("parties", [2, 3])
def test_shares_that_stay_sum_to_the_model(world: Any, attempt: Any, parties: int) -> None:
    over, train = world(parties), {"layers": (4,)}
    opened, kept = attempt(train)(over), attempt({**train, "reveal": "none"})(over)
    names = [f"share {index}" for index in range(parties + 2)]
    shares = [[of.weights[name].numpy().view(np.uint64) for name in names] for of in kept]
    assert all(set(of.weights) == set(names) for of in kept)
    for found, expected in zip(zip(*shares, strict=True), weights_of(opened), strict=True):
        np.testing.assert_allclose(decode(sum(found[1:], found[0]), WEIGHT_FRACTION), expected, atol=1e-4)
        for share in found:  # none of them alone says anything
            assert np.abs(decode(share, WEIGHT_FRACTION)).max() > 1000 * np.abs(expected).max()


def test_owners_have_their_own_weights_and_the_active_party_the_layers_behind(world: Any, attempt: Any) -> None:
    over = world(3)
    active, *passive = attempt({"layers": (4,)})(over)
    shares = {f"share {index}" for index in range(5)}
    assert set(active.weights) == {"weight", "bias", "layer 0", "layer 1"} | shares
    assert [tuple(of.weights["weight"].shape) for of in (active, *passive)] == [(4, 3), (4, 4), (4, 5)]
    assert all(set(of.weights) == {"weight"} | shares for of in passive)
    opened = [weight for of in (active, *passive) for name, weight in of.weights.items() if name not in shares]
    assert all(weight.dtype == torch.float64 for weight in opened)
    assert [len(of.columns) for of in (active, *passive)] == [3, 4, 5]


@pytest.mark.parametrize("train", [{}, {"loss": "taylor"}, {"layers": (4,)}, {"classes": 3}, {"task": "regression"}])
def test_the_active_party_alone_is_measured_on_all_of_its_held_out_rows(
    world: Any, attempt: Any, train: dict[str, Any]
) -> None:
    over = world(people=400, classes=train.get("classes", 2), numbers="task" in train)
    of = attempt({**train, "learning_rate": 0.1})
    active, passive = of(over)
    table, view = over.data["clinic"]
    tested = view.owned[active.held_out].sum()
    common = over.both[active.held_out].sum()
    assert active.results.population == Population("common", common, 1.0)
    assert active.results.alone_population == Population("owned", tested, None)
    assert tested > common
    assert active.results.alone.trained_rows == len(table) - tested
    name, least = ("r2", 0.1) if "task" in train else ("auc", 0.6)
    assert least < active.results.alone.metrics[name] < active.results.metrics[name]
    assert (passive.results.alone, passive.results.population, passive.results.alone_population) == (None, None, None)


def test_its_own_model_depends_on_nobody_else(world: Any, attempt: Any) -> None:
    over = world()
    first, other = (attempt()(each)[0].results.alone.metrics for each in (over, over.changed("lab")))
    assert first == other


def test_an_active_party_without_columns_has_no_model_of_its_own(world: Any, attempt: Any) -> None:
    over = world()
    table, view = over.data["clinic"]
    over.data["clinic"] = type(table)(table.ids, {}, table.labels), view
    of = attempt()
    active, passive = of(over)
    assert active.results.alone is None
    assert active.section.columns == {"clinic": 1, "lab": 4}  # its intercept
    assert passive.weights["weight"].abs().max() > 0.05


def test_the_section(world: Any, attempt: Any) -> None:
    over, of = world(3), attempt()
    results = of(over)
    for result in results:
        assert result.section.columns == {"clinic": 4, "lab": 4, "insurer": 5}
        assert (result.steps, len(result.epochs)) == (of.plan(over).epochs * len(of.plan(over).batches(0)), 3)
        assert all(epoch.seconds > 0 and epoch.bytes > 0 for epoch in result.epochs)
        assert (result.epochs[0].loss, result.epochs[0].auc) == (None, None)
    hub = of.coordination.result()
    assert (hub.section.rounds, hub.section.columns, hub.rows, hub.epochs) == (None, {}, (0, 0), ())
    train = Hidden.section_of(of.job(over))
    reported = ReportedTraining(train, "clinic", "active", "lab and insurer", "clinic", "lab and insurer", "hub", 3, 9, 1)
    words = results[0].section.words(reported)
    assert words.panel.title == "In shares"
    assert hub.section.words(reported).panel is None


@pytest.mark.parametrize("told", [False, True])
def test_the_ledger(world: Any, attempt: Any, told: bool) -> None:
    over, of = world(), attempt({"layers": (4,)}, {"test_fraction": 0.25, "share_with_passive": told})
    results = of(over)
    if told:
        assert results[0].disclosures == results[1].disclosures
    learnt = {name: {entry.what: entry.count for entry in entries} for name, entries in results[0].disclosures.items()}
    sums = {"metrics": results[0].results.population.rows}
    always = {"masked values": len(over), "features": 4, "weights": 4, "privacy": len(over)}
    assert learnt["clinic"] == always | sums
    assert learnt["lab"] == always | (sums if told else {})
    assert learnt["hub"] == {"shapes": len(over)}
    hub = of.coordination.result().disclosures
    assert hub["hub"] == results[0].disclosures["hub"]
    none = attempt({"reveal": "none", "metrics_by": "none"})(over)[0].disclosures
    assert [entry.what for entry in none["lab"]] == ["masked values", "features", "privacy"]


def test_nobody_to_train_on_is_a_data_error(world: Any, attempt: Any) -> None:
    with pytest.raises(DataError) as caught:
        attempt()(world(2, "psi", disjoint=True))
    assert caught.value.code == "E_EMPTY"
