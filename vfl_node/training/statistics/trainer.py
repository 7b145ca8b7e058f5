"""A data party's part in statistics in shares.

::

    toss a seed → which shared rows are held out
    numbers of columns and digests to the active party, and the context of all masks back
    shapes to the coordinator, the seed of this party's masks back
    the computation (computation.py), with a checkpoint after each block of columns
    from each passive party to the active one figures of its columns, made of what was opened to it
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from typing_extensions import override

from vfl_node.data.evidence import KeptEvidence
from vfl_node.errors import ProtocolError, UsageError
from vfl_node.metrics.classes import auc
from vfl_node.process import failpoints
from vfl_node.progress import ResultDoubted
from vfl_node.session.session import Session
from vfl_node.session.toss import toss
from vfl_node.training import own_columns
from vfl_node.training.checkpoints import Checkpoints
from vfl_node.training.schedule import Schedule
from vfl_node.training.shares import agreement
from vfl_node.training.shares.agreement import Brought
from vfl_node.training.shares.attempt import DealtParty, ShareSteps, meet_dealer
from vfl_node.training.shares.dealing import Dealing
from vfl_node.training.shares.privacy import privacy_of
from vfl_node.training.statistics.computation import Sums, compute
from vfl_node.training.statistics.config import MOST_COLUMNS, MOST_ROWS, Statistics
from vfl_node.training.statistics.correlations import read_matrix
from vfl_node.training.statistics.disclosures import learns
from vfl_node.training.statistics.figures import DIGITS
from vfl_node.training.statistics.inputs import StatisticsInputs, digest_of, prepare
from vfl_node.training.statistics.plan import MOST_COMPARED, StatisticsPlan
from vfl_node.training.statistics.program import StatisticsProgram
from vfl_node.training.statistics.section import ColumnName, ComparedColumns, CountedColumn, LinearScore, StatisticsSection
from vfl_node.training.statistics.told import ToldColumns, tell_columns, tell_exact
from vfl_node.training.trainer import Coordination, Trained, Trainer, TrainingData
from vfl_node.transport.generated.vfl.v1.shares_pb2 import ColumnStatistics
from vfl_node.transport.pipe import Traffic

NOT_COUNTED = "no value of them sets {least:,} records apart (statistics.least_rows, least_rows), or they are lists"
TOO_MUCH_NOISE = (
    "Noise of standard deviation {noise:.3g} is more than a third of the records of the rarer label in a bin, so bins are "
    "taken together and figures are rough. Count fewer columns, say fewer statistics.bins, or a larger statistics.epsilon."
)


class StatisticsTrainer(Trainer):
    """Statistics in shares, as a `Trainer`: there is no model but weights of evidence."""

    @override
    def prepare(self, session: Session) -> None:
        """As the base.

        Raises:
            PolicyError: without noise the job takes fewer records together than this owner wants (``E_POLICY``).
        """
        agreement.check_tables()
        section = Statistics.section_of(session.job)
        if session.role != "coordinator" and section.epsilon is None:
            agreement.check_least_rows(session, "statistics.least_rows", section.least_rows, "of a label in a bin")

    async def run(self, session: Session, data: TrainingData, checkpoints: Checkpoints, resume: str | None) -> Trained:
        """Count with the other data parties, and with the dealer's randomness.

        Raises:
            DataError: see :func:`vfl_node.training.statistics.inputs.prepare`; a chance of one in 10¹¹ (``E_CHANCE``).
            ProtocolError: a message of another size, contexts that differ, or figures that cannot be.
            StateError: a checkpoint is damaged or of another schedule; a passive party has other inputs than in an earlier
                attempt (``E_REPLAY``); there is no memory for a block of columns (``E_MEMORY``).

        Cost: 2 bytes a row, column and bin to each other data party, once.

        Leaks: see :mod:`vfl_node.training.statistics.disclosures`.
        """
        assert session.coordinator is not None  # the job was checked
        async with session.phase("train") as traffic, session.coordinator.phase("deal"):
            return await _count(session, data, checkpoints, resume, traffic)

    @override
    def coordination(self, session: Session) -> Coordination:
        return Dealing(session, StatisticsProgram(session.job))


async def _count(
    session: Session, data: TrainingData, checkpoints: Checkpoints, resume: str | None, traffic: Sequence[Traffic]
) -> Trained:
    section, program, rows = Statistics.section_of(session.job), StatisticsProgram(session.job), len(data.alignment)
    _check_size(section, rows)
    own_widths = [len((data.whole or data.table).columns)]
    agreement.check_room(session, rows, own_widths, program.party_bytes(rows, own_widths, rows))
    seed = await toss(session, session.randomness.derive("toss"))
    schedule = Schedule(seed, rows, section.seed, session.attempt.split)
    inputs = prepare(session, data)
    width = len(inputs.columns.columns)
    _check_size(section, rows, [width])
    salt = session.randomness.derive("mark of inputs").bytes(agreement.DIGEST_BYTES)
    own = Brought(width, digest_of(inputs.own, salt), rows, float(rows), schedule.fingerprint)
    context = await agreement.agree(session, program, own)
    _check_size(section, rows, context.widths)
    agreement.check_room(session, rows, context.widths, program.party_bytes(rows, context.widths, rows))
    steps = ShareSteps(session, checkpoints, schedule.fingerprint, context.context, "block")
    start = _from_tensors(steps, resume)
    said = agreement.make_terms(session, program, context, rows, seed, len(steps.done))
    plan = program.plan(said)

    async def finish_block(number: int, sums: Sums) -> None:
        steps.finish({f"sums {index}": torch.from_numpy(part.view(np.int64).copy()) for index, part in enumerate(sums)})

    async with meet_dealer(session, said) as met:
        steps.begin(met.log, len(plan.blocks), traffic)
        opened = await compute(met.party, plan, inputs.own, start, len(start), finish_block)
    judged = _judge(inputs, data) if plan.worth else None
    if plan.epsilon is None:
        place = session.job.parties.data.index(session.name)
        each = tell_exact(inputs.columns, opened, plan, place, judged)
        names = session.job.parties.data if place == 0 else (session.name,)
        told, columns = each[0], tuple(one for name, some in zip(names, each, strict=True) for one in some.columns(name))
    else:
        told = tell_columns(inputs.columns, data, opened.counts, plan.deviation, plan.least_rows)
        columns = await _exchange(session, plan, told)
    failpoints.reach("evaluate")
    return _result(session, data, plan, inputs, told, columns, judged, opened.products, met, steps, schedule)


def _judge(inputs: StatisticsInputs, data: TrainingData) -> tuple[float, float] | None:
    """The AUC of the active party's own score by tenths, and the share of label 1; None at others."""
    labels, mine = data.table.labels, data.alignment.owned
    if labels is None:
        return None
    ones = labels[data.alignment.rows[mine]] > 0
    found = auc(ones.astype(np.float64), inputs.own.scored[mine].astype(np.float64))
    return (0.5 if found is None else found), float(ones.mean())


