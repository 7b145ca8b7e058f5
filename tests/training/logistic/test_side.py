"""One party's linear model, and the decoys for rows it does not own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from vfl_node.crypto.randomness import Randomness
from vfl_node.data.design import Design
from vfl_node.errors import DataError
from vfl_node.training.glm import side as module
from vfl_node.training.glm.side import START_SCORES, START_WEIGHTS, Side, check_finite, find_varied

ROWS = np.array([3, -1, 0, 7, -1, -1, 5], dtype=np.int64)
OWNED = [0, 2, 3, 6]
ALL = np.arange(7)


def design(columns: int = 3, rows: int = 8, seed: int = 0) -> Design:
    rng = np.random.default_rng(seed)
    integers = rng.integers(-1000, 1000, (rows, columns))
    return Design(integers, rng.uniform(0.001, 0.01, columns), *2 * (tuple(f"x{k}" for k in range(columns)),))


def made(train: Any, *, columns: int = 3, intercept: bool = True, seed: int = 0, used: Any = None, rows: Any = ROWS) -> Side:
    of = design(columns)
    used = np.ones(columns, np.bool_) if used is None else np.array(used)
    return Side(rows, of, used, train, Randomness(bytes([seed]) * 32), intercept=intercept)


def test_own_rows_are_its_own_and_the_others_decoys(logistic: Any) -> None:
    of, table = made(logistic()), design()
    assert of.owned.tolist() == (ROWS >= 0).tolist()
    assert of.width == 4
    expected = np.column_stack([table.integers, np.ones(8, np.int64)])
    np.testing.assert_array_equal(of.take(np.array(OWNED)), expected[ROWS[OWNED]])
    possible = {tuple(row) for row in expected.tolist()}
    assert all(tuple(row) in possible for row in of.take(ALL).tolist())
    assert made(logistic(), seed=1).take(ALL).tolist() != of.take(ALL).tolist()
    assert made(logistic()).take(ALL).tolist() == of.take(ALL).tolist()  # after a restart the same


def test_many_decoys_are_drawn_evenly_from_its_own_rows(logistic: Any) -> None:
    of = made(logistic(), rows=np.full(8000, -1, dtype=np.int64), intercept=False)
    kinds, counts = np.unique(of.take(np.arange(8000)), axis=0, return_counts=True)
    assert len(kinds) == 8
    assert counts.min() > 850


@pytest.mark.parametrize("classes", [2, 4])
def test_scores_and_gradients_are_those_of_the_columns(logistic: Any, monkeypatch: pytest.MonkeyPatch, classes: int) -> None:
    of, table = made(logistic(classes=classes)), design()
    x = np.column_stack([table.values, np.ones(8)])[ROWS[OWNED]]
    np.testing.assert_allclose(of.scores(np.array(OWNED)), x @ of.weights, rtol=1e-12)
    residuals = np.random.default_rng(1).normal(size=(4, of.weights.shape[1]))
    np.testing.assert_allclose(of.gradient(np.array(OWNED), residuals), x.T @ residuals, rtol=1e-12)
    whole = of.scores(ALL), of.gradient(ALL, np.ones((7, of.weights.shape[1])))
    monkeypatch.setattr(module, "ROWS_AT_ONCE", 2)
    np.testing.assert_allclose(of.scores(ALL), whole[0], rtol=1e-12)
    np.testing.assert_allclose(of.gradient(ALL, np.ones((7, of.weights.shape[1]))), whole[1], rtol=1e-12)
    assert of.scores(ALL[:0]).shape == (0, of.weights.shape[1])


def test_exact_sums_become_a_gradient(logistic: Any) -> None:
    of = made(logistic(classes=4), intercept=False)
    sums = [[(1 << 90) * (row + 1) * (column - 1) for column in range(4)] for row in range(3)]
    expected = np.outer([1, 2, 3], [-1, 0, 1, 2]) * 4.0 * design().steps[:, None]
    np.testing.assert_array_equal(of.decode_sums(sums, 88), expected)


def test_the_start_is_small_private_and_of_known_spread(logistic: Any) -> None:
    of = made(logistic(classes=4), intercept=False)
    assert 0 < np.abs(of.weights).max() <= START_WEIGHTS
    assert not np.array_equal(of.weights, made(logistic(classes=4), intercept=False, seed=1).weights)
    rows = np.arange(4000)
    names = tuple("abc")
    table = Design(np.random.default_rng(0).integers(-1000, 1000, (4000, 3)), np.ones(3) / 1000, names, names)
    spread = Side(rows, table, np.ones(3, np.bool_), logistic(classes=4), Randomness(bytes(32)), intercept=True)
    before = spread.scores(rows).std(axis=0)
    spread.spread(rows, Randomness(b"s" * 32))
    np.testing.assert_allclose(spread.scores(rows).std(axis=0), START_SCORES, rtol=1e-9)
    assert before.max() < 0.05
    assert len(np.unique(spread.weights[-1])) == 4
    once = spread.weights.copy()
    spread.spread(rows, Randomness(b"s" * 32))
    np.testing.assert_array_equal(spread.weights, once)


@pytest.mark.parametrize("rows", [3, 120, 225, 245])
def test_columns_that_do_not_vary_there_get_no_start(logistic: Any, rows: int) -> None:
    """Their deviation is rounding, of which nothing may be made."""
    of = made(logistic(), rows=np.full(rows, 2))
    for number in range(5):
        of.spread(np.arange(rows), Randomness(bytes([number]) * 32))
        assert of.weights[:-1].tolist() == [[0.0]] * 3
        assert 0 < abs(of.weights[-1, 0]) < 3
    nothing = made(logistic(), columns=0)
    nothing.spread(np.array(OWNED), Randomness(bytes(32)))
    assert len(np.unique(nothing.scores(ALL))) == 1


def test_a_step_decays_all_but_the_intercept(logistic: Any) -> None:
    of = made(logistic(l2=0.5, learning_rate=0.1))
    before, gradient = of.weights.copy(), np.arange(4.0)[:, None]
    of.update(gradient)
    np.testing.assert_allclose(of.weights[:3], before[:3] - 0.1 * (gradient[:3] + 0.5 * before[:3]))
    np.testing.assert_allclose(of.weights[3], before[3] - 0.1 * 3)
    without = made(logistic(l2=0.5, learning_rate=0.1), intercept=False)
    last = without.weights[2].copy()
    without.update(np.zeros((3, 1)))
    np.testing.assert_allclose(without.weights[2], last * 0.95)


def test_the_model_has_every_column_of_the_design(logistic: Any) -> None:
    of = made(logistic(classes=4), used=[True, False, True])
    model = of.model()
    assert model["weight"].shape == (4, 3)
    assert model["weight"][:, 1].tolist() == [0] * 4
    np.testing.assert_array_equal(model["weight"][:, [0, 2]].numpy(), of.weights[:2].T)
    np.testing.assert_array_equal(model["bias"].numpy(), of.weights[2])
    assert set(made(logistic(), intercept=False).model()) == {"weight"}


def test_a_checkpoint_is_a_copy(logistic: Any) -> None:
    of = made(logistic())
    saved = of.tensors()
    before = of.weights.copy()
    of.update(np.ones((4, 1)))
    other = made(logistic(), seed=1)
    other.restore(saved)
    np.testing.assert_array_equal(other.weights, before)
    other.update(np.ones((4, 1)))
    assert torch.equal(saved["weights"], torch.from_numpy(before))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_any_more_has_diverged(logistic: Any, value: float) -> None:
    with pytest.raises(DataError, match="diverged") as caught:
        check_finite(np.array([1.0, value]))
    assert caught.value.code == "E_DIVERGED"
    assert "learning_rate" in caught.value.hint
    of = made(logistic())
    with pytest.raises(DataError, match="E_DIVERGED"):
        of.update(np.full((4, 1), value))
    of.weights[0] = value
    with pytest.raises(DataError, match="E_DIVERGED"):
        of.scores(ALL)


def test_rare_columns_are_found_whatever_their_usual_value() -> None:
    columns = np.zeros((10, 5), np.int64)
    columns[:3, 0] = 1
    columns[:, 1] = 7
    columns[:2, 1] = [5, 6]
    columns[:, 2] = np.arange(10)
    columns[:5, 3] = -4
    assert find_varied(columns, 3).tolist() == [True, False, True, True, False]
    assert find_varied(columns, 0).all()
    assert find_varied(columns, 5).tolist() == [False, False, True, True, False]
    assert find_varied(columns[:0], 1).tolist() == [False] * 5
