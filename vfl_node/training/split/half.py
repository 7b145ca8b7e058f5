"""One training step and one evaluation, as each party takes them.

::

    each passive                              active
    H_j = bottom(X_j)         ── H_j [B, d] ─►  l = top(bottom(X_a), H_1, …, H_k)
                                                L = mean loss(l, y)
    back-propagates g_j       ◄── g_j [B, d] ─  g_j = ∂L/∂H_j
    updates its bottom                          updates bottom and top

Embeddings stand in the order of the job's passive parties. A row that a party does not own takes
the same way as any other: its columns or its embedding are made up, or its label is. Rows of H
and g stand at their place in the batch and carry no identifier; rows of g are never averaged or
reordered. Each party attacks what it sends, with what it alone knows as the truth
(:mod:`vfl_node.privacy.audit`).

Source: Song et al. 2021 (FLORIST), sections 3.3 and 4, Table 4.

Leaks: H tells the active party about the passive party's columns, and g tells the passive
party which label was used in each row; see docs/training.md. With several passive parties g_j
depends on the embeddings of the others, too (docs/privacy.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vfl_node.crypto.randomness import Randomness
from vfl_node.data.features import Encoder
from vfl_node.data.tables import LabelColumn
from vfl_node.errors import ProtocolError
from vfl_node.models import architecture_of
from vfl_node.models.initial_weights import initialise
from vfl_node.privacy.audit import Audit
from vfl_node.privacy.defences.defence import Sender, build
from vfl_node.privacy.features.audit import DecoderAudit, FeatureAudit
from vfl_node.privacy.features.rows import Inputs
from vfl_node.privacy.features.targets import Targets
from vfl_node.privacy.labels.meter import LabelAudit, LabelMeter
from vfl_node.privacy.outgoing import Exit, Observer
from vfl_node.privacy.peers import AuditOfPeers
from vfl_node.session.session import Session
from vfl_node.training.evaluation import Evaluation, Figures
from vfl_node.training.split.config import Train
from vfl_node.training.split.learner import Learner
from vfl_node.training.split.missing.features.filling import fill_in
from vfl_node.training.split.positioned_input import PositionedInput
from vfl_node.training.trainer import TrainingData
from vfl_node.training.unaligned.pretraining import NoPretraining
from vfl_node.training.unaligned.unused import UnusedRows
from vfl_node.transport import codec
from vfl_node.transport.channel import Channel
from vfl_node.transport.generated.vfl.v1 import training_pb2

Positions = NDArray[np.int64]

NO_ROWS: Positions = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class ForwardPass:
    """Rows that go through the network once and are not trained on: held out, or set apart for validation.

    Attributes:
        number: of the first of their batches among all that are exchanged.
        batches: their shared positions.
        epoch: by whose weights, from 1; 0 where a repeat only ever sends such rows at its end.
    """

    number: int
    batches: Sequence[Positions]
    epoch: int = 0


@dataclass(frozen=True)
class Defended:
    """What a party's defences did in some steps.

    Attributes:
        seconds: that they took before embeddings were computed.
        figures: what each of them says, in their order: name → mean over the steps.
    """

    seconds: float = 0.0
    figures: Sequence[Mapping[str, float]] = field(default_factory=list)


class Half(Protocol):
    """One party's half of the network during one repeat.

    Attributes:
        learner: the half that is trained jointly.
        encoder: JSON of how the party's columns are encoded.
    """

    learner: Learner
    encoder: str

    @property
    def audit(self) -> Audit | AuditOfPeers:
        """Its attacks on what it sends."""

    @property
    def features(self) -> FeatureAudit:
        """Its attacks on its own columns, with what it sends."""

    @property
    def labels(self) -> LabelAudit:
        """Its attacks on its own labels, with what it sends."""

    @property
    def outside(self) -> UnusedRows:
        """Its rows outside of the alignment, if it learns from them."""

    @property
    def pretraining(self) -> NoPretraining:
        """What comes before the training with labels."""

    async def step(self, number: int, positions: Positions) -> None:
        """Train on the batch at ``positions``."""

    def figures(self) -> Figures:
        """What the steps since the last call show, where the party knows it."""

    def defended(self) -> Defended:
        """What this party's defences did since the last call."""

    async def validate(self, rows: ForwardPass) -> Figures:
        """Measure on ``rows`` set apart; what that shows, where the party knows it."""

    async def evaluate(self, rows: ForwardPass, validated: ForwardPass | None = None) -> Evaluation | None:
        """Go through the held-out ``rows``; results, where the party knows them.

        Args:
            rows: held out.
            validated: those validated on by the same weights; None where there are none.
        """

    def tensors(self) -> dict[str, Tensor]:
        """All that a checkpoint must hold of this half."""

    def weights(self) -> dict[str, Tensor]:
        """What the party keeps of it when it is trained, on the CPU."""

    def go_back(self, weights: Mapping[str, Tensor]) -> None:
        """Take back earlier weights that :meth:`weights` gave, to evaluate and keep."""

    def scoring(self) -> dict[str, Any]:
        """What turns its output into a prediction, beside weights and encoder; JSON values."""


