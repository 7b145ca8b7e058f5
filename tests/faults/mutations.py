"""What happens to one message of a job: on its way, or at its sender before it is part of a digest.

A message that is changed on its way is mostly noticed by its number, or by the digest at the end of its phase. One that its
sender means so is noticed by what its fields must be, if at all: there the digests are made of what was changed.
"""

from __future__ import annotations

import hashlib
import random
import threading
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError, Message

from vfl_node.errors import PeerLost, VflError
from vfl_node.transport.bounds import BOUNDS
from vfl_node.transport.channel import Channel
from vfl_node.transport.generated.vfl.v1 import session_pb2

TYPES: dict[str, type[Message]] = {kind.DESCRIPTOR.full_name: kind for kind in BOUNDS}
EXTREME: dict[str, list[Any]] = {
    "int": [0, 1, -1, 2**31 - 1, 2**32 - 1, 2**63 - 1, -(2**63)],
    "bytes": [b"", b"\0", b"\xff" * 31, bytes(4096), b"\xff" * 100_000],
    "str": ["", "\0", "../../x", "clinic", "x" * 100_000, "\u202e" * 40],
    "bool": [True, False],
    "float": [0.0, -1.0, float("inf"), float("nan"), 1e308],
}


@dataclass
class Change:
    """What happens to one message."""

    how: str
    at: int
    chance: random.Random

    def apply(self, frame: Any) -> list[Any]:
        """What arrives instead of ``frame``."""
        made = session_pb2.Frame.FromString(frame.SerializeToString())
        body, chance = bytearray(made.body), self.chance
        if self.how == "lost":
            return []
        if self.how == "duplicated":
            return [frame, made]
        if self.how == "flipped" and body:
            body[chance.randrange(len(body))] ^= 1 << chance.randrange(8)
        elif self.how == "truncated" and body:
            del body[chance.randrange(len(body)) :]
        elif self.how == "oversize":
            body += bytes(chance.choice([1, 1000, 1 << 20]))
        elif self.how == "random":
            body[:] = chance.randbytes(chance.choice([0, 1, 40, 5000]))
        elif self.how == "another type":
            made.type = chance.choice(sorted(TYPES))
        elif self.how == "header":
            name = chance.choice(["sequence", "attempt", "phase", "job_id", "type"])
            setattr(
                made,
                name,
                chance.choice(EXTREME["str"]) if isinstance(getattr(made, name), str) else chance.choice([0, 7, 2**32 - 1]),
            )
        elif self.how == "extreme":
            body[:] = self.extreme(made.type, bytes(body))
        made.body = bytes(body)
        return [made]

    def extreme(self, type_name: str, body: bytes) -> bytes:
        """One field of the message at the end of its range, or repeated a thousand times."""
        message = TYPES.get(type_name, session_pb2.Beat)()
        try:
            message.ParseFromString(body)
            return self._changed(message)
        except (DecodeError, ValueError, TypeError):
            return body

    def _changed(self, message: Any) -> bytes:
        chance = self.chance
        fields = list(message.DESCRIPTOR.fields)
        if not fields:
            return b"\x08\x01"
        field = chance.choice(fields)
        value = getattr(message, field.name)
        if hasattr(value, "extend") and not isinstance(value, bytes | str):
            if len(value) and chance.random() < 0.5:
                del value[chance.randrange(len(value))]
            elif field.message_type is not None:
                for _ in range(chance.choice([1, 1000])):
                    value.add()
            else:
                value.extend([_like(chance, field)] * chance.choice([1, 1000]))
        elif field.message_type is not None:
            value.ParseFromString(self._changed(value))
        else:
            setattr(message, field.name, _like(chance, field, value))
        return bytes(message.SerializeToString())


