"""Metrics from sums that are opened are those of the scores."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, roc_auc_score

from tests.crypto.shares.together import Run, counted, shared
from tests.thorough import examples
from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.operations import mask_known, mask_value
from vfl_node.crypto.shares.ring import FRACTION, WEIGHT_FRACTION, encode
from vfl_node.crypto.shares.values import Shared
from vfl_node.training.hidden.config import Hidden
from vfl_node.training.hidden.network import Form, SharedModel, scores
from vfl_node.training.shares.estimates import Estimate, mean_area, mean_loss, share_right
from vfl_node.training.shares.measuring import tally
from vfl_node.training.shares.metric_noise import MetricNoise
from vfl_node.training.trees.config import Trees

ROWS = 1500
RNG = np.random.default_rng(1)
A, P = RNG.normal(size=(ROWS, 3)), RNG.normal(size=(ROWS, 2))
W = RNG.normal(size=(5, 2))
BOTH = RNG.random(ROWS) < 0.6
Z = np.hstack([A, P]) @ W
LABELS = (RNG.random((ROWS, 2)) < 1 / (1 + np.exp(-Z))).astype(float)


MU = 0.2367
"""Of ε 1."""


def program(noise: MetricNoise, targets: np.ndarray, weights: np.ndarray = W, both: np.ndarray = BOTH, **how: Any) -> Any:
    """Measures as many outputs as there are targets, on as many of the rows."""
    form = Form((3, 2), (), targets.shape[1], "squares" if noise.numbers else "exact")

    async def run(machine: ShareMachine) -> Any:
        matrices = await machine.run(
            *(
                mask_known(place, of.shape, FRACTION, encode(of) if machine.place == place else None)
                for place, of in enumerate((A[: len(targets)], P[: len(targets)]))
            )
        )
        (owned,) = await machine.run(mask_value(shared(machine, both[: len(targets), None].astype(float), 0)))
        zero = np.zeros((3, form.outputs)), np.zeros((2, form.outputs))
        parts = (weights[:3, : form.outputs], weights[3:, : form.outputs]) if machine.place == 0 else zero
        each = tuple(Shared(encode(of, WEIGHT_FRACTION), WEIGHT_FRACTION) for of in parts)
        own = targets if machine.place == 0 else np.zeros_like(targets)
        model = SharedModel(form, each, each, each)

        async def score(rows: slice) -> Shared:
            return await scores(machine, model, [matrix[rows] for matrix in matrices])

        return await tally(machine, score, own, owned, noise, **{"far_score": Hidden.far_scores[0], **how})

    return run


def of_classes(outputs: int = 1, mu: float = MU) -> tuple[MetricNoise, np.ndarray]:
    return MetricNoise(mu, outputs=outputs), (LABELS[:, :outputs] * BOTH[:, None]).astype(np.uint64)


def of_numbers(y: np.ndarray, mu: float = MU) -> tuple[MetricNoise, np.ndarray]:
    return MetricNoise(mu, numbers=True), encode(y * BOTH[: len(y), None])


def value(of: Estimate | None) -> float:
    assert of is not None
    return of.value


@pytest.mark.usefixtures("silent")
def test_sums_of_two_classes() -> None:
    noise, targets = of_classes()
    run = Run(program(noise, targets))
    assert run.results[0] == run.results[1]
    (found,), z, y = run.results[0], Z[BOTH, 0], LABELS[BOTH, 0]
    assert found.counts == ((1 - y).sum(), y.sum())
    assert value(mean_area([found], noise)) == pytest.approx(roc_auc_score(y, z), abs=2e-3)  # of 160 draws: sd .0005
    losses = np.minimum(np.logaddexp(0, z * (1 - 2 * y)), 4)
    assert value(mean_loss(found, noise)) == pytest.approx(losses.mean(), abs=2e-3)
    assert found.sums["squares"] == pytest.approx((losses**2).sum(), rel=0.02)
    assert value(share_right(found, noise)) == pytest.approx(accuracy_score(y, z > 0), abs=0.02)
    assert found.sums["beyond"] == 0
    cost = counted(program(noise, targets))
    assert (run.table.sent, run.queues.bytes) == (cost.opened, cost.dealt)


@pytest.mark.usefixtures("silent")
def test_sums_of_several_outputs_are_those_of_their_areas_alone() -> None:
    noise, targets = of_classes(2)
    results = Run(program(noise, targets)).results[0]
    assert [sorted(of.sums) for of in results] == [["beyond"]] * 2
    expected = [roc_auc_score(LABELS[BOTH, k], Z[BOTH, k]) for k in range(2)]
    assert [value(mean_area([of], noise)) for of in results] == pytest.approx(expected, abs=2e-3)
    assert value(mean_area(results, noise)) == pytest.approx(np.mean(expected), abs=2e-3)


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize("times", [4.0, 12.0, 100.0, 10_000.0])
def test_large_scores_are_measured_as_they_are(times: float) -> None:
    """The same order, so the same area; a loss counts as 4 at most."""
    noise, targets = of_classes()
    (found,), z, y = Run(program(noise, targets, W * times)).results[0], Z[BOTH, 0] * times, LABELS[BOTH, 0]
    assert value(mean_area([found], noise)) == pytest.approx(roc_auc_score(y, z), abs=4e-3)
    assert value(mean_loss(found, noise)) == pytest.approx(np.minimum(np.logaddexp(0, z * (1 - 2 * y)), 4).mean(), rel=0.03)
    assert value(share_right(found, noise)) == pytest.approx(accuracy_score(y, z > 0), abs=0.01)
    assert (np.abs(z) > 32).sum() <= found.sums["beyond"] <= (np.abs(z) > 24).sum()


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize("far_scores", [Hidden.far_scores, Trees.far_scores])
def test_scores_count_as_far_where_the_sines_of_a_training_end(far_scores: tuple[int, int]) -> None:
    (none, every), (noise, targets) = far_scores, of_classes()
    (found,), z = Run(program(noise, targets, W * 12, far_score=none)).results[0], np.abs(Z[BOTH, 0] * 12)
    assert 0 < (z > every).sum() <= found.sums["beyond"] <= (z > none).sum()


@pytest.mark.usefixtures("silent")
def test_scores_that_leave_the_ring_are_counted_as_far_off() -> None:
    noise, targets = of_classes()
    (found,) = Run(program(noise, targets, W * 1e6)).results[0]
    assert found.sums["beyond"] > 0.99 * found.rows
    assert 0 <= value(mean_loss(found, noise)) <= 4


@pytest.mark.usefixtures("silent")
def test_without_a_label_there_is_no_area() -> None:
    noise, _ = of_classes()
    (found,) = Run(program(noise, np.zeros((ROWS, 1), np.uint64))).results[0]
    assert found.counts == (BOTH.sum(), 0)
    assert mean_area([found], noise) is None
    assert mean_loss(found, noise) is not None


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize("scale", [0.1, 0.5, 3.0, 3000.0])
def test_errors_of_a_model_for_numbers(scale: float) -> None:
    y = Z[:, :1] + RNG.normal(0, scale, (ROWS, 1))
    noise, targets = of_numbers(y)
    (found,) = Run(program(noise, targets)).results[0]
    error = (Z[:, :1] - y)[BOTH]
    squares = np.minimum(error**2, 9)
    assert found.counts == (BOTH.sum(),)
    assert value(mean_loss(found, noise)) == pytest.approx(squares.mean(), rel=0.02, abs=1.5e-3)  # coins: sd .0004
    assert found.sums["squares"] == pytest.approx((squares**2).sum(), rel=0.1, abs=0.5)
    assert (np.abs(error) > 18).sum() <= found.sums["beyond"] <= (np.abs(error) > 16).sum()


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize(("error", "counted"), [(12.0, 0), (16.0, 0), (20.0, 1), (63.0, 1)])
def test_far_is_as_far_on_both_sides(error: float, counted: int) -> None:
    for sign in (1, -1):
        (found,) = Run(program(*of_numbers(Z[:, :1] - sign * error))).results[0]
        assert found.sums["beyond"] == counted * BOTH.sum()


def test_the_active_party_alone_learns_them_and_another_one_not_even_the_size_of_the_noise() -> None:
    run = Run(program(*of_classes(), to=0))
    opened = [np.concatenate([of.ravel() for of in run.table.seen[place]]) for place in (0, 1)]
    (found,) = run.results[0]
    for number in (*found.counts, found.order):
        assert [np.uint64(number % 2**64) in of for of in opened] == [True, False]
    assert run.results[1] != run.results[0]


RUNS = examples(200, fewer=80)


@pytest.mark.parametrize("numbers", [False, True])
def test_each_sum_has_the_noise_that_is_said(numbers: bool, request: pytest.FixtureRequest) -> None:
    """In many jobs over the same rows; 4 standard errors."""
    noise, targets = of_numbers(Z[:, :1]) if numbers else of_classes()
    of = program(noise, targets[:200])
    found = [Run(of, context=f"job {number}").results[0][0] for number in range(RUNS)]
    assert Run(of, context="job 7").results[0][0] == found[7]
    request.getfixturevalue("silent")
    exact = Run(of).results[0][0]
    off = {name: [(of.sums[name] - exact.sums[name]) / sd for of in found] for name, sd in noise.sums.items()}
    off |= {f"label {k}": [(of.counts[k] - exact.counts[k]) / noise.counts for of in found] for k in range(len(exact.counts))}
    if not numbers:
        off["order"] = [(of.order - exact.order) / noise.order(of.reach) for of in found]
        assert len({of.reach for of in found}) > 2
    for name, each in off.items():
        assert np.square(each).mean() == pytest.approx(1, abs=4 * (2 / RUNS) ** 0.5), name
        assert np.mean(each) == pytest.approx(0, abs=4 / RUNS**0.5), name
    for one, other in combinations(off.values(), 2):
        assert abs(np.corrcoef(one, other)[0, 1]) < 4 / RUNS**0.5
