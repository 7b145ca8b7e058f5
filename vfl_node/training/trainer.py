"""The contract of a trainer: what it gets, what it gives back, and what a coordinator does in it."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from vfl_node.alignment.alignment import Alignment
from vfl_node.configuration.registry import load
from vfl_node.data.encoded import EncodedColumn
from vfl_node.data.evidence import KeptEvidence
from vfl_node.data.tables import Table
from vfl_node.job.training import TrainerConfig
from vfl_node.ledger import Disclosure
from vfl_node.session.session import Session
from vfl_node.session.spent import Spent
from vfl_node.settings.node import DEFAULT_TABLE
from vfl_node.settings.protection import Protection
from vfl_node.training.checkpoints import Checkpoints
from vfl_node.training.section import JointAttack, TrainerSection
from vfl_node.training.summary import Summary
from vfl_node.transport.channel import Channel

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class TrainingData:
    """What one party trains on.

    Attributes:
        alignment: the shared rows as this party sees them.
        table: its own records that took part; labels where the job has them at this party.
        number: of this training, among those over these records with this partner that draw a new secret; from 1.
        spent: what was opened over this table, this job included, to the partner who got most of it
            (:meth:`vfl_node.job.training.TrainerConfig.opens`).
        name: what the owner's settings call the table.
        whole: all its records, of which ``align.at_most`` may have left some out; None: ``table`` has all.
    """

    alignment: Alignment
    table: Table
    number: int = 1
    spent: Spent = field(default_factory=Spent)
    name: str = DEFAULT_TABLE
    whole: Table | None = None


@dataclass(frozen=True)
class Epoch:
    """One epoch of the first repeat, or one iteration.

    Attributes:
        loss: as :attr:`vfl_node.training.evaluation.Figures.loss`; None at a passive party that the job does not tell.
        auc: as :attr:`vfl_node.training.evaluation.Figures.auc`; likewise.
        seconds: from its first batch to its last, validation included.
        bytes: sent and received, as serialised frames.
        attacks: attack → AUC of this party's own attacks on what it sent; empty where none of its rows is synthetic.
        judged: attack → number of rows behind that AUC.
        validation_loss: as :attr:`vfl_node.training.evaluation.Figures.validation_loss`; None at a passive party that the job
            does not tell.
        validation_auc: as :attr:`vfl_node.training.evaluation.Figures.validation_auc`; likewise.
        rebuilt: after the epoch, as :attr:`vfl_node.progress.EpochTrained.rebuilt`.
        labels: attack on this party's labels → AUC, folded, after the epoch; empty where none is judged.
        defence_seconds: of ``seconds``, those that this party's defences took before embeddings were computed.
        defences: what each of this party's defences says of the epoch, in their order: name → figure.
    """

    loss: float | None
    auc: float | None
    seconds: float
    bytes: int
    attacks: Mapping[str, float | None] = field(default_factory=dict)
    judged: Mapping[str, int] = field(default_factory=dict)
    validation_loss: float | None = None
    validation_auc: float | None = None
    rebuilt: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict)
    labels: Mapping[str, float | None] = field(default_factory=dict)
    defence_seconds: float = 0.0
    defences: Sequence[Mapping[str, float]] = field(default_factory=list)


@dataclass(frozen=True)
class Servable:
    """What predictions need beside weights, encoder and alignment.

    Attributes:
        state: JSON, of the trainer's own form; holds a secret of this party.
        tested: int64[t], shared positions whose embeddings by the trained weights the peer has received already: those
            held out or validated on in the first repeat; none where none are sent.
    """

    state: str = field(repr=False)
    tested: NDArray[np.int64]


@dataclass(frozen=True)
class Audits:
    """What a party's own attacks on what it sent have found.

    Attributes:
        membership: attack → moving average of :attr:`Epoch.attacks` at the last repeat's end.
        joint: how well the joint attack tells this party's synthetic rows; None where there are none, or it did not run.
        features: column of this party → what its own feature audit found in the first repeat, as
            :meth:`vfl_node.privacy.features.audit.FeatureAudit.result`; None without one.
        labels: attack on this party's labels → its largest :attr:`Epoch.labels` of all repeats; empty where none is judged.
        trainings: how many trainings ``labels`` counts, earlier jobs with a partner included.
    """

    membership: Mapping[str, float | None] = field(default_factory=dict)
    joint: JointAttack | None = None
    features: Mapping[str, Mapping[str, Any]] | None = None
    labels: Mapping[str, float | None] = field(default_factory=dict)
    trainings: int = 0


@dataclass(frozen=True)
class Trained:
    """What one party has after training.

    Attributes:
        epochs: of the first repeat.
        steps: batches, or iterations, of all repeats.
        rows: shared rows trained on and held out in each repeat; all of them twice where none are held out; (0, 0) at a
            coordinator.
        device: its name.
        disclosures: every party of the job → what it learnt from training, as far as this party can know.
        section: what this trainer alone reports.
        warnings: whole sentences for this party's owner.
        weights: this party's part of the model, first repeat: parameter → tensor on the CPU.
        encoder: JSON of the encoder that belongs to ``weights``.
        scoring: JSON of what else makes predictions of them in one place, without a secret; empty where the job says all of it.
        columns: what it makes of each of this party's own columns.
        servable: what predictions need besides; None where the model makes none.
        audits: what this party's own attacks on what it sent have found.
        results: how good the model is; None at a party that the job does not tell.
        held_out: int64[t], shared positions held out in the first repeat, ascending.
        validated: int64[v], shared positions set apart for validation in it, ascending.
        trials: of a sweep, in their order.
        split: the seed by which rows were held out, for jobs over the same alignment; empty: they hold out others.
        evidence: weights of evidence of this party's own columns, for jobs over the same alignment; None: it has counted none.
    """

    epochs: tuple[Epoch, ...]
    steps: int
    rows: tuple[int, int]
    device: str
    disclosures: Mapping[str, tuple[Disclosure, ...]]
    section: TrainerSection
    warnings: tuple[str, ...] = ()
    weights: Mapping[str, Tensor] = field(default_factory=dict)
    encoder: str = ""
    scoring: str = field(default="", repr=False)
    columns: tuple[EncodedColumn, ...] = ()
    servable: Servable | None = None
    audits: Audits = field(default_factory=Audits)
    results: Summary | None = None
    held_out: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    validated: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    trials: tuple[SweepTrial, ...] = ()
    split: bytes = field(default=b"", repr=False)
    evidence: KeptEvidence | None = field(default=None, repr=False)

    def head(self, classes: Sequence[str]) -> dict[str, str]:
        """What belongs to ``weights``, as texts; ``classes``: their names, at the party that has labels."""
        return {
            "encoder": self.encoder,
            **({} if self.chosen is None else {"trial": str(self.chosen)}),
            **({"scoring": self.scoring} if self.scoring else {}),
            **({"classes": json.dumps(classes)} if classes else {}),
        }

    @property
    def chosen(self) -> int | None:
        """The trial whose model this is, from 0; None without a sweep."""
        return next((number for number, trial in enumerate(self.trials) if trial.chosen), None)


@dataclass(frozen=True)
class Tried:
    """What one trial of a sweep has come to.

    Attributes:
        epochs: that were trained.
        best: the one whose validation loss was smallest, from 1.
        loss, auc: of the validation rows after it; None at a party that does not know them.
    """

    epochs: int
    best: int
    loss: float | None = None
    auc: float | None = None


@dataclass(frozen=True)
class SweepTrial:
    """One trial of a sweep, for the report.

    Attributes:
        setting: what it says of the keys of ``sweep.over``.
        tried: what it has come to.
        chosen: whether its model is that of the job.
    """

    setting: Mapping[str, Any]
    tried: Tried
    chosen: bool = False


class Coordination(Protocol):
    """A coordinator's part in one training: a conversation with each data party, side by side on threads of their own."""

    async def serve(self, channel: Channel) -> None:
        """Do what one data party asks for until it needs no more."""

    def result(self) -> Trained:
        """What the coordinator can report, once it has served every data party."""


