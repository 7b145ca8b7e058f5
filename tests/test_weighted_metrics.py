from __future__ import annotations

import numpy as np
import pytest

from vfl_node.job.evaluate import METRICS
from vfl_node.metrics import classes as metrics
from vfl_node.metrics.weighted import compute

NAMES = METRICS["classification"]
OF_SEVERAL = [name for name in NAMES if name in metrics.MULTICLASS]


def data(rows: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels, and probabilities with ties."""
    rng = np.random.default_rng(rows)
    labels = rng.integers(0, classes, rows)
    if classes == 2:
        return labels, np.round(np.clip(rng.normal(0.3 + 0.3 * labels, 0.3), 0, 1), 2)
    raw = np.round(rng.uniform(0.1, 1, (rows, classes)) + (labels[:, None] == np.arange(classes)) * 0.5, 1)
    return labels, raw / raw.sum(axis=1, keepdims=True)


@pytest.mark.parametrize(("classes", "names"), [(2, NAMES), (3, OF_SEVERAL)])
def test_with_equal_weights_metrics_are_the_usual_ones(classes: int, names: list[str]) -> None:
    labels, p = data(600, classes)
    usual = metrics.compute(names, labels, p, p, 0.4)
    found = compute(names, labels, p, p, np.repeat([[1.0], [0.25]], 600, axis=1), 0.4)
    for name in names:
        assert found[name] == pytest.approx([usual[name]] * 2, abs=1e-12), name


@pytest.mark.parametrize(("classes", "names"), [(2, NAMES), (3, OF_SEVERAL)])
def test_a_row_of_weight_two_is_two_rows_and_one_of_weight_none_is_none(classes: int, names: list[str]) -> None:
    labels, p = data(150, classes)
    twice = [compute(names, np.repeat(labels, 2), np.repeat(p, 2, axis=0), np.repeat(p, 2, axis=0), np.ones((1, 300)), 0.5)]
    weights = np.where(np.arange(180) < 150, 2.0, 0.0)[None]
    more, q = np.append(labels, np.zeros(30, int)), np.concatenate([p, p[:30]])
    found = compute(names, more, q, q, weights, 0.5)
    for name in names:
        assert found[name] == pytest.approx(twice[0][name], abs=1e-12), name


def test_each_set_of_weights_counts_alone() -> None:
    labels, p = data(80, 2)
    weights = np.random.default_rng(0).integers(0, 3, (5, 80)).astype(np.float64)
    together = compute(NAMES, labels, p, p, weights, 0.5)
    for draw in range(5):
        alone = compute(NAMES, labels, p, p, weights[draw : draw + 1], 0.5)
        assert {name: value[draw] for name, value in together.items()} == pytest.approx(
            {name: value[0] for name, value in alone.items()}, abs=1e-12
        )


def test_what_is_not_defined_is_nan() -> None:
    nothing = np.empty(0)
    assert all(np.isnan(of).all() for of in compute(NAMES, nothing, nothing, nothing, np.empty((2, 0)), 0.5).values())
    labels, p = np.array([0, 0, 1, 1]), np.array([0.1, 0.2, 0.3, 0.4])
    only = compute(NAMES, labels, p, p, np.array([[1.0, 1, 0, 0], [0, 0, 1, 1], [0, 0, 0, 0]]), 0.5)
    undefined = {name: np.isnan(of).tolist() for name, of in only.items()}
    for name in ("auc", "ks"):
        assert undefined[name] == [True, True, True]
    for name in ("pr_auc", "lift", "f1"):
        assert undefined[name] == [True, False, True]
    for name in ("ace", "nll", "accuracy"):
        assert undefined[name] == [False, False, True]
