"""Every flow ends with the weights of plaintext regression on the genuine rows alone."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from sklearn.metrics import confusion_matrix

from tests.thorough import every
from vfl_node.data.design import LinearEncoder
from vfl_node.engines.processes import Processes
from vfl_node.job import Evaluate
from vfl_node.training.glm.flow import IterationContext
from vfl_node.training.glm.plain import logits, probabilities
from vfl_node.training.logistic.config import Logistic
from vfl_node.training.summary import Population

NAMES = ("flow", "labels", "loss", "mask", "classes")


def possible() -> list[dict[str, Any]]:
    """Every combination that a job may have."""
    found = []
    for values in product(
        ("two-party", "coordinator-open-scores", "coordinator"),
        ("active", "passive"),
        ("exact", "taylor"),
        ("additive", "multiplicative"),
        (2, 4),
    ):
        given = dict(zip(NAMES, values, strict=True))
        try:
            Logistic(algorithm="logistic", **given)
        except ValidationError:
            continue
        found.append(given)
    return found


POSSIBLE = possible()


def test_there_are_seventeen_combinations() -> None:
    assert len(POSSIBLE) == 17
    assert {of["flow"] for of in POSSIBLE} == {"two-party", "coordinator-open-scores", "coordinator"}
    assert sum(of["labels"] == "passive" for of in POSSIBLE) == 2


@pytest.mark.parametrize("given", every(2, POSSIBLE), ids=lambda given: "-".join(str(value) for value in given.values()))
def test_it_equals_plaintext_on_the_genuine_rows(attempt: Any, shared: Any, logistic: Any, difference: Any, given: Any) -> None:
    over = shared(classes=given["classes"], labels=given["labels"])
    made = attempt(logistic(l2=0.05, **given))
    results = made(over)
    fit = made.reference(over)
    assert difference(results, fit) < 1e-9
    losses = [epoch.loss for epoch in results[0].epochs]
    if given["flow"] == "coordinator":
        assert losses == [None] * 3
    else:
        np.testing.assert_allclose(losses, fit.losses, atol=1e-9)
    assert [epoch.loss for epoch in results[1].epochs] == [None] * 3


def test_what_differs_from_the_columns_as_they_are_is_their_rounding(
    attempt: Any, shared: Any, logistic: Any, difference: Any
) -> None:
    """To 20 bits; encryption adds a hundred-thousandth of it."""
    made, over = attempt(logistic(iterations=20)), shared()
    results = made(over)
    assert difference(results, made.reference(over)) < 1e-10
    assert 1e-8 < difference(results, made.reference(over, rounded=False)) < 1e-5


def test_a_key_that_a_job_may_have_gives_the_same(attempt: Any, shared: Any, logistic: Any, difference: Any) -> None:
    over, train = shared(rows=30), logistic(iterations=1)
    small = attempt(train)
    made = attempt(train.model_copy(update={"key_bits": 2048, "short_exponents": True}))
    results = made(over)
    assert difference(results, made.reference(over)) < 1e-9
    assert torch.equal(results[1].weights["weight"], small(over)[1].weights["weight"])


@pytest.mark.parametrize("scaling", ["standard", "unit", "none"])
@pytest.mark.parametrize("protocol", ["apsi", "psi"])
def test_so_it_does_with_other_scalings_and_without_dummies(
    attempt: Any, shared: Any, logistic: Any, difference: Any, scaling: str, protocol: str
) -> None:
    over = shared(genuine=40 if protocol == "psi" else 20, protocol=protocol)
    made = attempt(logistic(scaling=scaling, learning_rate=0.2))
    assert difference(made(over), made.reference(over)) < 1e-9


@pytest.mark.parametrize("given", [{}, {"flow": "coordinator", "loss": "taylor"}])
def test_so_it_does_in_batches_over_several_epochs(
    attempt: Any, shared: Any, logistic: Any, difference: Any, given: Any
) -> None:
    over = shared(rows=60, genuine=40)
    made = attempt(logistic(batch_size=24, iterations=5, **given))
    whole = attempt(logistic(iterations=5, **given))
    results = made(over)
    assert difference(results, made.reference(over)) < 1e-9
    assert difference(results, whole.reference(over)) > 1e-3
    sizes = {len(column.rows) for column in made.columns("lab") if column.head.DESCRIPTOR.name == "Encrypted"}
    assert sizes == {24}  # two batches an epoch; twelve rows are left for another one


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"flow": "coordinator-open-scores", "loss": "taylor"},
        {"flow": "coordinator", "loss": "taylor"},
        {"flow": "coordinator", "loss": "taylor", "labels": "passive"},
    ],
    ids=lambda given: "-".join(given.values()),
)
def test_it_ends_where_plaintext_does_when_the_loss_hardly_changes(
    attempt: Any, shared: Any, logistic: Any, difference: Any, given: Any
) -> None:
    over = shared(labels=given.get("labels", "active"))
    long = attempt(logistic(iterations=8, **given)).reference(over)
    changes = np.abs(np.diff(long.losses)) / np.maximum(1, np.abs(long.losses[:-1]))
    made = attempt(logistic(iterations=8, tolerance=float(changes[3] + changes[2]) / 2, **given))
    results, fit = made(over), made.reference(over)
    assert [result.steps for result in results] == [5, 5]
    assert len(fit.losses) == 5
    assert difference(results, fit) < 1e-9
    knows = results[given.get("labels", "active") == "passive"]
    np.testing.assert_allclose([epoch.loss for epoch in knows.epochs], fit.losses, atol=1e-9)


@pytest.mark.parametrize("classes", [2, 4])
def test_what_is_held_out_is_measured_and_not_trained_on(
    attempt: Any, shared: Any, logistic: Any, difference: Any, classes: int
) -> None:
    over = shared(rows=60, genuine=40, classes=classes)
    made = attempt(logistic(classes=classes), Evaluate(test_fraction=0.3))
    clinic, lab = made(over)
    fit = made.reference(over)
    assert difference((clinic, lab), fit) < 1e-9
    assert difference((clinic, lab), attempt(logistic(classes=classes)).reference(over)) > 1e-3
    _, testing = made.schedule(over).split(0, 0.3)
    own = testing[over.genuine[testing]]
    parts = []
    for table, view in ((over.clinic, over.clinic_view), (over.lab, over.lab_view)):
        design = LinearEncoder.fit(table, "standard").transform(table)
        parts.append(design.values[view.rows[own]])
    found = probabilities(logits(parts, fit.weights, fit.intercepts))
    guess = found.argmax(axis=1) if classes > 2 else found[:, 0] > 0.5
    assert clinic.results.metrics["accuracy"] == pytest.approx(np.mean(guess == over.labels[own]))
    assert clinic.results.confusion == confusion_matrix(over.labels[own], guess, labels=range(classes)).tolist()
    assert clinic.results.repeats == {name: [value] for name, value in clinic.results.metrics.items()}
    assert set(clinic.results.intervals) == {name for name, value in clinic.results.metrics.items() if value is not None}
    assert set(clinic.results.metrics) - set(clinic.results.intervals) == ({"ace", "nll"} if classes > 2 else set())
    assert ("nll" not in clinic.results.constant) == (classes > 2)
    assert clinic.results.population == Population("owned", len(own), 1.0)
    assert clinic.rows == lab.rows == (42, 18)
    assert clinic.results.alone.metrics["accuracy"] is not None
    assert lab.results is None


@pytest.mark.parametrize("given", [{}, {"flow": "coordinator", "loss": "taylor"}])
def test_a_division_by_m_would_show(
    attempt: Any, shared: Any, logistic: Any, difference: Any, monkeypatch: pytest.MonkeyPatch, given: Any
) -> None:
    over = shared()
    genuine = IterationContext.genuine
    monkeypatch.setattr(
        IterationContext, "genuine", lambda context, positions: (genuine(context, positions)[0], len(positions))
    )
    made = attempt(logistic(**given))
    assert difference(made(over), made.reference(over)) > 1e-2


def test_one_other_label_would_show(attempt: Any, shared: Any, logistic: Any, difference: Any) -> None:
    over, made = shared(), attempt(logistic())
    labels, place = over.labels.copy(), int(np.flatnonzero(over.genuine)[0])
    labels[place] = 1 - labels[place]
    dummy = over.labels.copy()
    dummy[np.flatnonzero(~over.genuine)] = 1 - dummy[np.flatnonzero(~over.genuine)]
    results = made(over)
    assert difference(results, made.reference(over, labels)) > 1e-3
    assert difference(results, made.reference(over, dummy)) < 1e-9


@pytest.mark.parametrize("given", [{}, {"flow": "coordinator", "loss": "taylor"}])
def test_the_number_of_dummies_changes_nothing(attempt: Any, shared: Any, logistic: Any, given: Any) -> None:
    few, many = (attempt(logistic(**given))(shared(rows=rows)) for rows in (20, 60))
    other = attempt(logistic(**given))(shared(rows=60, genuine=21))
    for party in (0, 1):
        torch.testing.assert_close(many[party].weights, few[party].weights, atol=1e-9, rtol=0)
        assert (other[party].weights["weight"] - few[party].weights["weight"]).abs().max() > 1e-3


@pytest.mark.parametrize("given", [{}, {"flow": "coordinator", "loss": "taylor", "tolerance": 1e-9}])
def test_processes_change_no_byte(attempt: Any, shared: Any, logistic: Any, given: Any) -> None:
    over, workers = shared(rows=30), Processes(2)
    try:
        here, there = attempt(logistic(**given)), attempt(logistic(**given), workers=workers)
        for ours, theirs in zip(here(over), there(over), strict=True):
            assert all(torch.equal(ours.weights[name], theirs.weights[name]) for name in ours.weights)
        assert here.transcript == there.transcript
    finally:
        workers.close()


def test_the_active_party_may_have_no_columns_where_nothing_is_hidden(
    attempt: Any, shared: Any, logistic: Any, difference: Any
) -> None:
    over, made = shared(genuine=40, protocol="psi", clinic=0), attempt(logistic())
    results = made(over)
    assert difference(results, made.reference(over)) < 1e-9
    assert results[0].weights["weight"].shape == (1, 0)
    assert results[0].results.alone is None


def test_the_job_may_tell_the_passive_party_the_figures(attempt: Any, shared: Any, logistic: Any) -> None:
    over = shared(genuine=40, protocol="psi")
    clinic, lab = attempt(logistic(), Evaluate(test_fraction=0.25, share_with_passive=True))(over)
    assert [epoch.loss for epoch in lab.epochs] == [round(epoch.loss, 3) for epoch in clinic.epochs]
    assert all(epoch.loss is not None and epoch.auc is not None for epoch in lab.epochs)
    assert lab.results.metrics == {name: round(value, 3) for name, value in clinic.results.metrics.items()}
