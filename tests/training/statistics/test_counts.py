"""Numbers of records in shares are those of plain counting over the records that all parties have, with the noise they say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from tests.crypto.shares.together import Run, spread
from tests.training.shares_attempts import LEAST_ROWS, zeros
from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.gdp import auc_bound, mu_of
from vfl_node.training.statistics import computation, plan
from vfl_node.training.statistics.computation import LABEL_BITS, split_counts
from vfl_node.training.statistics.plan import StatisticsPlan, noise_of

CASES = [(2, "psu", 0.25), (2, "psi", 0.25), (2, "psu", 0.0), (3, "psi", 0.25)]


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize(("parties", "protocol", "held_out"), CASES)
def test_counts_are_those_of_shared_records(world: Any, attempt: Any, parties: int, protocol: str, held_out: float) -> None:
    over, of = world(parties, protocol), attempt(evaluate={"test_fraction": held_out})
    results = of(over)
    for name, result in zip(over.data, results, strict=True):
        counts = of.counts(over)[name][0]
        reported = [each for each in result.section.columns if each.party == name]
        assert len(reported) == counts.shape[0] >= 3
        for each, expected in zip(reported, counts, strict=True):
            assert [each.bins[place].counts for place in (0, 1, 2, 3, -1)] == [tuple(row) for row in expected.tolist()]
            assert sum(map(sum, (one.counts for one in each.bins))) == over.both[of.plan(over).groups[0]].sum()


@pytest.mark.usefixtures("silent")
def test_the_active_party_has_the_figures_of_all_columns(world: Any, attempt: Any) -> None:
    over = world(3, "psi")
    active, *passive = attempt()(over)
    for result in passive:
        mine = result.section.columns
        (party,) = {each.party for each in mine}
        theirs = [each for each in active.section.columns if each.party == party]
        hidden = {"name": None, "bins": (), "shared": None}
        assert theirs == [each.model_copy(update=hidden) for each in mine]
        assert all(each.name for each in mine)


def test_counts_of_nobody_are_noise_alone(world: Any, attempt: Any) -> None:
    """Without a shared record, of 3 tables: beyond 3.1 standard errors by chance twice in a thousand."""
    seen = []
    for seed in range(3):
        of, over = attempt(secret=str(seed)), world(2, "psu", disjoint=True, seed=seed)
        seen += [opened.ravel() for opened in _opened(of, over)]
        deviation = of.plan(over).deviation
    numbers = np.concatenate(seen)
    assert len(numbers) > 200
    assert deviation == pytest.approx(np.sqrt(2 * 7) / mu_of(1.0))
    assert numbers.std() == pytest.approx(deviation, rel=3.1 / np.sqrt(2 * len(numbers)))
    assert abs(numbers.mean()) < 4 * deviation / np.sqrt(len(numbers))


def _opened(of: Any, over: Any) -> list[np.ndarray]:
    """What each party got, before anything was made of it."""
    found, split = [], computation.split_counts

    def keeps(numbers: Any) -> Any:
        found.append(split(numbers))
        return found[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(computation, "split_counts", keeps)
        of(over)
    return found


@pytest.mark.usefixtures("silent")
def test_columns_are_counted_some_at_a_time(world: Any, attempt: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    over = world(2, "psu")
    whole = attempt()(over)
    monkeypatch.setattr(plan, "BLOCK_CELLS", 2 * 5 * len(over))
    several = attempt()(over)
    assert (whole[0].steps, several[0].steps) == (2, 4)  # 3 columns and 4
    assert [result.section.columns for result in several] == [result.section.columns for result in whole]


@pytest.mark.parametrize("epsilon", [1.0, 4.0, None])
def test_one_record_is_told_as_well_as_epsilon_says(monkeypatch: pytest.MonkeyPatch, epsilon: float | None) -> None:
    """By the sum of all that it changes, over 300 draws of each world; without noise it is told for sure."""
    columns, draws = 6, 300  # and one of the other party's
    if epsilon is None:
        monkeypatch.setattr(computation, "draw_noise", zeros)
    told = []
    for shared in (0, 1):
        counts = np.zeros((1, columns * 3), np.int64)
        counts[0, ::3] = shared << LABEL_BITS
        told += [_open_once(counts, columns, epsilon or 1.0, f"{shared} {number}") for number in range(draws)]
    area = roc_auc_score([0] * draws + [1] * draws, [float(each[0, :, 0, 1].sum()) for each in told])
    if epsilon is None:
        assert area == 1.0
        return
    comes_in = mu_of(epsilon) * np.sqrt(columns / (2 * (columns + 1)))  # what is bounded are swaps in all columns
    assert abs(area - auc_bound(comes_in)) < 4 * np.sqrt(1 / (6 * draws))
    assert area < auc_bound(mu_of(epsilon)) + 4 * np.sqrt(1 / (6 * draws))


def _open_once(counts: np.ndarray, columns: int, epsilon: float, context: str) -> np.ndarray:
    """What the first party gets of sums that are all its own but for one column."""
    of = StatisticsPlan(10, (columns, 1), 3, (np.arange(10),), epsilon, LEAST_ROWS)

    async def opens(machine: ShareMachine) -> np.ndarray:
        return await computation.open_counts(
            machine, of, [spread(machine, counts).part, spread(machine, counts[:, :3] * 0).part]
        )

    return Run(opens, context=context).results[0]


def test_both_counts_of_a_sum_are_read_exactly() -> None:
    low, high = np.array([0, -5, 7, -(2**22), 2**22]), np.array([3, 0, -9, 2**22, -(2**22)])
    numbers = ((high << LABEL_BITS) + low).astype(np.int64).view(np.uint64)
    assert split_counts(numbers).tolist() == np.stack([low, high], axis=1).tolist()


def test_noise_grows_with_columns_and_falls_with_mu() -> None:
    assert noise_of(1.0, 8) == pytest.approx(2 * noise_of(1.0, 2))
    assert noise_of(0.5, 1) == pytest.approx(2 * np.sqrt(2))
