"""The interface that all protocols use: a conversation with one peer, in which messages have an order and a type.

Protocols are coroutines. Over gRPC a thread runs a protocol with :func:`run`, and every await blocks the thread. In memory
:func:`vfl_node.transport.memory.run_together` runs all parties in turn on one thread, always in the same order. The code of a
protocol is the same in both cases.

On the wire each message is a ``Frame``, which carries its job, attempt, phase, sequence number and type. A phase ends with a
closing message from each side: how many messages it sent in the phase, and a digest over them. If a stream ends without
these closing messages, the phase is not complete.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from threading import Event
from typing import Any, TypeVar

import numpy as np
from google.protobuf.message import DecodeError, Message
from numpy.typing import NDArray
from typing_extensions import override

from vfl_node.errors import Cancelled, PeerError, PeerLost, ProtocolError, StateError, UsageError, VflError, peer_text
from vfl_node.process import failpoints
from vfl_node.transport import bounds
from vfl_node.transport.both_ways import BothWays
from vfl_node.transport.bounds import MAX_FRAME_BYTES
from vfl_node.transport.fields import Buffer, append_head, last_field
from vfl_node.transport.frames import LONG_BYTES, Frame, body_pieces, make_frame
from vfl_node.transport.generated.vfl.v1 import session_pb2
from vfl_node.transport.pipe import Digest, Pipe, Traffic

CHUNK_BYTES = 1 << 19
"""Size of a chunk of rows: chunks of 512 KiB to 1 MiB were sent fastest over loopback with mutual TLS."""

_KEPT = (Cancelled.default_code, "E_VERSION")
"""Error codes that this party takes over from a peer that stopped, because they mean the same at all parties."""

M = TypeVar("M", bound=Message)
T = TypeVar("T")
Rows = NDArray[np.uint8]
"""n elements of the same width in bytes, uint8[n, width], contiguous."""


class Channel(BothWays):
    """One conversation with one peer about one job."""

    def __init__(self, pipe: Pipe, *, peer: str, job_id: str, attempt: int = 0) -> None:
        super().__init__(pipe, peer, attempt)
        self.job_id = job_id
        self._sent = self._received = 0
        self._digest_sent, self._digest_received = hashlib.sha256(), hashlib.sha256()
        self._unhashed: Sequence[Buffer] = ()  # the newest message that arrived

    @property
    def phase_name(self) -> str:
        """The current phase."""
        return self._phase

    async def send(self, message: Message) -> None:
        """Send one message."""
        await self._send(message.DESCRIPTOR.full_name, message.SerializeToString(deterministic=True))

    async def send_with(self, message: Message, number: int, *value: Buffer) -> None:
        """Send a message whose last field is large, without a copy of the bytes of that field.

        Args:
            message: the message without that field.
            number: the number of the field, which must be higher than those of all other fields.
            value: the bytes of the field, in one or more parts; not empty.
        """
        await self._send(message.DESCRIPTOR.full_name, append_head(message, number, sum(map(len, value))), *value)

    async def _send(self, type_name: str, *body: Buffer) -> None:
        frame = await self._put(type_name, *body)
        for piece in body_pieces(frame):  # after it was sent: the peer need not wait; and not ``body``, which may have changed
            self._digest_sent.update(piece)

    async def receive(self, expected: type[M]) -> M:
        """Receive the next message, which must be of type ``expected``.

        Raises:
            ProtocolError: the type, phase or sequence number is wrong (``E_ORDER``), the job or attempt is wrong
                (``E_REPLAY``), the message is larger than its type allows (``E_SIZE``), or its bytes cannot be parsed.
            PeerError: the peer stopped the job.
            PeerLost: the conversation broke off.
        """
        await self._frame(expected)
        body = b"".join(self._unhashed)
        self._check_bounds(expected, body)
        return self._parse(expected, body)

    async def receive_apart(self, expected: type[M], number: int) -> tuple[M, Buffer | None]:
        """Receive the next message, and return the bytes of its last field separately, without a copy.

        Args:
            expected: the type of the message.
            number: the number of that field, which holds a submessage.

        Returns:
            The message and the bytes of the field. If the message is short or does not end with the field: the whole message
            and None.

        Raises:
            VflError: as :meth:`receive`.
        """
        body: Buffer = (await self._frame(expected)).body  # read once, because each access may make a copy
        self._check_bounds(expected, body)  # after this there are few fields to search
        place = last_field(body, number) if len(body) >= LONG_BYTES else None
        if place is None:
            return self._parse(expected, body), None
        end, start = place
        return self._parse(expected, body[:end]), body[start:]

    async def _frame(self, expected: type[Message]) -> Frame:
        failpoints.reach("receive")
        self._hash_received()
        frame = await self._take()
        self._check(frame, expected.DESCRIPTOR.full_name)
        self._unhashed = body_pieces(frame)  # kept for the digest, because the reader may change ``body``
        return frame

    def _hash_received(self) -> None:
        """Add the newest message that arrived to the digest. It is done late, because the peer may wait for an answer to it."""
        for piece in self._unhashed:
            self._digest_received.update(piece)
        self._unhashed = ()

    def _parse(self, kind: type[M], body: Buffer) -> M:
        """Parse a body whose bounds have been checked."""
        try:
            return kind.FromString(bytes(body))
        except DecodeError:
            raise ProtocolError(f"{self._position()}: a {kind.DESCRIPTOR.full_name} that cannot be parsed") from None

    def _check_bounds(self, kind: type[Message], body: Buffer) -> None:
        try:
            bounds.check(body, kind)
        except ProtocolError as error:
            raise ProtocolError(f"{self._position()}: {error.message}", code=error.code) from None

    async def send_rows(self, rows: Rows | Iterable[Rows], *, count: int, width: int, start: int = 0) -> None:
        """Send a column of ``count`` elements of ``width`` bytes in chunks.

        Args:
            rows: all elements, in one array or in several; if an iterable computes them, computing and sending overlap.
            count: the number of all elements.
            width: the bytes of one element.
            start: how many elements the receiver has from an earlier attempt. These are hashed, but not sent.
        """
        digest, offset = hashlib.sha256(), 0
        per_chunk = max(1, CHUNK_BYTES // max(1, width))
        if start == 0:
            await self._begin_rows(count, width, 0, b"")
        for block in [rows] if isinstance(rows, np.ndarray) else rows:
            held = min(max(start - offset, 0), len(block))
            if held:
                digest.update(np.ascontiguousarray(block[:held]).tobytes())
                offset += held
                if offset == start:
                    await self._begin_rows(count, width, start, digest.digest())
            for first in range(held, len(block), per_chunk):
                data = np.ascontiguousarray(block[first : first + per_chunk]).tobytes()
                digest.update(data)
                await self.send(session_pb2.Chunk(offset=offset, rows=data))
                offset += len(data) // width
        if offset != count:
            raise ValueError(f"{count} rows announced, {offset} given")
        await self.send(session_pb2.RowsEnd(count=count, sha256=digest.digest()))

    async def receive_chunks(
        self,
        *,
        width: int,
        count: int | None = None,
        max_count: int = 1 << 31,
        start: int = 0,
        digest: Digest | None = None,
    ) -> AsyncIterator[Rows]:
        """Receive the elements of one column that have not arrived in an earlier attempt, chunk by chunk, uint8[k, width].

        Args:
            width: the bytes that each element must have.
            count: the number of elements that the column must have; None if it is not known.
            max_count: the most elements that the column may have if ``count`` is not known.
            start: how many elements have arrived in an earlier attempt. The peer knows this and continues after them.
            digest: SHA-256 over the elements of the earlier attempt.

        Raises:
            ProtocolError: the width or the count is wrong (``E_COUNT``), a chunk is out of place (``E_CHUNK``), or the closing
                message does not match (``E_TRUNCATED``).
            StateError: the peer's column does not begin with the elements of the earlier attempt (``E_REPLAY``).
        """
        digest = digest.copy() if digest else hashlib.sha256()
        head = await self.receive(session_pb2.Rows)
        if head.width != width:
            raise ProtocolError(f"{self._position()}: elements of {head.width} bytes, expected {width}", code="E_COUNT")
        if head.count > max_count or (count is not None and head.count != count):
            allowed = f"at most {max_count}" if count is None else str(count)
            raise ProtocolError(f"{self._position()}: {head.count} elements announced, expected {allowed}", code="E_COUNT")
        if head.start != start or head.prefix != (digest.digest() if start else b"") or start > head.count:
            raise StateError(
                f"{self._position()}: the column differs from the {start} elements of an earlier attempt",
                code="E_REPLAY",
                hint="a job may be resumed only with the same lists; submit a new job",
            )
        offset = start
        while offset < head.count:
            chunk = await self.receive(session_pb2.Chunk)
            size, rest = divmod(len(chunk.rows), width)
            if chunk.offset != offset or rest or size == 0 or offset + size > head.count:
                raise ProtocolError(
                    f"{self._position()}: a chunk out of place after row {offset} of {head.count}", code="E_CHUNK"
                )
            digest.update(chunk.rows)
            offset += size
            yield np.frombuffer(chunk.rows, dtype=np.uint8).reshape(size, width)
        end = await self.receive(session_pb2.RowsEnd)
        if end.count != head.count or end.sha256 != digest.digest():
            raise ProtocolError(f"{self._position()}: the column's closing message does not match its rows", code="E_TRUNCATED")

    async def receive_rows(self, *, width: int, count: int | None = None, max_count: int = 1 << 31) -> Rows:
        """Receive a whole column as one array, uint8[n, width]. Arguments and errors as :meth:`receive_chunks`."""
        chunks = [chunk async for chunk in self.receive_chunks(width=width, count=count, max_count=max_count)]
        return np.concatenate(chunks) if chunks else np.empty((0, width), dtype=np.uint8)

    async def _begin_rows(self, count: int, width: int, start: int, prefix: bytes) -> None:
        await self.send(session_pb2.Rows(count=count, width=width, start=start, prefix=prefix))

    @asynccontextmanager
    async def phase(self, name: str) -> AsyncIterator[Traffic]:
        """A context: all messages in it belong to phase ``name``, which ends with a closing message from each side.

        Raises:
            ProtocolError: the peer's closing message does not match what arrived (``E_TRUNCATED``).
        """
        self._phase = name
        traffic = self.traffic.setdefault(name, Traffic())
        self._digest_sent, self._digest_received, self._unhashed = hashlib.sha256(), hashlib.sha256(), ()
        sent, received = self._sent, self._received
        yield traffic
        self._hash_received()
        ours = session_pb2.PhaseEnd(messages=self._sent - sent, sha256=self._digest_sent.digest())
        expected = session_pb2.PhaseEnd(messages=self._received - received, sha256=self._digest_received.digest())
        await self.send(ours)
        if await self.receive(session_pb2.PhaseEnd) != expected:
            raise ProtocolError(f"{self._position()}: the phase's closing message does not match", code="E_TRUNCATED")

    def watch(self, bell: Event) -> None:
        """Set ``bell`` when the conversation breaks off, and at once if it has."""
        self._pipe.watch(bell)

    async def pause(self, bell: Event | None = None) -> None:
        """Let other parties run for a moment, or until ``bell`` is set, which must :meth:`watch`, too. Raises PeerLost."""
        await self._pipe.pause(bell)

    async def abort(self, error: VflError, *, resumable: bool = False) -> None:
        """Tell the peer that this party stops, with the part of ``error`` that is written for peers. Raises no VflError."""
        with suppress(VflError):
            notice = session_pb2.Abort(code=error.peer_code, reason=error.for_peer, resumable=resumable)
            await self._put(notice.DESCRIPTOR.full_name, notice.SerializeToString())

    def close(self) -> None:
        """Free the transport. A second call does nothing."""
        self._pipe.close()

    async def _put(self, type_name: str, *body: Buffer) -> Frame:
        frame = make_frame(
            session_pb2.Frame(job_id=self.job_id, attempt=self.attempt, phase=self._phase, sequence=self._sent, type=type_name),
            *body,
        )
        if (size := frame.ByteSize()) > MAX_FRAME_BYTES:
            raise UsageError(
                f"a {type_name} of {size} bytes is more than one message may have ({MAX_FRAME_BYTES})",
                code="E_SIZE",
                hint="a smaller batch_size, cut layer or align.at_most makes smaller messages",
                for_peer="a message of this job would be too large",
            )
        self._sent += 1
        await self._transmit(frame)
        return frame

    async def _transmit(self, frame: Frame) -> None:
        try:
            failpoints.reach("send")
            await self._give(frame)
        except PeerLost as lost:
            if not self._in_turns:  # else what arrives is read anyway
                await self._tell_why(lost)
            raise

    @override
    async def _tell_why(self, lost: PeerLost) -> None:
        """Raise what a lost peer sent last: PeerError if it stopped the job, PeerLost if it paused or gave no reason."""
        while True:
            frame = await self._take()
            if frame.type == session_pb2.Abort.DESCRIPTOR.full_name:
                self._check(frame, "")

    def _check(self, frame: Frame, expected: str) -> None:
        if frame.type == session_pb2.Abort.DESCRIPTOR.full_name:
            body: Buffer = frame.body
            self._check_bounds(session_pb2.Abort, body)
            notice = self._parse(session_pb2.Abort, body)
            kind = PeerLost if notice.resumable else PeerError
            reason = f"{peer_text(notice.reason)} ({peer_text(notice.code, 40)})"
            kept = notice.code in _KEPT and not notice.resumable
            raise kind(f"{self.peer} stopped in phase {self._phase!r}: {reason}", code=notice.code if kept else "")
        if frame.job_id != self.job_id or frame.attempt != self.attempt:
            raise ProtocolError(f"{self._position()}: a message of another job or attempt", code="E_REPLAY")
        if frame.phase != self._phase or frame.sequence != self._received or frame.type != expected:
            raise ProtocolError(
                f"{self._position()}: message {frame.sequence} of phase {frame.phase[:40]!r} ({peer_text(frame.type, 60)}), "
                f"expected {self._received} ({expected})",
                code="E_ORDER",
            )
        self._received += 1

    def _position(self) -> str:
        return f"from {self.peer} in phase {self._phase!r}"


def run(protocol: Coroutine[Any, Any, T]) -> T:
    """Run a protocol to its end on this thread. Its channel must block: an await must not suspend the coroutine."""
    try:
        protocol.send(None)
    except StopIteration as stop:
        return stop.value
    protocol.close()
    raise RuntimeError("a protocol over a blocking channel must not suspend")
