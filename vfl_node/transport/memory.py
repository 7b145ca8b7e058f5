"""Conversations within one process: parties take turns on one thread, deterministically. For simulations and tests."""

from __future__ import annotations

import types
from collections.abc import Callable, Collection, Coroutine, Generator, Iterable
from itertools import chain, combinations
from threading import Event
from typing import Any

from vfl_node.errors import PeerLost
from vfl_node.transport.channel import Channel
from vfl_node.transport.frames import Frame


class _MemoryPipe:
    """One end of a pair of queues; ``get`` suspends while its queue is empty."""

    def __init__(self) -> None:
        self.inbox: list[Frame] = []
        self.other: _MemoryPipe = self
        self.closed = False

    async def put(self, frame: Frame) -> None:
        if self.other.closed:
            raise PeerLost("the peer has ended its conversation")
        self.other.inbox.append(frame)  # it is never changed; its body is serialised

    async def get(self) -> Frame:
        while not self.inbox:
            if self.other.closed:
                raise PeerLost("the peer has ended its conversation")
            await suspend()
        return self.inbox.pop(0)

    def watch(self, bell: Event) -> None:
        """Nothing to do: parties of one thread never wait, so :meth:`pause` sees the end."""

    async def pause(self, bell: Event | None = None) -> None:
        if self.closed:  # by another conversation of this party, which has failed
            raise PeerLost("this party has ended its conversations")
        if self.other.closed and not self.inbox:
            raise PeerLost("the peer has ended its conversation")
        await suspend()

    def can_put(self, frame: Frame) -> bool:
        return True

    def can_get(self) -> bool:
        return bool(self.inbox) or self.other.closed

    async def wait(self, ready: Callable[[], bool]) -> None:
        await suspend()  # also if it is ready: all parties get on at the same pace

    def close(self) -> None:
        self.closed = True


@types.coroutine
def suspend() -> Generator[None, None, None]:
    """Let the other parties of this thread run."""
    yield


def memory_channels(first: str, second: str, *, job_id: str = "memory") -> tuple[Channel, Channel]:
    """Two connected in-memory channels: that of ``first`` (its peer is ``second``), and that of ``second``."""
    a, b = _MemoryPipe(), _MemoryPipe()
    a.other, b.other = b, a
    return Channel(a, peer=second, job_id=job_id), Channel(b, peer=first, job_id=job_id)


def memory_network(*names: str, job_id: str = "memory") -> dict[str, dict[str, Channel]]:
    """In-memory channels between each pair of several parties: party → peer → the party's channel, in the given order."""
    network: dict[str, dict[str, Channel]] = {name: {} for name in names}
    for first, second in combinations(names, 2):
        network[first][second], network[second][first] = memory_channels(first, second, job_id=job_id)
    return network


def run_together(*protocols: tuple[Coroutine[Any, Any, Any], Channel | Collection[Channel]]) -> list[Any]:
    """Step protocols in turn on this thread until all have ended; deterministic.

    Each protocol comes with its channel, or with all of its channels. They are closed when it ends, so
    that its peers see the end. Returns results in order; for a protocol that failed the result is its exception.

    Raises:
        RuntimeError: all protocols wait for a message (a deadlock).
    """
    results: list[Any] = [None] * len(protocols)
    channels_of = [[channels] if isinstance(channels, Channel) else list(channels) for _, channels in protocols]
    pending = {index: protocol for index, (protocol, _) in enumerate(protocols)}
    while pending:
        traffic_before = _total(chain(*channels_of))
        ended = []
        for index, protocol in pending.items():
            try:
                protocol.send(None)
                continue
            except StopIteration as stop:
                results[index] = stop.value
            except Exception as error:  # noqa: BLE001 - the peers must see the end, whatever the error
                results[index] = error
            for channel in channels_of[index]:
                channel.close()
            ended.append(index)
        for index in ended:
            del pending[index]
        if pending and not ended and _total(chain(*channels_of)) == traffic_before:
            for protocol in pending.values():
                protocol.close()
            raise RuntimeError("every party waits for a message")
    return results


def _total(channels: Iterable[Channel]) -> int:
    return sum(t.messages_sent + t.messages_received for channel in channels for t in channel.traffic.values())