async def _exchange(session: Session, plan: StatisticsPlan, told: ToldColumns) -> tuple[CountedColumn, ...]:
    """The figures of this party's columns, and at the active one those of all others.

    Raises:
        ProtocolError: a party sends other numbers than figures of its columns (``E_COUNT``).
    """
    if session.role == "passive":
        (active,) = session.data_peers.values()
        await active.send(ColumnStatistics(values=told.figures.ravel().tolist()))
        return told.columns(session.name)
    columns = told.columns(session.name)
    for width, channel in zip(plan.columns[1:], session.data_peers.values(), strict=True):
        values = np.array((await channel.receive(ColumnStatistics)).values)
        try:
            columns += ToldColumns.from_values(values, width).columns(channel.peer)
        except ValueError:
            raise ProtocolError(
                f"{channel.peer} sent {len(values)} numbers, which are no figures of its {width} columns",
                code="E_COUNT",
                hint=f"ask the owner of {channel.peer} whether it runs another version, and submit the job again",
            ) from None
    return columns


def _result(
    session: Session,
    data: TrainingData,
    plan: StatisticsPlan,
    inputs: StatisticsInputs,
    told: ToldColumns,
    columns: tuple[CountedColumn, ...],
    judged: tuple[float, float] | None,
    products: NDArray[np.float64] | None,
    met: DealtParty,
    steps: ShareSteps,
    schedule: Schedule,
) -> Trained:
    """What this party has."""
    fraction, split = session.job.evaluate.test_fraction, schedule.split_seed
    evidence = inputs.columns.weigh(session.attempt.job_id, told.evidence)
    job, testing = session.job, plan.groups[1] if len(plan.groups) > 1 else np.empty(0, np.int64)
    least = max(plan.least_rows, session.policy.limits.least_rows)
    doubts = own_columns.drop_warnings(list(inputs.dropped), NOT_COUNTED.format(least=least))
    if plan.deviation and 3 * plan.deviation > max(0.0, min(told.records)) / (plan.cells - 1):
        doubts += (TOO_MUCH_NOISE.format(noise=plan.deviation),)
    for text in doubts:
        session.progress.emit(ResultDoubted(text))
    return Trained(
        epochs=tuple(steps.done),
        steps=len(plan.blocks),
        rows=(len(plan.groups[0]), len(testing)),
        device="cpu",
        disclosures=learns(job, plan.rows, plan.columns),
        section=StatisticsSection(
            rounds=met.wire.rounds,
            bytes=met.wire.sent,
            dealer_bytes=met.corrections.received,
            privacy=privacy_of(
                job,
                data.spent,
                data.spent.limit or session.policy.limits.budgets.epsilon,
                columns=max(plan.columns),
                records=len(plan.groups[0]),
                trainings=data.number,
                noise_of_counts=plan.deviation or None,
            ),
            noise=plan.deviation or None,
            records=told.records if plan.deviation else None,
            counted=dict(zip(job.parties.data, plan.columns, strict=True)),
            dropped=inputs.dropped,
            columns=columns,
            area_alone=judged[0] if judged else None,
            compared=None if products is None else _compare(session, plan, told, products),
        ),
        warnings=doubts,
        weights={"evidence": torch.from_numpy(told.evidence.copy())},
        encoder=inputs.columns.to_json(),
        columns=inputs.columns.encoded(data.table),
        held_out=testing,
        split=split if len(testing) else b"",
        evidence=KeptEvidence.from_counted(evidence, fraction, split, noised=plan.epsilon is not None),
    )


