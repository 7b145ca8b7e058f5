from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from vfl_node.job.evaluate import METRICS
from vfl_node.metrics import classes as metrics
from vfl_node.metrics.weighted import EPSILON

NAMES = METRICS["classification"]

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
    clipped = np.clip(p, EPSILON, 1 - EPSILON)
    assert metrics.nll(labels, p) == pytest.approx(oracle.log_loss(labels, clipped), rel=1e-9)
    assert metrics.accuracy(labels, p) == pytest.approx(oracle.accuracy_score(labels, p >= 0.5))


@STEADY
@given(predictions(few_scores))
def test_auc_counts_pairs(of: tuple[np.ndarray, np.ndarray]) -> None:
    labels, scores = of
    pairs = [(a > b) + (a == b) / 2 for a in scores[labels == 1] for b in scores[labels == 0]]
    assert metrics.auc(labels, scores) == pytest.approx(sum(pairs) / len(pairs))
    assert metrics.auc(labels, -scores) == pytest.approx(1 - sum(pairs) / len(pairs))  # never folded


@STEADY
@given(st.one_of(predictions(few_scores), predictions(any_scores)))
def test_average_precision_and_ks_are_those_of_the_libraries(of: tuple[np.ndarray, np.ndarray]) -> None:
    oracle, stats = pytest.importorskip("sklearn.metrics"), pytest.importorskip("scipy.stats")
    labels, scores = of
    assert metrics.pr_auc(*of) == pytest.approx(oracle.average_precision_score(*of), abs=1e-12)
    assert metrics.ks(*of) == pytest.approx(
        stats.ks_2samp(scores[labels == 1], scores[labels == 0], method="asymp").statistic, abs=1e-12
    )


@STEADY
@given(predictions(probabilities), st.sampled_from([0.1, 0.5, 0.8]))
def test_decisions_are_scikit_learns(of: tuple[np.ndarray, np.ndarray], threshold: float) -> None:
    oracle = pytest.importorskip("sklearn.metrics")
    labels, p = of
    assert metrics.accuracy(labels, p, threshold) == pytest.approx(oracle.accuracy_score(labels, p >= threshold))
    assert metrics.f1(labels, p, threshold) == pytest.approx(oracle.f1_score(labels, p >= threshold))
    assert metrics.confusion(labels, p, threshold) == oracle.confusion_matrix(labels, p >= threshold, labels=[0, 1]).tolist()
    assert metrics.compute(["accuracy", "f1"], labels, p, p, threshold) == {
        "accuracy": metrics.accuracy(labels, p, threshold),
        "f1": metrics.f1(labels, p, threshold),
    }


def test_lift_of_the_top_tenth() -> None:
    labels = np.repeat([1, 0], [5, 15])
    assert metrics.lift(labels, np.linspace(1, 0, 20)) == pytest.approx(4)  # both of the top two, of a quarter in all
    assert metrics.lift(labels, np.linspace(0, 1, 20)) == 0
    assert metrics.lift(labels, np.zeros(20)) == pytest.approx(1)
    tied = np.r_[0.9, np.full(4, 0.5), np.full(5, 0.5), np.zeros(10)]  # the best, then 4 positives among 9 that are equal
    assert metrics.lift(labels, tied) == pytest.approx((1 + 4 / 9) / 2 / (5 / 20))
    assert metrics.lift(labels[:15], np.linspace(1, 0, 15)) == pytest.approx(3)  # the top 1½ rows
    assert metrics.lift(np.array([1, 0]), np.array([1, 0])) == pytest.approx(2)  # a fifth of a row
    assert metrics.lift(np.ones(4), np.arange(4)) == pytest.approx(1)


