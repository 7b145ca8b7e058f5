"""How well a column was rebuilt, against scikit-learn and numpy, and what a constant answer is given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, f1_score, mean_squared_error, r2_score, recall_score, roc_auc_score

from vfl_node.privacy.features.measures import measure

N = 400


@pytest.fixture
def columns() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "job": rng.choice(["a", "b", "c", "d"], N, p=[0.1, 0.2, 0.3, 0.4]),
        "rare": (rng.random(N) < 0.1).astype(float),
        "usual": np.where(rng.random(N) < 0.7, 5.0, -1.0),
        "gap": np.where(rng.random(N) < 0.2, np.nan, (rng.random(N) < 0.4).astype(float)),
        "age": np.where(rng.random(N) < 0.1, np.nan, rng.normal(50, 20, N)),
    }


def test_figures_are_those_of_scikit_learn(targets: Any, columns: dict[str, Any]) -> None:
    rng, of = np.random.default_rng(1), targets(columns)
    at = rng.permutation(N)[:300]
    outputs = np.round(rng.normal(size=(300, of.width)), 1).astype(np.float32)  # rounded: there are ties
    found = measure(of, torch.from_numpy(outputs), torch.from_numpy(at))
    start = 0
    for column in of.columns:
        known = column.known[at].numpy()
        truth, said = column.truth[at].numpy()[known], outputs[known][:, start : start + column.width]
        start += column.width
        if column.kind == "categories":
            right = accuracy_score(truth, said.argmax(axis=1))
            expected = {"accuracy": right, "error": 1 - right}
        elif column.kind == "flag":
            answer = said[:, 0] > 0
            right = accuracy_score(truth, answer)
            expected = {
                "auc": roc_auc_score(truth, said[:, 0]),
                "error": 1 - right,
                "recall": recall_score(truth, answer),
                "f1": f1_score(truth, answer),
                "accuracy": right,
            }
        else:
            expected = {"r2": r2_score(truth, said[:, 0]), "mse": mean_squared_error(truth, said[:, 0])}
        assert found[column.name].figures == pytest.approx(expected, abs=1e-6)
        assert found[column.name].success == pytest.approx(next(iter(expected.values())), abs=1e-6)
        assert found[column.name].rows == known.sum()


def test_every_metric_has_the_figure_of_a_constant_answer(targets: Any, columns: dict[str, Any]) -> None:
    of = targets(columns)
    found = measure(of, torch.zeros(N, of.width), torch.arange(N))
    assert all(score.constants.keys() == score.figures.keys() for score in found.values())
    job, rare, usual, age = (found[name].constants for name in ("job", "rare", "usual", "age"))
    share = (columns["job"] == "d").mean()
    assert job == pytest.approx({"accuracy": share, "error": 1 - share})
    share = columns["rare"].mean()  # always 0: small error, and no 1 is found
    assert rare == pytest.approx({"auc": 0.5, "error": share, "recall": 0, "f1": 0, "accuracy": 1 - share})
    share = (columns["usual"] == 5).mean()  # always 1: every 1 is found
    assert usual == pytest.approx(
        {"auc": 0.5, "error": 1 - share, "recall": 1, "f1": 2 * share / (1 + share), "accuracy": share}
    )
    assert age == pytest.approx({"r2": 0, "mse": 1}, abs=1e-6)
    assert found["rare"].figures["auc"] == 0.5  # all outputs are alike
    assert found["rare"].gain == 0


def test_recall_alone_does_not_make_a_success(targets: Any, columns: dict[str, Any]) -> None:
    of = targets({"rare": columns["rare"]})
    always = measure(of, torch.ones(N, 1), torch.arange(N))["rare"]
    assert always.figures["recall"] == 1
    assert always.success == 0.5
    assert (always.figures["error"] or 0) > 0.8


@pytest.mark.parametrize("name", ["job", "rare", "age"])
def test_of_no_row_nothing_is_defined(targets: Any, columns: dict[str, Any], name: str) -> None:
    of = targets({name: columns[name]})
    found = measure(of, torch.empty(0, of.width), torch.empty(0, dtype=torch.int64))[name]
    assert (found.rows, found.success, found.constant, found.gain) == (0, None, None, None)


def test_of_one_value_an_error_is_defined_and_no_ranking(targets: Any, columns: dict[str, Any]) -> None:
    of = targets({"rare": columns["rare"]})
    zeros = torch.from_numpy(np.flatnonzero(columns["rare"] == 0))
    found = measure(of, torch.full((len(zeros), 1), -1.0), zeros)["rare"]
    assert (found.success, found.figures["error"], found.figures["recall"]) == (None, 0, None)