def _like(chance: random.Random, field: Any, before: Any = None) -> Any:
    """Another value of a field: at the end of its range, or one that differs little from the value ``before``."""
    kinds = {1: "float", 2: "float", 8: "bool", 9: "str", 12: "bytes"}
    values = EXTREME[kinds.get(field.type, "int")]
    if isinstance(before, bytes):  # of the same length, which is what is checked first
        size = len(before)
        huge = np.full(size // 4 + 1, 1e30, dtype="<f4").tobytes()[:size]
        values = [*values, bytes(size), b"\xff" * size, before[::-1], chance.randbytes(size), huge, before[: size // 2] * 2]
    elif isinstance(before, int) and not isinstance(before, bool):
        values = [*values, before + 1, before - 1, 2 * before, -before]
    elif isinstance(before, float):
        values = [*values, -before, 1e6 * before, before + 1]
    if kinds.get(field.type) is None:
        unsigned, wide = field.type in (4, 6, 7, 13), field.type in (3, 4, 6, 16, 18)
        low, high = (0 if unsigned else -(2**63 if wide else 2**31)), 2 ** ((64 if wide else 32) - (not unsigned)) - 1
        values = [value for value in values if low <= value <= high]
    return chance.choice(values)


HOWS = (
    "lost",
    "duplicated",
    "swapped",
    "flipped",
    "truncated",
    "oversize",
    "random",
    "another type",
    "header",
    "extreme",
    "file",
    "stopped",
    *4 * ("meant",),
)
"""``meant``: by its sender, before digests are made. ``file``: of a job that breaks off and goes on. ``stopped``: its sender
fails instead, and what it says of that is changed on its way."""

ON_ITS_WAY = HOWS[: HOWS.index("file")]


class Wire:
    """A pipe whose party's messages are changed on their way."""

    def __init__(self, pipe: Any, change: Change | None) -> None:
        self._pipe, self._change = pipe, change
        self._sent = 0
        self._held: list[Any] = []

    async def put(self, frame: Any) -> None:
        number, self._sent = self._sent, self._sent + 1
        change = self._change
        if change is None or number != change.at:
            for one in [frame, *self._held]:
                await self._pipe.put(one)
            self._held = []
        elif change.how == "swapped":
            self._held = [frame]
        elif change.how == "broken off":
            raise VflError("broken off", code="E_BROKEN")
        elif change.how == "stopped":
            self._change = replace(change, how=change.chance.choice(ON_ITS_WAY), at=self._sent)
            raise VflError("stopped", code="E_STOPPED")
        else:
            for one in change.apply(frame):
                await self._pipe.put(one)

    def watch(self, bell: threading.Event) -> None:
        self._pipe.watch(bell)

    async def pause(self, bell: threading.Event | None = None) -> None:
        """As over gRPC: a party that has ended one of its conversations pauses in none, whatever it has not read."""
        if self._pipe.closed:
            raise PeerLost("this party has ended its conversation")
        await self._pipe.pause(bell)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pipe, name)


class Speaker:
    """What one party says in one conversation, of which one message is changed before it is part of a digest.

    Args:
        channel: of that party; its messages go through here.
        change: of a message; None: none.

    Attributes:
        types: of all messages, in their order.
    """

    def __init__(self, channel: Channel, change: Change | None) -> None:
        self.types: list[str] = []
        self._send, self._change = channel._send, change if change and change.how == "meant" else None
        self._column: Any = None
        channel._send = self.send  # type: ignore[method-assign]

    async def send(self, type_name: str, *body: Any) -> None:
        """As :meth:`Channel._send`."""
        number = len(self.types)
        self.types.append(type_name)
        if self._change is None:
            await self._send(type_name, *body)
            return
        text = b"".join(map(bytes, body))
        if number == self._change.at:
            text = self._change.extreme(type_name, text)
        await self._send(type_name, self._as_column(type_name, text, kept=number == self._change.at))

    def _as_column(self, type_name: str, text: bytes, *, kept: bool) -> bytes:
        """The end of a column of elements with the digest of those that were sent, unless the end is what was changed."""
        name = type_name.rpartition(".")[2]
        if name == "Rows":
            self._column = None if session_pb2.Rows.FromString(text).start else hashlib.sha256()
        elif name == "Chunk" and self._column:
            self._column.update(session_pb2.Chunk.FromString(text).rows)
        elif name == "RowsEnd" and self._column and not kept:
            return bytes(
                session_pb2.RowsEnd(
                    count=session_pb2.RowsEnd.FromString(text).count, sha256=self._column.digest()
                ).SerializeToString()
            )
        return text
