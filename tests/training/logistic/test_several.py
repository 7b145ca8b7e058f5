"""With several passive parties every coordinator flow ends with the weights of plaintext regression on all their columns."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import yaml

from tests.thorough import every
from tests.training.logistic.several import PASSIVE, among, attempt_of
from vfl_node.configuration.models import validate
from vfl_node.data.design import LinearEncoder
from vfl_node.errors import UsageError
from vfl_node.job import Evaluate, Job
from vfl_node.metrics.classes import auc
from vfl_node.training.glm.plain import logits
from vfl_node.training.glm.side import Side

CLEAR = {"flow": "coordinator-open-scores"}
TAYLOR = {"flow": "coordinator", "loss": "taylor"}


def named(given: dict[str, Any]) -> str:
    return "-".join(str(value) for value in given.values())


@pytest.mark.parametrize(
    ("given", "protocol"),
    every(
        3,
        [
            (given, protocol)
            for given in (
                CLEAR,
                {**CLEAR, "loss": "taylor"},
                {**CLEAR, "classes": 4},
                TAYLOR,
                {**TAYLOR, "classes": 4},
                {**TAYLOR, "mask": "multiplicative"},
            )
            for protocol in ("psi", "apsi")
        ],
    ),
    ids=lambda of: of if isinstance(of, str) else named(of),
)
def test_it_equals_plaintext_on_the_joint_columns(
    shared: Any, logistic: Any, difference: Any, given: Any, protocol: str
) -> None:
    """Dummies, too, are handled as with one passive party, though no alignment of several has any."""
    over = among(
        shared(genuine=40 if protocol == "psi" else 20, lab=6, classes=given.get("classes", 2), protocol=protocol), *PASSIVE
    )
    made = attempt_of(over, logistic(l2=0.05, **given))
    results = made(over)
    fit = made.reference(over)
    assert [result.weights["weight"].shape[1] for result in results] == [2, 2, 2, 2]
    assert difference(results, fit) < 1e-9
    losses = [epoch.loss for epoch in results[0].epochs]
    if given["flow"] == "coordinator":
        assert losses == [None] * 3
    else:
        np.testing.assert_allclose(losses, fit.losses, atol=1e-9)
    assert all(epoch.loss is None for result in results[1:] for epoch in result.epochs)


@pytest.mark.parametrize(("given", "count"), every(2, list(product([CLEAR, TAYLOR], [2, 8]))), ids=str)
def test_so_it_does_for_as_many_as_a_job_may_have(shared: Any, logistic: Any, difference: Any, given: Any, count: int) -> None:
    over = among(shared(genuine=40, lab=8, protocol="psi"), *(f"party-{number}" for number in range(count)))
    made = attempt_of(over, logistic(iterations=2, **given))
    results = made(over)
    assert len(results) == count + 1
    assert difference(results, made.reference(over)) < 1e-9


@pytest.mark.parametrize("given", [CLEAR, TAYLOR], ids=named)
def test_so_it_does_in_batches_and_what_is_held_out_is_measured(
    shared: Any, logistic: Any, difference: Any, given: Any
) -> None:
    over = among(shared(rows=60, genuine=60, lab=6, protocol="psi"), *PASSIVE)
    made = attempt_of(over, logistic(batch_size=20, iterations=5, **given), evaluate=Evaluate(test_fraction=0.3))
    results = made(over)
    fit = made.reference(over)
    assert difference(results, fit) < 1e-9
    assert difference(results, attempt_of(over, logistic(iterations=5, **given)).reference(over)) > 1e-3
    _, testing = made.schedule(over).split(0, 0.3)
    parts = []
    for table, view in over.data.values():
        design = LinearEncoder.fit(table, "standard").transform(table)
        parts.append(design.values[view.rows[testing]])
    said = logits(parts, fit.weights, fit.intercepts)[:, 0]
    clinic, *others = results
    assert clinic.results.metrics["accuracy"] == pytest.approx(np.mean((said > 0) == over.labels[testing]))
    assert clinic.results.metrics["auc"] == pytest.approx(auc(over.labels[testing], said))
    assert all(other.results is None and other.rows == (42, 18) for other in others)


@pytest.mark.parametrize("given", [{**CLEAR, "loss": "taylor"}, TAYLOR], ids=named)
@pytest.mark.parametrize("genuine", [40, 25])
def test_it_ends_where_plaintext_does_when_the_loss_hardly_changes(
    shared: Any, logistic: Any, difference: Any, given: Any, genuine: int
) -> None:
    """In flow coordinator the loss is put together from what no party may see: squares of sums of several parties' scores."""
    over = among(shared(genuine=genuine, lab=6, protocol="psi" if genuine == 40 else "apsi"), *PASSIVE)
    long = attempt_of(over, logistic(iterations=8, **given)).reference(over)
    changes = np.abs(np.diff(long.losses)) / np.maximum(1, np.abs(long.losses[:-1]))
    made = attempt_of(over, logistic(iterations=8, tolerance=float(changes[3] + changes[2]) / 2, **given))
    results, fit = made(over), made.reference(over)
    assert [result.steps for result in results] == [5] * 4
    assert difference(results, fit) < 1e-9
    np.testing.assert_allclose([epoch.loss for epoch in results[0].epochs], fit.losses, atol=1e-9)


