"""What every alignment protocol ends in and every trainer begins with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from vfl_node.alignment.registry import ALIGNMENTS
from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.workers import Workers
from vfl_node.data.identifiers import Identifiers
from vfl_node.errors import StateError
from vfl_node.ledger import Disclosure
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
    learnt: tuple[Disclosure, ...] = ()
    peer_learnt: tuple[Disclosure, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def every_row_is_shared(self) -> bool:
        """Whether each party owns the record of every row."""
        return ALIGNMENTS[self.protocol].every_row_is_shared

    @property
    def hides_intersection(self) -> bool:
        """Whether the protocol keeps from a party how many records are shared."""
        return bool(ALIGNMENTS[self.protocol].intersection_hidden_from)

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
        spec = ALIGNMENTS[self.protocol]
        neither = not spec.every_row_is_shared and not spec.is_within_one_set  # some rows may be of neither party
        if self.intersection is None or (self.padded and neither):
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
        identity: stands for all records of its table, in whatever form and of whatever part ``ids`` are; empty: for ``ids``.
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
    identity: bytes = b""


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

    @property
    def seen(self) -> int:
        """How many alignments the peer has begun with this node, by its own count, as far as it was heard."""

    def check_not_older(self, peer_has_seen: int) -> None:
        """Refuse to go on with less memory than the peer has seen of this node.

        Raises:
            StateError: the peer has seen alignments that are not remembered (``E_STATE_OLDER``).
        """

    def begin(self) -> int:
        """Count an alignment that begins with this peer; how many there were, this one included."""

    def saw(self, begun: int) -> None:
        """Remember how many alignments the peer says that it has begun."""

    def count_inputs(self, digest: bytes, limit: int) -> None:
        """Remember that two sets, ours and the peer's, were aligned; ``digest`` is of both.

        Sets that differ in one identifier tell by their sizes whether the other party has it.

        Raises:
            PolicyError: it would be one more than ``limit`` different pairs (``E_BUDGET``).
        """

    def count_changes(self, digest: bytes, limit: int) -> None:
        """Remember that two sets were aligned in a job that hides how many of them are shared; ``digest`` is of both.

        What hides it is drawn anew when a set changes, and every draw narrows what it can be.

        Raises:
            PolicyError: it would be more than ``limit`` changes of the first pair (``E_BUDGET``).
        """

    def count_trainings(self, digest: bytes, job_id: str, limit: int) -> int:
        """Remember a training with synthetic rows over our own set, of this digest; which one it is, from 1.

        Such rows are drawn anew in each job, and real ones are not: comparing tells them apart.

        Raises:
            PolicyError: it would be one more than ``limit`` over this set (``E_BUDGET``).
        """


def older(peer: str, seen: int, begun: int) -> StateError:
    """The error of a node that remembers less of ``peer`` than that has seen of it."""
    return StateError(
        f"{peer} has seen {seen} alignments of this node with it, and this node remembers {begun}: what it remembers of {peer} "
        "is older than that, or gone, as after a backup was restored",
        code="E_STATE_OLDER",
        hint=f"put the newest copy of state/partners/{peer} back; if there is none: vfl-node accept-loss {peer}, which counts "
        f"as a changed set, since {peer} can compare what is drawn from now on with what is lost",
        for_peer="what it remembers of earlier jobs with this node is older than they are, or gone; its owner has to decide",
    )


class MemoryOfOneRun:
    """A memory that lives as long as the object.

    Args:
        secret: as :attr:`Memory.secret`.
    """

    def __init__(self, secret: Randomness) -> None:
        self._secret = secret
        self._kept: dict[str, bytes] = {}
        self._begun = self._seen = 0

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

    @property
    def seen(self) -> int:
        """As :attr:`Memory.seen`."""
        return self._seen

    def check_not_older(self, peer_has_seen: int) -> None:
        """As :meth:`Memory.check_not_older`."""
        if peer_has_seen > self._begun:
            raise older("the peer", peer_has_seen, self._begun)

    def begin(self) -> int:
        """As :meth:`Memory.begin`."""
        self._begun += 1
        return self._begun

    def saw(self, begun: int) -> None:
        """As :meth:`Memory.saw`."""
        self._seen = max(self._seen, begun)

    def count_inputs(self, digest: bytes, limit: int) -> None:
        """Nothing is counted: the object ends with the run."""

    def count_changes(self, digest: bytes, limit: int) -> None:
        """As :meth:`count_inputs`."""

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
