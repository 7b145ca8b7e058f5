from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from vfl_node import metrics

STEADY = settings(deadline=None, derandomize=True)

Y, P = np.array([0, 0, 1, 1]), np.array([0.1, 0.2, 0.6, 0.9])

few_scores = st.sampled_from([-2.0, 0.0, 0.25, 0.5, 1.0, 3.0])  # ties are common
any_scores = st.floats(-1e6, 1e6)
probabilities = st.floats(0, 1)


@st.composite
def predictions(draw: st.DrawFn, scores: st.SearchStrategy[float]) -> tuple[np.ndarray, np.ndarray]:
    """Labels of both classes, and as many scores."""
    rows = draw(st.integers(2, 60))
    labels = np.array(draw(st.permutations([0, 1, *draw(st.lists(st.integers(0, 1), min_size=rows - 2, max_size=rows - 2))])))
    return labels, draw(hnp.arrays(np.float64, rows, elements=scores))


@STEADY
@given(st.one_of(predictions(few_scores), predictions(any_scores)))
def test_auc_is_scikit_learns(of: tuple[np.ndarray, np.ndarray]) -> None:
    oracle = pytest.importorskip("sklearn.metrics")
    assert metrics.auc(*of) == pytest.approx(oracle.roc_auc_score(*of), abs=1e-12)


@STEADY
@given(predictions(probabilities))
def test_nll_and_accuracy_are_scikit_learns(of: tuple[np.ndarray, np.ndarray]) -> None:
    oracle = pytest.importorskip("sklearn.metrics")
    labels, p = of
    clipped = np.clip(p, metrics.EPSILON, 1 - metrics.EPSILON)
    assert metrics.nll(labels, p) == pytest.approx(oracle.log_loss(labels, clipped), rel=1e-9)
    assert metrics.accuracy(labels, p) == pytest.approx(oracle.accuracy_score(labels, p >= 0.5))


@STEADY
@given(predictions(few_scores))
def test_auc_counts_pairs(of: tuple[np.ndarray, np.ndarray]) -> None:
    labels, scores = of
    pairs = [(a > b) + (a == b) / 2 for a in scores[labels == 1] for b in scores[labels == 0]]
    assert metrics.auc(labels, scores) == pytest.approx(sum(pairs) / len(pairs))
    assert metrics.auc(labels, -scores) == pytest.approx(1 - sum(pairs) / len(pairs))  # never folded


def test_ace_of_the_known_example() -> None:
    assert metrics.ace(Y, P, ranges=2) == pytest.approx(0.2)


def test_ranges_have_equal_mass_and_the_last_takes_the_rest() -> None:
    rng = np.random.default_rng(0)
    p = rng.permutation(np.linspace(0, 1, 47))
    curve = metrics.calibration_curve(rng.integers(0, 2, 47), p)
    assert [count for *_, count in curve] == [3] * 14 + [5]
    assert [confidence for confidence, *_ in curve] == sorted(confidence for confidence, *_ in curve)
    assert curve[0][0] == pytest.approx(np.sort(p)[:3].mean())


def test_fewer_rows_than_ranges_are_a_range_each() -> None:
    assert metrics.calibration_curve(Y, P) == [(0.1, 0, 1), (0.2, 0, 1), (0.6, 1, 1), (0.9, 1, 1)]
    assert metrics.ace(Y, P) == pytest.approx((0.1 + 0.2 + 0.4 + 0.1) / 4)


@pytest.mark.parametrize("rows", [1, 14, 15, 100])
def test_equal_predictions_are_one_range(rows: int) -> None:
    labels = (np.arange(rows) < 0.3 * rows).astype(np.float32)
    assert metrics.ace(labels, np.full(rows, 0.3)) == pytest.approx(abs(labels.mean() - 0.3))
    assert len(metrics.calibration_curve(labels, np.full(rows, 0.3))) == 1


@STEADY
@given(predictions(probabilities), st.integers(1, 20))
def test_the_curve_accounts_for_every_row(of: tuple[np.ndarray, np.ndarray], ranges: int) -> None:
    labels, p = of
    curve = metrics.calibration_curve(labels, p, ranges)
    assert sum(count for *_, count in curve) == len(labels)
    assert sum(frequency * count for _, frequency, count in curve) == pytest.approx(labels.sum())
    assert all(0 <= confidence <= 1 and 0 <= frequency <= 1 for confidence, frequency, _ in curve)
    assert 0 <= (metrics.ace(labels, p, ranges) or 0) <= 1


def test_calibrated_predictions_have_a_small_ace_and_shifted_ones_a_large_one() -> None:
    rng = np.random.default_rng(1)
    p = rng.uniform(0, 1, 20_000)
    labels = rng.uniform(0, 1, 20_000) < p
    assert (metrics.ace(labels, p) or 1) < 0.02
    assert metrics.ace(labels, p / 2) == pytest.approx(0.25, abs=0.02)


def test_what_is_not_defined_is_none() -> None:
    none = np.array([])
    assert metrics.compute(["auc", "ace", "nll", "accuracy"], none, none, none) == dict.fromkeys(
        ["auc", "ace", "nll", "accuracy"]
    )
    for label in (0, 1):
        assert metrics.auc(np.full(3, label), np.array([0.1, 0.2, 0.3])) is None


