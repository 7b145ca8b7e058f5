"""What a column says beyond the active party's groups is that of the numbers, rounded, for any numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.crypto.shares.together import Run, check_cost, spread
from vfl_node.crypto.shares.machine import Cost, ShareMachine
from vfl_node.training.statistics.exact_plan import MOST_ROWS, ExactPlan
from vfl_node.training.statistics.worth import find_worth

RNG = np.random.default_rng(0)
BINS, GROUPS = (1, 2, 6, 9), 4
PLANS = {2: ExactPlan(BINS, (1, 0, 1, 0), 1), 3: ExactPlan(BINS, (2, 0, 1, 2), 1)}
several = pytest.mark.parametrize("parties", [2, 3])


def runs(counts: np.ndarray, plan: ExactPlan, parties: int = 2) -> tuple[Run, Cost]:
    async def program(machine: ShareMachine) -> Any:
        return await find_worth(machine, spread(machine, counts), plan)

    run = Run(program, parties)
    return run, check_cost(run, program, parties)


def plain(counts: np.ndarray) -> float:
    """Of one column's [bins, groups · 2]: entropies of probabilities, not of numbers."""
    p = counts.reshape(len(counts), -1, 2) / max(1, counts.sum())

    def entropy(p: np.ndarray) -> float:
        return float(-(p[p > 0] * np.log2(p[p > 0])).sum())

    return entropy(p.sum(axis=2)) + entropy(p.sum(axis=0)) - entropy(p) - entropy(p.sum(axis=(0, 2)))


def check(counts: np.ndarray, plan: ExactPlan, run: Run) -> np.ndarray:
    expected = np.array([plain(part) for part in np.split(counts, np.cumsum(plan.bins)[:-1])])
    for place, found in enumerate(run.results):
        mine = (np.array(plan.owners) == place) | (place == 0)
        np.testing.assert_array_equal(np.isnan(found), ~mine)
        assert (np.abs(found - expected)[mine] < 5e-4 + 2e-4).all()
    return expected


@several
@pytest.mark.parametrize("high", [1, 2, 40, 5000])
def test_any_numbers_at_the_same_cost(parties: int, high: int) -> None:
    counts = RNG.integers(0, high, (sum(BINS), 2 * GROUPS))
    run, cost = runs(counts, PLANS[parties], parties)
    check(counts, PLANS[parties], run)
    assert cost.rounds == 17
    assert cost == runs(0 * counts, PLANS[parties], parties)[1]


def test_a_column_that_tells_the_label_and_one_that_tells_no_more_than_the_groups() -> None:
    telling = np.kron([[1, 0], [0, 1]], np.full((1, GROUPS), 100)).reshape(2, 2, GROUPS).swapaxes(1, 2).reshape(2, -1)
    useless = np.tile([30, 70, 50, 50, 80, 20, 10, 90], (3, 1)) * np.array([[1], [2], [5]])
    plan = ExactPlan((2, 3), (1, 1), 1)
    run, _ = runs(np.concatenate([telling, useless]), plan)
    check(np.concatenate([telling, useless]), plan, run)
    np.testing.assert_array_equal(run.results[1], [1, 0])


@pytest.mark.parametrize("pure", [False, True])
def test_the_most_records(pure: bool) -> None:
    counts = np.zeros((3, 2 * GROUPS), np.int64)
    if pure:
        counts[0, 2] = counts[1, 3] = MOST_ROWS
    else:
        counts[:] = MOST_ROWS // (3 * GROUPS) - RNG.integers(0, 2000, counts.shape)
    run, _ = runs(counts, ExactPlan((3,), (0,), 1))
    assert (check(counts, ExactPlan((3,), (0,), 1), run) > 0.99).all() == pure
