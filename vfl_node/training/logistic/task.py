"""What a data party brings to a logistic regression."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from vfl_node.alignment.alignment import Alignment, Pins
from vfl_node.data.tables import Table
from vfl_node.engines.contract import Engine
from vfl_node.job import Evaluate, Logistic, Parties
from vfl_node.progress import Progress
from vfl_node.training.checkpoints import Checkpoints
from vfl_node.training.logistic.decryption import DecryptionLog


@dataclass(frozen=True)
class Regression:
    """What a data party brings to the training.

    Attributes:
        parties: of the job.
        role: this party's.
        alignment: the shared rows as it sees them.
        table: its records; labels where the job has them at this party.
        train: the job's section.
        evaluate: the job's section.
        attempt: how often this party has begun the job; no noise or additive mask is ever drawn for two attempts.
        workers: who computes on ciphertexts.
        journal: what it has decrypted for the other; used where it holds the key.
        checkpoints: where its state is kept.
        pins: digests of what the others sent in earlier attempts.
        clock: seconds since any fixed moment.
        progress: whom to tell.
    """

    parties: Parties
    role: Literal["active", "passive"]
    alignment: Alignment
    table: Table
    train: Logistic
    evaluate: Evaluate
    attempt: int
    workers: Engine
    journal: DecryptionLog
    checkpoints: Checkpoints
    pins: Pins
    clock: Callable[[], float]
    progress: Progress

    @property
    def name(self) -> str:
        """This party's name."""
        return self.parties.active if self.role == "active" else self.parties.passive[0]

    @property
    def labelled(self) -> bool:
        """Whether this party has the labels."""
        return self.role == self.train.labels