class Trainer(ABC):
    """Trains a model with the peers of a session; loaded when a job first runs it. Stateless: a job is a call."""

    def prepare(self, session: Session) -> None:  # noqa: B027 - most trainers run on any machine
        """Refuse what this machine cannot run, before alignment.

        Raises:
            VflError: with what to change.
        """

    @abstractmethod
    async def run(self, session: Session, data: TrainingData, checkpoints: Checkpoints, resume: str | None) -> Trained:
        """This data party's part, from the first message to the metrics.

        Args:
            session: whom it meets. All that it draws comes from ``session.randomness``, which is this training's own and the
                same in every attempt. A value that is sent again in a later attempt has the same noise again. Where the value
                may differ, ``session.attempt.number`` belongs into the name of the draw.
            data: what it trains on.
            checkpoints: where its state is kept. All data parties keep theirs at the same points, under the same names,
                which sort by time. A party saves the next one only when it knows that all have saved the one before: so they
                always have one in common.
            resume: name of the checkpoint that all hold, or None to begin. A resumed training gives the same bytes, but for
                the seconds and bytes of :class:`Epoch`.

        Raises:
            VflError: this party's or a peer's error.

        Leaks: what the result's ``disclosures`` say.
        """

    async def try_out(
        self, session: Session, data: TrainingData, checkpoints: Checkpoints, resume: str | None, until: int | None
    ) -> Tried:
        """A trial of a sweep: as :meth:`run`, up to where the held-out rows would be measured, which they are not.

        Begun with the last checkpoint, it goes on, and :meth:`run` does the rest.

        Args:
            session, data, checkpoints, resume: as :meth:`run`.
            until: the epoch, from 1, after which it stops if training does not end before; None: it trains to its end.
        """
        raise NotImplementedError(f"{type(self).__name__} tries no settings")

    def coordination(self, session: Session) -> Coordination:
        """The coordinator's part, where :attr:`~vfl_node.job.training.TrainerConfig.coordinated` says that there is one."""
        raise NotImplementedError(f"{type(self).__name__} has no coordinator")


def unaudited(protection: Protection) -> tuple[str, ...]:
    """A warning where the owner switched the audit off."""
    if protection.membership:
        return ()
    return (
        "No attack was run on what this party sent (audit.membership: false), so this report does not say how well the peer "
        "can tell its synthetic rows from real ones.",
    )


def trainer_of(config: TrainerConfig) -> Trainer:
    """The implementation of a job's ``train`` section, loaded on first use. Raises UsageError (``E_EXTENSION``)."""
    kind: type[Trainer] = load(config.parts.implementation, what=f"trainer {config.algorithm!r}")
    return kind()
