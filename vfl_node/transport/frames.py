"""Long frames: their bytes are copied once where they are sent, into the pieces that travel, and once where they arrive.

A protobuf message stores its own copy of each field of bytes, and every access to the field makes another. The body is the last
field of a frame: what is before it is serialised alone, and the bytes of the body follow. What travels is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from google.protobuf.message import Message

from vfl_node.transport.fields import Buffer, append_head, last_field
from vfl_node.transport.generated.vfl.v1 import session_pb2

LONG_BYTES = 1 << 16
"""Size of a body, or of a frame, from which copies take longer than this module saves."""

PIECE_BYTES = 1 << 20
"""Largest number of bytes given to the transport at once: 512 KiB to 1 MiB was fastest over loopback with mTLS."""

_ALIGNED_BYTES = 64
_BODY = session_pb2.Frame.BODY_FIELD_NUMBER


@dataclass(frozen=True)
class LongFrame:
    """A frame as it travels; it has the attributes of a ``Frame``.

    Attributes:
        head: the frame without its body.
        pieces: the whole frame, cut as :func:`cut` does.
        start: where its body begins, in the first piece.
    """

    head: session_pb2.Frame
    pieces: tuple[bytes, ...]
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
        """The message in it: of one piece it is not copied, of several each access makes a copy, which may be written to."""
        first, *others = self.pieces
        body = memoryview(first)[self.start :]
        return _join((body, *others)) if others else body

    def ByteSize(self) -> int:  # noqa: N802 - as a Frame's
        """Bytes of the whole frame."""
        return sum(map(len, self.pieces))

    def SerializeToString(self, *, deterministic: bool = True) -> bytes:  # noqa: N802 - as a Frame's
        """The whole frame."""
        return b"".join(self.pieces)


@dataclass(frozen=True)
class WideFrame(LongFrame):
    """A frame that came in other bytes than protobuf writes, such as with a field twice; ``head`` has its body, too."""

    @property
    def body(self) -> memoryview:
        """The message in it."""
        return memoryview(self.head.body)


Frame = session_pb2.Frame | LongFrame


def make_frame(head: session_pb2.Frame, *body: Buffer) -> Frame:
    """``head``, which has no body, with one, given in parts."""
    size = sum(map(len, body))
    if size < LONG_BYTES:
        head.body = b"".join(body)
        return head
    start = append_head(head, _BODY, size)
    return LongFrame(head, cut(start, *body), len(start))


def parse_frame(pieces: Sequence[bytes]) -> Frame:
    """The frame in ``pieces``. Raises DecodeError: there is none."""
    size = sum(map(len, pieces))
    if size >= LONG_BYTES and (place := last_field(pieces[0], _BODY, size)):
        end, start = place
        return LongFrame(session_pb2.Frame.FromString(pieces[0][:end]), tuple(pieces), start)
    frame = session_pb2.Frame.FromString(b"".join(pieces))
    return frame if frame.ByteSize() == size else WideFrame(frame, tuple(pieces), 0)


def pieces_of(message: Message | LongFrame) -> tuple[bytes, ...]:
    """The bytes of a message in the pieces that travel."""
    return message.pieces if isinstance(message, LongFrame) else cut(message.SerializeToString())


def body_pieces(frame: Frame) -> Sequence[Buffer]:
    """The bytes of a frame's body, in parts that nobody can change."""
    if isinstance(frame, LongFrame) and not isinstance(frame, WideFrame):
        first, *others = frame.pieces
        return (memoryview(first)[frame.start :], *others)
    return (frame.body,)


def cut(*parts: Buffer) -> tuple[bytes, ...]:
    """The bytes of all parts in pieces of :data:`PIECE_BYTES`; the last may be shorter. Copies each byte once, at most."""
    if sum(map(len, parts)) <= PIECE_BYTES:
        return (b"".join(parts),)
    pieces, piece, room = list[bytes](), list[Buffer](), PIECE_BYTES
    for part in parts:
        view, at = memoryview(part), 0
        while at < len(view):
            taken = view[at : at + room]
            piece.append(taken)
            at, room = at + len(taken), room - len(taken)
            if not room:
                pieces.append(b"".join(piece))
                piece, room = [], PIECE_BYTES
    return (*pieces, b"".join(piece)) if piece else tuple(pieces)


def _join(parts: Sequence[Buffer]) -> memoryview:
    """The bytes of all parts, in memory of their own. Numbers at their end are aligned, so that they can be used in place."""
    size = sum(map(len, parts))
    memory = np.empty(size + _ALIGNED_BYTES, np.uint8)
    at = -(memory.ctypes.data + size) % _ALIGNED_BYTES
    view = memory.data
    body = view[at : at + size]
    for part in parts:
        view[at : at + len(part)] = part
        at += len(part)
    return body
