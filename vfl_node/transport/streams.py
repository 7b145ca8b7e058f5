"""One end of a stream of messages: two queues bounded in bytes, between a party's thread and a transport.

The owner's thread blocks in :meth:`StreamPipe.put` and :meth:`StreamPipe.get`; the transport
drains what is to be sent and fills what has arrived on threads of its own, so that computing
overlaps with the wire while memory stays bounded. Nothing here knows gRPC.

An end of stream is never an end of a conversation: the owner always sees it as
:class:`~vfl_node.errors.PeerLost`, after the messages that arrived before it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from google.protobuf.message import DecodeError, Message

from vfl_node.errors import PeerLost, ProtocolError, VflError
from vfl_node.transport.generated.vfl.v1 import session_pb2

QUEUE_BYTES = 64 << 20
"""Bytes that may wait in each direction of a conversation."""

LINK_BYTES = 1 << 20
"""Bytes that may wait in each direction of a standing link; notices are small."""

CLOSE_S = 5.0
"""How long closing a conversation waits for its last messages to leave."""

LINK_CLOSE_S = 1.0
"""The same for a link, which has no last message that matters."""

M = TypeVar("M", bound=Message)


class Stream(Generic[M]):
    """What both ends of both kinds of stream share. Thread safe.

    Args:
        peer: name of the other party, for errors.
        message: type of the messages, both ways.
        limit_bytes: most bytes that wait in each direction; a single larger message passes alone.
        close_s: most seconds that :meth:`close` waits for the last messages to leave.
    """

    def __init__(self, peer: str, message: type[M], *, limit_bytes: int, close_s: float) -> None:
        self.peer = peer
        self._message = message
        self._close_s = close_s
        self._changed = threading.Condition()
        self._outgoing = _Queue(limit_bytes)
        self._inbox = _Queue(limit_bytes)
        self._accepted = False
        self._closing = False
        self._cancelled: VflError | None = None
        self._end: VflError | None = None  # why nothing more arrives
        self._finished = False  # the transport has let go of the stream
        self._hang_up: Callable[[], None] = lambda: None

    # What the owner calls.

    def cancel(self, error: VflError) -> None:
        """Wake a blocked owner with ``error``; what was not sent yet is dropped.

        One last message may still be put before :meth:`close`, so that the peer learns why.
        """
        with self._changed:
            if self._cancelled is None:
                self._cancelled = error
                self._outgoing.clear()
                self._inbox.clear()
                self._changed.notify_all()

    def close(self) -> None:
        """Send what is queued, end the stream and free the transport, within the time limit. Idempotent."""
        with self._changed:
            if self._closing:
                return
            self._closing = True
            self._inbox.clear()
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._finished, self._close_s)
        self._hang_up()

    def _put(self, message: M) -> None:
        data = message.SerializeToString()
        with self._changed:
            self._accepted = True
            self._changed.notify_all()
            if not self._outgoing.has_room(data):
                self._changed.wait_for(lambda: self._outgoing.has_room(data) or self._over)
                if self._cancelled:
                    raise self._cancelled
            if self._end or self._finished or self._closing:
                raise self._end or self._lost("the connection ended")
            self._outgoing.append(data)

    def _get(self, timeout_s: float | None = None) -> M | None:
        """The next message; None after ``timeout_s`` without one."""
        with self._changed:
            self._changed.wait_for(lambda: self._inbox or self._end or self._closing or self._cancelled, timeout_s)
            if self._cancelled:
                raise self._cancelled
            if not self._inbox:
                if self._end or self._closing:
                    raise self._end or self._lost("this node closed the conversation")
                return None
            data = self._inbox.popleft()
            self._changed.notify_all()
        try:
            return self._message.FromString(data)
        except DecodeError:
            raise ProtocolError(f"{self.peer} sent bytes that are no {self._message.DESCRIPTOR.name}") from None

    # What the transport calls.

    def attach(self, hang_up: Callable[[], None]) -> None:
        """Give the stream the way to free its transport at once."""
        self._hang_up = hang_up

    def accept(self) -> None:
        """The stream is wanted at both ends; sending a first message says the same."""
        with self._changed:
            self._accepted = True
            self._changed.notify_all()

    def wait_accepted(self, timeout_s: float | None = None) -> bool:
        """Wait until the stream is accepted (True), or has ended first or ``timeout_s`` passed (False)."""
        with self._changed:
            self._changed.wait_for(lambda: self._accepted or self._end, timeout_s)
            return self._accepted

    def outgoing(self) -> Iterator[bytes]:
        """What is to be sent, as it comes; ends with the stream."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._outgoing or self._closing or self._end or self._finished)
                if self._end or self._finished or not self._outgoing:
                    return
                data = self._outgoing.popleft()
                self._changed.notify_all()
            yield data

    def arrive(self, incoming: Iterable[bytes]) -> None:
        """Take in messages until ``incoming`` ends; waits while the inbox is full."""
        for data in incoming:
            with self._changed:
                while not (self._inbox.has_room(data) or self._closing or self._cancelled):
                    self._changed.wait()
                if not (self._closing or self._cancelled):  # else read on and drop, so that the peer is not held up
                    self._inbox.append(data)
                    self._changed.notify_all()

    def end(self, error: VflError) -> None:
        """Nothing more arrives, and why; the first reason counts."""
        with self._changed:
            self._end = self._end or error
            self._changed.notify_all()

    def finish(self) -> None:
        """The transport has let go: nothing more can be sent either."""
        with self._changed:
            self._finished = True
            self._changed.notify_all()

    @property
    def ended(self) -> VflError | None:
        """Why nothing more arrives; None while something may."""
        return self._end

    @property
    def _over(self) -> bool:
        return bool(self._end or self._finished or self._closing or self._cancelled)

    def _lost(self, what: str) -> PeerLost:
        return PeerLost(f"{self.peer}: {what}")


