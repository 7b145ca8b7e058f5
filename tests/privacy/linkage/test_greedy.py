"""The greedy attack is as good as τ says, and no better; keys are found whatever τ is (test_multilateration.py)."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.linkage_privacy import Linkage, greedy_success
from experiments.linkage import greedy
from vfl_node.alignment.linkage.similarity import sigma_of, tau_of


@pytest.mark.parametrize(("deviation", "sigma"), [(10.0, 0.4), (20.0, 1.0), (50.0, 1.0), (5.0, 0.2)])
def test_distances_are_found_as_often_as_tau_says(deviation: float, sigma: float) -> None:
    """ρ is normal here, as the theorem assumes, and distances are small, so that τ is large enough to be measured."""
    found, error = greedy_success(deviation, sigma)
    tau = tau_of(sigma, deviation)
    assert found <= tau + 3 * error
    assert found >= tau - 4 * error  # the bound is reached, so this is the attack that it is about


def test_the_noise_for_a_tau_keeps_the_attack_at_it() -> None:
    sigma = sigma_of(0.03, 20.0)
    found, error = greedy_success(20.0, sigma)
    assert found == pytest.approx(0.03, abs=4 * error)


def test_without_noise_every_distance_is_found(linkage: Linkage) -> None:
    scale, pairs = linkage.scale, ~np.isnan(linkage.true)
    exact, noisy = linkage.release(0.0), linkage.release(0.4)

    def found(similarities: np.ndarray, sigma: float) -> float:
        guess = greedy.guess(similarities[pairs], scale.mean, scale.deviation, sigma)
        return float((guess == linkage.true[pairs]).mean())

    assert found(exact.similarities, 0.0) == 1
    assert found(noisy.similarities, 0.4) < 1.5 * tau_of(0.4, scale.deviation)  # these distances are not quite normal
