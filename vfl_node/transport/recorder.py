"""Records the messages of a conversation, in order: for golden transcripts, tests of what a peer sees, and experiments.

Nothing else in the project records messages.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from google.protobuf import symbol_database
from google.protobuf.message import Message
from typing_extensions import override

from vfl_node.transport.channel import Channel
from vfl_node.transport.fields import Buffer, append_head
from vfl_node.transport.frames import Frame
from vfl_node.transport.generated.vfl.v1 import session_pb2

M = TypeVar("M", bound=Message)

Edit = Callable[[str, str, Message], None]


@dataclass(frozen=True)
class Entry:
    """One message that was sent.

    Attributes:
        sender: the party that sent it.
        receiver: the party it was sent to.
        frame: as it was sent: with its sequence number, and the serialised message as ``body``.
    """

    sender: str
    receiver: str
    frame: Frame

    @property
    def kind(self) -> str:
        """The message's type without its package, such as ``Embedding``."""
        return self.frame.type.rpartition(".")[2]

    @cached_property
    def message(self) -> Message:
        """The message itself; it is parsed only once, so it must not be changed."""
        kind: type[Message] = symbol_database.Default().GetSymbol(self.frame.type)
        return kind.FromString(bytes(self.frame.body))


class Recorder:
    """Stores what the channels that it wraps send. To record a whole conversation, wrap both its ends.

    Args:
        edit: called with (sender, receiver, message) before a message is serialised; it may change the message or raise. With
            it a test can play a dishonest peer whose phases still have the right counts and digests.

    Attributes:
        entries: everything sent so far, in order; with several threads in the order of sending.
    """

    def __init__(self, edit: Edit | None = None) -> None:
        self.entries: list[Entry] = []
        self._edit = edit or (lambda sender, receiver, message: None)
        self._one = threading.Lock()

    def wrap(self, owner: str, channel: Channel) -> Channel:
        """``channel`` of the party ``owner``, recorded from now on; use only the returned channel."""
        return _RecordedChannel(channel, owner, self)

    def messages(self, kind: type[M], *, sender: str | None = None, receiver: str | None = None) -> Iterator[M]:
        """The messages of one type in order, of all parties or of the named ones."""
        for entry in self.entries:
            of_them = sender in (None, entry.sender) and receiver in (None, entry.receiver)
            if of_them and entry.frame.type == kind.DESCRIPTOR.full_name:
                yield kind.FromString(bytes(entry.frame.body))

    def notice(self, sender: str, receiver: str, notice: session_pb2.Notice) -> None:
        """Store a notice of the standing link between two nodes, as a message of phase ``link`` that belongs to no job."""
        body = notice.SerializeToString(deterministic=True)
        self.add(Entry(sender, receiver, session_pb2.Frame(phase="link", type=notice.DESCRIPTOR.full_name, body=body)))

    def edit(self, sender: str, receiver: str, message: Message) -> None:
        """Call ``edit`` for a message before it is serialised."""
        self._edit(sender, receiver, message)

    def add(self, entry: Entry) -> None:
        """Store one message."""
        with self._one:
            self.entries.append(entry)


class _RecordedChannel(Channel):
    """Takes over a conversation from another channel, and gives the recorder what is sent."""

    def __init__(self, channel: Channel, owner: str, recorder: Recorder) -> None:
        vars(self).update(vars(channel))
        self._owner, self._recorder = owner, recorder

    @override
    async def send(self, message: Message) -> None:
        self._recorder.edit(self._owner, self.peer, message)
        await super().send(message)

    @override
    async def send_with(self, message: Message, number: int, *value: Buffer) -> None:
        """The whole message may be changed."""
        await self.send(type(message).FromString(b"".join((append_head(message, number, sum(map(len, value))), *value))))

    async def _transmit(self, frame: Frame) -> None:
        self._recorder.add(Entry(self._owner, self.peer, frame))
        await super()._transmit(frame)
