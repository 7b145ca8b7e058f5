"""How the three parties of a linkage in shares meet: the data parties compute, and the coordinator deals.

::

    A, B → C      LinkageAccepted: each has counted the linkage     before that nothing is dealt, so nothing computed
    C → A, B      the seed of its masks, then corrections
    A ↔ B         masked shares                                     ``comparison.py``

Candidates reach B before it can say how often its records are used. So here a linkage counts from its beginning, also one
that B then refuses (``linkage.max_reuse`` of its policy); A has no similarity in that case. With two parties there is one
linkage in shares only, which may be repeated.

**A restart.** The computation begins anew, under the same masks: they follow from seeds that C has for the job, and from what
both are committed to. All is arithmetic of integers, so both send what they sent before. What the other one opens is compared
with what it opened then, before anything more is sent (:mod:`vfl_node.session.openings`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from vfl_node.alignment.linkage import learnt, terms
from vfl_node.alignment.linkage.comparison import SharedCandidates, find_candidates
from vfl_node.alignment.linkage.coordination import Linker
from vfl_node.alignment.linkage.plan import LinkagePlan
from vfl_node.alignment.linkage.policy import check_pairs, check_reuse, check_room, check_sigma, no_similarities_error
from vfl_node.alignment.linkage.side import DataSide, LinkageSizes
from vfl_node.alignment.linkage.similarity import DistanceScale
from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.rows import Rows
from vfl_node.crypto.shares.machine import SEED_BYTES, Dealer, Party
from vfl_node.crypto.shares.nearest import NONE
from vfl_node.errors import PolicyError, ProtocolError
from vfl_node.ledger import Disclosure
from vfl_node.process import failpoints
from vfl_node.process.files import read_checked, write_checked
from vfl_node.progress import Advanced, PhaseBegan
from vfl_node.session.openings import OpeningLog
from vfl_node.session.share_wire import DealingSink, DealtCorrections, PairWire
from vfl_node.transport.channel import Channel
from vfl_node.transport.generated.vfl.v1.shares_pb2 import DealerSeed


class SharedLinkage:
    """A data party's part, from what both are committed to on.

    Args:
        side: that has met.

    Attributes:
        reuse: for how many records of A one of B's is a candidate, at most; None at A.
        sigma: of the noise.
    """

    def __init__(self, side: DataSide) -> None:
        self._side, self._session = side, side.session
        self._plan = LinkagePlan.from_align(side.align, (side.sizes.active, side.sizes.passive))
        self._place = ("active", "passive").index(side.session.role)
        self.reuse: int | None = None
        self.sigma = self._plan.sigma

    async def run(self) -> SharedCandidates:
        """Compute.

        Raises:
            PolicyError: another linkage in shares than the first (``E_BUDGET``), noise that B does not allow, a record that
                would be used too often (``E_REUSE``), distances that are all alike (``E_CONSTANT``).
            ProtocolError: a message of another size (``E_COUNT``), or a place that is none (``E_ELEMENT``).
            StateError: there is no memory for it (``E_MEMORY``); others send other numbers than in an earlier attempt
                (``E_REPLAY``).

        Leaks: see ``learnt.py``.
        """
        side, session, dealer = self._side, self._session, self._side.coordinator
        plan, context = self._plan, side.linkage
        if self._place:
            check_sigma(plan.sigma, session.policy.limits)
        check_room(plan.memory_bytes, session.machine.free_bytes)
        self._check_only_one()
        await side.accept()
        masks = (await dealer.receive(DealerSeed)).seed
        if len(masks) != SEED_BYTES:
            raise ProtocolError(f"{dealer.peer} sent a seed of {len(masks)} bytes", code="E_COUNT")
        session.attempt.pins.check(f"masks of {dealer.peer}", hashlib.sha256(masks).digest())
        corrections, wire = DealtCorrections(dealer), PairWire(self._place, session.peer)
        log = OpeningLog(session.attempt.folder / "openings", hashlib.sha256(context + masks).digest())

        def end_block() -> None:
            log.keep()
            failpoints.reach("align-store")
            session.progress.emit(Advanced(1))

        session.progress.emit(PhaseBegan("align", len(plan.blocks), "blocks of records"))
        failpoints.reach("align-list")
        try:
            party = Party(self._place, 2, Randomness(masks), wire, corrections, context.hex(), log.check)
            own, choosing = side.filters.rows, _Chosen(side) if self._place else None
            found = await find_candidates(party, plan, own, choosing, check=self._check, end_block=end_block)
        finally:
            log.close()
        await corrections.finish()
        self.reuse = choosing.most if choosing else None
        heard = found.distances if found.places is None else found.places
        session.attempt.pins.check("linkage in shares", hashlib.sha256(np.ascontiguousarray(heard).tobytes()).digest())
        failpoints.reach("align-stored")
        return found

    def _check_only_one(self) -> None:
        """Refuse another linkage in shares than the one that there was with this peer, whatever is other: set, σ or K.

        Sums of distances are opened, and noise is multiplied by what they give. Two of them that differ little would tell
        distances exactly. Both parties remember it before a sum can be opened. Raises PolicyError (``E_BUDGET``).
        """
        session, peer = self._session, self._session.peer.peer
        if session.memory.keep("shared-linkage", self._side.linkage) != self._side.linkage:
            raise PolicyError(
                f"there was another linkage in shares with {peer}, over other records or on other terms",
                code="E_BUDGET",
                hint="repeat that one, or leave align.comparison out. If both owners accept that distances may follow from two "
                "of them, remove shared-linkage.kept from state/partners at both nodes",
                for_peer="there was another linkage in shares with it",
            )

    def _check(self, scale: DistanceScale | None) -> None:
        """Refuse to go on without similarities. Raises PolicyError (``E_CONSTANT``)."""
        if scale is None or scale.deviation == 0:
            raise no_similarities_error(scale is None)


class _Chosen:
    """B's candidates in an order without ranks, the same in every job, and how often each of its records is one.

    Args:
        side: B's, that has met.
    """

    def __init__(self, side: DataSide) -> None:
        self._side, self._session, self.most = side, side.session, 0
        self._keys = self._session.memory.secret.derive(f"linkage slots {side.linkage.hex()}")
        self._counts = np.zeros(side.sizes.passive, np.int64)

    def places(self, chosen: NDArray[np.bool_]) -> NDArray[np.intp]:
        """The places of the next of A's records, bool[n, m]: int[n, K]."""
        self._counts += chosen.sum(axis=0)
        keys = self._keys.uint64(chosen.size).reshape(chosen.shape) >> np.uint64(1)
        keys[~chosen] = np.uint64(1 << 63)
        places = np.argsort(keys, axis=1, kind="stable")[:, : self._side.align.candidates]
        return np.where(np.take_along_axis(chosen, places, axis=1), places, NONE)

    def accept(self) -> None:
        """Refuse where a record is used too often. Raises PolicyError (``E_REUSE``)."""
        uses = uses_of(self._side.filters.rows, self._counts)
        self.most = int(uses.max(initial=0))
        check_reuse(self.most, float(np.median(uses)), self._session.peer.peer, self._session.policy.limits)


