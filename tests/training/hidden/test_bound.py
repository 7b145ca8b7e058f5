"""The noise of a training is what its bound says, in whole trainings of all parties; and the rules of steps and rates."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.training.hidden.conftest import NOISED, weights_of
from vfl_node.gdp import mu_of
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.training.hidden import bound
from vfl_node.training.hidden.alone import RESIDUALS
from vfl_node.training.hidden.config import Hidden
from vfl_node.training.hidden.descent import FAST, MOST_NOISE, descent_of, describe_noise, noise_of_score
from vfl_node.training.targets import TargetScale


def section(**keys: Any) -> Hidden:
    return Hidden(algorithm="hidden", **keys)


def worlds(protocol: str, task: Any = "classification") -> int:
    return bound.worlds(task, ALIGNMENTS[protocol])


def test_worlds_differ_in_two_records_where_it_is_known_how_many_are_shared_and_not_which() -> None:
    assert {name: worlds(name) for name in ("psu", "psi", "psi-pairs", "apsi")} == {
        "psu": 2,
        "psi": 1,
        "psi-pairs": 1,
        "apsi": 1,
    }
    assert {worlds(name, "regression") for name in ("psu", "psi", "apsi")} == {2}  # a target goes from one end to the other


def test_a_deviation_by_hand() -> None:
    """ε 1 is μ .2367; rows of two parties are √2.25 long."""
    assert bound.deviation(1.0, 20, 2, 1, 1) == pytest.approx(1.004 * 1.5 * math.sqrt(20) / 0.2367, rel=1e-4)
    one = bound.deviation(1.0, 20, 2, 1, 1)
    assert bound.deviation(1.0, 80, 2, 1, 1) == pytest.approx(2 * one)
    assert bound.deviation(1.0, 20, 2, 4, 1) == pytest.approx(2 * one)
    assert bound.deviation(1.0, 20, 2, 1, 2) == pytest.approx(2 * one)
    assert bound.deviation(1.0, 20, 8, 1, 1) == pytest.approx(one * math.sqrt(8.25 / 2.25))
    assert bound.deviation(4.0, 20, 2, 1, 1) == pytest.approx(one * mu_of(1.0) / mu_of(4.0))


@pytest.mark.parametrize(
    ("records", "keys", "steps", "rate"),
    [
        (400, {}, 20, 0.2),
        (1_000, {}, 20, 0.52),
        (10_000, {}, 20, 4.0),
        (16_000, {}, 20, 4.0),
        (18_000, {}, 40, 4.0),
        (33_000, {}, 40, 4.0),
        (10_000, {"epsilon": 4.0}, 40, 4.0),
        (2_000, {"task": "regression"}, 40, 0.46),
        (100_000, {"task": "regression"}, 40, 1.5),
        (10_000, {"epochs": 100}, 100, 0.451),
        (1_000, {"learning_rate": 2.0}, 20, 2.0),
    ],
    ids=str,
)
def test_rules_of_steps_and_rates(records: float, keys: dict[str, Any], steps: int, rate: float) -> None:
    of = descent_of(section(**keys), 2, records, 1)
    assert of.steps == steps
    assert of.rate == pytest.approx(rate, rel=0.06)
    assert of.momentum == (0.9 if steps >= 40 and records != 18_000 and "task" not in keys else 0.8)
    assert of.deviation == bound.deviation(keys.get("epsilon", 1.0), steps, 2, 1, 1)
    assert of.noise == pytest.approx(noise_of_score(of.deviation or 0, steps, of.momentum, of.rate, 2, records))
    assert "learning_rate" in keys or (of.noise or 0) <= MOST_NOISE


@pytest.mark.parametrize("parties", [2, 3, 9])
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_no_rate_can_oscillate(parties: int, task: Any) -> None:
    """Heavy-ball descent of a loss of smoothness L is stable below 2·(1 + m)/L; that of numbers is four times as steep."""
    of = descent_of(section(task=task), parties, 1e9, 1)
    smooth = bound.row_norm(parties) ** 2 * (1 if task == "regression" else 1 / 4)
    assert of.rate <= 2 * (1 + of.momentum) / smooth
    assert of.rate * bound.row_norm(parties) ** 2 == pytest.approx(FAST[task] * 2.25, rel=0.01)
    slow = descent_of(section(task=task, momentum=0.0), parties, 1e9, 1)
    assert slow.rate <= 2 / smooth


def test_where_it_does_not_pay() -> None:
    assert len(describe_noise(section(), 2, 1_500, 1)) == 1
    few = describe_noise(section(), 2, 400, 1)
    assert "noise may take more than the columns of others give: below a product of 1,000" in few[1]
    assert len(describe_noise(section(), 2, 1_500, 2)) == 2
    assert len(describe_noise(section(task="regression"), 2, 10_000, 2)) == 2
    assert len(describe_noise(section(task="regression", columns="bins"), 2, 10_000, 2)) == 1
    assert describe_noise(section(epsilon=None), 2, 10, 1) == ()


@pytest.mark.parametrize(("parties", "keys"), [(2, {"classes": 64}), (3, {"classes": 64, "epsilon": 4.0})])
def test_weights_without_a_shared_record_are_noise_of_the_formula(
    world: Any, attempt: Any, parties: int, keys: dict[str, Any]
) -> None:
    """Of more than 500 weights; the standard error of their deviation is 3 % of it."""
    of, over = attempt(NOISED | keys), world(parties, disjoint=True, classes=64)
    found = np.concatenate([each.ravel() for each in weights_of(of(over))])
    plan = of.plan(over)
    d = plan.descent
    moved = sum((d.rate / plan.divisor * (1 - d.momentum**t) / (1 - d.momentum)) ** 2 for t in range(1, d.steps + 1))
    assert len(found) >= 500
    expected = bound.deviation(keys.get("epsilon", 1.0), d.steps, parties, 64, 2) * moved**0.5
    assert abs(found.std() / expected - 1) < 3 / (2 * len(found)) ** 0.5


@pytest.mark.parametrize("outlier", [10.0, 1e3, 1e9])
def test_one_target_moves_a_gradient_no_further_than_the_bound(outlier: float) -> None:
    """With a range that the job says. Scaled by the table's own mean and deviation, one target moves all residuals."""
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(2_000, 6))
    rows = np.hstack([rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1), np.full((2_000, 1), 0.5)])
    targets = rng.normal(100, 10, 2_000)
    changed = targets.copy()
    changed[0] = 100 + 10 * outlier

    def apart(scales: tuple[TargetScale, TargetScale]) -> float:
        each = [
            rows.T @ RESIDUALS["robust"](0 * of, np.clip(scale.apply(of), -10, 10))
            for of, scale in zip((targets, changed), scales, strict=True)
        ]
        return float(np.linalg.norm(each[0] - each[1]))

    most = 2 * bound.MARGIN * bound.row_norm(2)
    assert apart((TargetScale.from_range(80, 120), TargetScale.from_range(80, 120))) <= most
    if outlier > 10:
        assert apart((TargetScale.fit(targets), TargetScale.fit(changed))) > 10 * most
