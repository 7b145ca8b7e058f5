"""One end of a stream of messages: two queues bounded in bytes, between a party's thread and a transport.

The owner's thread blocks in :meth:`StreamPipe.put` and :meth:`StreamPipe.get`. The transport sends and receives on its own
threads, so that computing overlaps with the wire while memory stays bounded. This module does not depend on gRPC.

A message larger than :data:`PIECE_BYTES` is sent in pieces of that size. The length of the last field in the first piece
says how many bytes follow. So a transport never stores more than one piece of a message that nobody reads, and the
receiver refuses a message that is too large before the rest arrives.

The end of a stream is never the end of a conversation: the owner always sees it as
:class:`~vfl_node.errors.PeerLost`, after the messages that arrived before it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

from cryptography import x509
from google.protobuf.message import DecodeError, Message

from vfl_node.errors import PeerLost, ProtocolError, VflError
from vfl_node.process.counters import MOVED, PEER_MESSAGES
from vfl_node.transport import bounds
from vfl_node.transport.frames import PIECE_BYTES, Frame, LongFrame, parse_frame, pieces_of
from vfl_node.transport.generated.vfl.v1 import session_pb2
from vfl_node.transport.identity import Validity
from vfl_node.transport.piece_queue import PieceQueue

QUEUE_BYTES = 16 << 20
"""Bytes that may wait in each direction of a conversation."""

CLOSE_S = 5.0
"""How long closing a conversation waits until its last messages are sent."""

M = TypeVar("M", bound=Message | LongFrame)


class Stream(Generic[M]):
    """The common part of both kinds of stream, at both ends. Thread safe.

    Args:
        peer: name of the other party, for errors.
        message: type of the messages, both ways.
        parse: gives one from its pieces, or raises DecodeError.
        limit_bytes: largest number of bytes that wait in each direction; a larger message is sent alone.
        close_s: how long :meth:`close` waits until the last messages are sent, in seconds.
    """

    def __init__(
        self, peer: str, message: type[Message], parse: Callable[[Sequence[bytes]], M], *, limit_bytes: int, close_s: float
    ) -> None:
        self.peer = peer
        self.pieces = 0  # that have arrived or left
        self.moved = time.monotonic()  # when one arrived last
        self.waiting_since: float | None = None  # while the owner waits for the peer
        self.instance = ""  # of the peer's process, once the transport knows
        self.job_id = ""  # of the job whose conversation it is, once there is one
        self.shown: tuple[x509.Certificate, ...] = ()  # by the peer: its certificate, then others; if the transport knows
        self.most_bytes = bounds.bound(message).most_bytes  # of a message that is received; less once the job is known
        self._message, self._parse = message, parse
        self._close_s = close_s
        lock = threading.RLock()
        self._changed = threading.Condition(lock)
        self._leaving = threading.Condition(lock)  # the transport's sender alone waits on it, for a message to send
        self._room = threading.Condition(lock)  # who waits for room to send: else each message would wake every thread here
        self._outgoing = PieceQueue(limit_bytes)
        self._inbox = PieceQueue(limit_bytes)
        self._accepted = False
        self._closing = False
        self._cancelled: VflError | None = None
        self._end: VflError | None = None  # why nothing more arrives
        self._parting: VflError | None = None  # why this node ends the stream, from before the peer can answer
        self._finished = False  # the transport has let go of the stream
        self._hang_up = _nothing
        self._bells: set[threading.Event] = set()  # set when the stream breaks off

    @property
    def validity(self) -> Validity | None:
        """When the certificate is valid that the peer showed; None if that is not known."""
        return Validity.from_certificate(self.shown[0]) if self.shown else None

    # What the owner calls.

    def cancel(self, error: VflError) -> None:
        """Wake a blocked owner with ``error``; messages that were not sent yet are dropped, and so is what would follow them.

        One last message may still be put before :meth:`close`, so that the peer learns why.
        """
        with self._changed:
            if self._cancelled is None:
                self._cancelled = error
                self._outgoing.clear()
                self._inbox.clear()
                self._wake()

    def close(self) -> None:
        """Send what is queued, end the stream and free the transport, within the time limit. Idempotent."""
        with self._changed:
            if self._closing:
                return
            self._closing = True
            self._inbox.clear()
            self._notify_all()
            self._changed.wait_for(lambda: self._finished, self._close_s)
        hang_up, self._hang_up = self._hang_up, _nothing  # which holds the connection
        hang_up()

    def _put(self, message: M, timeout_s: float | None = None, *, last: bool = False, alone: bool = False) -> None:
        """Queue a message; a ``last`` one waits for no room, and one ``alone`` goes in place of all that waits."""
        pieces = pieces_of(message)
        with self._changed:
            if self._cancelled and not last:  # after one that was dropped it would come out of order
                raise self._cancelled
            if not self._accepted:
                self.accept()
            if alone:
                self._outgoing.clear()
            if not (last or self._outgoing.has_room(pieces)):
                if not self._room.wait_for(lambda: self._outgoing.has_room(pieces) or self._over, timeout_s):
                    self.end(self._loss("it does not read what it is sent"))
                if self._cancelled:
                    raise self._cancelled
            if self._end or self._finished or self._closing:
                raise self._end or self._loss("the connection ended")
            self._outgoing.append(pieces)
            self._leaving.notify()
        self._count("sent", message, sum(map(len, pieces)))

    def _get(self, timeout_s: float | None = None) -> M | None:
        """The next message; None after ``timeout_s`` without one."""
        first = self._piece(timeout_s)
        if first is None:
            return None
        try:
            pieces, missing = [first], bounds.missing(first, self._message, self.most_bytes)
            while missing:
                whole = len(pieces[-1]) == PIECE_BYTES  # many small ones would take many times the memory of the message
                pieces.append((self._piece(None) or b"") if whole else b"")
                missing -= len(pieces[-1])
                if missing < 0 or not pieces[-1]:
                    raise ProtocolError("the pieces of a message do not fit together")
            message = self._parse(pieces)
        except ProtocolError as error:
            raise ProtocolError(f"{self.peer} sent what cannot be taken: {error.message}", code=error.code) from None
        except DecodeError:
            raise ProtocolError(f"{self.peer} sent bytes that are no {self._message.DESCRIPTOR.name}") from None
        self._count("received", message, sum(map(len, pieces)))
        return message

    def _count(self, direction: str, message: M, size: int) -> None:
        kind = getattr(message, "type", None)  # of a frame: of what is in it
        MOVED.add(self.peer, direction, size, self._message.DESCRIPTOR.name, self.job_id)
        PEER_MESSAGES.series(self.peer, direction, bounds.type_label(kind) if kind else "Notice").inc()

    def _piece(self, timeout_s: float | None) -> bytes | None:
        """The next message or piece of a message; None after ``timeout_s`` without one."""
        with self._changed:
            self._wait(self.can_get, self._changed, timeout_s)
            if self._cancelled:
                raise self._cancelled
            if not self._inbox:
                if self._end or self._closing:
                    raise self._end or self._loss("this node closed the conversation")
                return None
            (data,) = self._inbox.popleft()
            self._changed.notify_all()
            return data

    def can_get(self) -> bool:
        """Whether a reader would not wait, be it that it would raise; of a long message the first piece may be there alone."""
        return bool(self._inbox or self._end or self._closing or self._cancelled)

    def _wait(self, ready: Callable[[], bool], on: threading.Condition, timeout_s: float | None = None) -> None:
        """Wait for the peer."""
        with on:
            self.waiting_since = time.monotonic()
            on.wait_for(ready, timeout_s)
            self.waiting_since = None

    # What the transport calls.

    def attach(self, hang_up: Callable[[], None]) -> None:
        """Set the function that frees the transport at once."""
        self._hang_up = hang_up

    def accept(self) -> None:
        """Accept the stream; sending a first message does the same."""
        with self._changed:
            self._accepted = True
            self._changed.notify_all()

    def wait_accepted(self, timeout_s: float | None = None) -> bool:
        """Wait until the stream is accepted (True), or until it has ended or ``timeout_s`` has passed (False)."""
        with self._changed:
            self._changed.wait_for(lambda: self._accepted or self._end, timeout_s)
            return self._accepted

    def outgoing(self) -> Iterator[bytes]:
        """The messages to send, in pieces; ends with the stream."""
        while True:
            with self._changed:
                self._leaving.wait_for(lambda: self._outgoing or self._closing or self._end or self._finished)
                if self._end or self._finished or not self._outgoing:
                    return
                pieces = self._outgoing.popleft()
                self._room.notify_all()
            self.pieces += len(pieces)
            yield from pieces

    def arrive(self, incoming: Iterable[bytes]) -> None:
        """Receive messages, or pieces of them, until ``incoming`` ends; waits while the inbox is full.

        Raises:
            ProtocolError: a message is larger than any message may be.
        """
        for data in incoming:
            self.pieces, self.moved = self.pieces + 1, time.monotonic()
            if len(data) > self.most_bytes:
                raise ProtocolError(
                    f"{self.peer} sent {len(data)} bytes at once, at most {self.most_bytes} are allowed", code="E_SIZE"
                )
            with self._changed:
                while not (self._inbox.has_room((data,)) or self._closing or self._cancelled):
                    self._changed.wait()
                if not (self._closing or self._cancelled):  # otherwise read and drop, so that the peer is not blocked
                    self._inbox.append((data,))
                    self._changed.notify_all()
                    self._room.notify_all()  # of a party that sends and receives at the same time

    def end(self, error: VflError) -> None:
        """Record that nothing more arrives, and why; the first reason counts."""
        with self._changed:
            self._end = self._end or self._parting or error
            self._wake()

    def finish(self) -> None:
        """The transport has ended the stream: nothing more can be sent either."""
        with self._changed:
            self._finished = True
            self._outgoing.clear()  # otherwise up to 16 MiB would be kept as long as the stream object lives
            self._notify_all()

    def end_by_transport(self) -> None:
        """The transport has ended the stream. Nobody reads before a stream is accepted, so if it was not, it has ended."""
        self._hang_up = _nothing  # otherwise the call lives until the next garbage collection, and its connection has few
        self.finish()
        if not self._accepted:
            self.end(self._loss("it hung up"))

    def _wake(self) -> None:
        """Wake everybody who waits: the stream has broken off."""
        self._notify_all()
        for bell in self._bells:
            bell.set()

    def _notify_all(self) -> None:
        for condition in (self._changed, self._leaving, self._room):
            condition.notify_all()

    @property
    def ended(self) -> VflError | None:
        """Why nothing more arrives; None while something may."""
        return self._end

    @property
    def broken(self) -> VflError | None:
        """As :attr:`ended`; also after :meth:`cancel`, for what reason."""
        return self._end or self._cancelled

    @property
    def _over(self) -> bool:
        return bool(self._end or self._finished or self._closing or self._cancelled)

    def _loss(self, what: str) -> PeerLost:
        return PeerLost(f"{self.peer}: {what}")


def _is_resumable(abort: bytes) -> bool:
    """Whether the job goes on after an ``Abort``; not after one that nobody can read."""
    try:
        return session_pb2.Abort.FromString(abort).resumable
    except DecodeError:
        return False


def _nothing() -> None:
    """The release function of a stream without a transport."""


PAUSE_S = 0.003
"""How long a party sleeps between two checks for work, which waits half of it on average; idle: 2 % of a core."""


class StreamPipe(Stream[Frame]):
    """A :class:`~vfl_node.transport.pipe.Pipe` whose ``put``, ``get`` and ``wait`` block the calling thread."""

    def __init__(self, peer: str) -> None:
        super().__init__(peer, session_pb2.Frame, parse_frame, limit_bytes=QUEUE_BYTES, close_s=CLOSE_S)

    async def put(self, frame: Frame) -> None:
        """Queue one frame; waits while the queue is full. Raises PeerLost, or what :meth:`cancel` was called with.

        An ``Abort`` can still be queued then, and waits for no room: a peer that does not read would hold it up for ever. If it
        is for good, it goes in place of what waits, which is of no use any more and which a peer that computes takes late.
        """
        last = frame.type == session_pb2.Abort.DESCRIPTOR.full_name
        self._put(frame, last=last, alone=last and not _is_resumable(bytes(frame.body)))

    async def get(self) -> Frame:
        """The next frame; waits for it.

        Raises:
            PeerLost: the stream has ended, and everything that had arrived is read.
            ProtocolError: the bytes are not a frame, or the frame is too large (``E_SIZE``).
            VflError: what :meth:`cancel` was called with.
        """
        frame = self._get()
        assert frame is not None  # it waits without a time limit
        return frame

    def can_put(self, frame: Frame) -> bool:
        """Whether :meth:`put` would not wait, be it that it would raise."""
        with self._changed:
            return self._outgoing.has_room(pieces_of(frame)) or self._over

    async def wait(self, ready: Callable[[], bool]) -> None:
        """Wait until ``ready``, which asks :meth:`can_put` and :meth:`can_get`."""
        self._wait(ready, self._room)

    def watch(self, bell: threading.Event) -> None:
        """Set ``bell`` when the stream ends or is cancelled, and at once if it has been."""
        with self._changed:
            self._bells.add(bell)
            if self.broken:
                bell.set()

    async def pause(self, bell: threading.Event | None = None) -> None:
        """Sleep for a moment, or until ``bell`` is set. Raises PeerLost, or what :meth:`cancel` was called with."""
        if over := self._cancelled or self.ended:
            raise over
        time.sleep(PAUSE_S) if bell is None else bell.wait()
