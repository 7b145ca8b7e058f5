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


def plain(counts: np.ndarray, least: int = 1) -> float:
    """Of one column's [bins, groups · 2], corrected."""
    both = counts.reshape(len(counts), -1, 2).sum(axis=1)
    small = (both < least).any(axis=1)
    rest = both[small].sum(axis=0)
    pooled = [counts[~small], counts[small].sum(axis=0, keepdims=True) * (rest >= least).all()]
    cells = np.concatenate(pooled).reshape(-1, counts.shape[1] // 2, 2)

    def phi(cells: np.ndarray) -> float:
        return float((cells * np.log(np.maximum(cells, 1) - 0.5) - 0.25 * (cells == 1)).sum())

    total = phi(cells) - phi(cells.sum(axis=2)) - phi(cells.sum(axis=0)) + phi(cells.sum(axis=(0, 2)))
    return total / max(1, cells.sum()) / np.log(2)


def check(counts: np.ndarray, plan: ExactPlan, run: Run) -> np.ndarray:
    expected = np.array([plain(part, plan.least_rows) for part in np.split(counts, np.cumsum(plan.bins)[:-1])])
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
    assert cost.rounds == 23
    assert cost == runs(0 * counts, PLANS[parties], parties)[1]


def test_a_column_that_tells_the_label_and_one_that_tells_no_more_than_the_groups() -> None:
    telling = np.kron([[9, 1], [1, 9]], np.full((1, GROUPS), 100)).reshape(2, 2, GROUPS).swapaxes(1, 2).reshape(2, -1)
    useless = np.tile([30, 70, 50, 50, 80, 20, 10, 90], (3, 1)) * np.array([[1], [2], [5]])
    plan = ExactPlan((2, 3), (1, 1), 1)
    run, _ = runs(np.concatenate([telling, useless]), plan)
    check(np.concatenate([telling, useless]), plan, run)
    np.testing.assert_allclose(run.results[1], [1 - entropy(0.1), 0], atol=0.003)


def entropy(p: float) -> float:
    return float(-p * np.log2(p) - (1 - p) * np.log2(1 - p))


@pytest.mark.parametrize(("rows", "off"), [(300, 0.01), (1100, 0.003)])
def test_useless_columns_say_nothing_on_average(rows: int, off: float) -> None:
    """By 120 columns of 10 bins, whose results have a standard deviation of .011 at most; plain counting says .067 at 1,100."""
    rng, columns = np.random.default_rng(5), 120
    counts = np.zeros((columns, 10, 10, 2), np.int64)
    for column in counts:
        bins, groups = rng.integers(0, 10, (2, rows))
        np.add.at(column, (bins, groups, (rng.random(rows) < groups / 15).astype(int)), 1)
    run, _ = runs(counts.reshape(columns * 10, 20), ExactPlan((10,) * columns, (1,) * columns, 20))
    assert abs(run.results[1].mean()) < off


@pytest.mark.parametrize("telling", [False, True])
def test_the_most_records(telling: bool) -> None:
    counts = np.zeros((3, 2 * GROUPS), np.int64)
    if telling:
        counts[0, 2] = counts[1, 3] = MOST_ROWS - 1
        counts[0, 3] = counts[1, 2] = 1
    else:
        counts[:] = MOST_ROWS // (3 * GROUPS) - RNG.integers(0, 2000, counts.shape)
    run, _ = runs(counts, ExactPlan((3,), (0,), 1))
    assert (check(counts, ExactPlan((3,), (0,), 1), run) > 0.99).all() == telling