def of_three_classes(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels of three classes and probabilities that know something of them."""
    rng = np.random.default_rng(rows)
    labels = np.r_[0, 1, 2, rng.integers(0, 3, rows - 3)].astype(np.float32)
    raw = np.round(rng.uniform(0.1, 1, (rows, 3)) + (labels[:, None] == np.arange(3)) * 0.5, 1)  # with ties
    return labels, raw / raw.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("rows", [3, 10, 500])
def test_metrics_of_several_classes_are_scikit_learns(rows: int) -> None:
    oracle = pytest.importorskip("sklearn.metrics")
    labels, p = of_three_classes(rows)
    assert metrics.multiclass_accuracy(labels, p) == pytest.approx(oracle.accuracy_score(labels, p.argmax(axis=1)))
    expected = oracle.roc_auc_score(labels, p, multi_class="ovr", average="macro")
    assert metrics.macro_auc(labels, p) == pytest.approx(expected, abs=1e-12)


def test_of_equal_probabilities_the_first_class_counts() -> None:
    assert metrics.multiclass_accuracy(np.array([0, 1, 2]), np.full((3, 3), 1 / 3)) == pytest.approx(1 / 3)
    assert metrics.multiclass_accuracy(np.array([2, 2]), np.array([[0, 0.5, 0.5], [0, 0.4, 0.6]])) == 0.5


def test_macro_auc_weighs_classes_alike_and_leaves_out_absent_ones() -> None:
    labels = np.array([0, 0, 0, 2, 2])
    scores = np.array([[0.9, 0, 0.1], [0.8, 0, 0.7], [0.2, 0, 0.2], [0.4, 0, 0.5], [0.3, 0, 0.6]])
    of_0, of_2 = metrics.auc(labels == 0, scores[:, 0]), metrics.auc(labels == 2, scores[:, 2])
    assert (of_0, of_2) == (4 / 6, 4 / 6)
    assert metrics.macro_auc(labels, scores) == pytest.approx(4 / 6)
    scores[:, 2] *= -1
    assert metrics.macro_auc(labels, scores) == pytest.approx((4 / 6 + 2 / 6) / 2)


def test_metrics_of_several_classes_are_none_where_not_defined() -> None:
    assert metrics.multiclass_accuracy(np.array([]), np.empty((0, 3))) is None
    assert metrics.macro_auc(np.array([]), np.empty((0, 3))) is None
    assert metrics.macro_auc(np.array([1, 1]), np.full((2, 3), 0.3)) is None


@pytest.mark.parametrize("metric", [metrics.multiclass_accuracy, metrics.macro_auc])
def test_nan_is_refused_of_several_classes(metric: metrics.Metric) -> None:
    with pytest.raises(ValueError, match="NaN"):
        metric(np.array([0, 1]), np.array([[0.1, 0.9], [np.nan, 0.2]]))


@pytest.mark.parametrize("name", [*metrics.RANKING, *metrics.PROBABILISTIC])
def test_nan_is_refused(name: str) -> None:
    broken = np.array([0.1, np.nan, 0.2, 0.3])
    with pytest.raises(ValueError, match="NaN"):
        metrics.compute([name], Y, broken, broken)


def test_a_certain_error_has_a_finite_price() -> None:
    assert metrics.nll(np.array([1]), np.array([0.0])) == pytest.approx(-math.log(metrics.EPSILON))


def test_compute_ranks_scores_and_measures_probabilities() -> None:
    scores = np.array([-0.4, 1.2, 2.0, 1.4])
    clipped = np.clip(scores, 0, 1)
    found = metrics.compute(["auc", "nll", "accuracy", "ace"], np.array([0, 0, 1, 0]), scores, clipped)
    assert list(found) == ["auc", "nll", "accuracy", "ace"]
    assert found["auc"] == 1
    assert metrics.auc(np.array([0, 0, 1, 0]), clipped) == pytest.approx(2 / 3)  # clipping has tied what was ranked
    assert found["accuracy"] == 0.5
    assert all(isinstance(value, float) for value in found.values())


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.99])
@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 9, 10, 29, 100, 999])
def test_student_t_is_scipys(confidence: float, degrees: int) -> None:
    oracle = pytest.importorskip("scipy.stats")
    assert metrics.student_t(confidence, degrees) == pytest.approx(oracle.t.ppf((1 + confidence) / 2, degrees), rel=1e-10)


def test_student_t_of_the_printed_tables() -> None:
    assert [round(metrics.student_t(0.95, degrees), 3) for degrees in (1, 2, 5, 9, 30)] == [12.706, 4.303, 2.571, 2.262, 2.042]


def test_the_interval_is_widened_for_overlapping_training_sets() -> None:
    values = [0.80, 0.82, 0.84, 0.86, 0.88]
    found = metrics.interval(values, train_rows=800, test_rows=200)
    assert found["mean"] == pytest.approx(0.84)
    assert found["sd"] == pytest.approx(np.std(values, ddof=1))
    half = 2.7764451 * found["sd"] * math.sqrt(1 / 5 + 1 / 4)
    assert (found["low"], found["high"]) == pytest.approx((0.84 - half, 0.84 + half))


def test_equal_values_have_an_interval_of_no_width() -> None:
    assert metrics.interval([0.5, 0.5], 10, 5) == {"mean": 0.5, "sd": 0, "low": 0.5, "high": 0.5}


@pytest.mark.parametrize(("values", "train_rows"), [([0.5], 10), ([], 10), ([0.5, 0.6], 0)])
def test_too_little_for_an_interval_is_refused(values: list[float], train_rows: int) -> None:
    with pytest.raises(ValueError, match="two values"):
        metrics.interval(values, train_rows, 5)