def test_a_loss_without_the_parts_of_one_party_would_show(shared: Any, logistic: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    over = among(shared(genuine=40, lab=6, protocol="psi"), *PASSIVE)
    made = attempt_of(over, logistic(tolerance=1e-12, **TAYLOR))
    monkeypatch.setattr(Side, "product", lambda side, gradient: 0.0)
    losses = [epoch.loss for epoch in made(over)[0].epochs]
    assert np.abs(np.array(losses) - made.reference(over).losses).max() > 1e-4


def test_the_job_may_tell_all_of_them_the_figures(shared: Any, logistic: Any) -> None:
    over = among(shared(genuine=40, lab=6, protocol="psi"), *PASSIVE)
    made = attempt_of(over, logistic(**CLEAR), evaluate=Evaluate(test_fraction=0.25, share_with_passive=True))
    clinic, *others = made(over)
    for other in others:
        assert [epoch.loss for epoch in other.epochs] == [round(epoch.loss, 3) for epoch in clinic.epochs]
        assert other.results.metrics == {name: round(value, 3) for name, value in clinic.results.metrics.items()}


# jobs


def job(passive: int = 3, coordinator: bool = True, align: str = "{protocol: psi}", **train: Any) -> Job:
    parties = {"active": "clinic", "passive": [f"party-{number}" for number in range(passive)]}
    parties |= {"coordinator": "hub"} if coordinator else {}
    protocol = yaml.safe_load(align)
    document = {"name": "a", "parties": parties, "align": protocol, "train": {"algorithm": "logistic", **train}}
    return validate(document, Job, source="job")


@pytest.mark.parametrize("given", [CLEAR, TAYLOR, {**TAYLOR, "tolerance": 0.1}], ids=named)
def test_a_job_may_have_eight_passive_parties_where_a_third_party_has_the_key(given: Any) -> None:
    assert len(job(8, **given).parties.passive) == 8
    with pytest.raises(UsageError, match=r"8 of parties\.passive at most"):
        job(9, **given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"coordinator": False}, "there must be a third party with the key: say flow: coordinator-open-scores or coordinator"),
        ({**TAYLOR, "labels": "passive"}, "of several the job would not say which has the labels"),
        ({**CLEAR, "align": "{protocol: psu}"}, "Say align.protocol: psi"),
        ({**CLEAR, "align": "{protocol: apsi, obfuscation: private}"}, "apsi aligns with 1 of parties.passive at most"),
    ],
    ids=["two parties", "labels", "union", "obfuscated set"],
)
def test_what_is_for_one_passive_party_is_refused_with_the_reason(given: Any, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        job(2, **given)
    assert said in caught.value.message
