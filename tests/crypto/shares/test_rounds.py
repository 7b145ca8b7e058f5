"""Computations side by side find what each finds alone, in the rounds of the longest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.crypto.shares.together import Run, check_cost, counted, spread, together, total, total_bits
from vfl_node.crypto.shares.machine import Counter, ShareMachine
from vfl_node.crypto.shares.operations import mask_value, product, truncate
from vfl_node.crypto.shares.rounds import run_beside
from vfl_node.crypto.shares.steps import larger, negative

VALUES = np.random.default_rng(0).integers(-(1 << 40), 1 << 40, 60)


async def square(machine: ShareMachine) -> Any:
    """A round, and two operations that open nothing."""
    (opened,) = await machine.run(mask_value(spread(machine, VALUES >> 12)))
    (found,) = await machine.run(product(opened, opened, "numbers"))
    (again,) = await machine.run(product(opened, opened, "numbers"))
    return (found - again + found).part


async def half(machine: ShareMachine) -> Any:
    return (await machine.run(truncate(spread(machine, VALUES * 2, 1), 1)))[0].part


async def sign(machine: ShareMachine) -> Any:
    return (await negative(machine, spread(machine, VALUES)))[0]


async def maximum(machine: ShareMachine) -> Any:
    return (await larger(machine, spread(machine, VALUES), spread(machine, -VALUES, seed=1))).part


async def nested(machine: ShareMachine) -> Any:
    return await run_beside(machine, sign, maximum)


async def nothing(machine: ShareMachine) -> Any:
    return machine.place, machine.parties


@pytest.mark.parametrize("parties", [2, 3])
def test_what_each_finds(parties: int) -> None:
    async def program(machine: ShareMachine) -> Any:
        return await run_beside(machine, square, nothing, nested, half)

    run = Run(program, parties)
    squares, places, inner, halves = zip(*run.results, strict=True)
    np.testing.assert_array_equal(total(squares), (VALUES >> 12) ** 2)
    np.testing.assert_array_equal(total(halves), VALUES)
    np.testing.assert_array_equal(total_bits(one for one, _ in inner), VALUES < 0)
    np.testing.assert_array_equal(total(other for _, other in inner), np.abs(VALUES))
    assert list(places) == [(place, parties) for place in range(parties)]
    cost, alone = check_cost(run, program, parties), [counted(each, parties) for each in (square, sign, maximum, half)]
    assert cost.rounds == max(each.rounds for each in alone) == 3
    assert sum(cost.opened.values()) == sum(sum(each.opened.values()) for each in alone)
    assert sum(cost.dealt.values()) == sum(sum(each.dealt.values()) for each in alone)


def test_what_one_raises_ends_all() -> None:
    async def broken(machine: ShareMachine) -> Any:
        await machine.run(mask_value(spread(machine, VALUES)))
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        together([run_beside(Counter(2), maximum, broken)])
