"""The contract every protocol is written against: an ordered, typed conversation with one peer.

Protocols are coroutines. Over gRPC a thread steps a protocol with :func:`run`, and every await
blocks. In memory :func:`vfl_node.transport.memory.run_together` steps all parties in turn on one thread,
deterministically. Protocol code does not know which of the two it is.

On the wire each message is a ``Frame`` bound to (job, attempt, phase, sequence, type). A
phase ends with an explicit record from each side: its number of messages and a digest over
them. The end of a stream alone never ends a phase.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import numpy as np
from google.protobuf.message import DecodeError, Message
from numpy.typing import NDArray

from vfl_node.errors import Cancelled, PeerError, PeerLost, ProtocolError, StateError, UsageError, VflError, peer_text
from vfl_node.process import failpoints
from vfl_node.transport import bounds
from vfl_node.transport.bounds import MAX_FRAME_BYTES
from vfl_node.transport.fields import Buffer, append_head, last_field
from vfl_node.transport.frames import LONG_BYTES, Frame, body_pieces, make_frame
from vfl_node.transport.generated.vfl.v1 import session_pb2
from vfl_node.transport.pipe import Digest, Pipe, Traffic
from vfl_node.transport.trace import Trace

CHUNK_BYTES = 1 << 19
"""Bulk message size: 512 KiB to 1 MiB moved fastest over loopback with mTLS."""

_KEPT = (Cancelled.default_code, "E_VERSION")
"""Codes of a peer that stopped which are this party's, too: what they mean for a job is the same at all parties."""

M = TypeVar("M", bound=Message)
T = TypeVar("T")
Rows = NDArray[np.uint8]
"""Fixed-width elements, uint8[n, width], contiguous."""


