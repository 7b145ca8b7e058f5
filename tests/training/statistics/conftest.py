"""Statistics in shares over tables around a shared order, in memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.training.shares_attempts import LEAST_ROWS, SharesAttempt, World, zeros
from tests.training.shares_attempts import small_messages as small_messages
from tests.training.shares_attempts import world_fixture as world_fixture
from vfl_node.training.statistics import computation
from vfl_node.training.statistics.columns import CountedColumns
from vfl_node.training.statistics.config import Statistics
from vfl_node.training.statistics.plan import StatisticsPlan
from vfl_node.training.statistics.program import StatisticsProgram
from vfl_node.training.statistics.trainer import StatisticsTrainer
from vfl_node.transport.generated.vfl.v1.shares_pb2 import DealingTerms

SMALL = {"algorithm": "statistics", "bins": 4, "least_rows": LEAST_ROWS}


@dataclass
class StatisticsAttempt(SharesAttempt):
    """With what statistics are compared with."""

    trainer = StatisticsTrainer
    small = SMALL

    def plan(self, over: World) -> StatisticsPlan:
        """Of the statistics that were made."""
        return StatisticsProgram(self.job(over)).plan(self.sent(DealingTerms)[0])

    def counts(self, over: World) -> dict[str, NDArray[np.float64]]:
        """Party → numbers of records as plain counting has them, float64[groups, columns, cells, 2]."""
        section, plan = Statistics.section_of(self.job(over)), self.plan(over)
        table, view = next(iter(over.data.values()))
        labels = np.where(view.owned, table.labels[view.rows], 0).astype(int)
        found = {}
        for name, (own, rows) in over.data.items():
            columns = CountedColumns.fit(own, section.bins, max(section.least_rows, self.limits.least_rows))
            bins = columns.find_bins(own)[rows.rows]
            counted = np.zeros((len(plan.groups), len(columns.columns), plan.cells, 2))
            for group, positions in enumerate(plan.groups):
                for row in positions[over.both[positions]]:
                    counted[group, np.arange(counted.shape[1]), bins[row], labels[row]] += 1
            found[name] = counted
        return found


@pytest.fixture(name="attempt", scope="session")
def attempt_fixture() -> type[StatisticsAttempt]:
    """Makes statistics over tables."""
    return StatisticsAttempt


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise is dealt, and is zero, as all parties know."""
    monkeypatch.setattr(computation, "draw_noise", zeros)
    monkeypatch.setattr(StatisticsPlan, "deviation", 0.0)
