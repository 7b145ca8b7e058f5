"""What every alignment protocol ends in and every trainer begins with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vfl_node.alignment.registry import ALIGNMENTS
from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.workers import Workers
from vfl_node.data.identifiers import Identifiers
from vfl_node.ledger import Disclosure
from vfl_node.progress import Progress
from vfl_node.session.memory import Memory
from vfl_node.session.pins import Pins
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
