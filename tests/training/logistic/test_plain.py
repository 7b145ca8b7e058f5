from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from vfl_node.training.glm.plain import LOSSES, Fit, fit, logits, one_hot, probabilities, sigmoid

Problem = tuple[np.ndarray, np.ndarray]


def problem(rows: int = 300, columns: int = 5, classes: int = 2) -> Problem:
    """Standardised features float64[n, d], and labels that follow them with much noise."""
    rng = np.random.default_rng(classes)
    x = rng.normal(size=(rows, columns))
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    scores = x @ rng.normal(size=(columns, classes)) + rng.gumbel(size=(rows, classes)) + np.arange(classes) * 0.3
    return x, scores.argmax(axis=1).astype(np.float32)


def zeros(*widths: int, outputs: int = 1) -> list[np.ndarray]:
    return [np.zeros((width, outputs)) for width in widths]


def fitted(parts: list[np.ndarray], labels: np.ndarray, start: list[np.ndarray], loss: str = "exact", **given: Any) -> Fit:
    settings: dict[str, Any] = {"l2": 0.0, "learning_rate": 0.5, "iterations": 20, "tolerance": 0.0}
    return fit(parts, labels, start, loss=LOSSES[loss], **(settings | given))


def reported(loss: str) -> float:
    """What is reported, as a multiple of what is descended."""
    polynomial = LOSSES[loss].polynomial
    return polynomial.reported if polynomial else 1.0


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("classes", [2, 4])
def test_the_residual_is_the_derivative_of_the_loss(loss: str, classes: int) -> None:
    rng = np.random.default_rng(0)
    y = one_hot(rng.integers(0, classes, 6).astype(np.float32), classes)
    z, h = rng.normal(scale=3, size=y.shape), 1e-5
    d = LOSSES[loss].residual(z, y)
    for place in np.ndindex(*z.shape):
        up, down = z.copy(), z.copy()
        up[place] += h
        down[place] -= h
        slope = (LOSSES[loss].loss(up, y) - LOSSES[loss].loss(down, y)) / (2 * h)
        assert d[place] / len(z) == pytest.approx(slope / reported(loss), abs=1e-8)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("classes", [2, 3])
def test_a_step_follows_the_gradient_of_the_penalised_loss(loss: str, classes: int) -> None:
    x, labels = problem(rows=40, columns=4, classes=classes)
    parts, l2, rate, h = [x[:, :1], x[:, 1:]], 0.3, 0.7, 1e-5
    outputs = 1 if classes == 2 else classes
    y = LOSSES[loss].targets(labels, outputs)
    start = [np.random.default_rng(k).normal(size=(part.shape[1], outputs)) for k, part in enumerate(parts)]

    def objective(theta: np.ndarray, b: np.ndarray) -> float:
        return LOSSES[loss].loss(x @ theta + b, y) / reported(loss) + l2 / 2 * float((theta**2).sum())

    found = fitted(parts, labels, start, loss, l2=l2, learning_rate=rate, iterations=1)
    theta = np.vstack(start)
    step = (theta - np.vstack(found.weights)) / rate
    for place in np.ndindex(*theta.shape):
        change = np.zeros_like(theta)
        change[place] = h
        slope = (objective(theta + change, np.zeros(outputs)) - objective(theta - change, np.zeros(outputs))) / (2 * h)
        assert step[place] == pytest.approx(slope, abs=1e-8)
    for k, b in enumerate(h * np.eye(outputs)):
        slope = (objective(theta, b) - objective(theta, -b)) / (2 * h)
        assert -found.intercepts[k] / rate == pytest.approx(slope, abs=1e-8)


@pytest.mark.parametrize("classes", [2, 3])
def test_the_optimum_is_scikit_learns(classes: int) -> None:
    linear, several = pytest.importorskip("sklearn.linear_model"), pytest.importorskip("sklearn.multiclass")
    (x, labels), l2 = problem(classes=classes), 0.05
    parts, outputs = [x[:, :2], x[:, 2:]], 1 if classes == 2 else classes
    oracle = linear.LogisticRegression(C=1 / (l2 * len(x)), tol=1e-10, max_iter=1000)
    oracle = oracle.fit(x, labels) if classes == 2 else several.OneVsRestClassifier(oracle).fit(x, labels)
    each = [oracle] if classes == 2 else oracle.estimators_
    found = fitted(parts, labels, zeros(2, 3, outputs=outputs), l2=l2, learning_rate=1.0, iterations=1000)
    expected = np.vstack([model.coef_ for model in each]).T
    np.testing.assert_allclose(np.vstack(found.weights), expected, atol=1e-6)
    np.testing.assert_allclose(found.intercepts, np.concatenate([model.intercept_ for model in each]), atol=1e-6)
    p = probabilities(logits(parts, found.weights, found.intercepts))
    np.testing.assert_allclose(np.hstack([1 - p, p]) if classes == 2 else p, oracle.predict_proba(x), atol=1e-6)
    other = fitted(parts, labels, zeros(2, 3, outputs=outputs), "taylor", l2=l2, learning_rate=1.0, iterations=1000)
    assert np.abs(np.vstack(other.weights) - expected).max() > 1e-3  # another loss, another optimum


