"""What is public of a training of trees, and the dealer's part in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import override

from vfl_node.crypto.shares.functions import INVERSE
from vfl_node.crypto.shares.machine import Dealer
from vfl_node.crypto.shares.sines import SIGMOID
from vfl_node.ledger import Disclosure
from vfl_node.training.schedule import Schedule
from vfl_node.training.shares.metric_noise import MetricNoise
from vfl_node.training.shares.program import After, Program
from vfl_node.training.trees import memory
from vfl_node.training.trees.computation import Grown, TreesTraining, compute
from vfl_node.training.trees.config import MOST_CANDIDATES, MOST_ROWS, Trees
from vfl_node.training.trees.disclosures import learns
from vfl_node.training.trees.gradients import TERMS
from vfl_node.training.trees.noised import OF_HESSIANS, deviation_of
from vfl_node.training.trees.plan import NOISED_BELOW, TreesPlan
from vfl_node.training.trees.section import TreesSection
from vfl_node.transport.generated.vfl.v1.shares_pb2 import DealingTerms, ShareContext


class TreesProgram(Program[TreesTraining]):
    """Trees in shares (:mod:`vfl_node.training.trees.computation`), as a `Program`."""

    version = 2
    unit = "trees"

    @property
    def _train(self) -> Trees:
        return Trees.section_of(self.job)

    def public(self, said: ShareContext | DealingTerms) -> Mapping[str, Any]:
        """All constants that values are made of."""
        plan = self.shapes(said.batch_rows, said.widths)
        series = SIGMOID[TERMS]
        fractions = plan.gradient_fraction, plan.hessian_fraction, plan.gain_fraction
        constants = [fractions, plan.guess.thresholds, plan.guess.changes, INVERSE, series.coefficients, series.multiples]
        noise = {} if plan.deviation is None else {"noise": [plan.deviation.hex(), OF_HESSIANS.hex(), NOISED_BELOW]}
        opens_gains = self._train.reveal == "owners" and plan.deviation is None
        gains = {"gains to bits": plan.gain_step_bits} if opens_gains else {}
        return {"constants": [list(each) for each in constants], "side by side": plan.at_once, **noise, **gains}

    def shapes(self, rows: int, widths: Sequence[int]) -> TreesPlan:
        """The shapes of a training over so many rows and candidates."""
        train, noise = self._train, deviation_of(self._train, self.job.align.spec)
        return TreesPlan(
            rows=rows,
            widths=tuple(widths),
            trees=train.trees,
            depth=train.depth,
            rate=train.learning_rate,
            l2=max(train.l2, noise or 0.0),
            min_gain=train.min_gain,
            least_rows=train.least_rows,
            loss=train.loss,
            outputs=train.outputs,
            at_once=memory.grown_at_once(train, rows, widths),
            deviation=noise,
        )

    @override
    def plan(self, said: DealingTerms) -> TreesTraining:
        job, train = self.job, self._train
        schedule = Schedule(said.schedule, said.rows, train.seed, said.split or None)
        training, testing = schedule.split(0, job.evaluate.test_fraction)
        return TreesTraining(
            plan=self.shapes(said.rows, said.widths),
            training=training,
            testing=testing if train.metrics_by == "histogram" else testing[:0],
            metric_noise=MetricNoise.from_job(job),
            threshold=job.evaluate.threshold,
            told=job.evaluate.share_with_passive,
            reveals=train.reveal == "owners",
            leaves=train.leaves == "active",
            schedule=schedule,
            row_fraction=train.row_fraction,
        )

    def fits(self, said: DealingTerms) -> bool:
        """As in the contract; all rows are one batch."""
        whole = said.batch_rows == said.rows == said.divisor
        return whole and said.rows <= MOST_ROWS and sum(said.widths) <= MOST_CANDIDATES and said.epoch <= self._train.trees

    def steps(self, plan: TreesTraining) -> int:
        """Trees."""
        return plan.plan.trees

    @override
    def party_bytes(self, rows: int, widths: Sequence[int], batch_rows: int) -> int:
        return memory.party_bytes(self._train, rows, widths)

    @override
    def dealer_bytes(self, rows: int, widths: Sequence[int], batch_rows: int) -> int:
        return memory.dealer_bytes(self._train, rows, widths)

    @override
    async def deal(self, dealer: Dealer, plan: TreesTraining, first: int, after: After) -> None:

        async def finish_tree(number: int, grown: Grown) -> None:
            await after()

        await compute(dealer, plan, None, None, first, finish_tree)

    @override
    def learns(self, rows: int | None, widths: Sequence[int]) -> Mapping[str, tuple[Disclosure, ...]]:
        return learns(self.job, rows, widths)

    @override
    def section(self, dealer_bytes: int) -> TreesSection:
        return TreesSection(dealer_bytes=dealer_bytes)
