"""Long frames: their bytes are joined once where they are sent, and are not copied to be read.

A protobuf message stores its own copy of each field of bytes, and every access to the field makes another. The body is the last
field of a frame: what is before it is serialised alone, and the bytes of the body follow. What travels is the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from vfl_node.transport.fields import Buffer, before, last_field
from vfl_node.transport.generated.vfl.v1 import session_pb2

LONG_BYTES = 1 << 16
"""Size of a body, or of a frame, from which copies take longer than this module saves."""

_BODY = session_pb2.Frame.BODY_FIELD_NUMBER


@dataclass(frozen=True)
class LongFrame:
    """A frame as it travels; it has the attributes of a ``Frame``.

    Attributes:
        head: the frame without its body.
        wire: the whole frame.
        start: where its body begins.
    """

    head: session_pb2.Frame
    wire: bytes
    start: int

    @property
    def job_id(self) -> str:
        """As a Frame's, and so are the others."""
        return self.head.job_id

    @property
    def attempt(self) -> int:  # noqa: D102
        return self.head.attempt

    @property
    def phase(self) -> str:  # noqa: D102
        return self.head.phase

    @property
    def sequence(self) -> int:  # noqa: D102
        return self.head.sequence

    @property
    def type(self) -> str:  # noqa: D102
        return self.head.type

    @property
    def body(self) -> memoryview:
        """The message in it, which is not copied."""
        return memoryview(self.wire)[self.start :]

    def ByteSize(self) -> int:  # noqa: N802 - as a Frame's
        """Bytes of the whole frame."""
        return len(self.wire)

    def SerializeToString(self, *, deterministic: bool = True) -> bytes:  # noqa: N802 - as a Frame's
        """The whole frame."""
        return self.wire


Frame = session_pb2.Frame | LongFrame


def framed(head: session_pb2.Frame, *body: Buffer) -> Frame:
    """``head``, which has no body, with one, given in parts."""
    size = sum(map(len, body))
    if size < LONG_BYTES:
        head.body = b"".join(body)
        return head
    start = before(head, _BODY, size)
    return LongFrame(head, b"".join((start, *body)), len(start))


def parsed(data: bytes) -> Frame:
    """The frame in ``data``. Raises DecodeError: there is none."""
    if len(data) >= LONG_BYTES and (place := last_field(data, _BODY)):
        end, start = place
        return LongFrame(session_pb2.Frame.FromString(data[:end]), data, start)
    return session_pb2.Frame.FromString(data)
