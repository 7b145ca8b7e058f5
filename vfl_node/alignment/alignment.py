"""What every alignment protocol ends in and every trainer begins with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from vfl_node.errors import StateError

NOT_MINE = -1
"""Marks a shared row that this party does not own."""


@dataclass(frozen=True)
class Alignment:
    """An ordered index of ``m`` shared rows, as one party sees it.

    Attributes:
        protocol: ``psu`` or ``psi``.
        group: name of the group it was computed in.
        rows: int64[m]; the local row at each shared position, or :data:`NOT_MINE`.
        ours: number of this party's identifiers.
        theirs: number of the peer's identifiers.
        intersection: size of the intersection; None where the protocol hides it.
    """

    protocol: str
    group: str
    rows: NDArray[np.int64]
    ours: int
    theirs: int
    intersection: int | None
    learnt: tuple[str, ...] = field(default=())
    """In plain words, what this party learnt from the alignment."""

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
        """How many the peer does not own; None where the intersection is hidden."""
        return None if self.intersection is None else len(self) - self.missing - self.intersection

    @property
    def union(self) -> int | None:
        """Size of the union; None where the intersection is hidden."""
        return None if self.intersection is None else self.ours + self.theirs - self.intersection


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
