"""A data party's part in training in shares.

::

    toss a seed → which shared rows are held out, and batches; with an audit another one → what is checked
    widths and digests to the active party, and the context of all masks back
    with a coordinator: shapes to it, the seed of this party's masks back
    without one: keys of both parties, and each one's columns as ciphertexts (pair.py)
    the computation (computation.py), with a checkpoint after each epoch
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from vfl_node.crypto.kernels import lattice_kernel
from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.shares.audit import Coins
from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.paired.kit import OwnBits, PairKit
from vfl_node.metrics.numbers import PredictedNumbers
from vfl_node.process import failpoints
from vfl_node.progress import Advanced, PhaseBegan, ResultDoubted
from vfl_node.session.session import Session
from vfl_node.session.toss import toss
from vfl_node.training.checkpoints import Checkpoints
from vfl_node.training.evaluation import Rival
from vfl_node.training.glm.measuring import output_of
from vfl_node.training.hidden import alone, audit, terms
from vfl_node.training.hidden.brought import HiddenPlan, Own, WeightShares
from vfl_node.training.hidden.computation import HiddenOutcome, compute
from vfl_node.training.hidden.config import Hidden
from vfl_node.training.hidden.disclosures import HiddenNumbers, learns
from vfl_node.training.hidden.held import Held
from vfl_node.training.hidden.inputs import Inputs, digest_of, first_parts, prepare
from vfl_node.training.hidden.network import Form
from vfl_node.training.hidden.paired_costs import check_flood
from vfl_node.training.hidden.section import EXPERIMENTAL, HiddenSection
from vfl_node.training.hidden.terms import HiddenProgram
from vfl_node.training.intervals import Output
from vfl_node.training.own_rows import OwnRows
from vfl_node.training.schedule import Schedule
from vfl_node.training.shares import agreement, kept
from vfl_node.training.shares.agreement import Brought
from vfl_node.training.shares.attempt import ShareSteps, meet_dealer
from vfl_node.training.shares.dealing import Dealing
from vfl_node.training.shares.pair import meet_pair
from vfl_node.training.shares.privacy import Privacy, privacy_of
from vfl_node.training.shares.results import ALL_CHECKED, measure, warnings
from vfl_node.training.summary import Population, Summary
from vfl_node.training.trainer import Coordination, Trained, Trainer, TrainingData
from vfl_node.transport.generated.vfl.v1.shares_pb2 import DealingTerms, ShareContext
from vfl_node.transport.pipe import Traffic


class HiddenTrainer(Trainer):
    """Training in shares (:mod:`vfl_node.training.hidden.computation`), as a `Trainer`."""

    def prepare(self, session: Session) -> None:
        """As the base: sines must be those of all machines, and without a coordinator lattices were compiled."""
        agreement.check_tables()
        if session.coordinator is None:
            lattice_kernel()

    async def run(self, session: Session, data: TrainingData, checkpoints: Checkpoints, resume: str | None) -> Trained:
        """Train with the other data parties, and with the dealer's randomness or what both make themselves.

        Raises:
            DataError: see :func:`vfl_node.training.hidden.inputs.prepare`.
            ProtocolError: a message of another size, or contexts that differ.
            UsageError: without a coordinator more would be sent than the noise of answers hides (``E_JOB``).
            StateError: a checkpoint is damaged or of another schedule; a passive party has other inputs than in an earlier
                attempt (``E_REPLAY``); there is no memory for all columns (``E_MEMORY``).

        Cost: see docs/guides/train-hidden.md; every operation counts its own rounds and bytes.

        Leaks: see :mod:`vfl_node.training.hidden.disclosures`.
        """
        training = _Training(session, data, checkpoints)
        if session.coordinator is None:
            async with session.phase("train") as traffic:
                return await training.train(resume, traffic)
        async with session.phase("train") as traffic, session.coordinator.phase("deal"):
            return await training.train(resume, traffic)

    def coordination(self, session: Session) -> Coordination:
        """The coordinator deals; asked for only where there is one."""
        return Dealing(session, HiddenProgram(session.job))


class _Training:
    """One attempt of one data party."""

    def __init__(self, session: Session, data: TrainingData, checkpoints: Checkpoints) -> None:
        self._session, self._data, self._checkpoints = session, data, checkpoints
        self._train, self._parties = Hidden.section_of(session.job), session.job.parties
        self._place = self._parties.data.index(session.name)
        self._program = HiddenProgram(session.job)

    async def train(self, resume: str | None, traffic: Sequence[Traffic]) -> Trained:
        session, train = self._session, self._train
        seed = await toss(session, session.randomness.derive("toss"))
        coins = await audit.toss_coins(session)
        schedule = Schedule(seed, len(self._data.alignment), train.seed, session.attempt.split)
        training, testing = schedule.split(0, session.job.evaluate.test_fraction)
        inputs = prepare(session, self._data, training, testing)
        context = await self._agree(inputs, schedule, coins)
        rows = len(self._data.alignment)
        agreement.check_room(session, rows, context.widths, self._program.party_bytes(rows, context.widths, context.batch_rows))
        form = Form(tuple(context.widths), train.layers, train.outputs, train.form_loss)
        self._steps = ShareSteps(session, self._checkpoints, schedule.fingerprint, context.context, "epoch")
        parts = self._begin(form, resume)
        rows, done = len(self._data.alignment), len(self._steps.done)
        said = agreement.make_terms(session, self._program, context, rows, seed, done)
        plan = self._program.plan(said)
        if session.coordinator:
            outcome, section = await self._compute_dealt(said, plan, inputs, parts, traffic, coins)
        else:
            assert plan.layout is not None
            inputs = replace(inputs, own=inputs.own.lay_out(plan.layout))  # which frees the columns in the other order
            outcome, section = await self._compute_paired(said, plan, inputs.own, parts, traffic)
        servable = await kept.make_servable(session, plan.schedule, plan.form.widths, inputs.scale, outcome.parts.weights)

        failpoints.reach("evaluate")
        section = section.model_copy(
            update={
                "batch_rows": plan.batch_rows,
                "divisor": plan.divisor,
                "columns": dict(zip(self._parties.data, plan.form.widths, strict=True)),
                "dropped": inputs.dropped,
                "audited": audit.count(plan, coins) if coins else None,
                "privacy": self._privacy(plan),
            }
        )
        return replace(self._result(plan, inputs, outcome, section), servable=servable)

    def _privacy(self, plan: HiddenPlan) -> Privacy:
        return privacy_of(
            self._session.job,
            self._data.spent,
            self._data.spent.limit or self._session.policy.limits.budgets.epsilon,
            columns=max(plan.form.widths),
            records=round(plan.records),
            trainings=self._data.number,
            noise_of_score=plan.descent.noise,
            noise_of_counts=plan.metric_noise.together.counts if plan.metric_noise else None,
        )

    async def _compute_dealt(
        self,
        said: DealingTerms,
        plan: HiddenPlan,
        inputs: Inputs,
        parts: WeightShares,
        traffic: Sequence[Traffic],
        coins: Coins | None,
    ) -> tuple[HiddenOutcome, HiddenSection]:
        """The computation from the first epoch that is left on, with the coordinator's randomness."""
        auditing = partial(audit.make_audit, self._place, coins) if coins else None
        async with meet_dealer(self._session, said, auditing) as met:
            self._steps.begin(met.log, plan.epochs, traffic)
            outcome = await compute(met.party, plan, inputs.own, parts, len(self._steps.done), self._finish_epoch)
        wire, corrections = met.wire, met.corrections
        return outcome, HiddenSection(rounds=wire.rounds, bytes=wire.sent, dealer_bytes=corrections.received)

    async def _compute_paired(
        self, said: DealingTerms, plan: HiddenPlan, own: Own, parts: WeightShares, traffic: Sequence[Traffic]
    ) -> tuple[HiddenOutcome, HiddenSection]:
        """The same with what both parties make themselves; ``own`` is laid out in blocks."""
        layout, first = plan.layout, len(self._steps.done)
        assert layout is not None
        check_flood(
            plan.form,
            trained=layout.trained,
            batch=plan.batch_rows,
            steps=plan.epochs * (layout.trained // plan.batch_rows),
            tested=len(plan.testing),
        )
        async with meet_pair(self._session, said.context, plan.schedule.derive("shares of zero")) as met:
            columns = met.describe_columns(own.columns, len(layout), plan.form.widths, layout.tile_rows)
            bits = OwnBits(own.bits, len(layout), self._owns_all)
            nobodys = OwnBits(None, len(layout), self._owns_all)
            unknown = Held([replace(matrix, part=None) for matrix in columns], nobodys, nobodys)

            async def program(machine: ShareMachine) -> None:
                await compute(machine, plan, None, None, first, _ignore_epoch, PairKit(), unknown)

            async def finish_epoch(epoch: int, now: WeightShares) -> None:
                await self._finish_epoch(epoch, now)
                met.pass_point()

            party, held, progress = met.party(program), Held(columns, bits, bits), self._session.progress
            if not await met.recall_ahead():
                progress.emit(PhaseBegan("encrypt", len(layout) // layout.tile_rows, "blocks of columns"))
                await met.swap_columns(columns, lambda: progress.emit(Advanced(1)))
            self._steps.begin(met.log, plan.epochs, traffic)
            async with met.online.timed():
                await met.make_ahead()
                self._session.policy.check_hours()
                outcome = await compute(party, plan, own, parts, first, finish_epoch, met.kit, held)
        return outcome, HiddenSection(
            rounds=met.online.rounds, bytes=met.online.sent, phases=met.describe(), most_ahead=met.most_ahead
        )

    async def _finish_epoch(self, epoch: int, now: WeightShares) -> None:
        """A checkpoint."""
        self._steps.finish(_to_tensors(now))

    @property
    def _owns_all(self) -> tuple[bool, bool]:
        """Which of two data parties own every row, as the alignment says to all."""
        lacking = self._session.job.align.spec.synthetic_rows_at
        return "active" not in lacking, "passive" not in lacking

    async def _agree(self, inputs: Inputs, schedule: Schedule, coins: Coins | None) -> ShareContext:
        """Everybody's widths, and the digest of all that values are made of."""
        digest = digest_of(inputs.own, self._start.derive("mark").bytes(agreement.DIGEST_BYTES))
        training, _ = schedule.split(0, self._session.job.evaluate.test_fraction)
        sizes = terms.batch_of(self._train, len(self._data.alignment), len(training), self._shared_by_all)
        own = Brought(inputs.width, digest, *sizes, schedule.fingerprint, coins.digest if coins else b"")
        return await agreement.agree(self._session, self._program, own)

    @property
    def _start(self) -> Randomness:
        return self._session.randomness.derive("first weights")

    @property
    def _shared_by_all(self) -> int | None:
        """How many records all parties have, where every data party knows it."""
        align = self._session.job.align
        several = len(self._parties.passive) > 1 and not align.spec.every_row_is_shared  # the active party alone knows it
        return self._data.alignment.common if align.tells_common and not several else None

    def _begin(self, form: Form, resume: str | None) -> WeightShares:
        """This party's shares to begin with."""
        begin = first_parts(form, self._start, bounded=self._train.epsilon is not None)
        if (tensors := self._steps.resume(resume)) is None:
            return begin
        weights, velocity = (
            tuple(tensors[f"{name} {index}"].numpy().view(np.uint64) for index in range(len(form.shapes)))
            for name in ("weights", "velocity")
        )
        return WeightShares(weights, velocity, begin.weights)

    def _result(self, plan: HiddenPlan, inputs: Inputs, outcome: HiddenOutcome, section: HiddenSection) -> Trained:
        session, data = self._session, self._data
        _, testing = plan.schedule.split(0, session.job.evaluate.test_fraction)
        held_out = testing if session.job.evaluate.test_fraction else testing[:0]
        said = section.privacy.text if section.privacy else ""
        numbers = HiddenNumbers(plan.rows, plan.form.widths, outcome.measured, data.number, said, plan.noise_of_weight)
        count, steps = outcome.measured, plan.epochs * len(plan.batches(0)) - (section.audited or 0)
        found = measure(session.job, outcome.tallies, inputs.scale, inputs.spread)
        doubts: tuple[str, ...] = () if self._train.coordinated else (EXPERIMENTAL,)
        doubts += (*inputs.warnings, *terms.doubts(session.job, plan))
        doubts += warnings(session.job, data.alignment.common, outcome.tallies, found)
        doubts += (ALL_CHECKED,) * (steps == 0)
        for text in doubts:
            session.progress.emit(ResultDoubted(text))
        common = None if count is None else Population("common", count, 1.0 if count else None)
        results = Summary(found.values, found.intervals, population=common)
        return Trained(
            epochs=tuple(self._steps.done),
            steps=steps,
            rows=(len(plan.training), len(testing)),
            device="cpu",
            disclosures=learns(session.job, numbers),
            section=section,
            warnings=doubts,
            weights=self._weights(inputs, outcome),
            encoder=inputs.rows.to_json(),
            columns=inputs.rows.encoded(data.table),
            results=results if self._place else self._compare_with_own(results, plan, inputs),
            held_out=held_out,
            split=plan.schedule.split_seed if len(held_out) else b"",
        )

    def _weights(self, inputs: Inputs, outcome: HiddenOutcome) -> dict[str, Tensor]:
        """What this party keeps of the model: its shares; of opened weights its own block, the active one all layers behind."""
        shares = kept.to_tensors(outcome.parts.weights)
        if not outcome.weights:
            return shares
        own = outcome.weights[self._place]
        opened = {"weight": torch.from_numpy((own if self._place else own[:-1]).T.copy())}
        if not self._place:
            opened["bias"] = torch.from_numpy(own[-1] * inputs.rows.intercept)
            layers = outcome.weights[len(self._parties.data) :]
            opened |= {f"layer {index}": torch.from_numpy(weight.copy()) for index, weight in enumerate(layers)}
        if inputs.scale is not None:
            opened["target"] = torch.tensor([inputs.scale.mean, inputs.scale.deviation], dtype=torch.float64)
        return shares | opened

    def _compare_with_own(self, results: Summary, plan: HiddenPlan, inputs: Inputs) -> Summary:
        """The ``results`` beside those of the active party's own model, on all of its held-out rows."""
        session, data, labels = self._session, self._data, inputs.labels
        assert labels is not None
        assert data.table.labels is not None
        _, testing = plan.schedule.split(0, session.job.evaluate.test_fraction)
        rows = OwnRows.select(data.alignment, testing, held_out=session.job.evaluate.test_fraction > 0, records=len(data.table))
        if inputs.width < 2 or not len(rows.training) or not len(rows.tested):
            return results
        values = inputs.rows.transform(data.table, intercept=True)  # made again: kept, they would take memory all the time
        weights = alone.fit(values[rows.training], labels[rows.training], self._train, session.randomness.derive("alone"))
        z = alone.scores(values[rows.tested], weights)
        said: Output = PredictedNumbers(inputs.scale.undo(z[:, 0])) if inputs.scale else output_of(z)
        tested = data.table.labels[rows.tested]
        local = said.metrics(session.job.evaluate.metrics, tested, session.job.evaluate.threshold)
        own = Rival(
            kind="a model of the same kind",
            trained_rows=len(rows.training),
            metrics={name: local.get(name) for name in session.job.evaluate.metrics},
        )
        return replace(results, alone=own, alone_population=Population("owned", len(rows.tested), None))


async def _ignore_epoch(epoch: int, parts: WeightShares) -> None:
    pass


def _to_tensors(parts: WeightShares) -> dict[str, Tensor]:
    """What a checkpoint has."""
    return {
        f"{name} {index}": torch.from_numpy(part.view(np.int64).copy())
        for name, each in (("weights", parts.weights), ("velocity", parts.velocity))
        for index, part in enumerate(each)
    }
