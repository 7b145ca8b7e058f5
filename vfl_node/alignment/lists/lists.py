"""Lists of group elements between the parties, which are computed, sent, received and checked chunk by chunk.

A list lies on disk while a job needs it, so memory holds only a few chunks of it. A new attempt goes on behind the last chunk
that an earlier one finished: a party computes no element twice, and sends only what the other end does not have. Hashing,
powers, sending and receiving overlap.

A list that was received has the right count, and its elements are valid and distinct. It never changes once it has arrived,
because an answer to another list under the same secret scalars would be an oracle.

A party's own set is blinded by scalars that are the same in every job over the same sets on the same terms. So it is sent
as the same list, byte for byte, and a mark proves itself: a peer that announces the mark of an earlier job must send that
job's list, or it is refused (``E_MARK``). A mark that is not known means that the set has changed, and changes are counted.
Lists of other sets are blinded by unrelated scalars.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

import numpy as np
from numpy.typing import NDArray

from vfl_node.alignment.alignment import NOT_MINE, OwnRecords
from vfl_node.alignment.lists.buckets import Buckets, bucket_bits
from vfl_node.alignment.lists.columns import Chosen, Column, Columns, Given, Source
from vfl_node.alignment.lists.computed import Computed
from vfl_node.alignment.lists.meeting import meet
from vfl_node.alignment.lists.picked import Picked
from vfl_node.crypto.groups import Group, Scalar
from vfl_node.crypto.rows import Rows
from vfl_node.errors import DataError, ProtocolError
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.process import failpoints
from vfl_node.progress import Advanced
from vfl_node.session.session import Session
from vfl_node.transport.channel import Channel

_AHEAD = 2  # chunks whose powers are begun while an earlier one is stored and sent; more if workers are many


class Lists:
    """One party's side of the lists of one protocol.

    Attributes:
        session: this party's.
        records: of this party.
        terms: what the job says of its alignment.
        role: this party's.
        group: where the elements live.
        secret: this party's randomness for this protocol.
        lasting: the same in every job on these terms over the same records of all; given once the parties have met.
        own: this party's identifiers; once the parties have met, behind them those that stand for no record.
        draw_number: which draw this is of what hides from the peer how many records are shared, from 1; 0: nothing does.
        sets: stands for the records of all that take part, the others' by the marks that they announce.
        min_overlap: fewest records in a part of the overlap of several sets; 0: no minimum.

    Raises:
        DataError: an identifier occurs twice (``E_DUP_IDS``).
    """

    def __init__(self, session: Session, records: OwnRecords, group: Group) -> None:
        self.session, self.records, self.group = session, records, group
        self.terms, self.role = session.job.align, session.role
        if repeated := len(records.ids.repeats()):
            text = f"{repeated} of {len(records)} identifiers repeat an earlier one"
            raise DataError(text, code="E_DUP_IDS", hint="keep one row for each identifier")
        self._tag = ALIGNMENTS.lasting(self.terms.protocol)  # of draws, hashes and pins
        self.secret = self.lasting = session.randomness.derive(self._tag)
        self.own = records.ids
        self._workers, self._threads = session.machine.workers, session.machine.threads
        self._ahead = max(_AHEAD, self._workers.workers * self._workers.grain * group.block_rows // group.chunk_rows)
        self._columns = Columns(session.attempt.folder, width=group.width, chunk_rows=group.chunk_rows)
        self._domain = f"vfl-node-v1-{self._tag}-{group.name}".encode()
        self.sets = self._agreed = b""
        self.min_overlap = self.draw_number = 0
        self._held: Mapping[str, Mapping[str, int]] = {}
        self._senders: dict[str, str] = {}

    @property
    def channel(self) -> Channel:
        """The conversation with the peer, in a protocol of two parties. Raises ValueError where there are several."""
        return self.session.peer

    @property
    def peer(self) -> str:
        """The peer's name, in a protocol of two parties. Raises ValueError where there are several."""
        return self.channel.peer

    async def meet(self, *, receives: Sequence[str]) -> int:
        """As :meth:`meet_all`, in a protocol of two parties: the number of elements that the peer announces.

        Args:
            receives: the lists that the peer will send.
        """
        return (await self.meet_all({self.peer: receives}))[self.peer]

    async def meet_all(self, receives: Mapping[str, Sequence[str]]) -> Mapping[str, int]:
        """Meet the other data parties before the first list; the number of elements that each announces, in the job's order.

        Args:
            receives: peer → the lists that it will send.

        Raises:
            VflError: as :func:`vfl_node.alignment.lists.meeting.meet`.

        Leaks: as that.
        """
        meeting = await meet(self.session, self.records, self._columns, group=self.group.name, receives=receives)
        self.own, self.lasting, self.sets = meeting.own, meeting.lasting, meeting.sets
        self._agreed, self._held = meeting.agreed, meeting.held
        self.min_overlap, self.draw_number = meeting.min_overlap, meeting.draw_number
        return meeting.theirs

    def order(self, step: str) -> NDArray[np.int64]:
        """A secret order of our own elements, int64[n], in every job the same; whatever the order in the table."""
        return self.own.canonical_order[self.lasting.derive(step).permutation(len(self.own))]

    def draw(self, name: str) -> Scalar:
        """A secret scalar of this job."""
        return self.group.draw(self.secret.derive(name))

    def draw_lasting(self, name: str) -> Scalar:
        """A secret scalar for these sets: the list that it blinds is the same in every job, so a mark can be held to it."""
        return self.group.draw(self.lasting.derive(name))

    # Lists of our own making.

    def blind(self, name: str, order: NDArray[np.int64], scalar: Scalar) -> Computed:
        """Our own identifiers, hashed into the group and powered, in ``order``."""

        def begin(start: int) -> Iterator[Iterator[Rows]]:
            for first in range(start, len(order), self.group.chunk_rows):
                picked = Picked(self.own, order[first : first + self.group.chunk_rows])
                yield self.group.blinded(picked, self._domain, scalar, self._workers)

        return self._compute(name, len(order), begin)

    def powers(self, name: str, source: Source, scalar: Scalar) -> Computed:
        """``x^scalar`` for every element of ``source``."""

        def begin(start: int) -> Iterator[Iterator[Rows]]:
            return (self.group.powers(chunk, scalar, self._workers) for chunk in source.chunks(start))

        return self._compute(name, len(source), begin)

    def choose(self, columns: Sequence[Column], places: NDArray[np.int64]) -> Chosen:
        """The elements at ``places`` of columns laid one behind the other."""
        return Chosen(columns, places, self.group.chunk_rows)

    def wrap(self, rows: Rows) -> Given:
        """Elements that lie in memory."""
        return Given(rows, self.group.chunk_rows)

    async def send(self, name: str, source: Source, *, to: str | None = None) -> None:
        """Send a list, each chunk as soon as it is there; what the receiver holds already is left out.

        Args:
            name: as the receiver knows it.
            source: its elements.
            to: the receiver; None: the only peer.

        Raises:
            ProtocolError: the receiver claims to hold more of it than there is (``E_COUNT``).
        """
        peer = to or self.peer
        start = self._held[peer].get(name, 0)
        if start > len(source):
            raise ProtocolError(f"{peer} claims {start} elements of {name}, of {len(source)}", code="E_COUNT")
        failpoints.reach("align-list")
        channel = self.session.data_peers[peer]
        await channel.send_rows(source.chunks(), count=len(source), width=self.group.width, start=start)

    # Lists of others.

    async def receive(
        self,
        name: str,
        *,
        count: int | None = None,
        at_least: int = 0,
        at_most: int = 1 << 31,
        sender: str | None = None,
        distinct: bool = True,
        lasting: bool = False,
        elements: bool = True,
    ) -> Column:
        """The list ``name``.

        Args:
            name: as its sender calls it.
            count: its length, if known.
            at_least: its smallest length.
            at_most: its largest length, if ``count`` is not known.
            sender: the party that sends it; None: the only peer.
            distinct: whether two equal elements are refused here; else :meth:`check_distinct` does it on their powers.
            lasting: whether it must be the one that came with the same marks in an earlier job.
            elements: whether its rows are group elements; others are not looked at.

        Raises:
            ProtocolError: another count (``E_COUNT``), an invalid element (``E_ELEMENT``)
                or two equal ones (``E_DUPLICATE``), or not the list of these marks (``E_MARK``).
            StateError: not the list of an earlier attempt (``E_REPLAY``).
        """
        column = self._columns.column(name)
        self._senders[name] = sender or self.peer
        channel = self.session.data_peers[self._senders[name]]
        with self._name_list(name):
            async for chunk in channel.receive_chunks(
                width=self.group.width, count=count, max_count=at_most, start=len(column), digest=column.digest
            ):
                column.append(self.group.checked(chunk, self._workers) if elements else chunk)
        self._finish_received(name, column, at_least, lasting)
        return self.check_distinct(name, column) if distinct and elements else column

    async def receive_powers(self, name: str, scalar: Scalar, *, at_least: int, at_most: int, lasting: bool = False) -> Column:
        """``x^scalar`` for the list ``name``, computed while the rest still arrives.

        Raises:
            ProtocolError: a count outside the bounds (``E_COUNT``); or as :meth:`receive`.
            StateError: not the list of an earlier attempt (``E_REPLAY``).
        """
        column, powers = self._columns.column(name), self._columns.column(f"{name} powers")
        if len(powers) > len(column):  # a loss of power took elements and left their powers
            powers.clear()
        self.session.progress.emit(Advanced(len(powers)))
        started: deque[Iterator[Rows]] = deque()
        with self._name_list(name):
            for chunk in column.chunks(len(powers)):
                self._begin(chunk, scalar, powers, started)
            async for chunk in self.channel.receive_chunks(
                width=self.group.width, max_count=at_most, start=len(column), digest=column.digest
            ):
                column.append(chunk)
                self._begin(chunk, scalar, powers, started)
            while started:
                powers.append(self._gather(started.popleft()))
        self._finish_received(name, column, at_least, lasting)
        return self.check_distinct(name, powers)

    def check_distinct(self, name: str, column: Column) -> Column:
        """The column, once no two of its elements are equal.

        Powers are looked at where there are some: points of Curve25519 that differ by a component of small order have the same.

        Raises:
            ProtocolError: two are equal (``E_DUPLICATE``).
        """
        with self.divide(column) as (buckets,):
            if buckets.are_distinct():
                return column
        raise ProtocolError(f"{self._origin(name)}: an element occurs twice", code="E_DUPLICATE")

    # What all have in the end.

    @contextmanager
    def divide(self, *sources: Source) -> Iterator[list[Buckets]]:
        """The elements of each in as many buckets."""
        width = self.group.width
        how = (width, bucket_bits(sum(map(len, sources)), width), self._threads, self._columns.folder)
        with ExitStack() as files:
            yield [files.enter_context(Buckets(source, *how)) for source in sources]

    def ascending(self, column: Source) -> NDArray[np.int64]:
        """Places of the column's elements in ascending order, int64[n]."""
        with self.divide(column) as (buckets,):
            return buckets.ascending()

    def find(self, held: Source, wanted: Source) -> NDArray[np.int64]:
        """Place of every one of ``wanted`` in ``held``, the first if there are several, int64[k]; −1 where it is absent."""
        with self.divide(held, wanted) as (all_held, all_wanted):
            return all_held.find(all_wanted)

    def place(self, shared: Source, own: Column, order: NDArray[np.int64]) -> NDArray[np.int64]:
        """Our identifier at each place of ``shared``, or :data:`NOT_MINE`: int64[m]. ``order`` has those of ``own``."""
        places = self.find(shared, own)
        rows = np.full(len(shared), NOT_MINE, dtype=np.int64)
        rows[places[places >= 0]] = order[places >= 0]
        return rows

    def drop_cover(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """``rows`` with :data:`NOT_MINE` for identifiers that stand for no record of ours."""
        return np.where(rows < len(self.records), rows, NOT_MINE)

    def release(self, *names: str) -> None:
        """Close the files of lists that this attempt no longer needs; they stay for the next one."""
        for name in names:
            self._columns.release(name)

    def close(self) -> None:
        """Close all files; they stay for the next attempt. Idempotent."""
        self._columns.close()

    def _compute(self, name: str, count: int, begin: Callable[[int], Iterable[Iterator[Rows]]]) -> Computed:
        column = self._columns.column(name)
        self.session.progress.emit(Advanced(len(column)))
        return Computed(column, count, lambda start: self._gather_all(begin(start)))

    def _gather_all(self, chunks: Iterable[Iterator[Rows]]) -> Iterator[Rows]:
        """Each chunk once workers have computed it; the next ones are begun meanwhile."""
        started: deque[Iterator[Rows]] = deque()
        for blocks in chunks:
            started.append(blocks)
            if len(started) > self._ahead:
                yield self._gather(started.popleft())
        while started:
            yield self._gather(started.popleft())

    def _begin(self, chunk: Rows, scalar: Scalar, powers: Column, started: deque[Iterator[Rows]]) -> None:
        started.append(self.group.powers(chunk, scalar, self._workers, check=True))
        if len(started) > self._ahead:
            powers.append(self._gather(started.popleft()))

    def _gather(self, blocks: Iterator[Rows]) -> Rows:
        gathered = [self.group.empty()]
        for block in blocks:
            self.session.progress.emit(Advanced(len(block)))
            gathered.append(block)
        return np.concatenate(gathered)

    def _finish_received(self, name: str, column: Column, at_least: int, lasting: bool) -> None:
        """The list is whole: nothing computed from it leaves before it would outlive a loss of power."""
        if len(column) < at_least:
            raise ProtocolError(f"{self._origin(name)}: {len(column)} elements, expected at least {at_least}", code="E_COUNT")
        column.sync()
        failpoints.reach("align-synced")
        digest = column.digest.digest()
        self.session.attempt.pins.check(f"{self._tag} {name}", digest)
        if lasting and self._first_of_this_mark(name, digest) != digest:
            raise ProtocolError(f"{self._origin(name)}: announced as of an earlier job, and it is another list", code="E_MARK")
        failpoints.reach("align-stored")

    def _first_of_this_mark(self, name: str, digest: bytes) -> bytes:
        named = hashlib.sha256(self._agreed + name.encode()).hexdigest()
        return self.session.memory.keep(f"list-{named[:40]}", digest)

    @contextmanager
    def _name_list(self, name: str) -> Iterator[None]:
        """Says which list an invalid element is of."""
        try:
            yield
        except ProtocolError as error:
            if error.code != "E_ELEMENT":
                raise
            raise ProtocolError(f"{self._origin(name)}: {error.message}", code=error.code) from None

    def _origin(self, name: str) -> str:
        return f"{self.terms.protocol} {name} from {self._senders.get(name) or self.peer}"
