"""What the loop asks of one party's half of a network, and what halves of every kind have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from vfl_node.crypto.randomness import Randomness
from vfl_node.models import architecture_of
from vfl_node.models.initial_weights import initialise
from vfl_node.privacy.attachment import Attachment
from vfl_node.privacy.defences.defence import Sender, build
from vfl_node.privacy.defences.idle import effective
from vfl_node.privacy.outgoing import Exit, Observer
from vfl_node.session.session import Session
from vfl_node.training.evaluation import Evaluation, Figures
from vfl_node.training.network.config import NetworkConfig
from vfl_node.training.network.learner import Learner
from vfl_node.training.unaligned.pretraining import Pretraining

Positions = NDArray[np.int64]

NO_ROWS: Positions = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class RepeatStart:
    """With what a party's half begins a repeat, or goes on with it.

    Attributes:
        randomness: the party's own.
        draws: its own, too, for what is the same in every repeat, such as the noise of defences.
        number: of the repeat, from 0; each has its own weights.
        training: shared positions trained on in it.
        saved: tensors of a checkpoint within it, to go on from; None at its beginning.
        validation: shared positions set apart for validation in it.
        lasting: its own, too, for what is the same in every training over one alignment; None: ``draws``.
    """

    randomness: Randomness
    draws: Randomness
    number: int
    training: Positions
    saved: Mapping[str, Tensor] | None = None
    validation: Positions = field(default_factory=NO_ROWS.copy)
    lasting: Randomness | None = None

    @property
    def synthetic(self) -> Randomness:
        """What synthetic rows come from, and synthetic labels that follow from a position alone.

        Nothing else may: noise that is the same in two trainings vanishes from their difference.
        """
        return self.lasting or self.draws


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
        attachments: what hangs on it, in the order in which they are called.
        pretraining: the one of them that comes before the training with labels, if there is one.
    """

    learner: Learner
    encoder: str
    attachments: Sequence[Attachment]
    pretraining: Pretraining | None

    def expect(self, positions: Positions) -> None:
        """The batch at ``positions`` comes after the next one: its rows may be looked up while this party waits for a peer."""

    async def step(self, number: int, positions: Positions) -> None:
        """Train on the batch at ``positions``."""

    def figures(self) -> Figures:
        """What the steps since the last call show, where the party knows it."""

    def defence_figures(self) -> Defended:
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
        """All that a checkpoint must hold of this half beside its attachments."""

    def weights(self) -> dict[str, Tensor]:
        """What the party keeps of it when it is trained, on the CPU."""

    def go_back(self, weights: Mapping[str, Tensor]) -> None:
        """Take back earlier weights that :meth:`weights` gave, to evaluate and keep."""

    def scoring(self) -> dict[str, Any]:
        """What turns its output into a prediction, beside weights and encoder; JSON values."""


def attach(*attachments: Attachment | None) -> tuple[Attachment, ...]:
    """Those that there are."""
    return tuple(attachment for attachment in attachments if attachment is not None)


def learner(model: nn.Module, session: Session, randomness: Randomness, repeat: int) -> Learner:
    """``model`` with this repeat's private initial weights, on the party's device, and its optimiser."""
    initialise(model, randomness.derive(f"weights/{repeat}"))
    train = NetworkConfig.section_of(session.job)
    return Learner(
        model.to(session.machine.device), train, randomness, architecture_of(train.model, session.policy.models).version
    )


def way_out(session: Session, sender: Sender, draws: Randomness, repeat: int, *observers: Observer) -> Exit:
    """The place where the tensors of ``sender`` leave in this repeat; ``draws`` is what predictions draw from, too."""
    return Exit(build(session.policy.protection.defences, sender, defence_draws(draws, repeat)), observers)


def way_out_of_projections(session: Session, sender: Sender, draws: Randomness, repeat: int, *observers: Observer) -> Exit:
    """As :func:`way_out`, with those defences alone that change projections. It draws otherwise than what leaves later."""
    chosen = effective(session.policy.protection.defences, "projections")
    return Exit(build(chosen, sender, defence_draws(draws.derive("projections"), repeat)), observers)


def defence_draws(draws: Randomness, repeat: int) -> Randomness:
    """What the defences of a repeat draw from. Predictions, whose weights are the first repeat's, draw from the same."""
    return draws.derive(f"defences/{repeat}")
