"""What both data parties of a linkage do alike: agree on a seed, encode, commit, and send their filters to the coordinator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vfl_node.alignment.alignment import OwnRecords
from vfl_node.alignment.linkage import terms
from vfl_node.alignment.linkage.plan import LinkagePlan
from vfl_node.alignment.linkage.policy import check_pairs
from vfl_node.alignment.linkage.seed import agree_on_seed, mark_of
from vfl_node.alignment.lists.columns import Column, Columns
from vfl_node.alignment.lists.meeting import check_size, exchange_marks
from vfl_node.alignment.sizes import check_announced
from vfl_node.crypto.filters.encoding import encode
from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.rows import Rows
from vfl_node.data.sampling import keyed_marks
from vfl_node.data.tables import check_enough, key_rows_of
from vfl_node.errors import ProtocolError, UsageError
from vfl_node.job.keys import NO_KEYS, filter_bits
from vfl_node.process import failpoints
from vfl_node.progress import Advanced, PhaseBegan
from vfl_node.session.counted import linked_sets
from vfl_node.session.session import Session
from vfl_node.transport.channel import CHUNK_BYTES, Channel
from vfl_node.transport.generated.vfl.v1.linkage_pb2 import EncodingTerms, LinkageAccepted

GROUP = "filters"
"""In place of a group: records are compared by the distance of their filters."""


@dataclass(frozen=True)
class LinkageSizes:
    """How large a linkage is.

    Attributes:
        active: the active party's records, n_A.
        passive: the passive party's, n_B.
        bits: of a filter.
    """

    active: int
    passive: int
    bits: int


class DataSide:
    """One data party's side, whose files are closed by :meth:`close`.

    Args:
        session: this party's; columns lie in its folder.
        records: of this party, with the keys of the job.

    Attributes:
        order: int64[n], the record of this party's table at each place of its column of filters. It follows keyed hashes of
            identifiers: it tells nothing of the table's order, is the same in every job with this peer, and does not change
            between two records, whatever else the table has.
        sizes: of both sides, once they have met.
        filters: of this party's records, likewise.
        agreed: stands for the terms, likewise.
        linkage: stands for the terms and both sets, likewise.
    """

    def __init__(self, session: Session, records: OwnRecords) -> None:
        self.session, self.records, self.align = session, records, session.job.align
        self.keys = self.align.keys or NO_KEYS
        self.bits = filter_bits(self.keys, self.align.encoding)
        marks = keyed_marks(records.ids, session.memory.secret.derive("linkage order").bytes(32))
        self.order: NDArray[np.int64] = np.lexsort((marks[:, 1], marks[:, 0]))
        self._filters = self._columns(self.bits // 8)
        self._found = self._columns(4 * self.align.candidates)

    @property
    def coordinator(self) -> Channel:
        """The conversation with the coordinator."""
        channel = self.session.coordinator
        assert channel is not None  # the job was checked
        return channel

    async def meet(self, found: str) -> None:
        """Steps 1 to 5: everything up to the filters, to which both are committed then.

        Args:
            found: the column that the coordinator will send.

        Raises:
            VflError: as :func:`vfl_node.alignment.protocols.align`.
        """
        session, name = self.session, self.session.name
        check_enough(len(self.records), session.policy.limits.min_own_rows, name)
        check_announced(len(self.records), self.align, session.role, session.policy.limits.size.rows)
        await exchange_marks(session, self.records, GROUP)  # 1
        seed = await agree_on_seed(session)  # 2
        self.filters = self._encode(seed)  # 3
        own = self._own_terms(self.filters)
        theirs = await self._exchange_terms(own)  # 4
        active, passive = (own, theirs) if session.role == "active" else (theirs, own)
        self.sizes = LinkageSizes(active.count, passive.count, self.bits)
        self._check_candidates()
        if self.align.comparison == "shares":
            check_pairs(LinkagePlan.from_align(self.align, (active.count, passive.count)))
        self._found.need_room(active.count)
        self.agreed = agreed = terms.digest_of(self.align, mark_of(seed))
        self.linkage = terms.linkage_of(agreed, active, passive, self.coordinator.peer)
        limit, over_all = session.policy.limits.budgets.linkages, terms.any_set(self.align, agreed, self.linkage)
        self._counts = (linked_sets(self._identity, self.linkage, limit), linked_sets(*over_all, limit))
        for what in self._counts:
            session.memory.check(what)
        self._held = await self._commit(own, theirs, mark_of(seed), self._found.column(found))  # 5

    async def send_filters(self) -> None:
        """Step 6: the coordinator has the filters then."""
        failpoints.reach("align-list")
        filters = self.filters
        await self.coordinator.send_rows(filters.chunks(), count=len(filters), width=filters.width, start=self._held)

    async def accept(self) -> None:
        """Count the linkage, and let the coordinator go on; before, neither party gets candidates or similarities.

        Raises:
            PolicyError: it is one too many (``E_BUDGET``).
        """
        for what in self._counts:
            self.session.memory.count(what)
        await self.coordinator.send(LinkageAccepted())

    async def receive(self, found: str, check: Callable[[Rows], None]) -> Rows:
        """The column ``found`` of the coordinator, a row for each record of the active party: uint8[n_A, 4·K], in the file.

        Raises:
            ProtocolError: another count, or what ``check`` refuses in a chunk.
            StateError: another column than in an earlier attempt (``E_REPLAY``).
        """
        column = self._found.column(found)
        async for chunk in self.coordinator.receive_chunks(
            width=column.width, count=self.sizes.active, start=len(column), digest=column.digest
        ):
            check(chunk)
            column.append(chunk)
        column.sync()
        failpoints.reach("align-synced")
        self.session.attempt.pins.check(f"linkage {found}", column.digest.digest())
        failpoints.reach("align-stored")
        return column.rows

    def close(self) -> None:
        """Close all files; they stay for the next attempt. Idempotent."""
        self._filters.close()
        self._found.close()

    def _columns(self, width: int) -> Columns:
        return Columns(self.session.attempt.folder, width=width, chunk_rows=max(1, CHUNK_BYTES // width))

    @property
    def _identity(self) -> bytes:
        return self.records.identity or self.records.ids.digest()

    def _encode(self, seed: bytes) -> Column:
        """The filters of all records, in :attr:`order`, chunk by chunk; what is stored already is not computed again."""
        column, records = self._filters.column("filters"), len(self.records)
        self._filters.need_room(records)
        self.session.progress.emit(PhaseBegan("align", records, "encoded records"))
        self.session.progress.emit(Advanced(len(column)))
        columns = {name: key_rows_of(values, self.order) for name, values in self.records.keys.items()}
        step = max(1, CHUNK_BYTES // column.width)
        for block in encode(self.keys, self.align.encoding, columns, Randomness(seed), start=len(column), rows=step):
            column.append(block)
            self.session.progress.emit(Advanced(len(block)))
        column.sync()
        self.session.attempt.pins.check("own filters", column.digest.digest())
        return column

    def _own_terms(self, filters: Column) -> EncodingTerms:
        salt = self.session.memory.secret.derive(f"linkage salt {self._identity.hex()}").bytes(terms.DIGEST_BYTES)
        commitment = terms.commitment_to(filters.digest.digest(), salt)
        return EncodingTerms(bits=self.bits, count=len(filters), commitment=commitment, salt=salt)

    async def _exchange_terms(self, own: EncodingTerms) -> EncodingTerms:
        """Tell the data peer what this party has encoded, and hear the same of it."""
        session, channel = self.session, self.session.peer
        failpoints.reach("align-size")
        shown = {field: getattr(own, field) for field in terms.SHOWN}
        await channel.send(EncodingTerms(**shown))
        theirs = await channel.receive(EncodingTerms)
        terms.check_terms(theirs, channel.peer, self.bits)
        check_size(channel.peer, theirs.count, self.align, session.policy.limits)
        session.attempt.pins.check("linkage terms", terms.pinned_digest(theirs))
        return theirs

    async def _commit(self, own: EncodingTerms, theirs: EncodingTerms, seed_mark: bytes, found: Column) -> int:
        """Commit to the filters at the coordinator before either party sends them; how many of them it has already.

        Raises:
            ProtocolError: it heard something else of the peer than this party did (``E_COMMITMENT``).
        """
        channel, peer = self.coordinator, self.session.peer.peer
        own.held, own.seed_mark = len(found), seed_mark
        await channel.send(own)
        answer = await channel.receive(EncodingTerms)
        if any(getattr(answer, field) != getattr(theirs, field) for field in terms.SHOWN):
            raise ProtocolError(
                f"{peer} tells {channel.peer} of other encoded records than this node",
                code="E_COMMITMENT",
                for_peer="the data parties were told different commitments",
            )
        if answer.held > own.count:
            raise ProtocolError(f"{channel.peer} claims {answer.held} filters, of {own.count}", code="E_COUNT")
        return answer.held

    def _check_candidates(self) -> None:
        """Refuse more candidates than there are records. Raises UsageError (``E_CANDIDATES``)."""
        passive = self.session.job.parties.pair["passive"]
        if self.align.candidates > self.sizes.passive:
            raise UsageError(
                f"the job wants {self.align.candidates} candidates for each record, and "
                f"{passive} has {self.sizes.passive} records (align.candidates)",
                code="E_CANDIDATES",
                hint="agree on fewer candidates: all records as candidates of each would say nothing",
                for_peer="align.candidates is more than the passive party has records",
            )
