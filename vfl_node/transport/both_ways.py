"""What a channel moves through its pipe: frames, counted and traced; both ways at the same time, if a protocol asks for that.

For :meth:`BothWays.duplex` no thread is added. The party's thread steps two coroutines in turn, a frame each. One of them
suspends where its frame has no room, or where none has arrived. If neither can go on, the thread waits for the pipe. So no
two things happen at once in a party's lists, progress and memory, and an error in one coroutine ends the other one.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar, cast

from vfl_node.errors import PeerLost
from vfl_node.transport.frames import Frame
from vfl_node.transport.pipe import Pipe, Traffic
from vfl_node.transport.trace import Trace

T = TypeVar("T")


class BothWays:
    """The part of a channel that is next to its pipe.

    Attributes:
        peer: the peer's name, as in its certificate.
        attempt: at the job.
        traffic: phase → :class:`Traffic` in it.
        trace: records when each message was sent or arrived.
    """

    def __init__(self, pipe: Pipe, peer: str, attempt: int) -> None:
        self.peer, self.attempt = peer, attempt
        self.traffic: dict[str, Traffic] = {}
        self.trace = Trace()
        self._pipe, self._phase = pipe, "preflight"
        self._in_turns = False
        self._waited = 0  # in turns, since a frame was moved; ns

    async def duplex(self, source: Coroutine[Any, Any, None], sink: Coroutine[Any, Any, T]) -> T:
        """Send and receive at the same time, so that neither party waits for the other one to read.

        What ``sink`` receives may not decide what ``source`` sends: the peer cannot rely on any order between the two ways.

        Args:
            source: sends through this channel, and receives nothing.
            sink: receives from this channel, and sends nothing.

        Returns:
            What ``sink`` returned, once both have ended.

        Raises:
            VflError: what one of them raised first; the other one is closed where it is. If the peer is lost to ``source``,
                ``sink`` first takes what has arrived, which may say why.
        """
        halves: dict[Coroutine[Any, Any, Any], Callable[[], bool] | None] = {source: None, sink: None}
        received, lost, self._in_turns, self._waited = None, None, True, 0
        try:
            while halves:
                for half, can_go_on in list(halves.items()):
                    if can_go_on is None or can_go_on():
                        try:
                            halves[half] = half.send(None)
                            continue
                        except StopIteration as stop:
                            received = stop.value if half is sink else received
                        except PeerLost as error:
                            if half is sink:
                                raise
                            lost = error
                        del halves[half]
                if halves:
                    since = self.trace.now()
                    await self._pipe.wait(lambda: any(ready is None or ready() for ready in halves.values()))
                    self._waited += self.trace.now() - since
        finally:
            self._in_turns = False
            source.close()
            sink.close()
        if lost:
            await self._tell_why(lost)
        return cast("T", received)

    async def _tell_why(self, lost: PeerLost) -> None:
        """Raise what a lost peer sent last, or ``lost``."""
        raise lost

    async def _give(self, frame: Frame) -> None:
        """Send a frame."""
        since = await self._turn(lambda: self._pipe.can_put(frame)) if self._in_turns else self.trace.now()
        await self._pipe.put(frame)
        self._note(frame, since, sent=True)
        if self._in_turns:
            await _suspend(None)

    async def _take(self) -> Frame:
        """What comes next, counted and traced before it is checked: so is what cannot be taken."""
        since = await self._turn(lambda: self._pipe.can_get()) if self._in_turns else self.trace.now()
        frame = await self._pipe.get()
        self._note(frame, since, sent=False)
        if self._in_turns:
            await _suspend(None)
        return frame

    async def _turn(self, can_go_on: Callable[[], bool]) -> int:
        """Since when the pipe is waited for in turns: not while the other half computes."""
        while not can_go_on():
            await _suspend(can_go_on)
        waited, self._waited = self._waited, 0
        return self.trace.now() - waited

    def _note(self, frame: Frame, since: int, *, sent: bool) -> None:
        if self._phase not in self.traffic:
            self.traffic[self._phase] = Traffic()
        self.traffic[self._phase].add(frame.ByteSize(), sent=sent)
        self.trace.add(self.peer, self.attempt, frame, since, sent=sent)


@types.coroutine
def _suspend(can_go_on: Callable[[], bool] | None) -> Generator[Callable[[], bool] | None, None, None]:
    """Let the other half go on; this one then does once ``can_go_on``, or at its next turn."""
    yield can_go_on
