"""The sampler's numbers have the distribution of its definition."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import chisquare, kstest, norm

from vfl_node.crypto.discrete_gaussian import DiscreteGaussian, DiscreteLaplace
from vfl_node.crypto.randomness import Randomness


def drawn(variance: int, count: int, seed: int = 0) -> list[int]:
    gaussian = DiscreteGaussian(Randomness(seed.to_bytes(32, "big")), variance)
    return [gaussian.draw() for _ in range(count)]


@pytest.mark.parametrize("variance", [1, 3, 20])
def test_small_deviations_have_the_exact_probabilities(variance: int) -> None:
    values, most = np.array(drawn(variance, 20_000)), math.ceil(3 * variance**0.5)
    odds = np.exp(-(np.arange(-60, 61) ** 2) / (2 * variance))
    odds /= odds.sum()
    inner = np.arange(-most, most + 1)
    expected = [*odds[inner + 60], 1 - odds[inner + 60].sum()]
    found = [*((values == of).sum() for of in inner), (np.abs(values) > most).sum()]
    assert chisquare(found, np.array(expected) * len(values)).pvalue > 1e-4


def test_large_deviations_are_normal() -> None:
    """Of so large numbers a continuous one cannot be told; a deviation off by 2 % has a p of 1e-4 or less here."""
    deviation = 39 * 2**36
    values = np.array(drawn(deviation**2, 40_000), dtype=np.float64)
    assert kstest(values / deviation, norm.cdf).pvalue > 1e-4
    assert abs(values.std() / deviation - 1) < 4 / (2 * len(values)) ** 0.5
    assert len({int(value) & 1 for value in drawn(deviation**2, 64)}) == 2  # down to the last bit


def test_a_seed_is_a_sequence_and_no_variance_is_zero() -> None:
    assert drawn(10**20, 50) == drawn(10**20, 50) != drawn(10**20, 50, seed=1)
    with pytest.raises(ValueError, match="variance"):
        DiscreteGaussian(Randomness(bytes(32)), 0)


@pytest.mark.parametrize("scale", [1, 3, 20])
def test_laplace_numbers_have_the_exact_probabilities(scale: int) -> None:
    laplace = DiscreteLaplace(Randomness(bytes(32)), scale)
    values, most = np.array([laplace.draw() for _ in range(20_000)]), 4 * scale
    odds = np.exp(-np.abs(np.arange(-60 * scale, 60 * scale + 1)) / scale)
    odds /= odds.sum()
    inner = np.arange(-most, most + 1)
    expected = [*odds[inner + 60 * scale], 1 - odds[inner + 60 * scale].sum()]
    found = [*((values == of).sum() for of in inner), (np.abs(values) > most).sum()]
    assert chisquare(found, np.array(expected) * len(values)).pvalue > 1e-4


def test_no_scale_is_zero() -> None:
    with pytest.raises(ValueError, match="scale"):
        DiscreteLaplace(Randomness(bytes(32)), 0)
