"""Products of three, quotients, pairs and turned vectors: exact, or as near as is said."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.crypto.shares.together import Run, check_cost, spread, total, total_bits
from vfl_node.crypto.shares.bits import unpack_bits
from vfl_node.crypto.shares.functions import (
    GUESS_FRACTION,
    INVERSE,
    INVERSE_FRACTION,
    REST_FRACTION,
    Guess,
    deal_flags,
    deal_places,
    multiply_inverse,
    multiply_three,
    split_pair,
)
from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.operations import mask_value, product, truncate
from vfl_node.crypto.shares.steps import deal_steps, find_at_most, lift
from vfl_node.crypto.shares.values import Shared

RNG = np.random.default_rng(0)
several = pytest.mark.parametrize("parties", [2, 3, 4])


@several
def test_the_product_of_three_numbers(parties: int) -> None:
    factors = [RNG.integers(-(1 << 20), 1 << 20, (4, width)) for width in (5, 5, 1)]

    async def program(machine: ShareMachine) -> Shared:
        opened = await machine.run(*(mask_value(spread(machine, of, 3, seed)) for seed, of in enumerate(factors)))
        return (await machine.run(multiply_three(*opened)))[0]

    run = Run(program, parties)
    np.testing.assert_array_equal(total(of.part for of in run.results), np.multiply.reduce(np.broadcast_arrays(*factors)))
    assert run.results[0].fraction == 9
    check_cost(run, program, parties)


LOWEST, HIGHEST, FAR = -(1 << 20), (1 << 31) - (1 << 20) - 1, (1 << 30) - 1
PAIRS = [(a, b) for a in (-FAR, 0, FAR) for b in (LOWEST, HIGHEST)]
"""Each bound of both numbers of a pair."""


@several
@pytest.mark.parametrize("below", [1 << 20, 1 << 30])
def test_a_pair_comes_apart_at_all_six_bounds(parties: int, below: int) -> None:
    """Under many masks: every way to carry comes up."""
    high, low = np.array(PAIRS * 40 + [(-1, 0), (0, 0), (0, -1), (1, 1)] * 10).T
    low = np.where(low < -1, -below, np.where(low > 1, (1 << 31) - below - 1, low))
    drawn = RNG.integers(-FAR, FAR, 400), RNG.integers(-below, (1 << 31) - below, 400)
    every = np.concatenate([high, drawn[0]]), np.concatenate([low, drawn[1]])

    async def program(machine: ShareMachine) -> Any:
        return (await machine.run(split_pair(spread(machine, (every[0] << 32) + every[1]), below)))[0]

    run = Run(program, parties)
    for at, expected in enumerate(every):
        np.testing.assert_array_equal(total(of[at] for of in run.results), expected)
    check_cost(run, program, parties)


@pytest.mark.parametrize("beyond", [(0, LOWEST - (1 << 30)), (0, HIGHEST + (1 << 30))])
def test_far_beyond_its_bounds_a_pair_is_split_otherwise(beyond: tuple[int, int]) -> None:
    async def program(machine: ShareMachine) -> Any:
        return (await machine.run(split_pair(spread(machine, np.full(64, (beyond[0] << 32) + beyond[1])))))[0]

    low = total(of[1] for of in Run(program).results)
    assert (low != beyond[1]).any()


FRACTION = 12
LEAST, MOST = 5.0, 40_000.0
ONE = 1 << 12


def divide(values: np.ndarray) -> Any:
    """ONE/v of integers with FRACTION fractional bits, and whether v is at least LEAST, as a program."""
    guess = Guess.from_range(LEAST, MOST, FRACTION)

    async def program(machine: ShareMachine) -> Any:
        (v,) = await machine.run(mask_value(spread(machine, values, FRACTION)))
        (table,) = await machine.run(deal_steps(v))
        looked, _ = await find_at_most(machine, table, guess.looks(v))
        sigma, reached = guess.guess(v, await lift(machine, looked), machine.place)
        y, sigma = await machine.run(mask_value(spread(machine, np.full(values.shape, ONE), 0, 2)), mask_value(sigma))
        near, pulled = await machine.run(product(v, sigma, "numbers"), product(y, sigma, "numbers"))
        rest, pulled = await machine.run(truncate(near, FRACTION + GUESS_FRACTION - REST_FRACTION), truncate(pulled, 14))
        one = np.uint64(1 << REST_FRACTION) if machine.place == 0 else np.uint64(0)
        rest, pulled = await machine.run(mask_value(Shared(rest.part - one, REST_FRACTION)), mask_value(pulled))
        (square,) = await machine.run(product(rest, rest, "numbers"))
        (square,) = await machine.run(truncate(square, REST_FRACTION))
        (square,) = await machine.run(mask_value(square))
        (found,) = await machine.run(multiply_inverse(pulled, rest, square))
        (found,) = await machine.run(truncate(found, INVERSE_FRACTION))
        return found, reached

    return program


@several
def test_quotients_over_many_octaves(parties: int) -> None:
    """Each error is that of the polynomial, less than a unit of e and of e² each, and two units in the last place.

    On average there is but the first one. What is below the least threshold gives 0.
    """
    values = np.round(np.geomspace(LEAST, MOST, 800) * 2**FRACTION).astype(np.int64)
    small = np.array([0, 1, -1, -(1 << 20), round(LEAST * 2**FRACTION) - 1])
    program = divide(np.concatenate([small, values]))
    run = Run(program, parties)
    fraction = run.results[0][0].fraction
    found = total(of.part for of, _ in run.results) / 2.0**fraction
    np.testing.assert_array_equal(total(of.part for _, of in run.results), [0] * len(small) + [1] * len(values))
    true = ONE / (values / 2.0**FRACTION)
    errors = found[len(small) :] - true
    assert (np.abs(errors) < true * (1.02e-5 + 2.2 * 2.0**-REST_FRACTION) + 2.0 ** (1 - fraction)).all()
    assert abs((errors / true)[true > 16].mean()) < 1.02e-5
    assert np.abs(found[: len(small)]).max() < 2**-10
    check_cost(run, program, parties)


def test_a_first_guess_is_near_enough_and_the_polynomial_as_near_as_is_said() -> None:
    guess = Guess.from_range(LEAST, MOST, FRACTION)
    v = np.geomspace(LEAST, MOST * 0.999, 5000)
    reached = v[:, None] * 2**FRACTION >= np.array(guess.thresholds)
    apart = v * (reached @ np.array(guess.changes)) / 2.0**GUESS_FRACTION
    assert 2**-0.251 < apart.min() < apart.max() < 2**0.251
    e = np.linspace(2**-0.25, 2**0.25, 5000) - 1
    scale = 2.0 ** (REST_FRACTION * np.array([0, 1, 1, 2, 2]) - INVERSE_FRACTION)
    a = np.array(INVERSE) * scale
    found = a[0] + a[1] * e + a[2] * e**2 + a[3] * e**3 + a[4] * e**4
    assert np.abs(found * (1 + e) - 1).max() < 1.03e-5


@several
def test_vectors_are_1_where_a_number_says(parties: int) -> None:
    bits, size = 4, 11
    places = np.arange(size)

    async def program(machine: ShareMachine) -> Any:
        (opened,) = await machine.run(mask_value(spread(machine, places + (77 << bits)), bits))
        flags, numbers = await machine.run(deal_flags(opened, bits, size), deal_places(opened, bits, size))
        return flags.part, numbers.part

    run = Run(program, parties)
    np.testing.assert_array_equal(unpack_bits(total_bits(of for of, _ in run.results), (size, size)), np.eye(size))
    np.testing.assert_array_equal(total(of for _, of in run.results), np.eye(size))
    check_cost(run, program, parties)
