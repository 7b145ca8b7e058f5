"""FLORIST: split training over a union, each party filling in for the rows it does not own.

The whole of it, for both parties::

    toss a seed → schedule
    for each repeat:  hold out test rows; new private weights
        for each epoch:  for each batch: H → , ← g, both update        (half.py)
                         each attacks what it sent; a checkpoint at both
        for each batch of test rows: H →                               (evaluation)
    the active party tells the epochs' figures and metrics, if the job says so

Symbols: m shared rows, B rows a batch, d width of the cut layer, H embedding, g gradient.
Everything a party draws comes from its own ``randomness``; with the same one, and the same
number of threads, the result has the same bits over any channel (on a CPU).

Source: Song et al. 2021 (FLORIST), sections 3 and 4. Deviations: batches are cut from the
shared order by a jointly tossed seed; synthetic rows are fixed for the whole job.

What each party learns: learns.py, and docs/training.md.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from vfl_node import failpoints
from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import DataError, UsageError
from vfl_node.job import Train
from vfl_node.ledger import Disclosure
from vfl_node.models import cut_width
from vfl_node.training.evaluation import Figures, real_share, summarise
from vfl_node.training.schedule import Schedule, cut, toss
from vfl_node.training.sharing import receive_figures, send_figures
from vfl_node.training.split.active import ActiveHalf
from vfl_node.training.split.disclosures import active_learns, passive_learns
from vfl_node.training.split.half import Half
from vfl_node.training.split.journal import Journal, due, resume
from vfl_node.training.split.passive import PassiveHalf
from vfl_node.training.task import Epoch, Task, TrainingResult, device_name
from vfl_node.transport.bounds import MAX_FRAME_BYTES
from vfl_node.transport.channel import Channel, Traffic

FRAME_HEAD_BYTES = 1 << 10
"""More than a frame has beside the values of its tensor."""


async def train_active(
    channel: Channel, task: Task, randomness: Randomness, *, resume_from: str | None = None
) -> TrainingResult:
    """Train with the passive party at the other end; this one holds the labels.

    Args:
        channel: the conversation; phase ``train`` is opened and ended here.
        task: this party's alignment, table, and the job's sections.
        randomness: its own, kept with the job.
        resume_from: name of a checkpoint that both parties hold, or None to begin.

    Raises:
        DataError: no labels (``E_NO_LABEL``), nothing to train on (``E_EMPTY``), or the
            loss diverged (``E_DIVERGED``).
        PolicyError: this party's attacks on what it sends do better than its owner allows (``E_LEAK``).
        ProtocolError: the peer sent another step, shape or type, or cheated in the toss.
        StateError: the checkpoint is damaged or belongs to another schedule, or the peer's
            share of the toss is not that of an earlier attempt.
        UsageError: a batch would not fit into one message (``E_SIZE``).

    Cost: 8·d bytes on the wire a training row and epoch, 4·d a test row.

    Leaks: to the passive party a gradient row for each row of every batch, and the
        epochs' figures and the metrics if the job says so.
    """
    async with channel.phase("train") as traffic:
        journal = await _train(ActiveHalf, channel, task, randomness, traffic, resume_from, active=True)
        summary = summarise(journal.evaluations, *journal.rows)
        if task.evaluate.share_with_passive:
            await send_figures(channel, [Figures(epoch.loss, epoch.auc) for epoch in journal.epochs], summary.metrics)
    population = {"population": "owned", "rows": journal.evaluations[0].rows, "real_share": real_share(task.alignment)}
    return TrainingResult(
        epochs=tuple(journal.epochs),
        steps=journal.steps,
        rows=journal.rows,
        device=device_name(task.device),
        metrics=summary.metrics,
        local_metrics=summary.local_metrics,
        intervals=summary.intervals,
        local_intervals=summary.local_intervals,
        gains=summary.gains,
        population=population,
        calibration_curve=journal.evaluations[0].curve,
        local_calibration_curve=journal.evaluations[0].local_curve,
        matched=journal.evaluations[0].matched,
        matched_rows=journal.evaluations[0].matched_rows,
        learnt=_learnt(task, channel.peer, journal.rows, active=True),
        **_kept(journal),
    )


async def train_passive(
    channel: Channel, task: Task, randomness: Randomness, *, resume_from: str | None = None
) -> TrainingResult:
    """Train with the active party at the other end; this one holds features only.

    Args and Raises: as :func:`train_active`, and
        DataError: the table has no feature column (``E_NO_FEATURES``).

    Leaks: to the active party an embedding of each row of every batch and of every test row.
    """
    async with channel.phase("train") as traffic:
        journal = await _train(PassiveHalf, channel, task, randomness, traffic, resume_from, active=False)
        epochs, metrics = journal.epochs, None
        if task.evaluate.share_with_passive:
            told, metrics = await receive_figures(channel, len(epochs), task.evaluate.metrics)
            epochs = [dataclasses.replace(epoch, **asdict(figures)) for epoch, figures in zip(epochs, told, strict=True)]
    return TrainingResult(
        epochs=tuple(epochs),
        steps=journal.steps,
        rows=journal.rows,
        device=device_name(task.device),
        metrics=metrics,
        tested=journal.tested,
        learnt=_learnt(task, channel.peer, journal.rows, active=False),
        **_kept(journal),
    )


def _kept(journal: Journal) -> dict[str, Any]:
    """What is left of the first repeat at either party."""
    return {
        "weights": journal.weights,
        "encoder": journal.encoder,
        "audit": journal.audit,
        "held_out": journal.held_out,
        "serving": json.dumps({**journal.scoring, **journal.shared}, sort_keys=True),
    }


def _learnt(task: Task, peer: str, rows: tuple[int, int], *, active: bool) -> dict[str, tuple[Disclosure, ...]]:
    """Both parties' entries; in the peer's a number that this party may not know is None."""
    view = task.alignment
    missing = None if view.missing and view.peer.missing is None else view.missing  # made-up rows may be among them
    ours, theirs = (active_learns, passive_learns) if active else (passive_learns, active_learns)
    return {
        task.party: ours(peer, rows, view.peer.missing, task.train, task.evaluate, task.training),
        peer: theirs(task.party, rows, missing, task.train, task.evaluate, task.training, task.protection.defences),
    }


def check_batch_fits(rows: int, train: Train, *, setting: str = "train.batch_size") -> None:
    """Refuse, before anything is trained, batches of ``rows`` rows that one message cannot hold.

    Args:
        rows: of a batch.
        train: the job's section.
        setting: the job's key that sets ``rows``, for errors.

    Raises:
        UsageError: they are too large (``E_SIZE``).
    """
    width = cut_width(train)
    most = (MAX_FRAME_BYTES - FRAME_HEAD_BYTES) // (4 * width)
    if rows > most:
        raise UsageError(
            f"a batch of {rows} rows at a cut layer of width {width} has {4 * rows * width} bytes, more than one message "
            f"may have ({MAX_FRAME_BYTES}); at most {most} rows fit",
            code="E_SIZE",
            hint=f"set {setting} to at most {most}, or narrow the last layer of train.bottom",
            for_peer="the job's batches are too large for one message",
        )


HalfOf = Callable[..., Half]


async def _train(
    half_of: HalfOf,
    channel: Channel,
    task: Task,
    randomness: Randomness,
    traffic: Traffic,
    resume_from: str | None,
    *,
    active: bool,
) -> Journal:
    """The loop that both parties walk through in step."""
    train, evaluate = task.train, task.evaluate
    seed = await toss(channel, randomness.derive("toss"), first=active, pins=task.pins)
    schedule = Schedule(seed, len(task.alignment), train.seed)
    training, testing = schedule.split(0, evaluate.test_fraction)
    if len(training) == 0:
        raise DataError(
            f"{len(task.alignment)} shared rows leave none to train on",
            code="E_EMPTY",
            hint="use more records, or a smaller evaluate.test_fraction",
        )
    check_batch_fits(min(train.batch_size, max(len(training), len(testing))), train)
    draws = randomness.derive("draws").bytes(32)
    per_epoch, per_test = -(-len(training) // train.batch_size), -(-len(testing) // train.batch_size)

    journal = resume(task.checkpoints, resume_from, schedule.fingerprint)
    journal.rows = len(training), len(testing)
    journal.tested = testing
    journal.shared = {"draws": draws.hex(), "batches": schedule.derive("predictions").hex()}
    task.progress.phase("train", evaluate.repeats * (train.epochs * per_epoch + per_test), "batches")
    task.progress.advance(journal.exchanges)

    for repeat in range(journal.repeat, evaluate.repeats):
        training, testing = schedule.split(repeat, evaluate.test_fraction)
        half = half_of(channel, task, randomness, Randomness(draws), repeat, training, journal.saved)
        half.audit.follow_on(journal.audited)
        for epoch in range(journal.epoch, train.epochs):
            started, moved = task.clock(), traffic.bytes_sent + traffic.bytes_received
            for positions in schedule.batches(repeat, epoch, training, train.batch_size):
                await half.step(journal.exchanges, positions)
                journal.exchanges += 1
                failpoints.reach("updated")
                task.progress.advance(1)
            seconds, moved = task.clock() - started, traffic.bytes_sent + traffic.bytes_received - moved
            figures, attacks = half.figures(), half.audit.epoch_done()
            task.progress.note(loss=figures.loss, attacks=attacks, judged=half.audit.judged)
            journal.epoch_done(Epoch(figures.loss, figures.auc, seconds, moved, attacks, dict(half.audit.judged)))
            if due(journal.epoch, train.epochs, per_epoch):
                journal.save(task.checkpoints, half, schedule.fingerprint)
        failpoints.reach("evaluate")
        batches = cut(testing, train.batch_size)
        journal.repeat_done(half, await half.evaluate(journal.exchanges, batches))
        journal.exchanges += len(batches)
        task.progress.advance(len(batches))
    journal.steps = evaluate.repeats * train.epochs * per_epoch
    return journal
