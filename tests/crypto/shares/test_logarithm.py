"""Logarithms are as near as is said over all octaves, at their edges, too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.crypto.shares.together import Run, check_cost, spread, total
from vfl_node.crypto.shares.functions import Guess
from vfl_node.crypto.shares.logarithm import (
    INVERSE,
    LOGARITHM,
    REST_FRACTION,
    SERIES_FRACTION,
    expand,
    find_logarithm,
    normalise,
)
from vfl_node.crypto.shares.machine import ShareMachine

RNG = np.random.default_rng(0)
several = pytest.mark.parametrize("parties", [2, 3, 4])
GUESS = Guess.from_range(1, 1 << 24, 0)
EDGES = [theta + beside for theta in GUESS.thresholds for beside in (-1, 0, 1)] + [1 << 24]
SPREAD = np.exp(RNG.uniform(0, 24 * np.log(2), 1500)).astype(int)
WHOLE = np.array([*range(1, 200), *(each for each in EDGES if each > 0), *SPREAD])


def functions_of(values: np.ndarray, guess: Guess, fraction: int = 0) -> Any:
    """ln v of integers with some fractional bits, and the series of 1/(1 + e) with e, as a program."""

    async def program(machine: ShareMachine) -> Any:
        normal = await normalise(machine, guess, spread(machine, values, fraction))
        ((inverse,),) = await machine.run(expand(normal, INVERSE))
        return (
            await find_logarithm(machine, normal),
            inverse,
            normal.rest.share(machine.place),
            normal.sigma.share(machine.place),
        )

    return program


def decoded(run: Run) -> list[np.ndarray]:
    return [total(part.part for part in each) / 2.0 ** each[0].fraction for each in zip(*run.results, strict=True)]


@several
def test_whole_numbers_at_every_threshold_and_between(parties: int) -> None:
    program = functions_of(WHOLE, GUESS)
    run = Run(program, parties)
    logarithm, inverse, rest, sigma = decoded(run)
    assert np.abs(logarithm - np.log(WHOLE)).max() < 1.1e-5
    assert abs((logarithm - np.log(WHOLE)).mean()) < 3e-6
    assert np.abs(rest - (WHOLE * sigma - 1)).max() < 2**-REST_FRACTION
    assert np.abs(sigma * inverse * WHOLE - 1).max() < 1.5e-5
    assert check_cost(run, program, parties).rounds == 8 + 1


def test_numbers_with_fractional_bits() -> None:
    fraction, least, most = 12, 0.3, 9000.0
    values = np.round(np.geomspace(least, most, 1000) * 2**fraction).astype(np.int64)
    logarithm, *_ = decoded(Run(functions_of(values, Guess.from_range(least, most, fraction), fraction)))
    v = values / 2.0**fraction
    assert np.abs(logarithm - np.log(v)).max() < 1.1e-5


def test_below_all_thresholds_logarithms_of_0_are_alike() -> None:
    logarithm, *_ = decoded(Run(functions_of(np.zeros(50, np.int64), GUESS)))
    assert np.ptp(logarithm) <= 2**-17


@pytest.mark.parametrize(
    ("series", "function", "most"),
    [
        (LOGARITHM, lambda e: np.log1p(e), 2.6e-6),
        (INVERSE, lambda e: 1 / (1 + e), 1.26e-5),
    ],
)
def test_each_series_is_as_near_as_is_said(series: tuple[int, ...], function: Any, most: float) -> None:
    e = np.linspace(2**-0.2635, 2**0.2635, 5000) - 1
    a = np.array(series) * 2.0 ** (REST_FRACTION * np.array([0, 1, 1, 2, 2]) - SERIES_FRACTION)
    error = np.abs(a @ [e**0, e, e**2, e**3, e**4] - function(e))
    found = (error if series is LOGARITHM else error / function(e)).max()
    assert 0.9 * most < found < most


def test_a_first_guess_of_large_numbers_is_rounded_by_less_than_the_series_allow() -> None:
    sigmas = np.cumsum(GUESS.changes) / 2.0**30
    edges = np.array([*GUESS.thresholds, (1 << 24) + 1])
    used = np.diff(edges) > 0  # 1 and √2 are one threshold
    products = np.concatenate([sigmas[used] * edges[:-1][used], sigmas[used] * (edges[1:][used] - 1)])
    assert 2**-0.2635 < products.min() < products.max() < 2**0.2635
    assert products.max() > 2**0.25
