"""One training step and one evaluation, as each party takes them.

::

    each passive                              active
    H_j = bottom(X_j)         ── H_j [B, d] ─►  l = top(bottom(X_a), H_1, …, H_k)
                                                L = mean loss(l, y)
    back-propagates g_j       ◄── g_j [B, d] ─  g_j = ∂L/∂H_j, then ∂L/∂weights
    updates its bottom                          updates bottom and top

The active party goes through its network backwards twice: first for g alone, so that passive parties wait for
nothing else, and while they compute, for its own weights.

Embeddings stand in the order of the job's passive parties. A row that a party does not own takes
the same way as any other: its columns or its embedding are made up, or its label is. Rows of H
and g stand at their place in the batch and carry no identifier; rows of g are never averaged or
reordered. Each party attacks what it sends, with what it alone knows as the truth
(:mod:`vfl_node.privacy.audit`).

Source: Song et al. 2021 (FLORIST), sections 3.3 and 4, Table 4.

Leaks: H tells the active party about the passive party's columns, and g tells the passive
party which label was used in each row; see docs/explanations/training/split.md. With several passive parties g_j
depends on the embeddings of the others, too (docs/explanations/privacy/index.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.randomness import Randomness
from vfl_node.data.features import Encoder
from vfl_node.data.places import ColumnPlaces, places_of_columns
from vfl_node.data.tables import LabelColumn, Table
from vfl_node.errors import StateError
from vfl_node.models import architecture_of, storage
from vfl_node.privacy.audit import Audit
from vfl_node.privacy.features.audit import DecoderAudit
from vfl_node.privacy.features.rows import Inputs
from vfl_node.privacy.features.targets import Targets
from vfl_node.privacy.integrity import Compared
from vfl_node.privacy.labels.evidence import History, labels_key, record_names
from vfl_node.privacy.labels.meter import LabelMeter
from vfl_node.privacy.labels.row_columns import RowColumnMeter
from vfl_node.privacy.labels.truth import truth_of
from vfl_node.privacy.peers import TOGETHER, AuditOfPeers
from vfl_node.session.session import Session
from vfl_node.training.network.half import NO_ROWS, Positions
from vfl_node.training.network.learner import Learner
from vfl_node.training.network.positioned_input import PositionedInput
from vfl_node.training.split.config import Train
from vfl_node.training.split.missing.features.filling import fill_in
from vfl_node.training.trainer import TrainingData


def encode(
    session: Session, data: TrainingData, draws: Randomness, training: Positions, outside: Positions = NO_ROWS
) -> tuple[str, PositionedInput]:
    """Encode the table as its own rows among ``training`` suggest (all its rows if there are none).

    Rows of the table that lie ``outside`` of the alignment and are learnt from, too, count as well.
    """
    own = np.concatenate([data.alignment.rows[training][data.alignment.owned[training]], outside])
    train = Train.section_of(session.job)
    if session.attempt.start:
        encoder = _read_encoder(session.attempt.start, data.table)
    else:
        encoder = Encoder.fit(data.table, own if len(own) else np.arange(len(data.table)), train.scaling, train.least_rows)
    features, source = fill_in(data.alignment, data.table, encoder, train.missing, draws, train.scaling)
    images = architecture_of(train.model, session.policy.models).reads_images()
    return encoder.to_json(), PositionedInput.from_features(features, source, session.machine.device, images=images)


def _read_encoder(path: Path, table: Table) -> Encoder:
    """The encoder of an earlier model. Raises StateError (``E_MODEL``) if the table has not the columns of it."""
    _, head = storage.load(path)
    encoder = Encoder.from_json(head["encoder"])
    if apart := {column.name for column in encoder.columns} ^ set(table.columns):
        raise misfit(f"column {min(apart)!r} is not in both the model and the table")
    return encoder


def own_columns(session: Session, encoder: str, inputs: PositionedInput) -> dict[str, ColumnPlaces]:
    """Where each of the party's columns stands in its ``inputs``; none where the job does not ask for them, or of images."""
    wanted = session.job.evaluate.contributions and inputs.schema.image is None
    return places_of_columns(Encoder.from_json(encoder)) if wanted else {}


def go_on(learner: Learner, session: Session) -> None:
    """Begin with the weights of an earlier job, where the job says so. Raises StateError (``E_MODEL``) if they do not fit."""
    if not session.attempt.start:
        return
    weights, _ = storage.load(session.attempt.start)
    try:
        learner.go_back(weights)
    except (KeyError, RuntimeError):
        raise misfit("its layers have other widths, or its columns other kinds") from None


def misfit(why: str) -> StateError:
    """The error of a training that cannot go on from the model that the job names."""
    return StateError(
        f"the training cannot go on from the model of train.start_from: {why}",
        code="E_MODEL",
        hint="say the same layers as that job, or leave train.start_from out",
        for_peer="its half of the earlier model does not fit",
    )


