"""A number as one of eight levels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from vfl_node.data.quantile_levels import QuantileLevels
from vfl_node.job.names import LEVELS

STEADY = settings(deadline=None, derandomize=True)
NAN = float("nan")
NUMBERS = st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers(-3, 3).map(float))


def fitted(values: list[float] | np.ndarray, least: int = 1) -> QuantileLevels:
    return QuantileLevels.fit("x", None, np.sort(np.array(values, np.float64)), lambda count: count >= least)


def test_different_numbers_are_in_eight_levels_of_one_size() -> None:
    levels = fitted(np.arange(800.0))
    assert levels.cardinality == LEVELS == 8
    assert np.bincount(levels.apply(np.arange(800.0))).tolist() == [100] * 8
    assert levels.edges == tuple(range(100, 800, 100))
    assert levels.method is None


def test_numbers_beyond_the_fitted_ones_are_in_the_outer_levels_and_missing_ones_in_none() -> None:
    levels = fitted(np.arange(80.0))
    assert levels.apply(np.array([-1e308, 1e308, NAN, np.inf, -np.inf])).tolist() == [0, 7, -1, 7, 0]


def test_equal_numbers_are_in_one_level() -> None:
    levels = fitted([0.0] * 50 + [1.0] * 30 + [2.0] * 20)
    assert levels.cardinality == 3
    assert levels.apply(np.array([-9.0, 0.0, -0.0, 0.5, 1.0, 1.5, 2.0])).tolist() == [0, 0, 0, 0, 1, 1, 2]


def test_a_level_that_too_few_have_has_no_code_and_the_others_are_counted_on() -> None:
    values = [0.0] * 40 + [1.0] * 15 + [2.0] * 45
    levels = fitted(values, least=20)
    assert levels.levels == (0, 2)
    assert levels.apply(np.array([0.0, 1.0, 2.0])).tolist() == [0, -1, 1]
    nothing = fitted(values, least=50)
    assert nothing.cardinality == 0
    assert nothing.apply(np.array([0.0, 1.0, NAN])).tolist() == [-1, -1, -1]


@pytest.mark.parametrize("values", [[], [7.0], [7.0] * 9])
def test_without_differences_there_is_one_level_at_most(values: list[float]) -> None:
    assert fitted(values).apply(np.array([7.0, NAN])).tolist() == ([0, -1] if values else [-1, -1])


@STEADY
@given(st.lists(NUMBERS, max_size=40), st.integers(0, 6))
def test_each_number_has_one_level_that_ascends_and_enough_have_it(values: list[float], least: int) -> None:
    levels = fitted(values, max(1, least))
    codes = levels.apply(np.sort(np.array(values, np.float64)))
    kept = codes[codes >= 0]
    assert (np.diff(kept) >= 0).all()
    counts = np.bincount(kept, minlength=levels.cardinality)
    assert len(counts) == levels.cardinality <= LEVELS
    assert (counts >= max(1, least)).all()
    assert QuantileLevels.model_validate_json(levels.model_dump_json()) == levels


@pytest.mark.parametrize(
    "change",
    [
        {"edges": [1.0, 1.0]},
        {"edges": [2.0, 1.0]},
        {"edges": [NAN]},
        {"levels": [1, 0]},
        {"levels": [0, 3]},
        {"levels": [-1, 0]},
    ],
    ids=str,
)
def test_what_is_damaged_is_no_encoding(change: dict[str, list[float]]) -> None:
    good = {"name": "x", "edges": [1.0, 2.0], "levels": [0, 2]}
    assert QuantileLevels.model_validate(good).cardinality == 2
    with pytest.raises(ValidationError):
        QuantileLevels.model_validate(good | change)
