"""What is public of statistics in shares, and the dealer's part in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import override

from vfl_node.crypto.shares.functions import INVERSE
from vfl_node.crypto.shares.machine import Dealer
from vfl_node.ledger import Disclosure
from vfl_node.training.schedule import Schedule
from vfl_node.training.shares.program import After, Program
from vfl_node.training.statistics import costs
from vfl_node.training.statistics.computation import Sums, compute
from vfl_node.training.statistics.config import MOST_COLUMNS, MOST_ROWS, Statistics
from vfl_node.training.statistics.disclosures import learns
from vfl_node.training.statistics.exact_plan import CONSTANTS
from vfl_node.training.statistics.plan import MOST_COMPARED, StatisticsPlan
from vfl_node.training.statistics.section import StatisticsSection
from vfl_node.transport.generated.vfl.v1.shares_pb2 import DealingTerms, ShareContext


class StatisticsProgram(Program[StatisticsPlan]):
    """Statistics in shares (:mod:`vfl_node.training.statistics.computation`), as a `Program`. Widths are numbers of columns."""

    version = 1
    unit = "blocks"

    @property
    def _section(self) -> Statistics:
        return Statistics.section_of(self.job)

    def public(self, said: ShareContext | DealingTerms) -> Mapping[str, Any]:
        """How much noise there is; without noise all constants that values are made of."""
        plan = costs.plan_of(self._section, said.batch_rows, said.widths)
        if plan.epsilon is None:
            return {"constants": [list(each) for each in (*CONSTANTS, INVERSE)]}
        return {"deviation": plan.deviation.hex(), "products": plan.deviation_of_products.hex()}

    @override
    def plan(self, said: DealingTerms) -> StatisticsPlan:
        schedule = Schedule(said.schedule, said.rows, self._section.seed, said.split or None)
        training, testing = schedule.split(0, self.job.evaluate.test_fraction)
        groups = (training, testing) if self.job.evaluate.test_fraction else (training,)
        return costs.plan_of(self._section, said.rows, said.widths, groups)

    @override
    def fits(self, said: DealingTerms) -> bool:
        whole = said.batch_rows == said.rows == said.divisor
        fits = whole and said.rows <= MOST_ROWS and max(said.widths) <= MOST_COLUMNS
        fits = fits and not (self._section.correlations and sum(said.widths) > MOST_COMPARED)
        return fits and said.epoch <= len(self.plan(said).blocks)

    def steps(self, plan: StatisticsPlan) -> int:
        """Blocks of columns."""
        return len(plan.blocks)

    @override
    def party_bytes(self, rows: int, widths: Sequence[int], batch_rows: int) -> int:
        return costs.party_bytes(self._section, rows, widths)

    @override
    def dealer_bytes(self, rows: int, widths: Sequence[int], batch_rows: int) -> int:
        return costs.dealer_bytes(self._section, rows, widths)

    @override
    async def deal(self, dealer: Dealer, plan: StatisticsPlan, first: int, after: After) -> None:

        async def finish_block(number: int, sums: Sums) -> None:
            await after()

        await compute(dealer, plan, None, (), first, finish_block)

    @override
    def learns(self, rows: int | None, widths: Sequence[int]) -> Mapping[str, tuple[Disclosure, ...]]:
        return learns(self.job, rows, widths)

    @override
    def section(self, dealer_bytes: int) -> StatisticsSection:
        return StatisticsSection(dealer_bytes=dealer_bytes)