class Channel:
    """One conversation with one peer about one job.

    Attributes:
        peer: the peer's name, as in its certificate.
        traffic: phase → :class:`Traffic`.
        trace: hears when each message was sent or came.
    """

    def __init__(self, pipe: Pipe, *, peer: str, job_id: str, attempt: int = 0) -> None:
        self.peer = peer
        self.job_id = job_id
        self.attempt = attempt
        self.traffic: dict[str, Traffic] = {}
        self.trace = Trace()
        self._pipe = pipe
        self._phase = "preflight"
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
        """Send a message whose last field is given apart, so that no message copies its bytes.

        Args:
            message: without that field.
            number: of the field, higher than those of all others.
            value: its bytes, in parts; not empty.
        """
        await self._send(message.DESCRIPTOR.full_name, append_head(message, number, sum(map(len, value))), *value)

    async def _send(self, type_name: str, *body: Buffer) -> None:
        frame = await self._put(type_name, *body)
        for piece in body_pieces(frame):  # late, as the peer waits; of what left, as ``body`` may change
            self._digest_sent.update(piece)

    async def receive(self, expected: type[M]) -> M:
        """The next message, which must be of type ``expected``.

        Raises:
            ProtocolError: another type, phase or sequence number (``E_ORDER``), another job or
                attempt (``E_REPLAY``), a message larger than its type allows (``E_SIZE``), or bytes that do not parse.
            PeerError: the peer stopped the job.
            PeerLost: the conversation broke off.
        """
        await self._frame(expected)
        body = b"".join(self._unhashed)
        self._check_bounds(expected, body)
        return self._parse(expected, body)

    async def receive_apart(self, expected: type[M], number: int) -> tuple[M, Buffer | None]:
        """The next message without its last field, and the value of that, in the memory in which it arrived.

        Args:
            expected: its type.
            number: of the field, a submessage.

        Returns:
            The message and the value; the whole message and None if ``number`` is not the last field.

        Raises:
            VflError: as :meth:`receive`.
        """
        body: Buffer = (await self._frame(expected)).body  # once: each access may be a copy
        self._check_bounds(expected, body)  # so there are few fields
        place = last_field(body, number) if len(body) >= LONG_BYTES else None
        if place is None:
            return self._parse(expected, body), None
        end, start = place
        return self._parse(expected, body[:end]), body[start:]

    async def _frame(self, expected: type[Message]) -> Frame:
        failpoints.reach("receive")
        self._hash_received()
        since = self.trace.now()
        frame = await self._pipe.get()
        self._check(frame, expected.DESCRIPTOR.full_name)
        self.trace.add(self.peer, self.attempt, frame, since, sent=False)
        self._unhashed = body_pieces(frame)  # what arrived, as its reader may change ``body``
        return frame

    def _hash_received(self) -> None:
        """Add the newest message that arrived to the digest; late, as the peer may wait for what this party makes of it."""
        for piece in self._unhashed:
            self._digest_received.update(piece)
        self._unhashed = ()

    def _parse(self, kind: type[M], body: Buffer) -> M:
        """The message in a body whose bounds were checked."""
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
            rows: one array, or arrays in order (with an iterable, computing overlaps with sending);
                always from the first element on.
            count: number of all elements.
            width: bytes per element.
            start: number of elements that the receiver has from an earlier attempt; they are hashed, not sent.
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
        """The elements of one column that have not arrived yet, chunk by chunk, uint8[k, width].

        Args:
            width: required bytes per element.
            count: required number of elements, if known.
            max_count: largest accepted number of elements if ``count`` is not known.
            start: number of elements from an earlier attempt; the peer knows it, and continues after them.
            digest: SHA-256 over these.

        Raises:
            ProtocolError: another width or count (``E_COUNT``), a chunk out of place,
                or a final record that does not match (``E_TRUNCATED``).
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
            raise ProtocolError(f"{self._position()}: the column's final record does not match its rows", code="E_TRUNCATED")

    async def receive_rows(self, *, width: int, count: int | None = None, max_count: int = 1 << 31) -> Rows:
        """As :meth:`receive_chunks`, joined into uint8[n, width]."""
        chunks = [chunk async for chunk in self.receive_chunks(width=width, count=count, max_count=max_count)]
        return np.concatenate(chunks) if chunks else np.empty((0, width), dtype=np.uint8)

    async def _begin_rows(self, count: int, width: int, start: int, prefix: bytes) -> None:
        await self.send(session_pb2.Rows(count=count, width=width, start=start, prefix=prefix))

    @asynccontextmanager
    async def phase(self, name: str) -> AsyncIterator[Traffic]:
        """Bind everything inside to phase ``name``, and end the phase with the explicit record of both sides.

        Raises:
            ProtocolError: the peer's record does not match what arrived (``E_TRUNCATED``).
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
            raise ProtocolError(f"{self._position()}: the phase's final record does not match", code="E_TRUNCATED")

    async def pause(self) -> None:
        """Let other parties run for a moment, while this party waits for its other conversation.

        Raises:
            PeerLost: the conversation broke off.
        """
        await self._pipe.pause()

    async def abort(self, error: VflError, *, resumable: bool = False) -> None:
        """Tell the peer that this party stops, with a text written for peers. Never raises."""
        with suppress(VflError):
            notice = session_pb2.Abort(code=error.peer_code, reason=error.for_peer, resumable=resumable)
            await self._put(notice.DESCRIPTOR.full_name, notice.SerializeToString())

    def close(self) -> None:
        """Free the transport. Idempotent."""
        self._pipe.close()

    async def _put(self, type_name: str, *body: Buffer) -> Frame:
        frame = make_frame(
            session_pb2.Frame(job_id=self.job_id, attempt=self.attempt, phase=self._phase, sequence=self._sent, type=type_name),
            *body,
        )
        size = frame.ByteSize()
        if size > MAX_FRAME_BYTES:
            raise UsageError(
                f"a {type_name} of {size} bytes is more than one message may have ({MAX_FRAME_BYTES})",
                code="E_SIZE",
                hint="a smaller batch_size, cut layer or align.at_most makes smaller messages",
                for_peer="a message of this job would be too large",
            )
        self._sent += 1
        traffic = self.traffic.setdefault(self._phase, Traffic())
        traffic.bytes_sent += size
        traffic.messages_sent += 1
        since = self.trace.now()
        await self._transmit(frame)
        self.trace.add(self.peer, self.attempt, frame, since, sent=True)
        return frame

    async def _transmit(self, frame: Frame) -> None:
        try:
            failpoints.reach("send")
            await self._pipe.put(frame)
        except PeerLost:
            await self._tell_why()
            raise

    async def _tell_why(self) -> None:
        """For a peer that is gone: raise the reason that it sent last, if there is one. Raises PeerError, PeerLost."""
        while True:
            frame = await self._pipe.get()
            if frame.type == session_pb2.Abort.DESCRIPTOR.full_name:
                self._check(frame, "")

    def _check(self, frame: Frame, expected: str) -> None:
        traffic = self.traffic.setdefault(self._phase, Traffic())
        traffic.bytes_received += frame.ByteSize()
        traffic.messages_received += 1
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
    """Step a protocol to its end on this thread; its channel must be a blocking one."""
    try:
        protocol.send(None)
    except StopIteration as stop:
        return stop.value
    protocol.close()
    raise RuntimeError("a protocol over a blocking channel must not suspend")