PAUSE_S = 0.003
"""How long a party sleeps before it looks again for work, which waits half of it; an idle service takes 2 % of a core."""


class StreamPipe(Stream[session_pb2.Frame]):
    """A :class:`~vfl_node.transport.channel.Pipe` whose ``put`` and ``get`` block the calling thread."""

    def __init__(self, peer: str) -> None:
        super().__init__(peer, session_pb2.Frame, limit_bytes=QUEUE_BYTES, close_s=CLOSE_S)

    async def put(self, frame: session_pb2.Frame) -> None:
        """Queue one frame; waits while the queue is full.

        Raises:
            PeerLost: the stream has ended.
            VflError: what :meth:`cancel` was called with, if the queue is full.
        """
        self._put(frame)

    async def get(self) -> session_pb2.Frame:
        """The next frame; waits for it.

        Raises:
            PeerLost: the stream has ended, and all that had arrived is read.
            ProtocolError: bytes that are no frame.
            VflError: what :meth:`cancel` was called with.
        """
        frame = self._get()
        if frame is None:
            raise RuntimeError("a wait without a time limit ended without a frame")
        return frame

    async def pause(self) -> None:
        """Sleep for a moment.

        Raises:
            PeerLost: the stream has ended.
            VflError: what :meth:`cancel` was called with.
        """
        if over := self._cancelled or self.ended:
            raise over
        time.sleep(PAUSE_S)


class LinkStream(Stream[session_pb2.Notice]):
    """The standing link between two nodes."""

    def __init__(self, peer: str) -> None:
        super().__init__(peer, session_pb2.Notice, limit_bytes=LINK_BYTES, close_s=LINK_CLOSE_S)

    def send(self, notice: session_pb2.Notice) -> None:
        """Queue one notice. Raises PeerLost when the link has ended."""
        self._put(notice)

    def receive(self, timeout_s: float) -> session_pb2.Notice | None:
        """The next notice; None after ``timeout_s`` without one. Raises PeerLost when the link has ended."""
        return self._get(timeout_s)


class _Queue(deque[bytes]):
    """Messages in order, and whether one more may wait; the stream's lock guards it."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__()
        self._limit_bytes = limit_bytes
        self._size_bytes = 0

    def has_room(self, data: bytes) -> bool:
        return not self or self._size_bytes + _cost(data) <= self._limit_bytes

    def append(self, data: bytes) -> None:
        super().append(data)
        self._size_bytes += _cost(data)

    def popleft(self) -> bytes:
        data = super().popleft()
        self._size_bytes -= _cost(data)
        return data

    def clear(self) -> None:
        super().clear()
        self._size_bytes = 0


def _cost(data: bytes) -> int:
    return len(data) + 64  # a Python object each: a flood of empty messages must not be free
