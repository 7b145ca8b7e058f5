"""FedSim as the node runs it: the loop of every network of two halves, and what is left of it at each party."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from vfl_node.data.encoded import encoded_columns
from vfl_node.data.features import Encoder
from vfl_node.errors import UsageError
from vfl_node.ledger import Disclosure
from vfl_node.privacy.defences.idle import effective, outgoing_direction
from vfl_node.process.tensors import device_name
from vfl_node.session.session import Session
from vfl_node.training.candidates.active import LinkedActive
from vfl_node.training.candidates.config import Linked
from vfl_node.training.candidates.costs import row_bytes
from vfl_node.training.candidates.disclosures import LinkedExchange, active_learns, passive_learns
from vfl_node.training.candidates.passive import LinkedPassive
from vfl_node.training.candidates.section import LinkedSection
from vfl_node.training.checkpoints import Checkpoints
from vfl_node.training.messages import check_batch_fits
from vfl_node.training.network.journal import Journal
from vfl_node.training.network.loop import Halves, train
from vfl_node.training.network.results import finish_active, finish_passive
from vfl_node.training.network.section import EarlyStopping
from vfl_node.training.trainer import Trained, Trainer, TrainingData


class LinkedTrainer(Trainer):
    """FedSim and its baselines (:mod:`vfl_node.training.candidates.network`), as a `Trainer`."""

    def prepare(self, session: Session) -> None:
        """As the base: no defence or limit of the settings may be about what this training sends otherwise.

        Raises:
            UsageError: one is (``E_CONFIG``).
        """
        protection, passive = session.policy.protection, session.role == "passive"
        named = [f"the defence {params.name!r}" for params in effective(protection.defences, outgoing_direction(session.role))]
        if passive and protection.max_feature_gain is not None:
            named.append("attacks.columns")
        if not passive and protection.max_label_auc is not None:
            named.append("attacks.labels")
        if named:
            raise UsageError(
                f"{named[0]} is about one embedding or gradient a row, and train.algorithm: candidates sends one for each "
                "distinct candidate of a batch: it would not be applied",
                code="E_CONFIG",
                hint="remove it from this node's settings for this job, if you accept what the ledger says of training",
                for_peer="its settings do not allow train.algorithm: candidates",
            )

    async def run(self, session: Session, data: TrainingData, checkpoints: Checkpoints, resume: str | None) -> Trained:
        """Train with the other data party; the active one holds labels and similarities.

        Raises:
            DataError: no labels (``E_NO_LABEL``), no feature column at the passive party (``E_NO_FEATURES``), nothing to train
                on (``E_EMPTY``), or the loss diverged (``E_DIVERGED``).
            ProtocolError: the peer sent another step, shape or type, or cheated in the toss.
            StateError: the checkpoint is damaged or belongs to another schedule.
            UsageError: a batch would not fit into one message (``E_SIZE``).

        Cost: on the wire 8·d bytes a distinct candidate of a batch and epoch, and 4·K bytes a row; half of the former for
            rows that are measured on.

        Leaks: see :mod:`vfl_node.training.candidates.disclosures`.
        """
        section = Linked.section_of(session.job)
        halves = Halves(
            LinkedActive, LinkedPassive, partial(_check_batch, train=section, candidates=session.job.align.candidates)
        )
        async with session.phase("train") as traffic:
            journal = await train(session, data, checkpoints, resume, traffic, halves)
            trained = _result(session, data, journal)
            if session.role == "passive":
                return await finish_passive(session, journal, trained)
            return await finish_active(session, data, journal, trained, shifted=section.class_weight is not None)


def _check_batch(rows: int, *, train: Linked, candidates: int) -> None:
    """Refuse batches whose embeddings one message cannot hold, if no two places have the same. Raises UsageError."""
    width = train.bottom[-1]
    size, narrower = f"with {candidates} candidates at a cut layer of width {width}", "lower align.candidates"
    check_batch_fits(rows, row_bytes(train, candidates), cause=size, narrower=narrower)


def _result(session: Session, data: TrainingData, journal: Journal) -> Trained:
    return Trained(
        epochs=tuple(journal.epochs),
        steps=journal.steps,
        rows=journal.rows,
        device=device_name(session.machine.device),
        disclosures=_disclosures(session, journal),
        section=_section(Linked.section_of(session.job), journal.scoring, journal.stopped),
        warnings=_audit_warning(session),
        weights=journal.weights,
        encoder=journal.encoder,
        columns=encoded_columns(data.table, Encoder.from_json(journal.encoder).columns),
        held_out=journal.testing if session.job.evaluate.test_fraction else np.empty(0, dtype=np.int64),
        validated=journal.validated,
    )


def _audit_warning(session: Session) -> tuple[str, ...]:
    """A warning where the owner asked for an audit that this training has not."""
    if session.role == "passive" and session.policy.protection.features:
        return (
            "No attack was run on the embeddings that this party sent: train.algorithm: candidates has no audit.features, so "
            "this report does not say how well the peer can infer its columns.",
        )
    if session.role == "active" and session.policy.protection.labels:
        return (
            "No attack was run on the gradients that this party sent: train.algorithm: candidates has no audit.labels, so this "
            "report does not say how well the peer can read its labels. The ledger says in words what they tell.",
        )
    return ()


def _section(train: Linked, found: Mapping[str, Any], stopped: list[tuple[int, int]]) -> LinkedSection:
    return LinkedSection(
        method=train.method,
        merge=train.merge if train.how.gates else None,
        embeddings=found["distinct"],
        places=found["places"],
        spearman=found.get("spearman"),
        pair_metrics=found.get("pairs"),
        early_stopping=EarlyStopping.from_epochs(stopped) if stopped else None,
    )


def _disclosures(session: Session, journal: Journal) -> dict[str, tuple[Disclosure, ...]]:
    """All parties' entries, which say the same in every report; a coordinator of the alignment learns nothing here."""
    parties, train = session.job.parties, Linked.section_of(session.job)
    exchange = LinkedExchange(
        **parties.pair,
        train=train,
        evaluate=session.job.evaluate,
        distinct=journal.scoring["distinct"],
        places=journal.scoring["places"],
        gradients=journal.scoring["gradients"],
        stopped=tuple(journal.stopped),
    )
    nothing: dict[str, tuple[Disclosure, ...]] = dict.fromkeys(parties.all, ())
    return {**nothing, exchange.active: active_learns(exchange), exchange.passive: passive_learns(exchange)}
