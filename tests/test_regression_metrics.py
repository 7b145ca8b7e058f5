from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as oracle

from vfl_node.crypto.randomness import Randomness
from vfl_node.job.evaluate import METRICS as OF_TASK
from vfl_node.metrics.numbers import METRICS, RANGE, PredictedNumbers, actual_by_prediction
from vfl_node.training.intervals import DRAWS, row_intervals

NAMES = OF_TASK["regression"]
SEED = b"which held-out rows are resampled"[:32]


def sample(rows: int, seed: int = 0, scale: float = 1.0) -> tuple[np.ndarray, PredictedNumbers]:
    rng = np.random.default_rng(seed)
    targets = rng.normal(100, 20, rows)
    return targets * scale, PredictedNumbers((targets + rng.normal(0, 8, rows)) * scale)


def test_they_are_the_librarys() -> None:
    targets, model = sample(200)
    assert model.metrics(NAMES, targets) == {
        "rmse": pytest.approx(oracle.root_mean_squared_error(targets, model.values)),
        "mae": pytest.approx(oracle.mean_absolute_error(targets, model.values)),
        "r2": pytest.approx(oracle.r2_score(targets, model.values)),
        "mse": pytest.approx(oracle.mean_squared_error(targets, model.values)),
    }
    assert set(NAMES) == set(METRICS) == set(RANGE) - {"deviance", "d2"}  # which are of counts: tests/training/test_counts.py


def test_weights_count_rows_as_often() -> None:
    targets, model = sample(60)
    weights = np.random.default_rng(1).integers(0, 4, (5, 60)).astype(float)
    found = model.compute_weighted(NAMES, targets, weights)
    for draw, counts in enumerate(weights.astype(int)):
        repeated = np.repeat(targets, counts)
        expected = PredictedNumbers(np.repeat(model.values, counts)).metrics(NAMES, repeated)
        assert {name: found[name][draw] for name in NAMES} == pytest.approx(expected)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6)), min_size=1, max_size=30),
    st.sampled_from([1e-90, 1e-6, 1.0, 1e6, 1e90]),
)
def test_they_stay_in_their_range_in_any_unit(rows: list[tuple[float, float]], unit: float) -> None:
    targets, said = unit * np.array(rows).T
    for name, value in PredictedNumbers(said).metrics(NAMES, targets).items():
        if value is not None:
            low, high = RANGE[name]
            assert low <= value <= high
    assert PredictedNumbers(targets).metrics(["mse"], targets)["mse"] == 0


def test_r2_of_a_mean_is_zero_and_of_worse_below() -> None:
    targets, _ = sample(50)
    assert PredictedNumbers.constant(targets.mean(), 50).metrics(["r2"], targets)["r2"] == pytest.approx(0, abs=1e-12)
    assert PredictedNumbers.constant(0.0, 50).metrics(["r2"], targets)["r2"] < -10
    assert PredictedNumbers(targets).metrics(["r2"], targets)["r2"] == 1


def test_what_is_not_defined_is_none() -> None:
    nothing = np.empty(0)
    assert PredictedNumbers(nothing).metrics(NAMES, nothing) == dict.fromkeys(NAMES)
    same = np.full(9, 0.1)
    assert PredictedNumbers(np.arange(9.0)).metrics(["r2"], same) == {"r2": None}
    with pytest.raises(ValueError, match="NaN"):
        PredictedNumbers(np.array([math.nan])).metrics(["mse"], np.ones(1))


def test_groups_have_equal_size_and_their_means() -> None:
    targets, model = sample(155)
    groups = actual_by_prediction(targets, model.values)
    assert [rows for *_, rows in groups] == [10] * 14 + [15]
    order = np.argsort(model.values)[:10]
    assert groups[0] == (pytest.approx(model.values[order].mean()), pytest.approx(targets[order].mean()), 10)
    assert [said for said, *_ in groups] == sorted(said for said, *_ in groups)
    assert actual_by_prediction(targets, np.ones(155)) == [(1.0, pytest.approx(targets.mean()), 155)]
    assert actual_by_prediction(np.empty(0), np.empty(0)) == []


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_intervals_hold_the_true_value_in_any_unit(scale: float) -> None:
    """Of 100 samples about 95 do; and the intervals scale with the unit."""
    covered = 0
    for seed in range(100):
        targets, model = sample(150, seed, scale)
        (found,), _ = row_intervals(["rmse"], targets, [model], 0.5, Randomness(SEED))
        covered += found["rmse"]["low"] < 8 * scale < found["rmse"]["high"]
        if scale != 1.0 and seed == 5:
            break
    else:
        assert 88 <= covered <= 99
    assert found["rmse"]["sd"] == pytest.approx(8 * scale / math.sqrt(2 * 150), rel=0.4)


def test_intervals_stay_in_range_and_differences_are_paired() -> None:
    rng = np.random.default_rng(2)
    targets = rng.normal(size=6)
    good, bad = PredictedNumbers(targets + 0.01 * rng.normal(size=6)), PredictedNumbers(rng.normal(size=6))
    (ours, theirs), (gains,) = row_intervals(NAMES, targets, [good, bad], 0.5, Randomness(SEED))
    for of in (ours, theirs):
        for name, interval in of.items():
            assert RANGE[name][0] <= interval["low"] <= interval["mean"] <= interval["high"] <= RANGE[name][1]
            assert interval["method"] == "bootstrap"
    assert gains["r2"]["high"] > 1  # a difference has no such bound
    _, same = row_intervals(NAMES, targets, [good, good], 0.5, Randomness(SEED))
    assert same == [{}]
    assert DRAWS == 400
