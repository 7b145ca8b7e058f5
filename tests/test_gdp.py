"""μ, ε and δ are those of a maintained accountant, and numbers from the paper."""

from __future__ import annotations

import pytest
from dp_accounting import GaussianDpEvent
from dp_accounting.pld import PLDAccountant

from vfl_node.gdp import DELTA, auc_bound, compose, delta_of, epsilon_of, mu_of


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0, 8.0])
def test_it_agrees_with_an_accountant(epsilon: float) -> None:
    mu = mu_of(epsilon)
    accountant = PLDAccountant(value_discretization_interval=1e-3)
    accountant.compose(GaussianDpEvent(1 / mu))
    assert accountant.get_epsilon(DELTA) == pytest.approx(epsilon, abs=2e-3)
    assert epsilon_of(mu) == pytest.approx(epsilon, rel=1e-3)
    assert delta_of(mu, epsilon) <= DELTA < delta_of(mu * 1.0002, epsilon)


def test_releases_add_up_as_squares() -> None:
    assert compose([0.3, 0.4]) == pytest.approx(0.5)
    steps = [mu_of(1.0) / 20**0.5] * 20
    assert epsilon_of(compose(steps)) == pytest.approx(1.0, rel=1e-3)
    jobs = (mu_of(4.0) / mu_of(1.0)) ** 2
    assert int(jobs) == 12


def test_bounds_of_the_area_under_the_curve() -> None:
    said = {epsilon: round(auc_bound(mu_of(epsilon)), 3) for epsilon in (0.5, 1, 2, 4, 8)}
    assert said == {0.5: 0.535, 1: 0.566, 2: 0.624, 4: 0.723, 8: 0.861}


def test_small_numbers() -> None:
    assert epsilon_of(0.0) == 0.0
    assert epsilon_of(1e-7) == 0.0
    assert 0 < mu_of(1e-3) < mu_of(1e-2)


def test_large_numbers_promise_nothing_and_are_no_error() -> None:
    assert 500 < epsilon_of(30.0) == epsilon_of(1000.0) < 700
    assert auc_bound(1000.0) == 1.0