def test_the_taylor_optimum_is_that_of_least_squares() -> None:
    x, labels = problem()
    found = fitted([x], labels, zeros(5), "taylor", iterations=2000)
    expected, *_ = np.linalg.lstsq(np.column_stack([x, np.ones(len(x))]), 4 * labels - 2, rcond=None)
    np.testing.assert_allclose(np.append(found.weights[0], found.intercepts), expected, atol=1e-9)


@pytest.mark.parametrize("loss", LOSSES)
def test_parties_together_are_one_party_with_all_columns(loss: str) -> None:
    x, labels = problem()
    whole = fitted([x], labels, zeros(5), loss, l2=0.01)
    parts = fitted([x[:, :2], x[:, 2:2], x[:, 2:]], labels, zeros(2, 0, 3), loss, l2=0.01)
    np.testing.assert_allclose(np.vstack(parts.weights), whole.weights[0], atol=1e-12)
    np.testing.assert_allclose(parts.losses, whole.losses, atol=1e-12)
    shifted = fitted([x[:, :2], np.roll(x[:, 2:], 1, axis=0)], labels, zeros(2, 3), loss, l2=0.01)
    assert np.abs(np.vstack(shifted.weights) - whole.weights[0]).max() > 0.01


def test_losses_are_those_before_each_step_and_fall() -> None:
    x, labels = problem(classes=3)
    found = fitted([x], labels, zeros(5, outputs=3))
    assert len(found.losses) == 20
    assert found.losses[0] == pytest.approx(3 * math.log(2))
    shorter = fitted([x], labels, zeros(5, outputs=3), iterations=7)
    z = logits([x], shorter.weights, shorter.intercepts)
    assert found.losses[7] == pytest.approx(LOSSES["exact"].loss(z, one_hot(labels, 3)))
    assert list(found.losses) == sorted(found.losses, reverse=True)


def test_the_end_by_tolerance_takes_its_last_step() -> None:
    x, labels = problem()
    long = fitted([x], labels, zeros(5), iterations=200)
    found = fitted([x], labels, zeros(5), iterations=200, tolerance=1e-4)
    changes = np.abs(np.diff(long.losses)) / np.maximum(1, np.abs(long.losses[:-1]))
    last = int(np.flatnonzero(changes <= 1e-4)[0]) + 1
    assert 2 < last < 199
    assert found.losses == long.losses[: last + 1]
    same = fitted([x], labels, zeros(5), iterations=last + 1)
    assert found.weights[0].tolist() == same.weights[0].tolist()


def test_batches_are_taken_in_turn_and_again() -> None:
    x, labels = problem(rows=6)
    rows = [np.array([0, 1, 2]), np.array([5, 3, 4])]
    found = fitted([x], labels, zeros(5), iterations=3, batches=rows)
    weights, intercepts = np.zeros((5, 1)), 0.0
    for batch in (rows[0], rows[1], rows[0]):
        d = sigmoid(x[batch] @ weights + intercepts) - labels[batch, None]
        weights, intercepts = weights - 0.5 * x[batch].T @ d / 3, intercepts - 0.5 * d.mean()
    np.testing.assert_allclose(found.weights[0], weights, atol=1e-14)
    assert found.intercepts[0] == pytest.approx(intercepts)
    assert fitted([x], labels, zeros(5), iterations=3, batches=[np.arange(6)]).losses == pytest.approx(
        fitted([x], labels, zeros(5), iterations=3).losses
    )


def test_the_start_is_left_as_it_is_and_counts() -> None:
    x, labels = problem()
    start = [np.full((5, 1), 0.5)]
    found = fitted([x], labels, start, iterations=2)
    assert start[0].tolist() == [[0.5]] * 5
    assert found.losses[0] != fitted([x], labels, zeros(5), iterations=1).losses[0]


def test_labels_become_columns() -> None:
    assert one_hot(np.array([0, 1], dtype=np.float32), 2).tolist() == [[0], [1]]
    hot = one_hot(np.array([2, 0], dtype=np.float32), 3)
    assert hot.tolist() == [[0, 0, 1], [1, 0, 0]]
    assert hot.dtype == np.float64


def test_large_scores_are_no_trouble() -> None:
    z = np.array([[1e4], [-1e4], [1e4], [-1e4]])
    y = np.array([[1.0], [0.0], [0.0], [1.0]])
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        assert LOSSES["exact"].residual(z, y).tolist() == [[0], [0], [1], [-1]]
        assert LOSSES["exact"].loss(z, y) == 5000
        assert sigmoid(np.array([-700.0]))[0] == pytest.approx(math.exp(-700))
        assert probabilities(np.array([[-1e4, -1e4, -2e4]])).tolist() == [[0.5, 0.5, 0]]


def test_probabilities_of_several_classes_are_shares_of_their_sigmoids() -> None:
    z = np.random.default_rng(0).normal(scale=4, size=(20, 3))
    expected = 1 / (1 + np.exp(-z))
    np.testing.assert_allclose(probabilities(z), expected / expected.sum(axis=1, keepdims=True), rtol=1e-12)
    np.testing.assert_allclose(probabilities(z[:, :1]), expected[:, :1], rtol=1e-12)
