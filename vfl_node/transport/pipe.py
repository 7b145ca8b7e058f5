"""What a transport provides, and what passed through it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from itertools import chain
from threading import Event
from typing import Protocol

from vfl_node.transport.frames import Frame


class Digest(Protocol):
    """A SHA-256 in progress, as :func:`hashlib.sha256` makes."""

    def copy(self) -> Digest:
        """An independent copy with the same bytes so far."""

    def update(self, data: bytes, /) -> None:
        """Add bytes."""

    def digest(self) -> bytes:
        """The digest of all bytes."""


class Pipe(Protocol):
    """What a transport provides: frames in order, each way."""

    async def put(self, frame: Frame) -> None:
        """Send one frame; waits while too many bytes are queued. Raises PeerLost."""

    async def get(self) -> Frame:
        """The next frame. Raises PeerLost when the peer is gone."""

    def watch(self, bell: Event) -> None:
        """Set ``bell`` when the conversation breaks off, and at once if it has."""

    async def pause(self, bell: Event | None = None) -> None:
        """Let other parties run for a moment, or until ``bell`` is set. Raises PeerLost when the peer is gone."""

    def can_put(self, frame: Frame) -> bool:
        """Whether :meth:`put` would not wait, be it that it would raise."""

    def can_get(self) -> bool:
        """The same of :meth:`get`."""

    async def wait(self, ready: Callable[[], bool]) -> None:
        """Return when ``ready``, which asks :meth:`can_put` and :meth:`can_get`, may have become true."""

    def close(self) -> None:
        """Free the transport. Idempotent."""


@dataclass
class Traffic:
    """Bytes and messages of one phase, as serialised frames."""

    bytes_sent: int = 0
    bytes_received: int = 0
    messages_sent: int = 0
    messages_received: int = 0

    def add(self, size: int, *, sent: bool) -> None:
        """Count one more message."""
        if sent:
            self.bytes_sent, self.messages_sent = self.bytes_sent + size, self.messages_sent + 1
        else:
            self.bytes_received, self.messages_received = self.bytes_received + size, self.messages_received + 1

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(Traffic)))


def total(traffics: Iterable[Mapping[str, Traffic]]) -> dict[str, Traffic]:
    """Phase → the sum of what several conversations moved in it."""
    sums: dict[str, Traffic] = {}
    for name, traffic in chain.from_iterable(each.items() for each in traffics):
        sums[name] = sums.get(name, Traffic()) + traffic
    return sums
