"""What every alignment protocol ends in and every trainer begins with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.workers import Workers
from vfl_node.data.identifiers import Identifiers
from vfl_node.errors import StateError
from vfl_node.ledger import Learnt
from vfl_node.progress import Progress
from vfl_node.settings import Limits, Obfuscation

NOT_MINE = -1
"""Marks a shared row that this party does not own."""


@dataclass(frozen=True)
class Alignment:
    """An ordered index of ``m`` shared rows, as one party sees it.

    Attributes:
        protocol: ``psu``, ``psi`` or ``apsi``.
        group: name of the group it was computed in.
        rows: int64[m]; the local row at each shared position, or :data:`NOT_MINE`.
        ours: number of this party's identifiers.
        theirs: number of the peer's identifiers, or more where it pads.
        intersection: size of the intersection; None where the protocol hides it.
        padded: whether ``theirs`` may be more than the peer has, so that sums of the sizes mean nothing.
        learnt: what this party learnt.
        peer_learnt: what the peer learnt, as far as this party can know.
    """

    protocol: str
    group: str
    rows: NDArray[np.int64]
    ours: int
    theirs: int
    intersection: int | None
    padded: bool = False
    learnt: tuple[Learnt, ...] = ()
    peer_learnt: tuple[Learnt, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def owned(self) -> NDArray[np.bool_]:
        """bool[m]: which shared rows this party owns."""
        return self.rows != NOT_MINE

    @property
    def missing(self) -> int:
        """How many shared rows this party does not own."""
        return int(np.count_nonzero(~self.owned))

    @property
    def missing_at_peer(self) -> int | None:
        """How many the peer does not own; None where that is hidden."""
        if self.intersection is None or (self.padded and self.protocol == "psu"):  # with rows that neither owns
            return None
        return len(self) - self.missing - self.intersection

    @property
    def union(self) -> int | None:
        """Size of the union; None where that is hidden."""
        return None if self.intersection is None or self.padded else self.ours + self.theirs - self.intersection


@dataclass(frozen=True)
class Party:
    """What one party brings to an alignment.

    Attributes:
        name: what others call it.
        ids: its distinct canonical identifiers; row i of its table has ``ids[i]``.
        randomness: its own for this job; the same again on a resumed attempt.
        workers: who computes group operations.
        pins: digests of what the peer sent in earlier attempts.
        progress: told of every group operation.
        folder: private; lists lie there until the job no longer needs them.
        memory: what this node remembers of the peer beyond the job.
        limits: how small and how large sets may be.
        obfuscation: this owner's own wishes for an obfuscated set.
    """

    name: str
    ids: Identifiers
    randomness: Randomness
    workers: Workers
    pins: Pins
    progress: Progress
    folder: Path
    memory: Memory
    limits: Limits
    obfuscation: Obfuscation


class Memory(Protocol):
    """What a node remembers of one peer for longer than a job.

    What is drawn to hide something must be the same in every job over the same identifiers:
    a peer that saw two draws could tell what they have in common.
    """

    @property
    def secret(self) -> Randomness:
        """Randomness of this node for this peer; the same in every job."""

    def recall(self, name: str) -> bytes | None:
        """What was kept under ``name``, if anything."""

    def keep(self, name: str, data: bytes) -> bytes:
        """Keep ``data`` under ``name``, unless something is kept there already; what is kept from now on."""

    def count_inputs(self, digest: bytes, limit: int) -> None:
        """Remember that two sets, ours and the peer's, were aligned; ``digest`` is of both.

        Sets that differ in one identifier tell by their sizes whether the other party has it.

        Raises:
            PolicyError: it would be one more than ``limit`` different pairs (``E_BUDGET``).
        """

    def count_trainings(self, digest: bytes, job_id: str, limit: int) -> int:
        """Remember a training with synthetic rows over our own set, of this digest; which one it is, from 1.

        Such rows are drawn anew in each job, and real ones are not: comparing tells them apart.

        Raises:
            PolicyError: it would be one more than ``limit`` over this set (``E_BUDGET``).
        """


class MemoryOfOneRun:
    """A memory that lives as long as the object.

    Args:
        secret: as :attr:`Memory.secret`.
    """

    def __init__(self, secret: Randomness) -> None:
        self._secret = secret
        self._kept: dict[str, bytes] = {}

    @property
    def secret(self) -> Randomness:
        """As :attr:`Memory.secret`."""
        return self._secret

    def recall(self, name: str) -> bytes | None:
        """As :meth:`Memory.recall`."""
        return self._kept.get(name)

    def keep(self, name: str, data: bytes) -> bytes:
        """As :meth:`Memory.keep`."""
        return self._kept.setdefault(name, data)

    def count_inputs(self, digest: bytes, limit: int) -> None:
        """Nothing is counted: the object ends with the run."""

    def count_trainings(self, digest: bytes, job_id: str, limit: int) -> int:
        """The first, always: the object ends with the run."""
        return 1


class Pins(Protocol):
    """Digests that must not change between attempts of one job.

    The second round of a union answers any request with its evaluation under secret
    keys; a *different* request in a later attempt would turn that into an oracle. And a
    share of the coin toss could be chosen by a party that knows the other one's already.
    """

    def check(self, name: str, digest: bytes) -> None:
        """Store ``digest`` under ``name`` the first time; afterwards it must be the same.

        Raises:
            StateError: another digest is stored (``E_REPLAY``).
        """


class MemoryPins:
    """Pins that live as long as the object."""

    def __init__(self) -> None:
        self._digests: dict[str, bytes] = {}

    def check(self, name: str, digest: bytes) -> None:
        """As :meth:`Pins.check`."""
        if self._digests.setdefault(name, digest) != digest:
            raise StateError(
                f"{name} differs from an earlier attempt of this job",
                code="E_REPLAY",
                hint="a job may be resumed only with the same request; submit a new job",
            )