@STEADY
@given(predictions(few_scores))
def test_lift_is_the_mean_over_orders_of_ties(of: tuple[np.ndarray, np.ndarray]) -> None:
    labels, scores = of
    rows = 10 * len(labels)  # so that the top tenth is whole rows
    labels, scores = np.tile(labels, 10), np.tile(scores, 10)
    above = np.sort(scores)[::-1][rows // 10 - 1]
    chosen, ties = scores > above, scores == above
    expected = labels[chosen].sum() + labels[ties].mean() * (rows // 10 - chosen.sum())
    assert metrics.lift(labels, scores) == pytest.approx(expected / (rows // 10) / labels.mean())


@STEADY
@given(st.one_of(predictions(few_scores), predictions(probabilities)))
def test_no_metric_leaves_its_range(of: tuple[np.ndarray, np.ndarray]) -> None:
    labels, scores = of
    for name, value in metrics.compute(NAMES, labels, scores, np.clip(scores, 0, 1)).items():
        assert value is not None
        assert 0 <= value <= metrics.UPPER[name] + 1e-9, name


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
    assert metrics.compute(NAMES, none, none, none) == dict.fromkeys(NAMES)
    for label in (0, 1):
        for two_kinds in (metrics.auc, metrics.ks):
            assert two_kinds(np.full(3, label), np.array([0.1, 0.2, 0.3])) is None
    for of_positives in (metrics.pr_auc, metrics.lift, metrics.f1):
        assert of_positives(np.zeros(3), np.array([0.1, 0.2, 0.3])) is None
    assert metrics.f1(np.array([0, 1]), np.array([0.1, 0.2])) == 0  # a positive, and none found
    assert metrics.f1(np.array([0, 0]), np.array([0.1, 0.9])) == 0


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
    assert metrics.macro_pr_auc(labels, p) == pytest.approx(oracle.average_precision_score(labels, p, average="macro"))
    guessed = p.argmax(axis=1)
    assert metrics.macro_f1(labels, p) == pytest.approx(oracle.f1_score(labels, guessed, average="macro"))
    assert metrics.confusion(labels, p) == oracle.confusion_matrix(labels, guessed, labels=[0, 1, 2]).tolist()


def test_f1_of_several_classes_leaves_out_those_that_are_nowhere() -> None:
    labels, p = np.array([0, 0, 1]), np.array([[0.9, 0.1, 0], [0.4, 0.6, 0], [0.3, 0.7, 0]])
    assert metrics.macro_f1(labels, p) == pytest.approx(2 / 3)
    p[0] = 0, 0, 1
    assert metrics.macro_f1(labels, p) == pytest.approx((0 + 2 / 3 + 0) / 3)


def test_what_is_of_two_classes_only_is_none_of_more() -> None:
    labels, p = of_three_classes(10)
    found = metrics.compute(NAMES, labels, p, p)
    assert {name for name, value in found.items() if value is None} == {"ks", "lift"}
    assert found["pr_auc"] == metrics.macro_pr_auc(labels, p)


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


@pytest.mark.parametrize("name", [*metrics.RANKING, *metrics.CALIBRATION, *metrics.DECISIONS])
def test_nan_is_refused(name: str) -> None:
    broken = np.array([0.1, np.nan, 0.2, 0.3])
    with pytest.raises(ValueError, match="NaN"):
        metrics.compute([name], Y, broken, broken)


def test_a_certain_error_has_a_finite_price() -> None:
    assert metrics.nll(np.array([1]), np.array([0.0])) == pytest.approx(-math.log(EPSILON))


def test_compute_ranks_scores_and_measures_probabilities() -> None:
    scores = np.array([-0.4, 1.2, 2.0, 1.4])
    clipped = np.clip(scores, 0, 1)
    found = metrics.compute(["auc", "nll", "accuracy", "ace"], np.array([0, 0, 1, 0]), scores, clipped)
    assert list(found) == ["auc", "nll", "accuracy", "ace"]
    assert found["auc"] == 1
    assert metrics.auc(np.array([0, 0, 1, 0]), clipped) == pytest.approx(2 / 3)  # clipping has tied what was ranked
    assert found["accuracy"] == 0.5
    assert all(isinstance(value, float) for value in found.values())
