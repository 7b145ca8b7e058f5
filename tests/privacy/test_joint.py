"""The joint attack: it finds rows that are drawn independently of the receiver's columns, where these depend on real ones."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from experiments.florist.experiment import ACTIVE, PASSIVE, Training, Trial
from tests.privacy.trees import few_trees as few_trees
from tests.thorough import examples
from vfl_node.crypto.randomness import Randomness
from vfl_node.metrics.classes import NotNumbers, auc
from vfl_node.privacy.attacks import joint

pytest.importorskip("sklearn")

N = 1200
SEEDS = examples(5, fewer=2)
CHANCE = 0.04
"""Of 840 real and 360 synthetic rows an AUC at chance deviates by .018 (√((s + r + 1) / 12sr)).

Trees that are fitted to the same rows add some: over 20 seeds it deviated by .023, so the mean of five does by .010, and
that of two by .016.
"""

Floats = NDArray[np.float64]


def world(seed: int, dependence: float) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """The receiver's columns, embeddings, and which of these are synthetic: of another person, drawn independently."""
    rng = np.random.default_rng(seed)
    own = rng.normal(size=(N, 4))
    others = dependence * own[:, :3] + rng.normal(size=(N, 3))  # the sender's columns of the same people
    synthetic = np.arange(N) % 10 < 3
    others[synthetic] = others[rng.permutation(np.flatnonzero(~synthetic))[: synthetic.sum()]]
    embeddings = np.tanh(others @ rng.normal(size=(3, 16)))
    return own, embeddings, synthetic


def attacked(own: Floats, embeddings: Floats, synthetic: NDArray[np.bool_]) -> float:
    found = joint.scores(own, embeddings, Randomness(b"j" * 32), categorical=np.zeros(own.shape[1], bool))
    value = auc(synthetic, found)
    assert value is not None
    return value


def test_it_finds_rows_that_do_not_fit_a_planted_dependence() -> None:
    assert attacked(*world(0, dependence=1.5)) > 0.8


def test_without_dependence_and_with_columns_of_other_people_it_is_at_chance() -> None:
    assert np.mean([attacked(*world(seed, dependence=0.0)) for seed in range(SEEDS)]) == pytest.approx(0.5, abs=CHANCE)
    values = []
    for seed in range(SEEDS):
        own, embeddings, synthetic = world(seed, dependence=1.5)
        values.append(attacked(own[np.random.default_rng(seed).permutation(N)], embeddings, synthetic))
    assert np.mean(values) == pytest.approx(0.5, abs=CHANCE)


def test_categories_and_missing_values_are_read() -> None:
    own, embeddings, synthetic = world(0, dependence=1.5)
    own[:, 0] = np.floor(2 * own[:, 0]) + 10  # codes
    own[::7, 1] = np.nan
    found = joint.scores(own, embeddings, Randomness(b"j" * 32), categorical=np.array([True, False, False, False]))
    assert (auc(synthetic, found) or 0) > 0.7


def test_equal_randomness_gives_equal_scores_and_other_rows_are_a_sample() -> None:
    own, embeddings, _ = world(0, dependence=1.0)
    flags = np.zeros(4, bool)
    one, two = (joint.scores(own, embeddings, Randomness(b"j" * 32), categorical=flags) for _ in range(2))
    np.testing.assert_array_equal(one, two)
    taken = joint.sample(np.arange(100, 200), Randomness(b"s" * 32), most=30)
    assert len(np.unique(taken)) == 30
    assert set(taken.tolist()) <= set(range(100, 200))
    np.testing.assert_array_equal(joint.sample(np.arange(9), Randomness(b"s" * 32), most=30), np.arange(9))


def test_numbers_of_no_use_and_too_few_rows_are_said() -> None:
    own, embeddings, _ = world(0, dependence=1.0)
    embeddings[5, 3] = np.inf
    with pytest.raises(NotNumbers):
        joint.scores(own, embeddings, Randomness(b"j" * 32), categorical=np.zeros(4, bool))
    few = joint.LEAST - 1
    with pytest.raises(NotNumbers):
        joint.scores(own[:few], embeddings[:few] * 0, Randomness(b"j" * 32), categorical=np.zeros(4, bool))


def test_embeddings_that_are_all_the_same_or_no_columns_say_nothing() -> None:
    own, embeddings, _ = world(0, dependence=1.0)
    flags = np.zeros(4, bool)
    assert len(joint.scores(own, np.zeros_like(embeddings), Randomness(b"j" * 32), categorical=flags)) == N
    none = joint.scores(own[:, :0], embeddings, Randomness(b"j" * 32), categorical=flags[:0])
    np.testing.assert_array_equal(none, np.zeros(N))


@cache
def trained(data: str, folder: Path, features: str, at_active: int) -> Training:
    """6,000 people over a union: the active party owns 80 % of them and the passive one 70 %; 4 epochs."""
    ratios = {"alpha": 0.3, "beta": 0.2, "rows": 6000, "epochs": 4, "at_active": at_active, "attacked": (4,)}
    training = Training(Trial(data, 0, features=features, **ratios), folder)
    for _ in training.steps():
        pass
    return training


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize(
    ("data", "features", "at_active", "by_active", "by_passive"),
    [("adult", "smoothed", 7, 0.72, 0.6), ("default_credit", "smoothed", 11, 0.78, 0.58)],
)
def test_on_real_tables_both_parties_find_rows_that_the_other_one_lacks(
    shared_data: Path, data: str, features: str, at_active: int, by_active: float, by_passive: float
) -> None:
    training = trained(data, shared_data, features, at_active)
    assert (training.joint(ACTIVE) or 0) > by_active
    assert (training.joint(PASSIVE) or 0) > by_passive
    for attacker in (ACTIVE, PASSIVE):
        # 4,800 rows of which 30 % are synthetic: .009; trees that are fitted to the same rows add some
        assert training.joint(attacker, permuted=True) == pytest.approx(0.5, abs=0.04)
