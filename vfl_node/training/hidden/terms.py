"""What is public of a training in shares, and the dealer's part in it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.shares.machine import Dealer
from vfl_node.job import Job
from vfl_node.ledger import Disclosure
from vfl_node.training.hidden import layout, memory
from vfl_node.training.hidden.bound import worlds
from vfl_node.training.hidden.brought import HiddenPlan, WeightShares
from vfl_node.training.hidden.computation import compute
from vfl_node.training.hidden.config import Hidden
from vfl_node.training.hidden.descent import Descent, descent_of, describe_noise
from vfl_node.training.hidden.disclosures import HiddenNumbers, learns
from vfl_node.training.hidden.layout import BlockLayout
from vfl_node.training.hidden.network import Form
from vfl_node.training.hidden.section import HiddenSection
from vfl_node.training.schedule import Schedule
from vfl_node.training.shares.metric_noise import MetricNoise
from vfl_node.training.shares.program import After, Program
from vfl_node.transport.generated.vfl.v1.shares_pb2 import DealingTerms, ShareContext

VERSION = 5
"""The version of the computation: another one computes other values in the same places, so masks must be others."""


_MEASURED_BYTES, _BIN_BYTES, _LEAST_MEASURED, _MOST_MEASURED = 160 << 20, 40, 512, 8192


def most_measured(train: Hidden) -> int:
    """Rows that a model is measured on without a coordinator: each takes about 10 kB an output with 256 bins.

    More of those held out are not measured on.
    """
    wanted = _MEASURED_BYTES // (_BIN_BYTES * train.bins * train.outputs)
    return max(_LEAST_MEASURED, min(_MOST_MEASURED, wanted))


def batch_of(train: Hidden, rows: int, trained: int, shared: int | None) -> tuple[int, float]:
    """Rows of a step, and how many of them all parties own, about.

    Args:
        train: the job's section.
        rows: length of the shared order.
        trained: how many of these are trained on.
        shared: how many records all parties have; None if that is hidden.
    """
    share = train.shared_fraction or 1.0
    if shared is not None:
        share = 1.0 if shared == rows else float(f"{max(shared / rows, 1e-6):.1e}")  # to two digits, as the dealer sees it
    batch = trained if train.epsilon is not None else min(trained, math.ceil(train.batch / share))
    if train.coordinated or not trained:
        return batch, max(1.0, batch * share)
    whole = layout.batch_rows(batch, trained)
    return whole, max(1.0, min(whole, trained) * share)


class HiddenProgram(Program[HiddenPlan]):
    """Training in shares (:mod:`vfl_node.training.hidden.computation`), as a `Program`."""

    version = VERSION

    @property
    def _train(self) -> Hidden:
        return Hidden.section_of(self.job)

    def public(self, said: ShareContext | DealingTerms) -> Mapping[str, Any]:
        """How it is descended."""
        descent = self._descent(said.divisor)
        numbers = (descent.steps, descent.momentum, descent.rate, descent.deviation or 0)
        found: dict[str, Any] = {"descent": [float(number).hex() for number in numbers]}
        return found if self._train.coordinated else {**found, "batch rows": said.batch_rows}  # of which blocks follow

    @override
    def plan(self, said: DealingTerms) -> HiddenPlan:
        job, train = self.job, self._train
        schedule = Schedule(said.schedule, said.rows, train.seed, said.split or None)
        training, testing = schedule.split(0, job.evaluate.test_fraction)
        testing = testing if train.metrics_by == "histogram" else testing[:0]
        if not train.coordinated and len(testing) > (most := most_measured(train)):
            chosen = Randomness(schedule.derive("measured")).permutation(len(testing))[:most]
            testing = testing[np.sort(chosen)]
        blocks = None if train.coordinated else BlockLayout.make(schedule, training, testing, said.batch_rows, max(said.widths))
        if blocks:
            training, testing = np.arange(blocks.trained), blocks.tested
        return HiddenPlan(
            form=Form(tuple(said.widths), train.layers, train.outputs, train.form_loss),
            rows=said.rows,
            schedule=schedule,
            training=training,
            testing=testing,
            descent=self._descent(said.divisor),
            batch_rows=said.batch_rows,
            divisor=said.divisor,
            weight_decay=train.weight_decay,
            bins=train.bins,
            threshold=job.evaluate.threshold,
            told=job.evaluate.share_with_passive,
            reveals=train.reveal == "owners",
            metric_noise=MetricNoise.from_job(job),
            audits=train.dealer_audit > 0,
            layout=blocks,
        )

    @override
    def fits(self, said: DealingTerms) -> bool:
        return said.epoch <= self._descent(said.divisor).steps

    def steps(self, plan: HiddenPlan) -> int:
        """Epochs."""
        return plan.epochs

    @override
    def party_bytes(self, rows: int, widths: Sequence[int], batch_rows: int) -> int:
        return memory.party_bytes(self._train, rows, widths, batch_rows)

    @override
    def dealer_bytes(self, rows: int, widths: Sequence[int], batch_rows: int) -> int:
        return memory.coordinator_bytes(self._train, rows, widths, batch_rows)

    @override
    async def deal(self, dealer: Dealer, plan: HiddenPlan, first: int, after: After) -> None:

        async def finish_epoch(epoch: int, parts: WeightShares) -> None:
            await after()

        await compute(dealer, plan, None, None, first, finish_epoch)

    @override
    def learns(self, rows: int | None, widths: Sequence[int]) -> Mapping[str, tuple[Disclosure, ...]]:
        return learns(self.job, HiddenNumbers(rows, tuple(widths), None))

    @override
    def section(self, dealer_bytes: int) -> HiddenSection:
        return HiddenSection(dealer_bytes=dealer_bytes)

    def _descent(self, divisor: float) -> Descent:
        return descent_of(self._train, len(self.job.parties.data), divisor, worlds(self._train.task, self.job.align.spec))


def doubts(job: Job, plan: HiddenPlan) -> tuple[str, ...]:
    """Whether noise takes more than the training gives, in a whole sentence for each party's owner; by public numbers."""
    train = Hidden.section_of(job)
    _, *said = describe_noise(train, len(job.parties.data), plan.records, worlds(train.task, job.align.spec)) or ("",)
    return tuple(f"{text[0].upper()}{text[1:]}." for text in said)
