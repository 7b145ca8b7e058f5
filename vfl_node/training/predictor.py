"""The contract of predictions: what a trainer brings whose model is served, and what a node gives it.

The config of such a trainer names a :class:`Predictor` (:attr:`vfl_node.job.training.TrainerParts.serving`). The node keeps the
model, the rows that other parties were told about and the owner's requests; the predictor talks with the other parties.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from vfl_node.alignment.alignment import Alignment
from vfl_node.configuration.registry import load
from vfl_node.data.tables import Table
from vfl_node.errors import PolicyError, StateError, UsageError
from vfl_node.job import Job, Serve
from vfl_node.job.training import TrainerConfig
from vfl_node.ledger import Disclosure
from vfl_node.session.session import Session
from vfl_node.settings.declared import Declared
from vfl_node.settings.defences import DefenceParams
from vfl_node.settings.node import DEFAULT_TABLE
from vfl_node.training.requested import Request as Request
from vfl_node.training.requested import RequestQueue as RequestQueue
from vfl_node.transport.channel import Channel

if TYPE_CHECKING:
    from torch import Tensor

    from vfl_node.models.inputs import ModelInput

Names = NDArray[np.int64]
"""Names of rows: shared positions of the training; for other rows numbers below 0, digests of all that an answer depends on."""


@dataclass(frozen=True)
class StoredModel:
    """One party's half of a trained model, as its node has stored it.

    Attributes:
        job: that trained it; has ``train`` and ``serve``.
        weights: parameter → tensor, as :attr:`~vfl_node.training.trainer.Trained.weights`.
        encoder: as :attr:`~vfl_node.training.trainer.Trained.encoder`.
        state: as :attr:`~vfl_node.training.trainer.Servable.state`; holds a secret.
        models: name → ``module:Class`` of an architecture, from this node's settings.
        table: what its owner's settings call the table that it was trained on; private.
    """

    job: Job
    weights: Mapping[str, Tensor] = field(repr=False)
    encoder: str = field(repr=False)
    state: str = field(repr=False)
    models: Mapping[str, str] = field(default_factory=dict)
    table: str = DEFAULT_TABLE


@dataclass(frozen=True)
class KeptHalf:
    """One party's half of a trained model, and all that it predicts the shared rows of the training with.

    Attributes:
        model: the half.
        alignment: that of the training.
        table: the party's records that took part.
        defences: of its owner's settings, which change what it would send.
    """

    model: StoredModel
    alignment: Alignment
    table: Table
    defences: tuple[DefenceParams, ...] = ()


class Embeddings(Protocol):
    """What a passive party's kept half sends of its own rows; made of a :class:`KeptHalf`, a ``Randomness`` and a device.

    A trainer names it as :attr:`vfl_node.job.training.TrainerParts.embedded`.
    """

    def inputs(self, positions: NDArray[np.int64]) -> ModelInput:
        """What the half reads at shared ``positions``, int64[n]."""

    def rows(self, positions: NDArray[np.int64]) -> Tensor:
        """What the active party gets of the rows at ``positions``, int64[n], all of them this party's own: float32[n, d]."""


class ShownRows(Protocol):
    """The rows of one model that any other party was told about: in all services and directions, over all restarts.

    Attributes:
        most: how many different rows this party's owner allows.
    """

    most: int

    def rows(self) -> Names:
        """All of them."""

    def check(self, rows: Names) -> None:
        """Check that ``rows`` may be shown as well. Raises PolicyError (``E_BUDGET``)."""

    def add(self, rows: Names) -> None:
        """Count those of ``rows`` that are not counted yet; durable when it returns. Raises PolicyError (``E_BUDGET``)."""


@dataclass
class ServiceCount:
    """What a service has exchanged, in all attempts.

    Attributes:
        rows: number of rows of a batch.
        requests: number of answered requests; 0 at a party that does not ask.
        batches: number of batches asked for; those of a request that came again after a break count twice.
        unnamed: whether their rows are not named.
        told: how many different rows of the model this party has told others about, in all services of the model.
        attacks: attack → AUC of this party's own attacks on what it has sent; empty if none of its rows is synthetic.
        labels: likewise how well its labels are read from the predictions that others got; empty where that is not judged.
    """

    rows: int
    requests: int = 0
    batches: int = 0
    unnamed: bool = False
    told: int = 0
    attacks: Mapping[str, float | None] = field(default_factory=dict)
    labels: Mapping[str, float | None] = field(default_factory=dict)


class ServiceTally(Protocol):
    """Stores :class:`ServiceCount`, so that it outlives an attempt."""

    def read(self) -> ServiceCount | None:
        """What was written last; None if nothing was."""

    def write(self, count: ServiceCount) -> None:
        """Store ``count``; called before the batches that it counts are exchanged."""


@dataclass(frozen=True)
class Predicted:
    """Predictions of new rows that all parties own.

    Attributes:
        rows: int64[k], the rows of the asker's table that are shared, ascending; none at another party.
        probabilities: float64[k], or float64[k, K] with more than two classes.
        shared: number of shared rows.
    """

    rows: NDArray[np.int64]
    probabilities: NDArray[np.float64]
    shared: int


class Answering(Protocol):
    """A coordinator's part in one job of predictions: a conversation with each data party, on threads of their own."""

    async def serve(self, channel: Channel) -> None:
        """Do what one data party asks for until it needs no more."""

    def exchanged(self) -> ServiceCount | Predicted:
        """What the coordinator knows of the predictions, once it has served every data party."""


