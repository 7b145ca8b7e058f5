"""Metrics from sums that are opened are those of the scores."""

from __future__ import annotations

from dataclasses import astuple
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score

from tests.crypto.shares.together import Run, counted, shared
from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.operations import known, masked
from vfl_node.crypto.shares.ring import FRACTION, WEIGHT_FRACTION, encode
from vfl_node.crypto.shares.values import Shared
from vfl_node.training.hidden.measuring import squared_errors, tally
from vfl_node.training.hidden.network import Form, SharedModel

ROWS = 1500
RNG = np.random.default_rng(1)
A, P = RNG.normal(size=(ROWS, 3)), RNG.normal(size=(ROWS, 2))
W = RNG.normal(size=(5, 2))
BOTH = RNG.random(ROWS) < 0.6
Z = np.hstack([A, P]) @ W
LABELS = (RNG.random((ROWS, 2)) < 1 / (1 + np.exp(-Z))).astype(float)


def program(measure: Any, form: Form, targets: np.ndarray, weights: np.ndarray = W) -> Any:
    async def run(machine: ShareMachine) -> Any:
        matrices = await machine.run(
            *(
                known(place, of.shape, FRACTION, encode(of) if machine.place == place else None)
                for place, of in enumerate((A, P))
            )
        )
        (both,) = await machine.run(masked(shared(machine, BOTH[:, None].astype(float), 0)))
        zero = np.zeros((3, form.outputs)), np.zeros((2, form.outputs))
        parts = (weights[:3, : form.outputs], weights[3:, : form.outputs]) if machine.place == 0 else zero
        each = tuple(Shared(encode(of, WEIGHT_FRACTION), WEIGHT_FRACTION) for of in parts)
        own = targets if machine.place == 0 else np.zeros_like(targets)
        return await measure(machine, SharedModel(form, each, each, each), matrices, own, both, 900.0)

    return run


def test_auc_loss_and_accuracy_of_each_output() -> None:
    of = program(tally, Form((3, 2), (), 2, "exact"), (LABELS * BOTH[:, None]).astype(np.uint64))
    run = Run(of)
    assert run.results[0] == run.results[1]
    for k, found in enumerate(run.results[0]):
        z, y = Z[BOTH, k], LABELS[BOTH, k]
        assert (found.positive, found.negative) == (y.sum(), (1 - y).sum())
        assert found.auc == pytest.approx(roc_auc_score(y, z), abs=2e-3)  # of 160 draws: sd .0005
        assert found.nll == pytest.approx(log_loss(y, 1 / (1 + np.exp(-z))), abs=2e-3)
        assert found.accuracy == pytest.approx(accuracy_score(y, z > 0), abs=0.02)
    cost = counted(of)
    assert (run.table.sent, run.queues.bytes) == (cost.opened, cost.dealt)


@pytest.mark.parametrize("times", [4.0, 12.0, 100.0, 10_000.0])
def test_large_scores_are_measured_as_they_are(times: float) -> None:
    """The same order, so the same area; losses of scores far beyond what the sines are good for."""
    run = Run(program(tally, Form((3, 2), (), 2, "exact"), (LABELS * BOTH[:, None]).astype(np.uint64), W * times))
    for k, found in enumerate(run.results[0]):
        z, y = Z[BOTH, k] * times, LABELS[BOTH, k]
        assert found.auc == pytest.approx(roc_auc_score(y, z), abs=4e-3)
        assert found.nll == pytest.approx(np.logaddexp(0, z * (1 - 2 * y)).mean(), rel=0.03)
        assert found.accuracy == pytest.approx(accuracy_score(y, z > 0), abs=0.01)
        assert (np.abs(z) > 32).sum() <= found.beyond <= (np.abs(z) > 24).sum()


def test_scores_that_leave_the_ring_are_no_metrics() -> None:
    of = program(tally, Form((3, 2), (), 1, "exact"), (LABELS[:, :1] * BOTH[:, None]).astype(np.uint64), W * 1e6)
    (found,) = Run(of).results[0]
    assert found.diverged
    assert (found.auc, found.nll, found.accuracy) == (None, None, None)


def test_nothing_is_defined_without_shared_records() -> None:
    of = program(tally, Form((3, 2), (), 1, "exact"), np.zeros((ROWS, 1), np.uint64))
    one_label = Run(of).results[0][0]
    assert (one_label.positive, one_label.auc) == (0, None)
    assert one_label.nll is not None


def test_sums_of_a_model_for_numbers() -> None:
    y = Z[:, :1] + RNG.normal(0, 0.5, (ROWS, 1))
    run = Run(program(squared_errors, Form((3, 2), (), 1, "squares"), encode(y * BOTH[:, None])))
    expected = (BOTH.sum(), ((Z[:, :1] - y)[BOTH] ** 2).sum(), 0)
    np.testing.assert_allclose(astuple(run.results[0]), expected, atol=1.1)  # 900 rows in steps of a half, and a carry
    assert run.results[0].errors % 0.5 == 0


def test_numbers_far_off_are_counted() -> None:
    y = np.where(np.arange(ROWS)[:, None] % 5 == 0, Z[:, :1] + 30, Z[:, :1])
    run = Run(program(squared_errors, Form((3, 2), (), 1, "squares"), encode(y * BOTH[:, None])))
    assert run.results[0].beyond == BOTH[::5].sum() > 0


@pytest.mark.parametrize("scale", [3.0, 30.0, 3000.0])
def test_squares_of_large_errors(scale: float) -> None:
    y = Z[:, :1] + RNG.normal(0, scale, (ROWS, 1))
    run = Run(program(squared_errors, Form((3, 2), (), 1, "squares"), encode(y * BOTH[:, None])))
    error = (Z[:, :1] - y)[BOTH]
    assert run.results[0].errors == pytest.approx((error**2).sum(), rel=0.02)
    assert (np.abs(error) > 18).sum() <= run.results[0].beyond <= (np.abs(error) > 16).sum()
    assert not run.results[0].diverged


@pytest.mark.parametrize(("error", "counted"), [(12.0, 0), (16.0, 0), (20.0, 1), (63.0, 1)])
def test_far_is_as_far_on_both_sides(error: float, counted: int) -> None:
    for sign in (1, -1):
        y = Z[:, :1] - sign * error
        run = Run(program(squared_errors, Form((3, 2), (), 1, "squares"), encode(y * BOTH[:, None])))
        assert run.results[0].beyond == counted * BOTH.sum()