def check_step(channel: Channel, step: int, expected: int) -> None:
    """Refuse a message of another step than ``expected``. Raises ProtocolError (``E_ORDER``)."""
    if step != expected:
        raise ProtocolError(f"{channel.peer} sent step {step} where step {expected} was due", code="E_ORDER")


def received(channel: Channel, tensor: training_pb2.Tensor, shape: Sequence[int]) -> Tensor:
    """The float32 tensor of ``shape`` in a message; raises as :func:`~vfl_node.transport.codec.decode` and names the peer."""
    try:
        return codec.decode(tensor, dtype=torch.float32, shape=shape)
    except ProtocolError as error:
        raise ProtocolError(f"{channel.peer} sent {error.message}", code=error.code) from None


def encode(
    session: Session, data: TrainingData, draws: Randomness, training: Positions, outside: Positions = NO_ROWS
) -> tuple[str, PositionedInput]:
    """Encode the table as its own rows among ``training`` suggest (all its rows if there are none).

    Rows of the table that lie ``outside`` of the alignment and are learnt from, too, count as well.
    """
    own = np.concatenate([data.alignment.rows[training][data.alignment.owned[training]], outside])
    train = Train.of(session.job)
    encoder = Encoder.fit(data.table, own if len(own) else np.arange(len(data.table)), train.scaling, train.least_rows)
    features, source = fill_in(data.alignment, data.table, encoder, train.missing, draws, train.scaling)
    images = architecture_of(train.model, session.models).reads_images()
    return encoder.to_json(), PositionedInput.of(features, source, session.device, images=images)


def learner(model: nn.Module, session: Session, randomness: Randomness, repeat: int) -> Learner:
    """``model`` with this repeat's private initial weights, on the party's device, and its optimiser."""
    initialise(model, randomness.derive(f"weights/{repeat}"))
    train = Train.of(session.job)
    return Learner(model.to(session.device), train, randomness, architecture_of(train.model, session.models).version)


def audit(session: Session, data: TrainingData, training: Positions, randomness: Randomness, repeat: int) -> Audit:
    """The party's attacks on what it sends in this repeat."""
    return Audit(
        session.name,
        ~data.alignment.owned,
        training,
        randomness.derive(f"audit/{repeat}"),
        limit=session.protection.max_attack_auc,
        attacks=None if session.protection.membership else {},
    )


def feature_audit(
    session: Session,
    data: TrainingData,
    columns: Callable[[Sequence[str]], Targets],
    inputs: Inputs,
    training: Positions,
    randomness: Randomness,
    repeat: int,
) -> FeatureAudit:
    """The passive party's attacks on its own ``columns`` in this repeat, if its owner wants any.

    Raises:
        UsageError: as :class:`~vfl_node.privacy.features.audit.DecoderAudit`.
    """
    protection = session.protection
    if protection.features is None:
        return FeatureAudit()
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


def label_audit(session: Session, labels: LabelColumn, training: Positions, randomness: Randomness, repeat: int) -> LabelAudit:
    """The active party's attacks on its own ``labels``, [m], of its own rows of ``training``, if its owner wants any."""
    protection = session.protection
    if not protection.labels or not of_two_classes(session):
        return LabelAudit()
    own = randomness.derive(f"labels/{repeat}")
    peers = list(session.data_peers)
    return LabelMeter(labels == 1, training, peers, own, party=session.name, limit=protection.max_label_auc)


def of_two_classes(session: Session) -> bool:
    """Whether the job's labels are of two classes."""
    train = Train.of(session.job)
    return train.task == "classification" and train.classes == 2


def audit_of_peers(
    session: Session, data: TrainingData, training: Positions, randomness: Randomness, repeat: int
) -> AuditOfPeers:
    """The active party's attacks on what it sends to each passive party, and on what all of them see together."""
    return AuditOfPeers(list(session.data_peers), partial(audit, session, data, training, randomness, repeat))


def way_out(session: Session, sender: Sender, draws: Randomness, repeat: int, *observers: Observer) -> Exit:
    """The place where the tensors of ``sender`` leave in this repeat; ``draws`` is what predictions draw from, too."""
    return Exit(build(session.protection.defences, sender, defence_draws(draws, repeat)), observers)


def defence_draws(draws: Randomness, repeat: int) -> Randomness:
    """What the defences of a repeat draw from. Predictions, whose weights are the first repeat's, draw from the same."""
    return draws.derive(f"defences/{repeat}")
