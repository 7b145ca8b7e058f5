"""A histogram in shares is that of the numbers, to a bin; everything opened for it is uniform."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import chisquare

from tests.crypto.shares.together import Run, counted, shared
from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.ring import encode
from vfl_node.crypto.shares.tallies import Level, far, sift, tally
from vfl_node.crypto.shares.values import Shared, stack_rows

BINS, ROWS = 64, 900
ONE = Level(5, BINS)
RANGE = 2.0**ONE.range_bits
ALL = (*far(44), Level(6, 32, inner=4.0), Level(4, BINS))
RNG = np.random.default_rng(0)
Z, AMOUNTS = RNG.normal(0, 3, ROWS), RNG.integers(0, 2, (ROWS, 2)).astype(float)


async def program(machine: ShareMachine) -> Shared:
    return (await machine.run(tally(shared(machine, Z, 44), shared(machine, AMOUNTS, 0, seed=1), ONE)))[0].sum(0)


def test_each_number_counts_in_its_bin_or_the_one_below() -> None:
    for parties in (2, 3):
        run = Run(program, parties)
        found = run.value
        np.testing.assert_allclose(found.sum(axis=0), AMOUNTS.sum(axis=0))
        assert (found >= 0).all()
        upper = np.floor((Z + RANGE / 2) / (RANGE / BINS)).astype(int)
        most, least = (np.cumsum([AMOUNTS[of == b].sum(axis=0) for b in range(BINS)], axis=0) for of in (upper - 1, upper))
        below = np.cumsum(found, axis=0)
        assert ((below <= most) & (below >= least)).all()
        cost = counted(program, parties)
        assert (run.table.sent, run.queues.bytes) == (cost.opened, cost.dealt)


def test_numbers_count_at_the_right_place_on_average() -> None:
    means = [(Run(program, seed=seed).value * ONE.centres[:, None]).sum(axis=0) / AMOUNTS.sum(axis=0) for seed in range(8)]
    expected = (Z[:, None] * AMOUNTS).sum(axis=0) / AMOUNTS.sum(axis=0)
    np.testing.assert_allclose(np.mean(means, axis=0), expected, atol=0.02)


def test_everything_opened_is_uniform() -> None:
    masked, amounts = (
        np.concatenate([Run(program, seed=seed).table.seen[0][of].ravel() for seed in range(3)]) for of in (0, 1)
    )
    tops = np.concatenate([(masked >> np.uint64(45)) & np.uint64(15), amounts >> np.uint64(60)]).astype(int)
    assert chisquare(np.bincount(tops, minlength=16)).pvalue > 1e-4
    assert encode(Z, 44).dtype == masked.dtype


def test_each_range_holds_what_is_left_to_it() -> None:
    assert ALL[0].range_bits == 20  # of 64 bits, 44 of which are fractional: no number is beyond it
    for level, following in pairwise(ALL):
        assert level.inner is not None
        assert level.inner + level.width <= 2 ** (following.range_bits - 1) - following.width


@pytest.mark.parametrize("spread", [0.5, 6.0, 40.0, 900.0, 1e5])
def test_numbers_of_any_size_count_where_they_are(spread: float) -> None:
    z = np.clip(RNG.normal(0, spread, ROWS), -2e5, 2e5)

    async def sorted_in(machine: ShareMachine) -> Shared:
        (found,), (left,) = await sift(machine, [shared(machine, z, 44)], [shared(machine, AMOUNTS, 0, seed=1)], ALL)
        return stack_rows([found, left])

    stands, run = np.concatenate([level.kept for level in ALL]), Run(sorted_in)
    found, left = run.value[: len(stands)], run.value[len(stands) :]
    np.testing.assert_array_equal(left, 0)  # the last level keeps all
    np.testing.assert_array_equal(found.sum(axis=0), AMOUNTS.sum(axis=0))
    order = np.argsort(stands, kind="stable")
    for column in (0, 1):
        at, numbers = np.repeat(stands[order], found[order, column].astype(int)), np.sort(z[AMOUNTS[:, column] > 0])
        assert np.abs(at - numbers).max() <= max(0.5, np.abs(numbers).max()) / 2
        assert at.mean() == pytest.approx(numbers.mean(), abs=spread / 40 + 0.01)
    cost = counted(sorted_in)
    assert (run.table.sent, run.queues.bytes) == (cost.opened, cost.dealt)
