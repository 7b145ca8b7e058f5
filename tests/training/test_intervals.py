"""Intervals of metrics: as published, within range, paired, the same every time, and as wide as they must be."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vfl_node.crypto.randomness import Randomness
from vfl_node.job.evaluate import METRICS
from vfl_node.metrics.classes import UPPER, ModelOutput, auc, compute
from vfl_node.training import intervals
from vfl_node.training.intervals import influence, repeats_interval, row_intervals, student_t

NAMES = METRICS["classification"]
SEED = b"the clinic's private randomness!"


def sample(rows: int, seed: int = 0, noise: float = 0.25) -> tuple[np.ndarray, ModelOutput]:
    """Labels of a third positives, and probabilities that know something of them; of much noise many are clipped."""
    rng = np.random.default_rng(seed)
    labels = (rng.random(rows) < 1 / 3).astype(np.float32)
    return labels, ModelOutput.clip(rng.normal(0.3 + 0.3 * labels, noise))


def unclipped(rows: int, seed: int) -> tuple[np.ndarray, ModelOutput]:
    """The same, with no probability near 0 or 1."""
    labels, output = sample(rows, seed)
    return labels, ModelOutput(output.scores, 0.1 + 0.8 * output.probabilities)


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.99])
@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 9, 10, 29, 100, 999])
def test_student_t_is_scipys(confidence: float, degrees: int) -> None:
    oracle = pytest.importorskip("scipy.stats")
    assert student_t(confidence, degrees) == pytest.approx(oracle.t.ppf((1 + confidence) / 2, degrees), rel=1e-10)


def test_student_t_of_the_printed_tables() -> None:
    assert [round(student_t(0.95, degrees), 3) for degrees in (1, 2, 5, 9, 30)] == [12.706, 4.303, 2.571, 2.262, 2.042]


# --- over repeats ---


def test_the_interval_is_widened_for_overlapping_training_sets() -> None:
    values = [0.80, 0.82, 0.84, 0.86, 0.88]
    found = repeats_interval(values, 800, 200, lowest=0, highest=1)
    assert found["mean"] == pytest.approx(0.84)
    assert found["sd"] == pytest.approx(np.std(values, ddof=1))
    half = 2.7764451 * found["sd"] * math.sqrt(1 / 5 + 1 / 4)
    assert (found["low"], found["high"]) == pytest.approx((0.84 - half, 0.84 + half))
    assert found["method"] == "repeats"


def test_it_ends_where_the_metric_does() -> None:
    high = repeats_interval([0.95, 0.99, 0.98], 80, 20, lowest=0, highest=1)
    assert (high["high"], high["low"] < 0.95) == (1, True)
    assert repeats_interval([0.01, 0.03], 80, 20, lowest=0, highest=1)["low"] == 0
    assert repeats_interval([-0.01, 0.03], 80, 20, lowest=-1, highest=1)["low"] < -0.01


def test_equal_values_have_an_interval_of_no_width() -> None:
    found = repeats_interval([0.5, 0.5], 10, 5, lowest=0, highest=1)
    assert found == {"mean": 0.5, "sd": 0, "low": 0.5, "high": 0.5, "method": "repeats"}


@pytest.mark.parametrize(("values", "train_rows"), [([0.5], 10), ([], 10), ([0.5, 0.6], 0)])
def test_too_little_for_an_interval_is_refused(values: list[float], train_rows: int) -> None:
    with pytest.raises(ValueError, match="two values"):
        repeats_interval(values, train_rows, 5, lowest=0, highest=1)


# --- DeLong ---


def test_influence_gives_delongs_variance_and_covariance() -> None:
    """Against the definition, by all pairs."""
    labels, first = sample(40)
    _, second = sample(40, seed=1)
    scores = [np.round(first.scores, 1), np.round(second.scores, 1)]  # with ties
    parts = [influence(labels, of) for of in scores]
    pairs = [np.sign(of[labels == 1][:, None] - of[labels == 0]) / 2 + 0.5 for of in scores]
    positives, negatives = pairs[0].shape
    for a in (0, 1):
        assert pairs[a].mean() == pytest.approx(auc(labels, scores[a]))
        for b in (0, 1):
            of_positives = np.cov(pairs[a].mean(axis=1), pairs[b].mean(axis=1))[0, 1]
            of_negatives = np.cov(pairs[a].mean(axis=0), pairs[b].mean(axis=0))[0, 1]
            assert parts[a] @ parts[b] == pytest.approx(of_positives / positives + of_negatives / negatives)


def test_the_interval_of_the_auc_is_symmetric_in_logits_and_within_its_range() -> None:
    labels, output = sample(60, noise=0.12)
    (found,), _ = row_intervals(["auc"], labels, [output], 0.5, Randomness(SEED))
    of = found["auc"]
    low, mean, high = (math.log(p / (1 - p)) for p in (of["low"], of["mean"], of["high"]))
    assert of["method"] == "delong"
    assert of["mean"] == auc(labels, output.scores)
    assert mean - low == pytest.approx(high - mean)
    assert (high - mean) * of["mean"] * (1 - of["mean"]) == pytest.approx(1.959964 * of["sd"])
    assert of["mean"] + 1.96 * of["sd"] > 1 > of["high"]


def test_of_several_classes_it_is_that_of_the_mean() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 90)
    scores = rng.random((90, 3)) + (labels[:, None] == np.arange(3)) / 2
    parts = [influence(labels == k, scores[:, k]) for k in range(3)]
    assert influence(labels, scores) == pytest.approx(sum(parts) / 3)
    assert influence(np.r_[labels, 3], np.c_[np.r_[scores, scores[:1]], rng.random(91)]) is None  # one row of class 3
    assert influence(labels, np.c_[scores, rng.random(90)]) == pytest.approx(sum(parts) / 3)  # none of class 3


@pytest.mark.parametrize("labels", [[0, 0, 0, 1], [1, 1, 1, 0], [1, 1], []])
def test_one_row_of_a_class_is_too_few(labels: list[int]) -> None:
    assert influence(np.array(labels), np.arange(float(len(labels)))) is None


# --- bootstrap ---


def test_a_mean_has_the_standard_error_of_a_mean() -> None:
    labels, output = sample(500)
    (found,), _ = row_intervals(["accuracy", "nll"], labels, [output], 0.5, Randomness(SEED))
    p = np.clip(output.probabilities, 1e-7, 1 - 1e-7)
    right = (p >= 0.5) == (labels == 1)
    losses = -np.where(labels == 1, np.log(p), np.log1p(-p))
    for name, values in (("accuracy", right), ("nll", losses)):
        assert found[name]["sd"] == pytest.approx(values.std() / math.sqrt(500), rel=0.12)  # 400 draws: 3.5 % is one sd
        assert found[name]["low"] == pytest.approx(values.mean() - 1.959964 * found[name]["sd"])
        assert found[name]["method"] == "bootstrap"


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(0, 80), st.integers(0, 10**6), st.sampled_from([0.01, 0.1, 0.3, 3]), st.booleans())
def test_no_interval_leaves_the_range_of_its_metric(rows: int, seed: int, noise: float, several: bool) -> None:
    if several:
        rng = np.random.default_rng(seed)
        labels = rng.integers(0, 3, rows).astype(np.float32)
        raw = rng.random((rows, 3)) * noise + (labels[:, None] == np.arange(3))
        models = [ModelOutput.clip(raw / raw.sum(axis=1, keepdims=True)), ModelOutput.clip(np.full((rows, 3), 1 / 3))]
    else:
        labels, first = sample(rows, seed, noise)
        models = [first, sample(rows, seed + 1, 0.5)[1]]
    (joint, alone), (gains,) = row_intervals(NAMES, labels, models, 0.4, Randomness(SEED))
    for of, model in ((joint, models[0]), (alone, models[1])):
        values = compute(NAMES, labels, model.scores, model.probabilities, 0.4)
        for name, found in of.items():
            assert found["mean"] == values[name]
            assert 0 <= found["low"] <= found["mean"] <= found["high"] <= UPPER[name] + 1e-9
    for name, found in gains.items():
        assert -UPPER[name] <= found["low"] <= found["mean"] <= found["high"] <= UPPER[name]


def test_the_difference_is_paired() -> None:
    labels, output = sample(300)
    other = ModelOutput.clip(output.scores + np.random.default_rng(5).normal(size=300) * 0.02)
    (ours, theirs), (gains,) = row_intervals(NAMES, labels, [output, other], 0.5, Randomness(SEED))
    for name, gain in gains.items():
        assert gain["mean"] == pytest.approx(ours[name]["mean"] - theirs[name]["mean"])
    assert {name for name, gain in gains.items() if gain["sd"] < 0.6 * ours[name]["sd"]} >= {"auc", "pr_auc", "accuracy", "f1"}
    _, (same,) = row_intervals(NAMES, labels, [output, output], 0.5, Randomness(SEED))
    assert same == {}  # nothing changes it


def test_rows_that_are_all_right_have_no_interval() -> None:
    labels = np.repeat([0.0, 1.0], 20)
    (found,), _ = row_intervals(NAMES, labels, [ModelOutput.clip(labels)], 0.5, Randomness(SEED))
    assert set(found) <= {"lift", "pr_auc"}  # the share of positives changes
    assert "accuracy" not in found


def test_the_same_randomness_gives_the_same_intervals() -> None:
    labels, output = sample(100)
    first, again, other = (row_intervals(NAMES, labels, [output], 0.5, Randomness(seed)) for seed in (SEED, SEED, b"x" * 32))
    assert first == again != other
    assert first[0][0]["auc"] == other[0][0]["auc"]


def test_it_does_not_matter_how_many_resamples_are_computed_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    labels, output = sample(100)
    whole = row_intervals(NAMES, labels, [output], 0.5, Randomness(SEED))[0][0]
    monkeypatch.setattr(intervals, "MOST_CELLS", 700)
    few = row_intervals(NAMES, labels, [output], 0.5, Randomness(SEED))[0][0]
    for name, of in whole.items():
        assert (few[name]["low"], few[name]["high"]) == pytest.approx((of["low"], of["high"]), rel=1e-9)


def test_of_very_many_rows_a_part_is_resampled(monkeypatch: pytest.MonkeyPatch) -> None:
    labels, output = sample(4000)
    whole = row_intervals(NAMES, labels, [output], 0.5, Randomness(SEED))[0][0]
    monkeypatch.setattr(intervals, "MOST_ROWS", 1000)
    part = row_intervals(NAMES, labels, [output], 0.5, Randomness(SEED))[0][0]
    for name, of in whole.items():
        assert part[name]["mean"] == of["mean"]
        assert part[name]["sd"] == pytest.approx(of["sd"], rel=0.3), name


def test_of_many_classes_fewer_rows_are_resampled() -> None:
    rng = np.random.default_rng(0)
    drawn = {
        classes: intervals._part(30_000, ModelOutput(*[rng.random((30_000, classes))] * 2), Randomness(SEED))
        for classes in (3, 10, 64)
    }
    assert {classes: len(rows) for classes, rows in drawn.items()} == {3: 13_333, 10: 4000, 64: 2000}
    assert all(len(np.unique(rows)) == len(rows) for rows in drawn.values())


def test_a_hundred_thousand_rows_take_seconds() -> None:
    labels, output = sample(100_000)
    start = time.process_time()
    (found,), _ = row_intervals(NAMES, labels, [output], 0.5, Randomness(SEED))
    assert set(found) == set(NAMES)
    assert time.process_time() - start < 30


@pytest.mark.parametrize("rows", [80, 300])
def test_the_intervals_hold_the_truth_about_as_often_as_they_say(rows: int) -> None:
    names = ["auc", "nll", "accuracy", "pr_auc", "f1"]
    labels, output = unclipped(200_000, seed=99)
    truth = compute(names, labels, output.scores, output.probabilities)
    held = dict.fromkeys(names, 0)
    for seed in range(100):
        labels, output = unclipped(rows, seed=seed)
        (found,), _ = row_intervals(names, labels, [output], 0.5, Randomness(SEED))
        for name in names:
            held[name] += found[name]["low"] <= truth[name] <= found[name]["high"]
    assert min(held.values()) >= 88, held
