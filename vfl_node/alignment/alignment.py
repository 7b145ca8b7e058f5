"""What every alignment protocol ends in and every trainer begins with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import KeyColumn
from vfl_node.job.alignment import AlignmentSpec
from vfl_node.ledger import Disclosure

NOT_MINE = -1
"""Marks a shared row that this party does not own."""


@dataclass(frozen=True)
class PeerFacts:
    """What a party knows of one peer after an alignment.

    Attributes:
        records: number of the peer's identifiers, or more if it pads; None if it is hidden from this party.
        intersection: how many records both have; None if that is hidden from this party.
        most_shared: as many as both can have, as this party alone knows; None where it knows no bound, or the number itself.
        missing: how many shared rows the peer does not own; None if that is hidden from this party.
        padded: whether ``records`` may be more than the peer has, so that sums of sizes mean nothing.
        learnt: what the peer learnt, as far as this party can know.
    """

    records: int | None
    intersection: int | None = None
    missing: int | None = None
    padded: bool = False
    learnt: tuple[Disclosure, ...] = ()
    most_shared: int | None = None


@dataclass(frozen=True)
class LinkageFacts:
    """What a party knows of an alignment by similarity beside its rows.

    Attributes:
        bits: of the filter of a record.
        sigma: deviation of the noise on similarities.
        without_candidate: how many rows have no candidate.
        tau: share of filters that the greedy attack guesses from one similarity; None where all candidates are equal.
        tau_min: what no noise gets it below; likewise.
        expected_disclosed: how many of the passive party's filters that makes; likewise.
        tau_means: what τ says, and what it does not, for whoever reads it; likewise.
        reuse: how many different filters of the active party have one record of this party as a candidate, at most; None at a
            party that is not told.
        coordinator_learnt: what the coordinator learnt, as far as this party knows.
        comparison: how distances were computed, as the job says it.
    """

    bits: int
    sigma: float
    without_candidate: int
    tau: float | None
    tau_min: float | None
    expected_disclosed: float | None
    tau_means: str | None = None
    reuse: int | None = None
    coordinator_learnt: tuple[Disclosure, ...] = ()
    comparison: str = "filters"


@dataclass(frozen=True)
class Alignment:
    """An ordered index of ``m`` shared rows, as one party sees it.

    Attributes:
        spec: what its protocol is.
        group: name of the group it was computed in.
        rows: int64[m], the local row at each shared position, or :data:`NOT_MINE`. In an alignment by similarity, at the
            party whose records are the candidates, int64[m, K]: up to K of them for each position, with :data:`NOT_MINE` where
            there are fewer.
        ours: number of this party's identifiers.
        peers: name of each peer → what this party knows of it.
        union: number of records that any of the parties has; None if that is hidden from this party.
        common: number of records that all of the parties have; None if that is hidden from this party. With one peer it is the
            intersection with that peer, and need not be given.
        similarities: float32[m, K], of the K candidates of each position, at the party that learns them, which has one row for
            each position and does not know which records the candidates are; 0 where there is no candidate. None elsewhere.
        learnt: what this party learnt.
        linkage: of an alignment by similarity; None of any other.

    Raises:
        ValueError: ``rows`` and ``similarities`` have other dtypes or shapes, a row is below :data:`NOT_MINE`, a similarity is
            not finite, or one party has both candidates and similarities.
    """

    spec: AlignmentSpec
    group: str
    rows: NDArray[np.int64]
    ours: int
    peers: Mapping[str, PeerFacts]
    union: int | None = None
    similarities: NDArray[np.float32] | None = None
    learnt: tuple[Disclosure, ...] = ()
    common: int | None = None
    linkage: LinkageFacts | None = None

    def __post_init__(self) -> None:
        if len(self.peers) == 1:
            object.__setattr__(self, "common", self.peer.intersection)
        if self.rows.dtype != np.int64 or self.rows.ndim not in (1, 2) or (self.rows < NOT_MINE).any():
            raise ValueError(f"rows must be int64[m] or int64[m, K] of at least {NOT_MINE}")
        if self.similarities is None:
            return
        if self.rows.ndim == 2:
            raise ValueError("the party that has similarities must not know the candidates, int64[m, K]")
        if self.similarities.dtype != np.float32 or self.similarities.ndim != 2 or len(self.similarities) != len(self.rows):
            raise ValueError("similarities must be float32[m, K], of the shape of rows")
        if not np.isfinite(self.similarities).all():
            raise ValueError("similarities must be finite")

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def protocol(self) -> str:
        """The protocol's name in the job."""
        return self.spec.name

    @property
    def peer(self) -> PeerFacts:
        """What this party knows of its only peer.

        Raises:
            ValueError: there are several; a trainer that asks must not run with them.
        """
        (facts,) = self.peers.values()
        return facts

    @property
    def owned(self) -> NDArray[np.bool_]:
        """bool[m]: of which shared rows this party owns the record, or a candidate."""
        owned = self.rows != NOT_MINE
        return owned if owned.ndim == 1 else owned.any(axis=1)

    @property
    def candidates(self) -> int | None:
        """K, of an alignment by similarity; None of any other."""
        columns = self.rows if self.similarities is None else self.similarities
        return int(columns.shape[1]) if columns.ndim == 2 else None

    @property
    def among(self) -> int | None:
        """How many records the candidates of rows are chosen from, as far as this party knows; None of any other alignment."""
        if self.candidates is None:
            return None
        return self.ours if self.similarities is None else self.peer.records

    @property
    def missing(self) -> int:
        """How many shared rows this party does not own."""
        return int(np.count_nonzero(~self.owned))

    @property
    def has_synthetic_rows(self) -> bool:
        """Whether some row is not owned by every party, or may not be, as far as this party knows."""
        return self.missing > 0 or any(facts.missing != 0 for facts in self.peers.values())

    @property
    def every_row_is_shared(self) -> bool:
        """Whether the protocol gives rows only that every party owns; so the parties know which of their records are shared."""
        return self.spec.every_row_is_shared

    @property
    def hides_intersection(self) -> bool:
        """Whether the protocol hides from a party how many records are shared."""
        return bool(self.spec.intersection_hidden_from)


@dataclass(frozen=True)
class OwnRecords:
    """A party's own input to an alignment; everything else is in its session.

    Attributes:
        ids: its distinct canonical identifiers; row i of its table has ``ids[i]``.
        identity: stands for all records of its table, in whatever form and of whatever part ``ids`` are; empty: for ``ids``.
        keys: name of a key of the job → its values (:class:`vfl_node.data.tables.Table`); empty where it has none.
        table: what its owner's settings call its table; private; empty: it has no name.
    """

    ids: Identifiers
    identity: bytes = b""
    keys: Mapping[str, KeyColumn] = field(default_factory=dict)
    table: str = ""

    def __len__(self) -> int:
        return len(self.ids)
