"""A histogram in shares is that of the numbers, to a bin; everything opened for it is uniform."""

from __future__ import annotations

import numpy as np
from scipy.stats import chisquare

from tests.crypto.shares.together import Run, counted, shared
from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.ring import encode
from vfl_node.crypto.shares.tallies import RANGE, centres, tallied
from vfl_node.crypto.shares.values import Shared

BINS, ROWS = 64, 900
RNG = np.random.default_rng(0)
Z, AMOUNTS = RNG.normal(0, 3, ROWS), RNG.integers(0, 2, (ROWS, 2)).astype(float)


async def program(machine: ShareMachine) -> Shared:
    return (await machine.run(tallied(shared(machine, Z, 44), shared(machine, AMOUNTS, 0, seed=1), BINS)))[0]


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
    means = [(Run(program, seed=seed).value * centres(BINS)[:, None]).sum(axis=0) / AMOUNTS.sum(axis=0) for seed in range(8)]
    expected = (Z[:, None] * AMOUNTS).sum(axis=0) / AMOUNTS.sum(axis=0)
    np.testing.assert_allclose(np.mean(means, axis=0), expected, atol=0.02)


def test_everything_opened_is_uniform() -> None:
    masked, amounts = (
        np.concatenate([Run(program, seed=seed).table.seen[0][of].ravel() for seed in range(3)]) for of in (0, 1)
    )
    tops = np.concatenate([(masked >> np.uint64(45)) & np.uint64(15), amounts >> np.uint64(60)]).astype(int)
    assert chisquare(np.bincount(tops, minlength=16)).pvalue > 1e-4
    assert encode(Z, 44).dtype == masked.dtype