def uses_of(filters: Rows, counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many similarities A gets of each filter of B, by those of each record: all of equal filters, as noise differs."""
    places: dict[bytes, int] = {}
    which = np.array([places.setdefault(row.tobytes(), len(places)) for row in filters])
    totals = np.zeros(len(places), np.int64)
    np.add.at(totals, which, counts)
    return np.asarray(totals[which], dtype=np.int64)


class LinkageDealing(Linker):
    """The coordinator's part: it hears numbers of records, and deals.

    Args:
        session: as the base.
    """

    async def serve(self, channel: Channel) -> None:
        """Deal to one data party.

        Raises:
            ProtocolError: seeds that differ.
            PolicyError: too small a set (``E_TOO_FEW``), or a linkage too many (``E_BUDGET``).
            UsageError: too many pairs (``E_PAIRS``).
            StateError: no memory (``E_MEMORY``); what was remembered is lost (``E_STATE_OLDER``); other sets than in an
                earlier attempt (``E_REPLAY``).
        """
        session = self._session
        async with channel.phase("align"):
            await self._introduce(channel)
            active, passive = self._said[self._active], self._said[self._passive]
            plan = LinkagePlan.from_align(self._align, (active.count, passive.count))
            check_pairs(plan)
            check_room(2 * plan.memory_bytes, session.machine.free_bytes)
            linkage = terms.linkage_of(self._terms, active, passive, session.name)
            await self._hear_accepted(channel)
            if channel.peer == self._active:  # the other conversation runs at the same time, and knows the same
                write_checked(session.attempt.folder / "linkage", json.dumps(plan.rows).encode())
            names = (self._active, self._passive)
            seeds = [session.randomness.derive(f"dealer seed {name}").bytes(SEED_BYTES) for name in names]
            place, sink = names.index(channel.peer), DealingSink(channel)
            await channel.send(DealerSeed(seed=seeds[place]))
            dealer = Dealer(place, [Randomness(seed) for seed in seeds], sink, linkage.hex())
            noise = self._memory.secret.derive(f"noise {linkage.hex()}")
            await find_candidates(dealer, plan, noise=noise, end_block=lambda: failpoints.reach("dealt"))
            await sink.finish()

    @override
    def disclosures(self) -> Mapping[str, tuple[Disclosure, ...]]:
        stored = read_checked(self._session.attempt.folder / "linkage", hint="submit the job again as a new one")
        plan = LinkagePlan.from_align(self._align, tuple(json.loads(stored)))
        return learnt.disclosures(self._session.job, LinkageSizes(*plan.rows, plan.bits), plan.sigma, None)
