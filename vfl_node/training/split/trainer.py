"""FLORIST: split training over a union, each party filling in for the rows it does not own.

The loop is that of every network of two halves (:mod:`vfl_node.training.network.loop`); what each half does in it stands in
half.py. Here is what is left of it at each party.

Source: Song et al. 2021 (FLORIST), sections 3 and 4. Deviations: batches are cut from the
shared order by a jointly tossed seed; synthetic rows are fixed for the whole job.

What each party learns: disclosures.py, and docs/explanations/training/split.md.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from functools import partial
from itertools import chain

import numpy as np

from vfl_node.alignment.alignment import Alignment
from vfl_node.configuration.renamed import LASTING_NAMES
from vfl_node.data.encoded import encoded_columns
from vfl_node.data.features import Encoder
from vfl_node.ledger import Disclosure
from vfl_node.privacy.defences.decoding import ColumnParams
from vfl_node.privacy.defences.dp import budget, epsilon, total_epsilon
from vfl_node.privacy.defences.idle import effective, outgoing_direction
from vfl_node.privacy.defences.specs import DpParams
from vfl_node.privacy.integrity import warn
from vfl_node.process.tensors import device_name
from vfl_node.session.session import Session
from vfl_node.training.checkpoints import Checkpoints
from vfl_node.training.evaluation import Evaluation
from vfl_node.training.network.journal import Journal
from vfl_node.training.network.loop import Halves, train
from vfl_node.training.network.results import finish_active, finish_passive
from vfl_node.training.network.section import EarlyStopping
from vfl_node.training.split.active import ActiveHalf
from vfl_node.training.split.checks import check_batch, check_defences
from vfl_node.training.split.config import Train
from vfl_node.training.split.disclosures import RowCounts, TrainingExchange, active_learns, exchanged_epochs, passive_learns
from vfl_node.training.split.passive import PassiveHalf
from vfl_node.training.split.prediction.model import VERSION
from vfl_node.training.split.randomised import answer_of
from vfl_node.training.split.section import (
    HeldOut,
    LabelPrivacy,
    MatchedMetrics,
    SplitSection,
    UnalignedRows,
    contributions_of,
    strategies_used,
)
from vfl_node.training.trainer import Audits, Servable, Trained, Trainer, TrainingData, Tried, unaudited

MOST_NAMED = 12
"""Columns that a warning names."""


class SplitTrainer(Trainer):
    """FLORIST, as a :class:`~vfl_node.training.trainer.Trainer`."""

    def prepare(self, session: Session) -> None:
        """As the base: batches of predictions must fit into a message, and a bottom must make what its defences protect."""
        if serve := session.job.serve:
            check_batch(serve.batch_size, Train.section_of(session.job), setting="serve.batch_size")
        check_defences(session)

    async def run(self, session: Session, data: TrainingData, checkpoints: Checkpoints, resume: str | None) -> Trained:
        """Train with the other data parties; the active one holds the labels.

        Raises:
            DataError: no labels (``E_NO_LABEL``), no feature column at the passive party (``E_NO_FEATURES``), nothing to train
                on (``E_EMPTY``), or the loss diverged (``E_DIVERGED``).
            PolicyError: this party's attacks on what it sends do better than its owner allows (``E_LEAK``).
            ProtocolError: the peer sent another step, shape or type, or cheated in the toss.
            StateError: the checkpoint is damaged or belongs to another schedule, the peer's
                share of the toss is not that of an earlier attempt, or the secret is gone under which labels were answered
                in earlier jobs (``E_STATE_LOST``).
            UsageError: a batch would not fit into one message (``E_SIZE``).

        Cost: for each passive party 8·d bytes on the wire a training row and epoch, 4·d a test row.

        Leaks: to each passive party a gradient row for each row of every batch, and the epochs' figures and the metrics if
            the job says so; to the active party an embedding of each row of every batch and of every test row from each
            passive party.
        """
        _count_labels(session, data)
        async with session.phase("train") as traffic:
            journal = await train(session, data, checkpoints, resume, traffic, _halves(session))
            return await (_active if session.role == "active" else _passive)(session, data, journal)

    async def try_out(
        self, session: Session, data: TrainingData, checkpoints: Checkpoints, resume: str | None, until: int | None
    ) -> Tried:
        """As the base. Raises, and leaks: as :meth:`run`, but for embeddings of held-out rows, which are not sent."""
        _count_labels(session, data, until)
        async with session.phase("train") as traffic:
            journal = await train(session, data, checkpoints, resume, traffic, _halves(session), until=until or math.inf)
        assert journal.stopping
        best = journal.epochs[journal.stopping.best - 1]
        return Tried(journal.stopping.epoch, journal.stopping.best, best.validation_loss, best.validation_auc)


def _count_labels(session: Session, data: TrainingData, until: int | None = None) -> None:
    """Before anything leaves that depends on a label, count what will: a job that is broken off counts, too."""
    if session.role == "active":
        epochs = Train.section_of(session.job).epochs
        _label_privacy(session, data, session.job.evaluate.repeats * min(epochs, until or epochs))


def _halves(session: Session) -> Halves:
    return Halves(ActiveHalf, PassiveHalf, partial(check_batch, train=Train.section_of(session.job)))


async def _active(session: Session, data: TrainingData, journal: Journal) -> Trained:
    train = Train.section_of(session.job)
    made_up = data.alignment.missing > 0 and train.missing.calibration == "none"
    shifted = made_up or train.class_weight is not None or data.table.weights is not None
    return await finish_active(session, data, journal, _result(session, data, journal, journal.evaluations[0]), shifted=shifted)


async def _passive(session: Session, data: TrainingData, journal: Journal) -> Trained:
    return await finish_passive(session, journal, _result(session, data, journal))


def _result(session: Session, data: TrainingData, journal: Journal, first: Evaluation | None = None) -> Trained:
    """What every party has: the first repeat's half, what its audit has seen and, at the active party, what it measured."""
    shown = journal.tested if session.role == "passive" else np.empty(0, dtype=np.int64)  # whose embeddings the peer has
    missing, found = Train.section_of(session.job).missing, journal.findings
    epochs = exchanged_epochs(journal.stopped, session.job.evaluate, Train.section_of(session.job))
    return Trained(
        epochs=tuple(journal.epochs),
        steps=journal.steps,
        rows=journal.rows,
        device=device_name(session.machine.device),
        disclosures=_disclosures(session, data, journal, epochs),
        section=SplitSection(
            strategies=strategies_used(missing, count_lacking(session, data.alignment), session.job.parties),
            held_out=HeldOut(**found["held_out"]) if found.get("held_out") else None,
            matched_metrics=MatchedMetrics(**first.matched, rows=first.matched_rows)
            if first and first.matched is not None
            else None,
            early_stopping=EarlyStopping.from_epochs(journal.stopped) if journal.stopped else None,
            defences=tuple(
                params.model_dump(mode="json", context=LASTING_NAMES) for params in session.policy.protection.defences
            ),
            label_privacy=_label_privacy(session, data, epochs),
            defence_seconds_share=journal.share_of_defences,
            contributions=contributions_of(first.contributions) if first else None,
            column_contributions=contributions_of(first.column_contributions) if first else None,
            column_movements=found.get("movements"),
            unaligned=_unaligned_rows(session, journal),
            row_weight_audit=found.get("row_weight"),
            row_offset_audit=found.get("row_offset"),
        ),
        warnings=(
            *unaudited(session.policy.protection),
            *journal.silent,
            *_unprotected_warning(session, data),
            *warn(first.unlike if first else None),
        ),
        weights=journal.weights,
        encoder=journal.encoder,
        scoring=json.dumps({**journal.scoring, "model_version": journal.shared["model_version"]}, sort_keys=True),
        columns=encoded_columns(data.table, Encoder.from_json(journal.encoder).columns),
        servable=Servable(json.dumps({**journal.scoring, **journal.shared, "version": VERSION}, sort_keys=True), shown),
        audits=Audits(
            membership=found["audit"],
            features=found.get("rebuilt"),
            labels=found.get("labels", {}),
            trainings=found.get("trainings", 0),
        ),
        held_out=journal.testing if session.job.evaluate.test_fraction else np.empty(0, dtype=np.int64),
        validated=journal.validated,
    )


