"""Numbers are rounded to the nearest, whatever the masks are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.crypto.shares.together import Run, check_cost, spread, total
from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.operations import reveal, truncate
from vfl_node.crypto.shares.rounding import read_signed, round_off

RNG = np.random.default_rng(0)
several = pytest.mark.parametrize("parties", [2, 3, 4])


def rounding(values: np.ndarray, fraction: int, kept: int) -> Any:
    async def program(machine: ShareMachine) -> Any:
        rounded = await round_off(machine, spread(machine, values, fraction), kept)
        (opened,) = await machine.run(reveal(rounded, 0, kept))
        return opened

    return program


@several
@pytest.mark.parametrize(("fraction", "kept"), [(1, 8), (7, 13), (18, 13), (46, 18), (48, 16)])
def test_halves_their_neighbours_and_both_ends(parties: int, fraction: int, kept: int) -> None:
    half, most = 1 << (fraction - 1), 1 << (kept - 1)
    near = [whole * 2 * half + beside for whole in (0, 1, -1, 5, most - 1, 1 - most) for beside in (0, half - 1, -half)]
    spare = RNG.integers(-most + 1, most - 1, 200) * 2 * half + RNG.integers(-half, half, 200)
    values = np.array([*near, -most * 2 * half, *spare])
    program = rounding(values, fraction, kept)
    run = Run(program, parties)
    assert run.results[0].max() < 1 << kept  # no carry is told
    np.testing.assert_array_equal(read_signed(run.results[0], kept), (values + half) >> fraction)
    assert not run.results[1].any()
    assert check_cost(run, program, parties).rounds == 4


def test_other_masks_round_alike_where_a_truncation_does_not() -> None:
    values = RNG.integers(-(1 << 30), 1 << 30, 300)

    async def cut(machine: ShareMachine) -> Any:
        return (await machine.run(truncate(spread(machine, values, 18), 18)))[0].part

    first, second = (Run(rounding(values, 18, 20), seed=seed).results[0] for seed in (0, 1))
    np.testing.assert_array_equal(first, second)
    first, second = (total(Run(cut, seed=seed).results) for seed in (0, 1))
    assert (first != second).mean() > 0.2


def test_numbers_beyond_their_bits_wrap_around() -> None:
    found = Run(rounding(np.array([1 << 20, (1 << 20) + 4]), 2, 10)).results[0]
    np.testing.assert_array_equal(read_signed(found, 10), [0, 1])
