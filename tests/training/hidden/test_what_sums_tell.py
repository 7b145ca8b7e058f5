"""Sums tell hardly anything of a record, however many jobs open them; and numbers that alignment hides are not told."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from pydantic import ValidationError
from sklearn.metrics import roc_auc_score

from tests.crypto.shares.together import Run
from tests.training.hidden.test_measuring import program
from tests.training.shares_attempts import with_values
from vfl_node.data.tables import NumericColumn, Table
from vfl_node.errors import StateError
from vfl_node.gdp import mu_of
from vfl_node.settings.limits import Limits
from vfl_node.training.shares.metric_noise import MetricNoise
from vfl_node.training.shares.results import TOO_FEW
from vfl_node.transport.generated.vfl.v1.shares_pb2 import DealingTerms, MaskedShares, ShareContext

JOBS, ROWS, SHARED = 12, 400, 10
"""Trainings at ε 1, as many as the usual budget has; records of the active party, and how many of them are shared."""


def counts(owned: np.ndarray, labels: np.ndarray, held: np.ndarray, number: int) -> tuple[int, ...]:
    """What a job opens of how many shared records with each label are held out, by the program that measures."""
    targets = (labels[held] * owned[held])[:, None].astype(np.uint64)
    of = program(MetricNoise(mu_of(1.0)), targets, both=owned[held], to=0)
    return tuple(Run(of, context=f"job {number}").results[0][0].counts)


def membership(seed: int) -> float:
    """How well the active party tells which records are shared: area under the curve of the best linear estimate."""
    rng, mean = np.random.default_rng(seed), SHARED / ROWS
    owned, labels = np.zeros(ROWS, np.bool_), rng.integers(0, 2, ROWS)
    owned[rng.choice(ROWS, SHARED, replace=False)] = True
    held = rng.random((JOBS, ROWS)) < 0.5
    seen = np.array([counts(owned, labels, each, seed * JOBS + number) for number, each in enumerate(held)])
    scores, spread = np.zeros(ROWS), np.full(JOBS, MetricNoise(mu_of(1.0)).counts ** 2)
    if np.array_equal(seen, [[(owned & each & (labels == k)).sum() for k in (0, 1)] for each in held]):
        spread[:] = 1e-6  # there is no noise, which an attacker would know
    for label in (0, 1):
        of = held[:, labels == label].astype(float)
        kernel = mean * (1 - mean) * of.T
        scores[labels == label] = kernel @ np.linalg.solve(of @ kernel + np.diag(spread), seen[:, label] - mean * of.sum(1))
    return float(roc_auc_score(owned, scores))


@pytest.mark.slow
def test_a_whole_budget_of_numbers_hardly_tells_who_is_shared(request: pytest.FixtureRequest) -> None:
    """Of 30 worlds: .54, standard error .015. With the same numbers without noise it is nearly known."""
    assert np.mean([membership(seed) for seed in range(30)]) <= 0.6
    request.getfixturevalue("silent")
    assert np.mean([membership(seed) for seed in range(8)]) >= 0.85


def test_few_held_out_records_are_measured_and_not_said(world: Any, attempt: Any) -> None:
    """About 20 shared ones are held out. The same sums are opened as of many, whatever labels these have."""
    over = world(people=400)
    labels = over.data["clinic"][0].labels
    rare = np.where(np.cumsum(labels) <= 12, labels, 0)
    openings = []
    for of in (over, with_labels(over, rare)):
        tried = attempt(evaluate={"test_fraction": 0.1, "metrics": ["auc", "nll", "accuracy"]})
        results = tried(of)
        assert set(results[0].results.metrics.values()) == {None}
        assert not results[0].results.intervals
        assert results[0].warnings == (TOO_FEW.format(names="auc, nll, accuracy"),)
        assert results[1].warnings == ()
        assert any(entry.what == "metrics" for entry in results[1].disclosures["clinic"])
        assert results[0].results.alone.metrics["auc"] is not None
        openings.append([len(sent.values) for sent in tried.sent(MaskedShares)])
    assert openings[0] == openings[1]


def test_a_count_is_shown_with_its_noise(world: Any, attempt: Any) -> None:
    over = world(people=400)
    shown = []
    for secret in ("a", "b", "c", "d"):
        of = attempt(evaluate={"test_fraction": 0.3}, secret=secret)
        result = of(over)[0]
        noise = MetricNoise.from_job(of.job(over))
        assert not any("beyond" in said for said in result.warnings)
        shown.append((result.results.population.rows - over.both[result.held_out].sum()) / (math.sqrt(2) * noise.counts))
        assert f"(sd {noise.counts:.3g})" in next(of.text for of in result.disclosures["clinic"] if of.what == "metrics")
    assert 0 < np.abs(shown).max() < 5
    assert len(set(shown)) > 1


@pytest.mark.parametrize("train", [{}, {"classes": 3}, {"task": "regression", "learning_rate": 0.1}], ids=str)
def test_metrics_with_noise_are_as_near_as_their_intervals_say(
    world: Any, attempt: Any, train: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    """The same training with the noise of ε 4 and without any: 4 standard errors, of which rows are a part."""
    over = world(people=2000, classes=train.get("classes", 2), numbers="task" in train)
    metrics = ["r2", "rmse", "mse"] if "task" in train else ["auc", "nll", "accuracy"]
    evaluate = {"test_fraction": 0.5, "epsilon": 4, "metrics": metrics, "share_with_passive": True}
    noisy = attempt({"batch_size": 128, **train}, evaluate)(over)
    request.getfixturevalue("silent")
    exact = attempt({"batch_size": 128, **train}, evaluate)(over)
    several = "classes" in train
    assert set(noisy[0].results.intervals) == ({"auc"} if several else set(metrics))
    for name, interval in noisy[0].results.intervals.items():
        assert interval["method"] == "noised"
        # of the rows' part of the variance a quarter is noise itself, as it is made of a sum of squares with noise
        assert interval["sd"] > 0.6 * exact[0].results.intervals[name]["sd"] > 0
        assert interval["mean"] == noisy[0].results.metrics[name] != exact[0].results.metrics[name]
        assert interval["low"] <= interval["mean"] <= interval["high"]
        assert abs(noisy[0].results.metrics[name] - exact[0].results.metrics[name]) < 4 * interval["sd"]
    assert noisy[1].results.intervals == (
        {} if "task" in train else noisy[0].results.intervals
    )  # the unit is the active party's
    assert noisy[0].warnings == ()


def with_labels(over: Any, labels: np.ndarray) -> Any:
    table, view = over.data["clinic"]
    return replace(over, data={**over.data, "clinic": (replace(table, labels=labels), view)})


@pytest.mark.parametrize("protocol", ["psu", "psi"])
def test_what_several_passive_parties_may_not_know_is_not_shared_with_them(world: Any, attempt: Any, protocol: str) -> None:
    of = attempt(evaluate={"test_fraction": 0.25, "share_with_passive": True})
    if protocol == "psi":
        assert of(world(3, protocol, people=400))[2].results.population is not None
        return
    with pytest.raises(ValidationError, match="several passive parties"):
        of.job(world(3, protocol))


def test_the_coordinator_learns_how_many_are_shared_to_two_digits(world: Any, attempt: Any) -> None:
    over, of = world(people=400), attempt()
    of(over)
    (said, *_), true = of.sent(DealingTerms), over.both.mean()
    share = said.divisor / said.batch_rows
    assert share == pytest.approx(float(f"{true:.1e}"))
    assert share != pytest.approx(true, abs=1e-5)
    whole = attempt()
    whole(world(protocol="psi"))
    assert whole.sent(DealingTerms)[0].divisor == whole.sent(DealingTerms)[0].batch_rows


@pytest.mark.parametrize("party", ["clinic", "lab"])
def test_a_record_that_stands_out_alone_has_no_column(world: Any, attempt: Any, party: str) -> None:
    """Enough records differ, and one has nearly all of the sum of squares."""
    place = ("clinic", "lab").index(party)
    for largest, stays in ((1.5, True), (1e3, False)):
        over = world()
        rng = np.random.default_rng(4)

        def skewed(values: np.ndarray, largest: float = largest, rng: Any = rng) -> None:
            values[:] = 0
            values[:24] = rng.uniform(0.5, 1, 24)
            values[0] = largest

        result = attempt({"scaling": "unit"})(with_values(over, party, skewed))[place]
        assert (len(result.section.dropped) == 0) == stays
    kept = attempt({"scaling": "unit"}, limits=Limits(least_rows=0))(over)[place]
    assert not kept.section.dropped


def test_more_columns_in_a_later_attempt_are_other_values(world: Any, attempt: Any) -> None:
    """Digests are said, not shown: a party might say an old one. Fresh masks would show the same first weights once more."""
    over, first = world(), attempt()
    first(over)
    table, view = over.data["clinic"]
    wider = {**table.columns, "more": NumericColumn(np.arange(len(table), dtype=np.float64))}
    changed = replace(over, data={**over.data, "clinic": (Table(table.ids, wider, table.labels), view)})
    said = dict(zip(over.data, first.sent(ShareContext)[0].digests, strict=True))

    def digest(own: Any, _mark: bytes) -> bytes:
        return said["clinic" if own.targets.any() else "lab"]

    with mock.patch("vfl_node.training.hidden.trainer.digest_of", digest), pytest.raises(StateError) as caught:
        first.again(changed, resume_from=None)(changed)
    assert caught.value.code == "E_REPLAY"
