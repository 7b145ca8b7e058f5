"""Randomised answers about labels: how often which one is given, and to whom the same."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import chisquare, kstest, laplace

from vfl_node.crypto.randomness import Randomness
from vfl_node.privacy.defences.randomised.answers import (
    STEPS,
    answer_classes,
    answer_numbers,
    keep_probability,
    move_probability,
)
from vfl_node.settings.defences import read_params

SECRET = Randomness(b"the node's secret for its labels")
IDS = [f"text:{number}".encode() for number in range(60_000)]


@pytest.mark.parametrize(("classes", "epsilon"), [(2, 1.0), (2, 0.1), (4, 1.0), (4, 2.0), (7, 3.0)])
def test_probabilities_are_those_of_epsilon(classes: int, epsilon: float) -> None:
    """Of each label, all answers by a chi-square test with a p below 1e-4 in one of 10,000 secrets."""
    assert keep_probability(classes, epsilon) + (classes - 1) * move_probability(classes, epsilon) == pytest.approx(1)
    assert keep_probability(classes, epsilon) / move_probability(classes, epsilon) == pytest.approx(math.exp(epsilon))
    labels = np.arange(len(IDS)) % classes
    answers = answer_classes(SECRET, IDS, labels, classes, epsilon)
    for label in range(classes):
        found = np.bincount(answers[labels == label].astype(int), minlength=classes)
        expected = (
            np.where(np.arange(classes) == label, keep_probability(classes, epsilon), move_probability(classes, epsilon))
            * found.sum()
        )
        assert chisquare(found, expected).pvalue > 1e-4
        wrong = np.where(
            np.arange(classes) == label, keep_probability(classes, 1.2 * epsilon), move_probability(classes, 1.2 * epsilon)
        )
        if epsilon >= 1:  # else 60,000 answers do not tell so small a difference
            assert chisquare(found, wrong * found.sum()).pvalue < 1e-4


def test_numbers_have_laplace_noise_around_the_clipped_target() -> None:
    """As of 20,000 draws: p below 1e-4 in one of 10,000 secrets; a scale that is 10 % off has one below."""
    low, high, epsilon, ids = -3.0, 5.0, 2.0, IDS[:20_000]
    targets = np.random.default_rng(0).normal(1, 4, len(ids))
    answers = answer_numbers(SECRET, ids, targets, (low, high), epsilon)
    noise, scale = answers - np.clip(targets, low, high), (high - low) / epsilon
    assert kstest(noise, laplace(scale=scale).cdf).pvalue > 1e-4
    assert kstest(noise, laplace(scale=1.1 * scale).cdf).pvalue < 1e-4
    assert abs(noise.mean()) < 4 * scale * (2 / len(ids)) ** 0.5
    beyond = targets > high
    assert answers[beyond].mean() == pytest.approx(high, abs=4 * scale * (2 / beyond.sum()) ** 0.5)  # nothing of how far
    steps = (answers - low) / ((high - low) / STEPS)
    assert np.abs(steps - np.rint(steps)).max() < 1e-6  # low bits tell of no target


@pytest.mark.parametrize("kind", ["classes", "numbers"])
def test_an_answer_belongs_to_its_record_whatever_else_is_in_the_table(kind: str) -> None:
    def answers(ids: list[bytes], labels: np.ndarray, secret: Randomness = SECRET) -> np.ndarray:
        if kind == "classes":
            return answer_classes(secret, ids, labels, 3, 1.0)
        return answer_numbers(secret, ids, labels.astype(float), (0.0, 2.0), 1.0)

    ids, labels = IDS[:2000], np.random.default_rng(1).integers(0, 3, 2000)
    first = answers(ids, labels)
    assert np.array_equal(first, answers(ids, labels))
    order = np.random.default_rng(2).permutation(2000)[:700]
    assert np.array_equal(first[order], answers([ids[at] for at in order], labels[order]))
    changed = labels.copy()
    changed[:1000] = (changed[:1000] + 1) % 3
    assert np.array_equal(first[1000:], answers(ids, changed)[1000:])
    other = answers(ids, labels, SECRET.derive("other terms"))
    assert (first != other).mean() > 0.01  # drawn anew


def test_answers_under_other_terms_are_independent() -> None:
    """Two answers of ε compose as two: none of them is the other one. 20,000 rows; 4 deviations."""
    ids, labels = IDS[:20_000], np.zeros(20_000)
    one, other = (answer_classes(SECRET.derive(name), ids, labels, 2, 1.0) for name in ("one", "other"))
    both, expected = (one * other).mean(), move_probability(2, 1.0) ** 2
    assert abs(both - expected) < 4 * (expected / len(ids)) ** 0.5


def test_a_corrected_label_has_an_answer_of_its_own() -> None:
    """Its noise is not that of the label before, or the difference of both would tell the labels. Four deviations."""
    ids = IDS[:20_000]
    before, after = (answer_classes(SECRET, ids, np.full(len(ids), label), 2, 1.0) for label in (0, 1))
    equal, expected = (before == after).mean(), 2 * keep_probability(2, 1.0) * move_probability(2, 1.0)
    assert abs(equal - expected) < 4 * (expected / len(ids)) ** 0.5


@pytest.mark.parametrize(
    "keys",
    [{"epsilon": 0}, {"epsilon": 25}, {}, {"epsilon": 1, "target_range": [2, 1]}, {"epsilon": 1, "target_range": [0, 1e999]}],
)
def test_settings_that_mean_nothing_are_refused(keys: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"randomised-labels|epsilon|target_range"):
        read_params({"name": "randomised-labels", **keys})
