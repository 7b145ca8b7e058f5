"""Similarities: the noise that τ needs, what pairs draw, and which order candidates have."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import spearmanr

from vfl_node.alignment.linkage.similarity import NONE, DistanceScale, PairDraws, ReuseCount, least_tau, sigma_of, tau_of
from vfl_node.crypto.randomness import Randomness

M, N, K = 800, 300, 50


def randomness(name: str) -> Randomness:
    return Randomness(name.encode().ljust(32))


@pytest.fixture(scope="module")
def found():
    """Marks of both sides, and candidates with distances, nearest first."""
    draws, rng = PairDraws(randomness("linker"), b"terms"), np.random.default_rng(0)
    own, theirs = (draws.marks(rng.integers(0, 256, (count, 16), dtype=np.uint8)) for count in (M, N))
    rows = rng.permuted(np.tile(np.arange(N, dtype=np.int32), (M, 1)), axis=1)[:, :K]
    distances = np.sort(rng.poisson(100, (M, K)), axis=1).astype(np.int32)
    return own, theirs, rows, distances


def blurred(found, *, secret="linker", terms=b"terms", sigma=0.4):
    own, theirs, rows, distances = found
    return PairDraws(randomness(secret), terms).perturb(
        own, theirs, rows, distances, DistanceScale.from_distances([distances]), sigma
    )


def by_pair(found, **how):
    """float32[M, N]: similarity of each pair; NaN where it is none."""
    rows, similarities = blurred(found, **how)
    table = np.full((M, N), np.nan, dtype=np.float32)
    np.put_along_axis(table, rows.astype(np.int64), similarities, axis=1)
    return table


def test_tau_and_sigma():
    """Computed independently with mpmath from the formulas of the paper."""
    assert tau_of(1, 50) == pytest.approx(0.0112834, abs=1e-7)
    assert sigma_of(0.01, 100) == pytest.approx(0.435049, abs=1e-6)
    assert least_tau(20) == pytest.approx(0.019945, abs=1e-6)
    with pytest.raises(ValueError, match="no noise"):
        sigma_of(0.01, 20)
    assert tau_of(0, 100) == 1


@pytest.mark.parametrize("deviation", [3.0, 20.0, 500.0, 20_000.0])
@pytest.mark.parametrize("sigma", [0.05, 0.4, 3.0])
def test_sigma_is_the_inverse_of_tau(deviation, sigma):
    assert sigma_of(tau_of(sigma, deviation), deviation) == pytest.approx(sigma, rel=1e-3)


def test_no_noise_gets_tau_to_its_minimum():
    least = least_tau(20)
    assert tau_of(1e6, 20) == pytest.approx(least, rel=1e-9)
    with pytest.raises(ValueError, match="no noise"):
        sigma_of(least, 20)
    assert sigma_of(1.01 * least, 20) > 1


def test_mean_and_deviation_do_not_depend_on_blocks_and_leave_missing_ones_out(found):
    distances = found[3]
    whole = DistanceScale.from_distances([distances])
    missing = np.full((3, K), NONE, dtype=np.int32)
    assert DistanceScale.from_distances([distances[:7], missing, distances[7:]]) == whole
    assert whole.mean == pytest.approx(-distances.mean())
    assert whole.deviation == pytest.approx(distances.std())
    assert DistanceScale.from_distances([missing]) is None


def test_variance_is_that_of_the_noise_and_one(found):
    for sigma in (0.0, 0.4, 1.0):
        _, similarities = blurred(found, sigma=sigma)
        assert similarities.var() == pytest.approx(1 + sigma**2, rel=0.02)
        assert abs(similarities.mean()) < 0.02


def test_noise_is_of_the_pair_and_the_terms(found):
    first = by_pair(found)
    own, theirs, rows, distances = found
    np.testing.assert_array_equal(first, by_pair((own, theirs, rows[:, ::-1], distances[:, ::-1])))  # in another order
    exact = by_pair(found, sigma=0.0)
    noise, others = first - exact, [by_pair(found, terms=b"other") - exact, by_pair(found, secret="another") - exact]
    for other in others:
        known = ~np.isnan(other)
        assert abs(np.corrcoef(noise[known], other[known])[0, 1]) < 0.02


def test_noise_drawn_again_averages_out_and_noise_of_the_pair_does_not(found):
    """The control: with another secret in each job, the mean of 9 jobs is as if the noise were a third."""
    exact = by_pair(found, sigma=0.0)

    def error(secrets):
        return np.sqrt(np.nanmean((np.mean([by_pair(found, secret=secret) for secret in secrets], axis=0) - exact) ** 2))

    assert error([f"job {i}" for i in range(9)]) == pytest.approx(0.4 / 3, rel=0.1)
    assert error(["linker"] * 3) == pytest.approx(0.4, rel=0.05)


def test_the_order_of_candidates_carries_no_rank(found):
    _, _, rows, distances = found
    ordered, _ = blurred(found)
    table = np.zeros((M, N), dtype=np.int32)
    np.put_along_axis(table, rows.astype(np.int64), distances, axis=1)
    shown = np.take_along_axis(table, ordered.astype(np.int64), axis=1)
    place = np.tile(np.arange(K), (M, 1)).ravel()
    assert abs(spearmanr(place, shown.ravel()).statistic) < 0.02
    assert spearmanr(place, distances.ravel()).statistic > 0.9  # the control: as they were found


def test_equal_filters_have_equal_noise_and_orders_of_their_own(found):
    """A common order would show the passive party which records have equal keys."""
    own, theirs, rows, distances = found
    twins = [own[0], own[0]]
    of_twins = np.tile(rows[:1], (2, 1)), np.tile(distances[:1], (2, 1))
    ordered, similarities = blurred((twins, theirs, *of_twins))
    assert (ordered[0] != ordered[1]).sum() > K / 2
    by_record = [dict(zip(*pair, strict=True)) for pair in zip(ordered.tolist(), similarities.tolist(), strict=True)]
    assert by_record[0] == by_record[1]
    again, _ = blurred((twins, theirs, *of_twins))
    np.testing.assert_array_equal(again, ordered)


def test_a_candidate_that_goes_changes_the_order_of_no_others(found):
    """Else whoever takes a record out of its set sees by the order which ones were farther."""
    own, theirs, rows, distances = found
    before, _ = blurred((own[:1], theirs, rows[:1], distances[:1]))
    after, _ = blurred((own[:1], theirs, np.delete(rows[:1], 3, axis=1), np.delete(distances[:1], 3, axis=1)))
    np.testing.assert_array_equal(after[0], before[0][before[0] != rows[0, 3]])


def test_a_similarity_of_0_stands_for_no_candidate_alone():
    rows, distances = np.array([[0, 1, NONE]], dtype=np.int32), np.array([[10, 12, NONE]], dtype=np.int32)
    draws = PairDraws(Randomness(bytes(32)), b"")
    ordered, similarities = draws.perturb([b"a"], [b"b", b"c"], rows, distances, DistanceScale(-10.0, 1.0), 0.0)
    assert ((similarities == 0) == (ordered == NONE)).all()


def test_missing_candidates_come_last_with_similarity_0(found):
    own, theirs, rows, distances = found
    rows, distances = rows.copy(), distances.copy()
    rows[:, 30:] = distances[:, 30:] = NONE
    rows[5] = distances[5] = NONE
    ordered, similarities = blurred((own, theirs, rows, distances))
    assert (ordered[:, 30:] == NONE).all()
    assert (ordered[5] == NONE).all()
    assert (similarities[ordered == NONE] == 0).all()
    assert (np.delete(ordered, 5, axis=0)[:, :30] != NONE).all()


def test_reuse_counts_different_filters():
    count = ReuseCount(4)
    count.add([b"a", b"b"], np.array([[0, 1], [0, NONE]], dtype=np.int32))
    count.add([b"a", b"c"], np.array([[0, 1], [0, 2]], dtype=np.int32))  # a again
    assert (count.most, count.median) == (3, 1.0)
    assert math.isclose(ReuseCount(0).median, 0)
