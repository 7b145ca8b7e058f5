"""What happens in a job while it runs, as typed events: protocols and the node emit them, their owner is shown them.

An event is a fact, not a line of text: whoever receives it decides what to show. The set is closed (:data:`Event`), so a
receiver can match all of it. No event holds an id, a label or a tensor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

Attacks = Mapping[str, float | None]
"""Attack → AUC with which it tells this party's synthetic rows from what the party sends; None where not defined."""

Judged = Mapping[str, int]
"""Attack → number of rows behind its newest AUC."""

CONSTANT = "constant"
"""Beside the attacks of :data:`Rebuilt`: the success of whoever always guesses the same, and has seen nothing."""

Rebuilt = Mapping[str, Mapping[str, float | None]]
"""Column of this party → attack, or :data:`CONSTANT`, → success: accuracy, AUC or R² by the column's kind; None: not defined.

Names of columns are their owner's: they are shown at this node, and are in no line of its log."""


@dataclass(frozen=True)
class PhaseBegan:
    """A phase begins.

    Attributes:
        phase: its name.
        total: how many steps it has; 0 where nobody knows.
        unit: what a step is, in the plural, such as batches.
    """

    phase: str
    total: int
    unit: str


@dataclass(frozen=True)
class Advanced:
    """``steps`` more of the phase are done."""

    steps: int


@dataclass(frozen=True)
class EpochTrained:
    """An epoch of the federated model is over, or in logistic regression an iteration.

    Attributes:
        loss: of the federated model; None at a party that does not know it.
        attacks: of this party's own audit.
        judged: how many rows are behind each of them.
        validation_loss: of the federated model on rows set apart; None where there are none, too.
        rebuilt: this party's columns, as its own feature audit rebuilds them from what it sent; empty without one.
        labels: as :class:`EpochJudged` has them, where training waits for them; otherwise empty.
        auc: of the federated model on the rows that it trained on, where it is known.
        validation_auc: of the federated model on rows set apart, likewise.
        seconds: how long it took.
        number: which epoch it was, from 1; None: the one after the epoch before.
        repeat: which of the job's repeats it belongs to, from 1.
    """

    loss: float | None = None
    attacks: Attacks = field(default_factory=dict)
    judged: Judged = field(default_factory=dict)
    validation_loss: float | None = None
    rebuilt: Rebuilt = field(default_factory=dict)
    labels: Attacks = field(default_factory=dict)
    auc: float | None = None
    validation_auc: float | None = None
    seconds: float | None = None
    number: int | None = None
    repeat: int = 1


@dataclass(frozen=True)
class EpochJudged:
    """What was still being found when an epoch ended, while the next one trained.

    Attributes:
        labels: attack on this party's labels → its figure after the epoch, .5 at chance.
    """

    labels: Attacks


@dataclass(frozen=True)
class LocalEpochTrained:
    """An epoch of the active party's own model is over, with which the federated one is compared.

    Attributes:
        loss: of that model.
        epoch: which epoch it was, from 1.
        epochs: how many there are.
    """

    loss: float
    epoch: int
    epochs: int


@dataclass(frozen=True)
class PredictionsAudited:
    """This party has attacked the embeddings that it sent for predictions; its fields are those of :class:`EpochTrained`."""

    attacks: Attacks
    judged: Judged
    labels: Attacks = field(default_factory=dict)


@dataclass(frozen=True)
class TrainingCostKnown:
    """How many rows training takes is known, once the tables are read or aligned; ``text`` says it in one line."""

    text: str


@dataclass(frozen=True)
class OverlapDoubted:
    """So few records are shared that the parties' ids may not meet; ``text`` says it, and what this party's ids suggest."""

    text: str


@dataclass(frozen=True)
class ResultDoubted:
    """Something makes the result doubtful, such as too few rows; ``text`` says it in whole sentences, and what to do."""

    text: str


@dataclass(frozen=True)
class Queued:
    """The job waits for a place at its node; ``place`` is 1 where it is the next."""

    place: int


@dataclass(frozen=True)
class PeersAwaited:
    """The job waits for other parties.

    Attributes:
        peers: each as its owner knows it: name and, where it helps, address and since when.
        interruption: how the attempt before broke off; empty if none did.
        most_s: how many seconds they are waited for at most, where that is said.
    """

    peers: tuple[str, ...]
    interruption: str = ""
    most_s: float | None = None


@dataclass(frozen=True)
class OwnersAsked:
    """The job waits until the owners of these ``parties`` have answered whether it may run."""

    parties: tuple[str, ...]


@dataclass(frozen=True)
class HoursAwaited:
    """The job waits for the hours in which this owner's policy lets jobs begin."""


@dataclass(frozen=True)
class MemoryAwaited:
    """The job waits for memory that other jobs of this node have."""


@dataclass(frozen=True)
class InputRefused:
    """This party's own input cannot be used, for ``reason``; the others are told before the job fails."""

    reason: str


WorkEvent = PhaseBegan | Advanced | EpochTrained | EpochJudged | LocalEpochTrained | PredictionsAudited
"""What is emitted in the middle of work. Emitting it raises where the owner wants the job to end."""

Wait = PeersAwaited | OwnersAsked | HoursAwaited | MemoryAwaited | InputRefused
"""Why a job does not go on at the moment."""

Event = WorkEvent | TrainingCostKnown | OverlapDoubted | ResultDoubted | Queued | Wait
"""All there is."""


class Progress(Protocol):
    """Whoever follows a job: a live view, a test."""

    def emit(self, event: Event) -> None:
        """``event`` has happened.

        Raises:
            VflError: the owner wants the job to end, and ``event`` is a :data:`WorkEvent`.
        """


class Silent:
    """Follows a job and passes over everything."""

    def emit(self, event: Event) -> None:
        """Ignored."""