def audit(session: Session, data: TrainingData, training: Positions, randomness: Randomness, repeat: int) -> Audit:
    """The party's attacks on what it sends in this repeat."""
    return Audit(
        session.name,
        ~data.alignment.owned,
        training,
        randomness.derive(f"audit/{repeat}"),
        limit=session.policy.protection.max_attack_auc,
        attacks=None if session.policy.protection.membership else {},
    )


def decoder_audit(
    session: Session,
    data: TrainingData,
    columns: Callable[[Sequence[str]], Targets],
    inputs: Inputs,
    training: Positions,
    randomness: Randomness,
    repeat: int,
) -> DecoderAudit | None:
    """The passive party's attacks on its own ``columns`` in this repeat, if its owner wants any.

    Raises:
        UsageError: as :class:`~vfl_node.privacy.features.audit.DecoderAudit`.
    """
    protection = session.policy.protection
    if protection.features is None:
        return None
    return DecoderAudit(
        columns(protection.features.names),
        training,
        data.alignment.owned,
        inputs,
        protection.features.known_share,
        randomness.derive(f"features/{repeat}"),
        party=session.name,
        limit=protection.max_feature_gain,
    )


def label_meter(session: Session, data: TrainingData, labels: LabelColumn, training: Positions) -> LabelMeter | None:
    """The active party's attacks on its own ``labels``, [m], of its own rows of ``training``, if its owner wants any.

    Costs a microsecond for each row that this party owns: a digest of its record under a secret names it.
    """
    protection, train = session.policy.protection, Train.section_of(session.job)
    if not protection.labels:
        return None
    peers, classes = list(session.data_peers), train.classes if train.task == "classification" else 0
    memories = {peer: session.memories[peer] for peer in peers if peer in session.memories}
    owned = np.flatnonzero(data.alignment.owned)  # in another repeat others of these are trained on
    secrets = {peer: memory.secret for peer, memory in memories.items()} or {"": session.randomness}
    names = {peer: record_names(secret, data.table.ids, data.alignment.rows, owned) for peer, secret in secrets.items()}
    truth = truth_of(labels.astype(np.float64), training, next(iter(names.values())), classes=classes)
    about, told = labels_key(data.name, data.table.label, classes), dict[tuple[str, str], list[History]]()
    for peer, memory in memories.items():
        for attack in truth.attacks.summed:
            for attacker, subject in ((peer, attack), (TOGETHER, f"{attack} {TOGETHER}"))[: min(len(peers), 2)]:
                kept = History(memory, f"{about} {subject}", truth.columns, session.attempt.job_id, names[peer])
                told.setdefault((attacker, attack), []).append(kept)
    return LabelMeter(truth, peers, party=session.name, limit=protection.max_label_auc, histories=told)


def row_column_meters(
    session: Session, data: TrainingData, training: Positions, columns: Mapping[str, NDArray[np.float64] | None]
) -> list[RowColumnMeter]:
    """The active party's attacks on its weights and offsets of its own rows of ``training``, if its owner wants any on labels.

    ``columns`` has name → float64[m], at each shared position; None: there is none. Costs as :func:`label_meter`.
    """
    there = {name: values for name, values in columns.items() if values is not None}
    if not there or not session.policy.protection.labels:
        return []
    owned = np.flatnonzero(data.alignment.owned)
    names = record_names(session.randomness, data.table.ids, data.alignment.rows, owned)
    peers = list(session.data_peers)
    return [RowColumnMeter(name, values, training, names, peers, party=session.name) for name, values in there.items()]


def likeness(session: Session, training: Positions, repeat: int) -> Compared | None:
    """The active party's comparison of embeddings of rows trained on and held out, in the first repeat.

    There is none where those of an honest party need not be alike: where rows are not held out by lot, where a layer works
    otherwise in training (dropout, norms by the batch), or where earlier weights than the last may be measured (validation).
    """
    evaluate, train = session.job.evaluate, Train.section_of(session.job)
    by_lot = evaluate.test_fraction > 0 and evaluate.hold_out is None
    same_weights = evaluate.validation_fraction == 0 and train.dropout == 0 and not train.batch_norm
    if repeat == 0 and by_lot and same_weights:
        return Compared(list(session.data_peers), len(training))
    return None


def has_two_classes(session: Session) -> bool:
    """Whether the job's labels are of two classes."""
    train = Train.section_of(session.job)
    return train.task == "classification" and train.classes == 2


def audit_of_peers(
    session: Session, data: TrainingData, training: Positions, randomness: Randomness, repeat: int
) -> AuditOfPeers:
    """The active party's attacks on what it sends to each passive party, and on what all of them see together."""
    return AuditOfPeers(list(session.data_peers), partial(audit, session, data, training, randomness, repeat))
