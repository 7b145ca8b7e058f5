"""Comparisons are exact up to the edges of their ranges, cost what is counted, and open nothing but uniform numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare

from tests.crypto.shares.together import Run, check_cost, spread, spread_bits, total, total_bits
from vfl_node.crypto.shares.bits import show_bits, unpack_bits
from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.operations import mask_value
from vfl_node.crypto.shares.steps import (
    LOW,
    RANGE_BITS,
    deal_steps,
    find_at_most,
    larger,
    largest,
    lift,
    negative,
    widen,
    xor_of_ands,
)
from vfl_node.crypto.shares.values import Shared

RNG = np.random.default_rng(0)
MOST = (1 << RANGE_BITS) - 1
EDGES = [0, 1, -1, 255, -256, 256, 1 << 39, -(1 << 39), MOST, -MOST]
DIFFERENCES = np.array([*EDGES, *RNG.integers(-MOST, MOST, 500, endpoint=True)])
SMALLER = RNG.integers(-(1 << 61), 1 << 61, len(DIFFERENCES))
several = pytest.mark.parametrize("parties", [2, 3, 4])


@several
def test_a_mask_is_compared_with_every_kind_of_public_number(parties: int) -> None:
    """r itself, the numbers beside it, those that differ in one digit, and both ends of the range."""
    values = np.array([0, 1, 255, 256, MOST, *RNG.integers(0, MOST, 60)])

    async def program(machine: ShareMachine) -> Any:
        (opened,) = await machine.run(mask_value(spread(machine, values)))
        (table,) = await machine.run(deal_steps(opened))
        mask = opened.difference - values.view(np.uint64)  # r: this test knows the values
        apart = [0, 1, -1, *(sign << shift for shift in range(8, RANGE_BITS, 8) for sign in (1, -1))]
        numbers = np.stack([mask + np.uint64(each % (1 << 64)) for each in apart], axis=1) & LOW
        numbers = np.concatenate(
            [numbers, np.full((len(values), 1), MOST, np.uint64), np.zeros((len(values), 1), np.uint64)], 1
        )
        return (await find_at_most(machine, table, numbers))[0], mask & LOW, numbers

    run = Run(program, parties)
    found = total_bits(of for of, *_ in run.results)
    _, mask, numbers = run.results[0]
    np.testing.assert_array_equal(found, mask[:, None] <= numbers)
    assert {0, 1} == set(found[:, 1:-2].ravel())
    assert run.table.rounds == 2
    check_cost(run, program, parties)


async def signs(machine: ShareMachine, values: np.ndarray = DIFFERENCES) -> Any:
    return (await negative(machine, spread(machine, values)))[0]


async def maxima(machine: ShareMachine) -> Shared:
    return await larger(machine, spread(machine, SMALLER), spread(machine, SMALLER + DIFFERENCES, seed=1))


@several
def test_signs_and_the_larger_of_two_are_exact_at_the_edges(parties: int) -> None:
    run = Run(signs, parties)
    np.testing.assert_array_equal(total_bits(run.results), DIFFERENCES < 0)
    assert check_cost(run, signs, parties).rounds == 2
    run = Run(maxima, parties)
    np.testing.assert_array_equal(total(of.part for of in run.results), np.maximum(SMALLER, SMALLER + DIFFERENCES))
    assert check_cost(run, maxima, parties).rounds == 3


def test_beyond_its_range_a_sign_is_wrong() -> None:
    wrong = total_bits(Run(lambda machine: signs(machine, np.array([MOST + 1, -MOST - 1] * 8))).results)
    assert not np.array_equal(wrong, [0, 1] * 8)


@several
def test_the_largest_of_four_at_every_place(parties: int) -> None:
    """With ties, and as far apart as they may be."""
    quads = [np.roll([MOST // 2, -(MOST // 2), 0, 1], turn) for turn in range(4)]
    quads += [np.roll([1, 0, 0, 0], turn) for turn in range(4)] + [np.zeros(4, np.int64), np.array([7, 7, 3, 7])]
    values = np.concatenate([quads, RNG.integers(-(MOST // 2), MOST // 2, (100, 4))])

    async def program(machine: ShareMachine) -> Shared:
        return await largest(machine, spread(machine, values))

    run = Run(program, parties)
    np.testing.assert_array_equal(total(of.part for of in run.results), values.max(axis=1))
    assert check_cost(run, program, parties).rounds == 3


@several
@pytest.mark.parametrize("bits", [32, 17])
def test_numbers_of_few_bits_become_wide_at_both_edges(parties: int, bits: int) -> None:
    half = 1 << (bits - 1)
    values = np.array([0, -1, 1, -half, half - 1, *RNG.integers(-half, half, 300)])

    async def program(machine: ShareMachine) -> Shared:
        narrow = spread(machine, values).part & np.uint64((1 << bits) - 1)
        return await widen(machine, Shared(narrow, 0), bits)

    run = Run(program, parties)
    np.testing.assert_array_equal(total(of.part for of in run.results), values)
    assert check_cost(run, program, parties).rounds == 3
    narrow = [spread(machine, values).part & np.uint64((1 << bits) - 1) for machine in machines(parties)]
    assert not np.array_equal(total(narrow), values)  # shares alone have wrapped around


def machines(parties: int) -> list[Any]:
    """Places of parties, as :func:`spread` asks for them."""
    return [type("Place", (), {"place": place, "parties": parties}) for place in range(parties)]


def test_bits_as_numbers_and_every_product_of_bits() -> None:
    bits = RNG.integers(0, 2, (5, 64)).astype(np.uint8)
    terms = [(0, 1), (1, 2, 3), (4,), (0, 1, 2, 3, 4)]

    async def lifted(machine: ShareMachine) -> Shared:
        flags = unpack_bits(spread_bits(machine, bits).part, bits.shape)
        return (await lift(machine, flags)).share(machine.place)

    async def joined(machine: ShareMachine) -> Any:
        rows = np.stack([spread_bits(machine, row, seed).part for seed, row in enumerate(bits)])
        (shown,) = await machine.run(show_bits(type(spread_bits(machine, bits[0]))(rows)))
        return (await machine.run(xor_of_ands(shown, terms)))[0].part

    np.testing.assert_array_equal(total(of.part for of in Run(lifted, 3).results), bits)
    found = unpack_bits(total_bits(Run(joined, 3).results), (64,))
    np.testing.assert_array_equal(found, np.bitwise_xor.reduce([bits[list(term)].prod(axis=0) for term in terms]))


@pytest.mark.parametrize("values", [np.zeros(400, np.int64), DIFFERENCES[:400]], ids=["all alike", "of all sizes"])
def test_whatever_is_compared_what_is_opened_is_uniform(values: np.ndarray) -> None:
    """χ² of the top and the low four bits of numbers and of bits in fours: five p-values, each below 1e-4 once in 10⁴ runs."""
    seen: dict[str, list[np.ndarray]] = {"low": [], "top": [], "bits": []}
    for seed in range(6):
        for place, opened in Run(lambda machine: signs(machine, values), seed=seed).table.seen.items():
            first, *rest = opened
            if place == 0:
                seen["low"].append(first & np.uint64(15))
                seen["top"].append(first >> np.uint64(60))
                whole = [word.ravel()[: len(values) // 64] for each in rest for word in each]  # the rest of a word is padded
                seen["bits"] += [words >> np.uint64(shift) & np.uint64(15) for words in whole for shift in range(0, 64, 4)]
    for name, parts in seen.items():
        numbers = np.concatenate(parts).astype(int)
        assert len(numbers) >= 2000
        assert chisquare(np.bincount(numbers, minlength=16)).pvalue > 1e-4, name
