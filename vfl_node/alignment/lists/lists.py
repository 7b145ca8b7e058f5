"""Lists of group elements between two parties: computed, sent, received and checked chunk by chunk.

A list lies on disk while a job needs it, so memory holds a few chunks of it, and an attempt goes
on behind the last chunk that an earlier one finished: a party computes no element twice, and
sends only what the other end does not hold. Hashing, powers, sending and receiving overlap.

A list received has the right count, valid and distinct elements, and never changes once it has
arrived: an answer under the same secret scalars to another list would be an oracle.

A party's own set is blinded by scalars that are the same in every job over the same two sets on the
same terms. So it is the same list, byte for byte, and the peer's mark proves itself: who says that its records
are those of an earlier job sends that job's list or is refused (``E_MARK``). Who announces a mark that is not known has
changed its set, and that counts. Lists of other sets are blinded by unrelated scalars.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from vfl_node import failpoints
from vfl_node.alignment import costs
from vfl_node.alignment.alignment import NOT_MINE, Party
from vfl_node.alignment.lists import promises
from vfl_node.alignment.lists.columns import Chosen, Column, Columns, Given, Source
from vfl_node.alignment.lists.cover import covered
from vfl_node.alignment.sizes import announced
from vfl_node.crypto.groups import Group, Scalar
from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.rows import RowIndex, Rows
from vfl_node.data.tables import check_enough
from vfl_node.errors import DataError, PolicyError, ProtocolError, StateError
from vfl_node.job import Align
from vfl_node.machine import free_bytes
from vfl_node.settings import Role
from vfl_node.transport.channel import Channel
from vfl_node.transport.generated.vfl.v1 import alignment_pb2

_MARK_BYTES = 32
_MOST_BEGUN = 2**62  # of alignments; a peer may claim more than there is time for
_AHEAD = 2  # chunks whose powers are begun while an earlier one is stored and sent


class Computed:
    """A list that is computed as it is asked for, and stored as it is computed.

    Args:
        column: where it is stored; what lies there is not computed again.
        count: elements when it is whole.
        compute: gives the elements from a place on, chunk by chunk.
    """

    def __init__(self, column: Column, count: int, compute: Callable[[int], Iterator[Rows]]) -> None:
        self._column, self._count, self._compute = column, count, compute

    def __len__(self) -> int:
        return self._count

    def chunks(self, start: int = 0) -> Iterator[Rows]:
        """The elements from ``start`` on, a chunk at a time: stored ones first, then the rest as it is computed."""
        stored = len(self._column)
        yield from self._column.chunks(start)
        for rows in self._rest():
            yield rows[max(0, start - stored) :]
            stored += len(rows)

    def whole(self) -> Column:
        """All of it, computed to its end."""
        for _ in self._rest():
            pass
        return self._column

    def _rest(self) -> Iterator[Rows]:
        for rows in self._compute(len(self._column)):
            self._column.append(rows)
            yield rows


class Lists:
    """One party's side of the lists of one protocol.

    Attributes:
        terms: what the job says of its alignment.
        role: this party's.
        channel: the conversation with the peer.
        party: what this party brings.
        group: where the elements live.
        secret: this party's randomness for this protocol.
        lasting: the same in every job on these terms over the same records of both; given once the parties have met.
        own: this party's identifiers; once the parties have met, behind them those that stand for no record.
        sets: stands for the records of both that take part, the peer's by the mark that it announces.

    Raises:
        DataError: an identifier occurs twice (``E_DUP_IDS``).
    """

    def __init__(self, terms: Align, role: Role, channel: Channel, party: Party, group: Group) -> None:
        self.terms, self.role, self.channel, self.party, self.group = terms, role, channel, party, group
        if repeated := len(party.ids.repeats()):
            raise DataError(
                f"{repeated} of {len(party.ids)} identifiers repeat an earlier one",
                code="E_DUP_IDS",
                hint="keep one row for each identifier",
            )
        self.secret: Randomness = party.randomness.derive(terms.protocol)
        self.own = party.ids
        self._columns = Columns(party.folder, width=group.width, chunk_rows=group.chunk_rows)
        self._domain = f"vfl-node-v1-{terms.protocol}-{group.name}".encode()
        self.identity = party.identity or party.ids.digest()
        self.lasting = self.secret
        self.sets = self._agreed = b""
        self._held_by_peer: dict[str, int] = {}

    # Before the first list.

    async def meet(self, *, receives: Sequence[str]) -> int:
        """Exchange marks, then sizes and what each side holds from earlier attempts; the number of the peer's elements.

        Before a size leaves, the owner's limits and what earlier jobs over these records promised are looked at.

        Leaks: whether our records are those of an earlier job with this peer; how many alignments there were with it.

        Args:
            receives: the lists that the peer will send.

        Raises:
            PolicyError: a set is too small (``E_TOO_FEW``) or too large (``E_TOO_MANY``) for this owner, or was
                changed too often (``E_BUDGET``), or an earlier job hid what this one would tell (``E_PROMISE``).
            StateError: the peer's set has another size than in an earlier attempt (``E_REPLAY``), the
                disk or the memory has no room for the lists (``E_DISK_FULL``, ``E_MEMORY``), or what this node remembered of
                the peer is gone (``E_STATE_LOST``) or older than what the peer has seen (``E_STATE_OLDER``).
        """
        party, limits, peer = self.party, self.party.limits, self.channel.peer
        ours = announced(len(party.ids), self.terms, self.role)
        check_enough(len(party.ids), limits.min_set_size, party.name)
        if ours > limits.max_set_size:
            raise _too_many(f"with padding and dummies this party would announce {ours} identifiers", limits.max_set_size)
        await self._meet_again()

        held = [alignment_pb2.Held(list=name, rows=rows) for name, rows in self._columns.held(receives).items()]
        failpoints.reach("align-size")
        await self.channel.send(alignment_pb2.SetSize(count=ours, begun=party.memory.begin(), held=held))
        answer = await self.channel.receive(alignment_pb2.SetSize)
        theirs = int(answer.count)
        self._held_by_peer = {item.list: item.rows for item in answer.held}
        party.memory.saw(min(answer.begun, _MOST_BEGUN))
        if theirs - 2 * self.terms.dummies < limits.min_set_size:
            raise _too_few(f"{peer} announces {theirs - 2 * self.terms.dummies} identifiers", limits.min_set_size)
        if theirs > limits.max_set_size:
            raise _too_many(f"{peer} announces {theirs} identifiers", limits.max_set_size)
        party.pins.check(f"{self.terms.protocol} size", theirs.to_bytes(8, "big"))
        most = self.terms.spec.most(*((ours, theirs) if self.role == "active" else (theirs, ours)))
        self._need_room(most.spilled[self.role])
        self._need_memory(ours + theirs)
        self.own = covered(party.ids, self.sets, self.terms, self.role, self.lasting, party.memory)
        self._same_own_elements()
        party.progress.phase("align", most.powers[self.role], "group operations")
        return theirs

    async def _meet_again(self) -> None:
        """Say which records take part, hear which of the peer's do, and count both, before any size is told."""
        memory, limits, peer = self.party.memory, self.party.limits, self.channel.peer
        promises.hold(memory, self.identity, self.terms, self.role, made=False)
        ours = self.identity + len(self.party.ids).to_bytes(8, "big")  # predictions of new records take all of a table
        mark = memory.secret.derive(f"input {ours.hex()}").bytes(_MARK_BYTES)
        await self.channel.send(alignment_pb2.Remembered(mark=mark, seen=memory.seen))
        answer = await self.channel.receive(alignment_pb2.Remembered)
        if len(answer.mark) != _MARK_BYTES:
            raise ProtocolError(f"{peer} announces a mark of {len(answer.mark)} bytes, expected {_MARK_BYTES}")
        memory.check_not_older(min(answer.seen, _MOST_BEGUN))
        self.sets = hashlib.sha256(ours + answer.mark).digest()
        terms = {name: getattr(self.terms, name) for name in ("protocol", "id_form", "padding", "dummies")}
        self._agreed = hashlib.sha256(self.sets + f"{terms} {self.group.name}".encode()).digest()
        self.lasting = memory.secret.derive(f"lists {self._agreed.hex()}")
        memory.count_inputs(self._agreed, limits.inputs_per_peer)
        if promises.hides_intersection(self.terms, self.role):
            memory.count_changes(self.sets, limits.changes_per_peer)
        promises.hold(memory, self.identity, self.terms, self.role, made=True)

    def _same_own_elements(self) -> None:
        """Stored lists are of the same identifiers and scalars, which this node's memory gives.

        Raises:
            StateError: they are not (``E_STATE_LOST``).
        """
        try:
            own = self.own.digest() + self.lasting.derive("own elements").bytes(32)
            self.party.pins.check("own elements", hashlib.sha256(own).digest())
        except StateError:
            raise StateError(
                f"what this node or {self.peer} remembered of the other when the job began is gone",
                code="E_STATE_LOST",
                hint="put the state folder's partners back, or submit a new job",
                for_peer="what either node remembered of the other when the job began is gone",
            ) from None

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

    def blinded(self, name: str, order: NDArray[np.int64], scalar: Scalar) -> Computed:
        """Our own identifiers, hashed into the group and powered, in ``order``."""
        size = self.group.chunk_rows

        def hashed(start: int) -> Iterator[Rows]:
            for first in range(start, len(order), size):
                yield self.group.hash_to_group(self.own.take(order[first : first + size]), self._domain)

        return self._computed(name, len(order), lambda start: self._powers(hashed(start), scalar))

    def powers(self, name: str, source: Source, scalar: Scalar) -> Computed:
        """``x^scalar`` for every element of ``source``."""
        return self._computed(name, len(source), lambda start: self._powers(source.chunks(start), scalar))

    def chosen(self, columns: Sequence[Column], places: NDArray[np.int64]) -> Chosen:
        """The elements at ``places`` of columns laid one behind the other."""
        return Chosen(columns, places, self.group.chunk_rows)

    def given(self, rows: Rows) -> Given:
        """Elements that lie in memory."""
        return Given(rows, self.group.chunk_rows)

    async def send(self, name: str, source: Source) -> None:
        """Send a list, each chunk as soon as it is there; what the peer holds already is left out.

        Raises:
            ProtocolError: the peer claims to hold more of it than there is (``E_COUNT``).
        """
        start = self._held_by_peer.get(name, 0)
        if start > len(source):
            raise ProtocolError(f"{self.channel.peer} claims {start} elements of {name}, of {len(source)}", code="E_COUNT")
        failpoints.reach("align-list")
        await self.channel.send_rows(source.chunks(), count=len(source), width=self.group.width, start=start)

    # Lists of the peer's.

    async def receive(self, name: str, *, count: int, distinct: bool = True, lasting: bool = False) -> Column:
        """The list ``name`` of exactly ``count`` elements.

        Args:
            name: as the peer sends it.
            count: its length.
            distinct: whether two equal elements are refused here; else :meth:`distinct` does it on their powers.
            lasting: whether it must be the one that came with the peer's mark in an earlier job.

        Raises:
            ProtocolError: another count (``E_COUNT``), an invalid element (``E_ELEMENT``)
                or two equal ones (``E_DUPLICATE``), or not the list of this mark (``E_MARK``).
            StateError: not the list of an earlier attempt (``E_REPLAY``).
        """
        column = self._columns.column(name)
        with self._elements_of(name):
            async for chunk in self.channel.receive_chunks(
                width=self.group.width, count=count, start=len(column), digest=column.digest
            ):
                column.append(self.group.decode(chunk))
        self._arrived(name, column, lasting)
        return self.distinct(name, column) if distinct else column

    async def receive_powers(self, name: str, scalar: Scalar, *, at_least: int, at_most: int, lasting: bool = False) -> Column:
        """``x^scalar`` for the list ``name``, computed while the rest still arrives.

        Raises:
            ProtocolError: a count outside the bounds (``E_COUNT``), an invalid element
                (``E_ELEMENT``) or two equal ones (``E_DUPLICATE``), or as :meth:`receive` (``E_MARK``).
            StateError: not the list of an earlier attempt (``E_REPLAY``).
        """
        column, powers = self._columns.column(name), self._columns.column(f"{name} powers")
        if len(powers) > len(column):  # a loss of power took elements and left their powers
            powers.clear()
        self.party.progress.advance(len(powers))
        started: deque[Iterator[Rows]] = deque()
        with self._elements_of(name):
            for chunk in column.chunks(len(powers)):
                self._begin(chunk, scalar, powers, started)
            async for chunk in self.channel.receive_chunks(
                width=self.group.width, max_count=at_most, start=len(column), digest=column.digest
            ):
                column.append(chunk)
                self._begin(chunk, scalar, powers, started)
            while started:
                powers.append(self._gathered(started.popleft()))
        if len(column) < at_least:
            raise ProtocolError(f"{self._from(name)}: {len(column)} elements, expected at least {at_least}", code="E_COUNT")
        self._arrived(name, column, lasting)
        return self.distinct(name, powers)

    def distinct(self, name: str, column: Column) -> Column:
        """The column, once no two of its elements are equal; as :meth:`index`, which it does not keep."""
        self.index(name, column)
        return column

    def index(self, name: str, column: Column) -> RowIndex:
        """Where each element of the column is, once no two of them are equal.

        Powers are looked at where there are some: points of Curve25519 that differ by a
        component of small order have the same power.

        Raises:
            ProtocolError: two are equal (``E_DUPLICATE``).
        """
        index = RowIndex(column.rows)
        if not index.distinct:
            raise ProtocolError(f"{self._from(name)}: an element occurs twice", code="E_DUPLICATE")
        return index

    # What both have in the end.

    def find(self, index: RowIndex, wanted: Source) -> NDArray[np.int64]:
        """Place of every element of ``wanted`` in the indexed rows, int64[k]; −1 where it is absent."""
        return np.concatenate([np.empty(0, dtype=np.int64), *map(index.find, wanted.chunks())])

    def place(self, shared: Rows, own: Column, order: NDArray[np.int64]) -> NDArray[np.int64]:
        """Our own identifier at each shared position, int64[len(shared)], or :data:`NOT_MINE`.

        Args:
            shared: the elements both parties index by.
            own: our own distinct elements, blinded as ``shared`` is.
            order: our identifier of each element of ``own``.
        """
        rows = np.full(len(shared), NOT_MINE, dtype=np.int64)
        places = self.find(RowIndex(shared), own)
        rows[places[places >= 0]] = order[places >= 0]
        return rows

    def records(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The same with :data:`NOT_MINE` for identifiers that stand for no record of ours."""
        return np.where(rows < len(self.party.ids), rows, NOT_MINE)

    @property
    def peer(self) -> str:
        """The peer's name."""
        return self.channel.peer

    def close(self) -> None:
        """Close all files; they stay for the next attempt. Idempotent."""
        self._columns.close()

    def _computed(self, name: str, count: int, compute: Callable[[int], Iterator[Rows]]) -> Computed:
        column = self._columns.column(name)
        self.party.progress.advance(len(column))
        return Computed(column, count, compute)

    def _powers(self, chunks: Iterable[Rows], scalar: Scalar) -> Iterator[Rows]:
        """Powers chunk by chunk; the next chunk is fetched while workers compute."""
        started: deque[Iterator[Rows]] = deque()
        for chunk in chunks:
            started.append(self.group.powers(chunk, scalar, self.party.workers))
            if len(started) > _AHEAD:
                yield self._gathered(started.popleft())
        while started:
            yield self._gathered(started.popleft())

    def _begin(self, chunk: Rows, scalar: Scalar, powers: Column, started: deque[Iterator[Rows]]) -> None:
        started.append(self.group.powers(chunk, scalar, self.party.workers, check=True))
        if len(started) > _AHEAD:
            powers.append(self._gathered(started.popleft()))

    def _gathered(self, blocks: Iterator[Rows]) -> Rows:
        gathered = [self.group.empty()]
        for block in blocks:
            self.party.progress.advance(len(block))
            gathered.append(block)
        return np.concatenate(gathered)

    def _arrived(self, name: str, column: Column, lasting: bool) -> None:
        """The list is whole: nothing computed from it leaves before it would outlive a loss of power."""
        column.sync()
        failpoints.reach("align-synced")
        digest = column.digest.digest()
        self.party.pins.check(f"{self.terms.protocol} {name}", digest)
        if lasting and self._first_of_this_mark(name, digest) != digest:
            raise ProtocolError(f"{self._from(name)}: announced as of an earlier job, and it is another list", code="E_MARK")
        failpoints.reach("align-stored")

    def _first_of_this_mark(self, name: str, digest: bytes) -> bytes:
        named = hashlib.sha256(self._agreed + name.encode()).hexdigest()
        return self.party.memory.keep(f"list-{named[:40]}", digest)

    @contextmanager
    def _elements_of(self, name: str) -> Iterator[None]:
        """Says which list an invalid element is of."""
        try:
            yield
        except ProtocolError as error:
            if error.code != "E_ELEMENT":
                raise
            raise ProtocolError(f"{self._from(name)}: {error.message}", code=error.code) from None

    def _from(self, name: str) -> str:
        return f"{self.terms.protocol} {name} from {self.channel.peer}"

    def _need_room(self, elements: int) -> None:
        needed, free = elements * self.group.width, self._columns.free_bytes()
        if needed > free:
            raise StateError(
                f"the alignment needs up to {needed / 2**30:.3g} GiB in {self.party.folder}; {free / 2**30:.3g} GiB are free",
                code="E_DISK_FULL",
                hint="free space or set state_dir to a larger disk, then go on: vfl-node resume JOB",
                for_peer="its disk is too small",
            )

    def _need_memory(self, elements: int) -> None:
        needed, free = costs.ROW_BYTES * elements, free_bytes()
        if needed > free:
            raise StateError(
                f"the alignment needs about {needed / 2**30:.3g} GiB of memory; {free / 2**30:.3g} GiB are free",
                code="E_MEMORY",
                hint="free memory, or align fewer records (align.at_most), then go on: vfl-node resume JOB",
                for_peer="it has too little memory free for sets as large",
            )


def _too_many(what: str, most: int) -> PolicyError:
    return PolicyError(
        f"{what}, and this node accepts at most {most}",
        code="E_TOO_MANY",
        hint="raise limits.max_set_size if you expect as many",
        for_peer="its owner does not accept sets as large",
    )


def _too_few(what: str, minimum: int) -> PolicyError:
    return PolicyError(
        f"{what}, and this node's minimum is {minimum}",
        code="E_TOO_FEW",
        hint="the sizes of small sets betray who is in them; limits.min_set_size is this owner's choice",
        for_peer="its owner does not align sets as small",
    )
