"""Regression beside scikit-learn: on a made-up table, and on real ones if here."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

from experiments.regression import union
from experiments.regression.data import Problem, load
from experiments.regression.run import Linear, held_out, library, page, product
from vfl_node.plans.ranking import REGRESSION_LOSS
from vfl_node.training.split.config import Train


def linear(iterations: int) -> Linear:
    return Linear(algorithm="linear", learning_rate=0.3, iterations=iterations).model_copy(update={"key_bits": 512})


def closed_form(problem: Problem, split: int) -> float:
    """RMSE of least squares on the rows held out."""
    training, testing = held_out(len(problem.target), split)
    joint = np.column_stack([*problem.own.values(), *problem.other.values()])
    said = LinearRegression().fit(joint[training], problem.target[training]).predict(joint[testing])
    return float(np.sqrt(np.mean((said - problem.target[testing]) ** 2)))


def made_up() -> Problem:
    rng = np.random.default_rng(0)
    own, other = rng.normal(size=(2, 150, 2))
    target = 300 + 40 * own[:, 0] - 70 * other[:, 1] + 5 * rng.normal(size=150)
    return Problem(target, {"a": own[:, 0], "b": own[:, 1]}, {"c": other[:, 0], "d": other[:, 1]}, "points")


def test_every_model_is_measured_on_the_same_rows() -> None:
    problem = made_up()
    found = product(problem, linear(80), 1)
    assert found["both"]["rmse"] == pytest.approx(closed_form(problem, 1), rel=1e-4)
    assert found["both"]["rmse"] < 0.2 * found["alone"]["rmse"] < found["constant"]["rmse"]
    others = library(problem, *held_out(150, 1))
    assert others["scikit-learn linear regression, both"]["rmse"] == pytest.approx(closed_form(problem, 1))
    splits = [{"the mean": found["constant"], "split network, both": found["both"], **others} for _ in range(2)]
    table = page({"made up": {"rows": 150, "own": 2, "other": 2, "unit": problem.unit, "splits": splits}})
    assert len(table.splitlines()) == 6 + 6


def test_half_of_the_records_are_given_to_both_parties() -> None:
    problem = made_up()
    own, others = map(set, union.give_out(problem, 3))
    assert (len(own), len(others), len(own & others), len(own | others)) == (113, 113, 76, 150)
    assert [*map(set, union.give_out(problem, 4))] != [own, others]
    for protocol, rows in (("psi", 76), ("psu", 150)):
        (table, view), (other, theirs) = union.align(problem, protocol, 3)
        assert len(view) == len(theirs) == rows
        assert (view.owned & theirs.owned).sum() == 76
        assert (view.peer.missing, theirs.peer.missing) == ((~theirs.owned).sum(), (~view.owned).sum())
        for place in np.flatnonzero(view.owned & theirs.owned)[:5]:  # the same record on both sides
            assert table.ids[int(view.rows[place])] == other.ids[int(theirs.rows[place])]


def test_the_plan_quotes_what_was_measured_over_a_union() -> None:
    """In the text, on the page, and in the file of results."""
    docs = Path(__file__).parents[2] / "docs" / "experiments"
    results = json.loads((docs / "regression-union.json").read_text())
    assert (docs / "regression-union.md").read_text() == union.page(results)
    for draws in results.values():
        assert len(draws) == union.DRAWS
        psi, psu = (np.array([draw[protocol]["both"] for draw in draws]) for protocol in union.PROTOCOLS)
        quoted = f"{psu.mean():.3f} ± {psu.std(ddof=1):.3f} in place of {psi.mean():.3f}"
        assert quoted.replace("0.", ".") in REGRESSION_LOSS


@pytest.mark.data
@pytest.mark.parametrize(("name", "rows", "own", "other"), [("motor", 800, 4, 7), ("student", 395, 6, 7), ("hdb", 7900, 10, 9)])
def test_real_tables_have_their_shape(shared_data: Path, name: str, rows: int, own: int, other: int) -> None:
    problem = load(name, shared_data)
    assert (len(problem.target), len(problem.own), len(problem.other)) == (rows, own, other)
    columns = np.stack([problem.target, *problem.own.values(), *problem.other.values()])
    assert np.isfinite(columns).all()
    assert (columns.std(axis=1) > 0).all()


@pytest.mark.slow
@pytest.mark.data
def test_a_motors_speed_needs_both_parties(shared_data: Path) -> None:
    problem = load("motor", shared_data)
    by_lines = product(problem, linear(60), 0)
    assert by_lines["both"]["rmse"] == pytest.approx(closed_form(problem, 0), rel=0.06)  # correlated columns take longer
    assert by_lines["both"]["r2"] > 0.9 > 0.5 > by_lines["alone"]["r2"]
    network = Train.model_validate({"task": "regression", "epochs": 25, "batch_size": 32, "learning_rate": 2e-3})
    assert product(problem, network, 0)["both"]["r2"] > 0.98