class Predictor(Protocol):
    """Predicts by the models of one trainer, together with the other parties. Stateless: a job is a call.

    Attributes:
        defended: the tensors that it sends through the place where defences work, as
            :attr:`vfl_node.job.training.Traits.defended`.
    """

    defended: frozenset[str]

    def check(self, model: StoredModel) -> None:
        """Refuse a model by which this node cannot predict, before any other party is met.

        Raises:
            StateError: it is damaged (``E_STATE_CORRUPT``), or another version stored it (``E_STATE_VERSION``).
            UsageError: this node no longer has its architecture (``E_EXTENSION``).
        """

    def column_kinds(self, encoder: str) -> Mapping[str, Declared]:
        """Column → kind, and of lists how they are written, for this party's columns that a model reads.

        Args:
            encoder: as :attr:`StoredModel.encoder`.

        Raises:
            StateError: it is damaged (``E_STATE_CORRUPT``).
        """

    def row_numbers(self, state: str) -> Mapping[str, str]:
        """Number of each row that this party's half reads beside columns → its column, of trainers that take such numbers.

        Args:
            state: as :attr:`StoredModel.state`.

        Raises:
            StateError: it is damaged (``E_STATE_CORRUPT``).
        """

    async def predict_known(
        self,
        session: Session,
        model: StoredModel,
        alignment: Alignment,
        table: Table,
        requests: RequestQueue | None,
        *,
        shown: ShownRows,
        tally: ServiceTally,
    ) -> ServiceCount:
        """Predict known rows, request by request, until the asker's owner ends it.

        Args:
            session: this party's; its job has ``predict``, and ``job.asker`` names the party that asks.
            model: this party's half.
            alignment: that of the training.
            table: this party's records that took part in it.
            requests: at the party that asks; None at another one.
            shown: which rows of the model others were told about; asked before anything of another row is sent.
            tally: stores what is exchanged, and has what earlier attempts exchanged.

        Raises:
            VflError: this party's or a peer's error.

        Leaks: what :meth:`learnt` says.
        """

    async def predict_new(
        self, session: Session, model: StoredModel, alignment: Alignment, table: Table, *, shown: ShownRows
    ) -> Predicted | None:
        """Predict all rows of a new alignment, in which each party owns every row.

        Args as :meth:`predict_known`, but of the new alignment. Returns the predictions at the asker, None at another party.
        """

    def coordination(self, session: Session, trained: Job, tally: ServiceTally) -> Answering:
        """The coordinator's part; asked for only where :attr:`~vfl_node.job.training.Traits.serves_coordinated` is true.

        Args:
            session: the coordinator's.
            trained: the job that trained the model.
            tally: stores what is exchanged of known records, and has what earlier attempts exchanged.
        """

    def learnt(self, job: Job, exchanged: ServiceCount | Predicted) -> Mapping[str, tuple[Disclosure, ...]]:
        """Data party, and a coordinator that takes part, → what it learnt.

        Args:
            job: that predicts; ``job.asker`` names the party that asked.
            exchanged: the result of :meth:`predict_known` or :meth:`predict_new` (without rows at a party that does not ask).
        """


@dataclass(frozen=True)
class ReportedPredictions:
    """What a party reports of a job of predictions.

    Attributes:
        exchanged: the result of the job.
        disclosures: every party of the job → what it learnt, as far as this party can know.
        warnings: whole sentences for this party's owner.
    """

    exchanged: ServiceCount | Predicted
    disclosures: Mapping[str, tuple[Disclosure, ...]]
    warnings: tuple[str, ...] = ()


def predictor_of(config: TrainerConfig | None) -> Predictor:
    """What predicts by the models of a job's ``train`` section, loaded on first use.

    Raises:
        UsageError: it cannot be loaded, or its trainer names none (``E_EXTENSION``).
    """
    if config is None or not config.parts.serving:
        algorithm = config.algorithm if config else "none"
        raise UsageError(
            f"no model of trainer {algorithm!r} can be kept for predictions",
            code="E_EXTENSION",
            hint="leave serve out of the job",
            for_peer="its trainer makes no models for predictions",
        )
    kind: type[Predictor] = load(config.parts.serving, what=f"predictions of trainer {config.algorithm!r}")
    return kind()


def check_known(trained: Job) -> None:
    """Refuse predictions of known records by a model that would show with them who has which record.

    Args:
        trained: the job that trained the model.

    Raises:
        UsageError: its trainer predicts only what all parties share, and its alignment hides which records these are
            (``E_PREDICT``).
    """
    if trained.train is None or trained.train.traits.serves_unshared or trained.align.spec.every_row_is_shared:
        return
    reason = f"a model over {trained.align.protocol} predicts no known records: that would show which of them all parties have"
    hint = "predict them as new records: vfl-node predict --align. Then all parties learn which of these records they share"
    raise UsageError(reason, code="E_PREDICT", hint=hint, for_peer=reason)


def check_allowed(job: Job, serve: Serve | None) -> None:
    """Refuse predictions that the training job does not allow.

    Args:
        job: that predicts; the parties are those of the training job.
        serve: the ``serve`` section of the training job; None if it has none.

    Raises:
        StateError: no model was kept (``E_NO_MODEL``).
        PolicyError: the training job does not allow this party to ask (``E_PREDICT``).
    """
    predict = job.predict
    assert predict is not None
    if serve is None:
        reason, hint = f"nothing of job {predict.model} was kept to predict with", "its job must say serve: {to: …}"
        raise StateError(reason, code="E_NO_MODEL", hint=hint, for_peer="it has kept nothing of that training to predict with")
    allowed = job.parties.members(serve.to)
    if job.asker not in allowed:
        reason = f"the training job's serve.to is {serve.to}: {job.asker} gets no predictions"
        hint = f"train with serve.to: both, or ask at {' or '.join(allowed)}"
        raise PolicyError(reason, code="E_PREDICT", hint=hint, for_peer=reason)
