from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.thorough import every
from vfl_node.privacy.attacks import start
from vfl_node.training.glm.side import START_SCORES

BITS, ROWS, SIZE, SEEDS = 40, 1000, 411, 8
KINDS = ("standardised", "pixels", "binary", "rare")


def columns(kind: str, random: np.random.Generator, width: int = 16) -> NDArray[np.int64]:
    """In whole steps: z-scores in 2⁻¹⁶, pixels in 1/255, flags of half and of few of the rows."""
    if kind == "standardised":
        return np.rint(random.normal(size=(ROWS, width)) * 2**16).astype(np.int64)
    if kind == "pixels":
        return np.clip(random.normal(90, 80, size=(ROWS, width)), 0, 255).astype(np.int64)
    share = random.uniform(0.1, 0.5, size=width) if kind == "binary" else random.uniform(5, 40, size=width) / ROWS
    return (random.random((ROWS, width)) < share).astype(np.int64)


def gradient(kind: str, seed: int, scores: Callable[[np.random.Generator], NDArray[np.float64]], size: int = SIZE) -> list[int]:
    """The passive party's, as the exact integers that it decodes."""
    random = np.random.default_rng(seed)
    n = columns(kind, random)
    genuine = random.permutation(ROWS) < size
    y = random.random(ROWS) < 0.4
    d = np.where(genuine, 1 / (1 + np.exp(-scores(random))) - y, 0) / size
    return [int(total) for total in n.T.astype(object) @ np.rint(d * 2**BITS).astype(np.int64).astype(object)]


def zero(random: np.random.Generator) -> NDArray[np.float64]:
    return np.zeros(ROWS)


def intercept(random: np.random.Generator) -> NDArray[np.float64]:
    return np.full(ROWS, random.normal() / 2)


def spread(sd: float) -> Callable[[np.random.Generator], NDArray[np.float64]]:
    """Scores of 15 weights of the active party's own, as large as makes their standard deviation ``sd``."""

    def scores(random: np.random.Generator) -> NDArray[np.float64]:
        u = random.normal(size=(ROWS, 15)) @ random.normal(size=15)
        return sd * u / u.std()

    return scores


def rank(exact: list[int]) -> int:
    """The place of the true size among all, from 1, by :func:`start.mismatch`."""
    distance = start.mismatch(np.array(exact) / 2.0**BITS, np.ones(len(exact)), ROWS)
    distance[: SIZE // 4] = 1  # small ones leave small numbers, which are all near 0
    return int(np.flatnonzero(np.argsort(distance, kind="stable") == SIZE - 1)[0]) + 1


@pytest.mark.parametrize("size", [1, 50, 411, 500, 999, 1000])
@pytest.mark.parametrize("kind", KINDS[:3])
def test_from_zero_weights_the_size_is_read_off_exact_integers(kind: str, size: int) -> None:
    for seed in range(3):
        assert start.sizes_from_integers(gradient(kind, seed, zero, size), BITS, ROWS)[0] == size


@pytest.mark.parametrize("kind", KINDS)
def test_from_zero_weights_the_size_is_read_off_real_numbers(kind: str) -> None:
    assert [rank(gradient(kind, seed, zero)) for seed in range(SEEDS)] == [1] * SEEDS


def test_steps_other_than_one_are_divided_out() -> None:
    exact, steps = gradient("pixels", 0, zero), np.full(16, 1 / 255)
    distance = start.mismatch(np.array(exact) / 2.0**BITS * steps, steps, ROWS)
    assert distance[SIZE - 1] < 1e-4
    assert np.median(distance) > 0.2


@pytest.mark.parametrize("kind", every(3, KINDS))
def test_scores_that_differ_as_much_as_the_product_s_hide_the_size(kind: str) -> None:
    ranks = []
    for seed in range(SEEDS):
        exact = gradient(kind, seed, spread(START_SCORES))
        assert start.sizes_from_integers(exact, BITS, ROWS) == []
        assert SIZE not in start.sizes_from_two_values(exact, BITS, ROWS)
        ranks.append(rank(exact))
    assert 0.15 * ROWS < np.mean(ranks) < 0.85 * ROWS  # of uniform ones: .45 ± .09
    assert sum(found <= 10 for found in ranks) <= 1


def test_weights_near_zero_do_not_where_counts_are_small() -> None:
    assert np.median([rank(gradient("rare", seed, spread(0.01))) for seed in range(SEEDS)]) <= 5
    assert np.median([rank(gradient("binary", seed, spread(0.01))) for seed in range(SEEDS)]) <= 5
    assert np.median([rank(gradient("standardised", seed, spread(0.01))) for seed in range(SEEDS)]) > 100


@pytest.mark.parametrize("kind", every(3, KINDS))
def test_a_random_intercept_alone_does_not(kind: str) -> None:
    exact = [gradient(kind, seed, intercept) for seed in range(SEEDS)]
    assert sum(start.sizes_from_two_values(of, BITS, ROWS) == [SIZE] for of in exact) >= SEEDS - 2
    assert not any(start.sizes_from_integers(of, BITS, ROWS) for of in exact)  # the simpler attack would have missed it


def test_few_columns_or_none_that_differ_tell_nothing() -> None:
    assert start.sizes_from_two_values(gradient("pixels", 0, intercept)[:3], BITS, ROWS) == []
    assert start.sizes_from_two_values([0] * 8, BITS, ROWS) == []


def test_later_rounds_from_a_spread_start_tell_no_more() -> None:
    """Fixed point and all: the residuals of rounds 2, 10 and 60 are as many different integers as there are rows."""
    random = np.random.default_rng(3)
    n, w = columns("binary", random), random.normal(size=(ROWS, 15))
    genuine, y = random.permutation(ROWS) < SIZE, random.random(ROWS) < 0.4
    passive, active, ranks = np.zeros(16), random.normal(size=15) / 15**0.5, []
    for number in range(1, 61):
        d = np.where(genuine, 1 / (1 + np.exp(-(n @ passive + w @ active))) - y, 0) / SIZE
        e = np.rint(d * 2**BITS).astype(np.int64)
        exact = [int(total) for total in n.T.astype(object) @ e.astype(object)]
        if number in (2, 10, 60):
            assert start.sizes_from_integers(exact, BITS, ROWS) == []
            assert SIZE not in start.sizes_from_two_values(exact, BITS, ROWS)
            ranks.append(rank(exact))
        passive, active = passive - 0.5 * np.array(exact) / 2.0**BITS, active - 0.5 * w.T @ d
    assert min(ranks) > 10
