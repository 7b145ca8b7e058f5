"""When a party of a job sent, received and waited: the newest messages, and sums of those before them.

A trace has names of messages and parties, sizes and times. It has nothing of what a message says.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from sys import intern
from typing import Any, NamedTuple, Protocol

from vfl_node.errors import peer_text

MOST_MESSAGES = 1 << 14
"""So many messages of a job are kept one by one, in at most 6 MB of memory."""

MOST_MARKS = 1 << 12
"""So many phases and epochs are kept."""

MOST_SUMS = 1 << 10
"""So many sums of earlier messages are kept."""

MOST_CHARACTERS = 40
"""So many characters of a phase and of a type are kept: a peer says them."""


class TracedFrame(Protocol):
    """What a trace takes of a frame."""

    @property
    def body(self) -> Any:
        """The message in it, as bytes."""

    @property
    def phase(self) -> str:
        """The phase that it belongs to."""

    @property
    def sequence(self) -> int:
        """Its number among those that its sender has sent in the conversation."""

    @property
    def type(self) -> str:
        """The type of its message."""

    def ByteSize(self) -> int:  # noqa: N802 - as a message's
        """Bytes of it all."""


class TracedMessage(NamedTuple):
    """One message.

    Attributes:
        peer: the other party.
        sent: whether this party sent it; else it received it.
        attempt: at the job.
        phase: of the conversation.
        number: among those of its sender in the conversation.
        kind: its type, such as ``Embedding``.
        size: in bytes.
        since: when sending began, or waiting for it; ns of UTC, and so is ``until``.
        until: when it was handed to the transport, or had arrived.
    """

    peer: str
    sent: bool
    attempt: int
    phase: str
    number: int
    kind: str
    size: int
    since: int
    until: int


class Moment(NamedTuple):
    """A moment in a party's own work.

    Attributes:
        at: ns of UTC.
        name: of the phase that begins, or of what is over, such as an epoch.
        number: how often that was over by then in this phase; 0: the phase begins.
    """

    at: int
    name: str
    number: int


@dataclass
class Sum:
    """Earlier messages of one phase of a conversation, added up.

    Attributes:
        peer: the other party.
        attempt: at the job.
        phase: of the conversation.
        since: when the first began; ns of UTC.
        until: when the last was over.
        sent: how many were sent, and so on.
        received: of messages.
        bytes_sent: of theirs.
        bytes_received: of theirs.
        waited: for those that came, in ns.
    """

    peer: str
    attempt: int
    phase: str
    since: int
    until: int = 0
    sent: int = 0
    received: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    waited: int = 0

    def takes(self, message: TracedMessage) -> bool:
        """Whether ``message`` belongs to the same phase."""
        return (self.peer, self.attempt, self.phase) == (message.peer, message.attempt, message.phase)

    def add(self, message: TracedMessage) -> None:
        """Add one more."""
        self.until = message.until
        if message.sent:
            self.sent += 1
            self.bytes_sent += message.size
        else:
            self.received += 1
            self.bytes_received += message.size
            self.waited += message.until - message.since


@dataclass
class Trace:
    """The trace of one job at one party. Several conversations may add to it at once.

    Attributes:
        clock: nanoseconds since a fixed moment; never goes back.
        most: so many messages are kept one by one.
        waited: for messages so far, in ns; a moment in which it waits for several parties counts once.
        sending: how long it was busy with that, likewise.
        messages: the newest, in the order in which they were over.
        marks: the newest.
        sums: of messages before those.
    """

    clock: Callable[[], int] = time.monotonic_ns
    most: int = MOST_MESSAGES
    waited: int = 0
    sending: int = 0
    messages: deque[TracedMessage] = field(default_factory=deque)
    marks: deque[Moment] = field(default_factory=lambda: deque(maxlen=MOST_MARKS))
    sums: deque[Sum] = field(default_factory=lambda: deque(maxlen=MOST_SUMS))

    def __post_init__(self) -> None:
        self._from_utc = time.time_ns() - self.clock()  # once: steps of the system's clock reorder nothing
        self._newest: dict[str, Sum] = {}
        self._over: Counter[str] = Counter()
        self._counted_until = 0
        self._one = threading.Lock()

    def now(self) -> int:
        """Nanoseconds of UTC."""
        return self.clock() + self._from_utc

    def add(self, peer: str, attempt: int, frame: TracedFrame, since: int, *, sent: bool) -> None:
        """Take a message that has just been sent, or has arrived; args as :class:`TracedMessage`."""
        phase, kind = _word(frame.phase[:MOST_CHARACTERS]), _word(frame.type.rpartition(".")[2][:MOST_CHARACTERS])
        message = TracedMessage(peer, sent, attempt, phase, frame.sequence, kind, frame.ByteSize(), since, self.now())
        with self._one:
            self._count(message)
            self.messages.append(message)
            if len(self.messages) > self.most:
                self._fold(self.messages.popleft())

    def begin(self, phase: str) -> None:
        """Phase ``phase`` begins."""
        with self._one:
            self._over.clear()
            self.marks.append(Moment(self.now(), phase, 0))

    def mark(self, name: str) -> None:
        """What is called ``name``, such as an epoch, is over."""
        with self._one:
            self._over[name] += 1
            self.marks.append(Moment(self.now(), name, self._over[name]))

    def copy(self) -> tuple[list[TracedMessage], list[Moment], list[Sum]]:
        """Messages, marks and sums as they are now."""
        with self._one:
            return list(self.messages), list(self.marks), [replace(each) for each in self.sums]

    def _count(self, message: TracedMessage) -> None:
        took = max(0, message.until - max(message.since, self._counted_until))
        self._counted_until = max(message.until, self._counted_until)
        if message.sent:
            self.sending += took
        else:
            self.waited += took

    def _fold(self, message: TracedMessage) -> None:
        newest = self._newest.get(message.peer)
        if newest is None or not newest.takes(message):
            newest = self._newest[message.peer] = Sum(message.peer, message.attempt, message.phase, message.since)
            self.sums.append(newest)
        newest.add(message)


@lru_cache(maxsize=256)
def _word(said: str) -> str:
    """What a peer said, as it is kept. The same few words come again and again."""
    return intern(peer_text(said))