def _compare(session: Session, plan: StatisticsPlan, told: ToldColumns, products: NDArray[np.float64]) -> ComparedColumns:
    """How all columns move together, for a report."""
    read = read_matrix(products, plan.widths, plan.deviation_of_products)
    parties = session.job.parties.data
    return ComparedColumns(
        columns=tuple(
            ColumnName(party=party, number=number + 1, name=told.described[number][0] if party == session.name else None)
            for party, count in zip(parties, plan.columns, strict=True)
            for number in range(count)
        ),
        correlations=_to_rows(read.values),
        noise=_to_rows(read.noise),
        inflation=_to_rows(read.inflation[None])[0],
        most_inflation=read.most_inflation,
        scores=tuple(
            LinearScore(party=party, auc=area.value, low=area.low, high=area.high)
            for party, area in zip(parties, read.areas, strict=False)
        ),
    )


def _to_rows(values: NDArray[np.float64]) -> tuple[tuple[float | None, ...], ...]:
    """Numbers for a report: null where there is none."""
    return tuple(tuple(None if np.isnan(value) else round(float(value), DIGITS) for value in row) for row in values)


def _check_size(section: Statistics, rows: int, widths: Sequence[int] = ()) -> None:
    """Refuse more rows or columns than numbers and messages have room for. Raises UsageError (``E_SIZE``).

    Args:
        section: of the job.
        rows: of the shared order.
        widths: numbers of columns of each party, as far as they are known.
    """
    most, hint = f"{MOST_ROWS:,} rows and {MOST_COLUMNS:,} columns", "leave columns out"
    if rows > MOST_ROWS:
        what, hint = f"{rows:,} shared rows", "let fewer records take part (align.at_most)"
    elif max(widths, default=0) > MOST_COLUMNS:
        what = f"{max(widths):,} columns"
    elif section.correlations and sum(widths) > MOST_COMPARED:
        most, what = f"{MOST_COMPARED:,} columns of all parties with correlations", f"{sum(widths):,}"
        hint = "leave columns out, or say statistics.correlations: false"
    else:
        return
    raise UsageError(
        f"statistics take {most} at most, not {what}",
        code="E_SIZE",
        hint=hint,
        for_peer="it has too many rows or columns for statistics",
    )


def _from_tensors(steps: ShareSteps, resume: str | None) -> Sums:
    """The sums of the blocks that are done."""
    tensors = steps.resume(resume) or {}
    return tuple(tensors[f"sums {index}"].numpy().view(np.uint64) for index in range(len(steps.done)))
