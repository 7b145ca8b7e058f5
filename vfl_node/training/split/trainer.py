"""Split training as the node runs it: the loop, and what is left of it at each party."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import asdict

import numpy as np

from vfl_node.alignment.alignment import Alignment
from vfl_node.ledger import Disclosure
from vfl_node.privacy.defences.idle import effective, sent_by
from vfl_node.session.session import Session
from vfl_node.training.checkpoints import Checkpoints
from vfl_node.training.evaluation import Figures, real_share, summarise
from vfl_node.training.sharing import receive_figures, send_figures
from vfl_node.training.split import alone
from vfl_node.training.split.config import Train
from vfl_node.training.split.disclosures import active_learns, passive_learns
from vfl_node.training.split.journal import Journal
from vfl_node.training.split.loop import check_batch_fits, train
from vfl_node.training.split.missing.section import Missing
from vfl_node.training.split.section import HeldOut, MatchedMetrics, SplitSection, Strategies
from vfl_node.training.trainer import Servable, Trained, Trainer, TrainingData, device_name, unaudited


class SplitTrainer(Trainer):
    """FLORIST (:mod:`vfl_node.training.split.loop`), as a :class:`~vfl_node.training.trainer.Trainer`."""

    def prepare(self, session: Session) -> None:
        """As the base: batches of predictions must fit into a message, too."""
        if serve := session.job.serve:
            check_batch_fits(serve.batch_size, Train.of(session.job), setting="serve.batch_size")

    async def run(self, session: Session, data: TrainingData, checkpoints: Checkpoints, resume: str | None) -> Trained:
        """Train with the other party; the active one holds the labels.

        Raises:
            DataError: no labels (``E_NO_LABEL``), no feature column at the passive party (``E_NO_FEATURES``), nothing to train
                on (``E_EMPTY``), or the loss diverged (``E_DIVERGED``).
            PolicyError: this party's attacks on what it sends do better than its owner allows (``E_LEAK``).
            ProtocolError: the peer sent another step, shape or type, or cheated in the toss.
            StateError: the checkpoint is damaged or belongs to another schedule, or the peer's
                share of the toss is not that of an earlier attempt.
            UsageError: a batch would not fit into one message (``E_SIZE``).

        Cost: 8·d bytes on the wire a training row and epoch, 4·d a test row.

        Leaks: to the passive party a gradient row for each row of every batch, and the epochs' figures and the metrics if
            the job says so; to the active party an embedding of each row of every batch and of every test row.
        """
        async with session.peer.phase("train") as traffic:
            journal = await train(session, data, checkpoints, resume, traffic)
            return await (_active if session.role == "active" else _passive)(session, data, journal)


async def _active(session: Session, data: TrainingData, journal: Journal) -> Trained:
    summary, first = summarise(journal.evaluations, *journal.rows), journal.evaluations[0]
    if session.job.evaluate.share_with_passive:
        await send_figures(session.peer, [Figures(epoch.loss, epoch.auc) for epoch in journal.epochs], summary.metrics)
    matched = None if first.matched is None else MatchedMetrics(**first.matched, rows=first.matched_rows)
    return dataclasses.replace(
        _trained(session, data, journal, matched),
        metrics=summary.metrics,
        local_metrics=summary.local_metrics,
        intervals=summary.intervals,
        local_intervals=summary.local_intervals,
        gains=summary.gains,
        repeats=summary.repeats,
        local_repeats=summary.local_repeats,
        constant_nll=summary.constant_nll,
        population={"population": "owned", "rows": first.rows, "real_share": real_share(data.alignment)},
        calibration_curve=first.curve,
        local_calibration_curve=first.local_curve,
        confusion=first.confusion,
        local_confusion=first.local_confusion,
        local_kind=alone.KIND,
        local_rows=first.local_rows,
        rival=summary.rival,
        rival_note=summary.rival_note,
    )


async def _passive(session: Session, data: TrainingData, journal: Journal) -> Trained:
    trained = _trained(session, data, journal, None)
    if not session.job.evaluate.share_with_passive:
        return trained
    shared, metrics = await receive_figures(session.peer, len(journal.epochs), session.job.evaluate.metrics)
    epochs = [dataclasses.replace(epoch, **asdict(figures)) for epoch, figures in zip(journal.epochs, shared, strict=True)]
    return dataclasses.replace(trained, epochs=tuple(epochs), metrics=metrics)


def _trained(session: Session, data: TrainingData, journal: Journal, matched: MatchedMetrics | None) -> Trained:
    """What both parties have: the first repeat's half, and what its audit has seen."""
    shown = journal.tested if session.role == "passive" else np.empty(0, dtype=np.int64)  # whose embeddings the peer has
    return Trained(
        epochs=tuple(journal.epochs),
        steps=journal.steps,
        rows=journal.rows,
        device=device_name(session.device),
        disclosures=_disclosures(session, data, journal.rows),
        section=SplitSection(
            strategies=strategies_used(Train.of(session.job).missing, session.role, data.alignment),
            held_out=HeldOut(**asdict(journal.held_out)) if journal.held_out else None,
            matched_metrics=matched,
            defences=tuple(params.model_dump(mode="json") for params in session.protection.defences),
        ),
        warnings=unaudited(session.protection),
        weights=journal.weights,
        encoder=journal.encoder,
        servable=Servable(json.dumps({**journal.scoring, **journal.shared}, sort_keys=True), shown),
        audit=journal.audit,
        held_out=journal.tested if session.job.evaluate.test_fraction else np.empty(0, dtype=np.int64),
    )


def strategies_used(missing: Missing, role: str, alignment: Alignment) -> Strategies:
    """Which strategies an alignment needed; of rows that it hides there may be some."""
    ours, theirs = alignment.missing, alignment.peer.missing
    unlabelled = ours if role == "active" else theirs
    return Strategies(
        labels=None if unlabelled == 0 else missing.labels,
        features=None if ours == theirs == 0 else missing.features,
        calibration=missing.calibration,
    )


def _disclosures(session: Session, data: TrainingData, rows: tuple[int, int]) -> dict[str, tuple[Disclosure, ...]]:
    """Both parties' entries; in the peer's a number that this party may not know is None."""
    view, peer, job = data.alignment, session.peer.peer, session.job
    missing = None if view.missing and view.peer.missing is None else view.missing  # synthetic rows may be among them
    active, defences = session.role == "active", effective(session.protection.defences, sent_by(session.role))
    ours, theirs = (active_learns, passive_learns) if active else (passive_learns, active_learns)
    return {
        session.name: ours(peer, rows, view.peer.missing, Train.of(session.job), job.evaluate, data.number),
        peer: theirs(session.name, rows, missing, Train.of(session.job), job.evaluate, data.number, defences),
    }