def _unaligned_rows(session: Session, journal: Journal) -> UnalignedRows | None:
    """What the first repeat did with rows outside of the alignment."""
    if "unaligned" not in journal.findings:
        return None
    method, federated = Train.section_of(session.job).unaligned.method, journal.steps // session.job.evaluate.repeats
    return UnalignedRows(method=method, steps_federated=federated, **journal.findings["unaligned"])


def _label_privacy(session: Session, data: TrainingData, epochs: int) -> LabelPrivacy | None:
    """ε of a row's label, at the active party: of its answer, or of the gradients of the row in so many epochs.

    What is spent counts from now on for later jobs with these partners.
    """
    if session.role != "active":
        return None
    if answer := answer_of(session, data):
        return LabelPrivacy(epsilon=answer.epsilon, delta=0.0, releases=1, epsilon_together=session.memory.answer(answer))
    defences = effective(session.policy.protection.defences, outgoing_direction(session.role))
    if (found := budget(defences, epochs * len(session.data_peers))) is None:
        return None
    each = [of_all for _, of_all, _ in _noise_epsilons(session, data, epochs).values()]
    worst = None if not each or None in each else max(total for total in each if total is not None)
    return LabelPrivacy(**asdict(found), epsilon_together=worst)


def _noise_epsilons(session: Session, data: TrainingData, epochs: int) -> dict[str, tuple[float | None, float | None, float]]:
    """Passive party → ε of the gradients of a row that it gets, of those by all jobs, and δ; empty without ``dp`` alone."""
    defences = effective(session.policy.protection.defences, outgoing_direction(session.role))
    if session.role != "active" or budget(defences, epochs) is None:
        return {}
    (params,) = defences
    assert isinstance(params, DpParams)
    own = epsilon(params.noise_multiplier / 2, params.delta, epochs)
    return {
        peer: (own, total_epsilon(session.memories[peer], data.name, session.attempt.job_id, params, epochs), params.delta)
        for peer in session.data_peers
        if peer in session.memories
    }


def _unprotected_warning(session: Session, data: TrainingData) -> tuple[str, ...]:
    """A warning of the columns that no defence names, as protected ones may follow from them."""
    protections = effective(session.policy.protection.defences, outgoing_direction(session.role))
    named = [params.names for params in protections if isinstance(params, ColumnParams)]
    others = sorted(set(data.table.columns).difference(*named))
    if not named or () in named or not others:
        return ()
    more = f" and {len(others) - MOST_NAMED:,} more columns" if len(others) > MOST_NAMED else ""
    return (
        f"No defence protects {', '.join(others[:MOST_NAMED])}{more}. What can be rebuilt of these columns may tell of the "
        "protected ones, too: compare the feature audit of both.",
    )


def count_lacking(session: Session, alignment: Alignment) -> dict[str, int | None]:
    """Data party → how many of the shared rows it does not own; None where that is hidden from this one."""
    return {session.name: alignment.missing, **{name: facts.missing for name, facts in alignment.peers.items()}}


def _disclosures(session: Session, data: TrainingData, journal: Journal, epochs: int) -> dict[str, tuple[Disclosure, ...]]:
    """All parties' entries; in those of the others a number that this party may not know is None."""
    job, parties, lacks = session.job, session.job.parties, count_lacking(session, data.alignment)
    if lacks[session.name] and None in lacks.values():  # synthetic rows may be among them
        lacks[session.name] = None
    rows, answer = RowCounts(*journal.rows, len(journal.validated)), answer_of(session, data)
    noised = _noise_epsilons(session, data, epochs)

    def answer_epsilons(receiver: str) -> tuple[float, float] | None:
        """ε of the answers about labels that a passive party has: of these, and of all."""
        return (answer.epsilon, session.memories[receiver].answer(answer)) if answer else None

    def exchange(sender: str, receiver: str) -> TrainingExchange:
        """What ``sender`` sent that party."""
        protections = session.policy.protection.defences if sender == session.name else ()
        return TrainingExchange(
            sender,
            rows,
            lacks[sender],
            Train.section_of(job),
            job.evaluate,
            data.number,
            effective(protections, outgoing_direction(session.role)),
            journal.stopped,
            {name: lacks[name] for name in parties.passive if name not in (sender, receiver)},
            data.alignment.hides_intersection,
            answer_epsilons(receiver) if sender == session.name else None,
            noised.get(receiver) if sender == session.name else None,
            sender == session.name and data.table.weights is not None,
            sender == session.name and data.table.offsets is not None,
        )

    def party_disclosures(name: str) -> tuple[Disclosure, ...]:
        if name in parties.passive:
            return passive_learns(exchange(parties.active, name))
        of_each = (active_learns(exchange(passive, name)) for passive in parties.passive)
        return tuple(dict.fromkeys(chain.from_iterable(of_each)))  # what stands in each entry alike stands here once

    return {name: party_disclosures(name) for name in (session.name, *session.others)}
