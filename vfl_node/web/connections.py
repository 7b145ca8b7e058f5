"""Limits for connections to the HTTP port that have not sent a request: their number, and how long they may stay open.

A connection that has not sent the whole head of a request in time is closed, and so is one that does not read its answer. If
there are too many connections, of those whose request is not whole, body included, the one that has been silent for longest
is closed for the newest. So a request that is sent at once is answered, however many wait.
"""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any

from typing_extensions import override
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 10.0
"""How long the head of a request may take."""

READ_S = 30.0
"""How long nothing of an answer may be read while more waits to be sent."""

MOST = 256
"""Number of connections in all."""

MOST_PER_ADDRESS = 64
"""Number of connections of one address."""

_numbers = count()
"""Numbers of arrivals, in their order."""


class BoundedProtocol(H11Protocol):
    """HTTP/1.1 on one connection, of which there is a bounded number."""

    _heard = 0
    _timer: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    @property
    def under_way(self) -> bool:
        """Whether a request has begun and is not answered."""
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def answering(self) -> bool:
        """Whether a request has come whole, and is not answered."""
        return self.under_way and not self.cycle.more_body

    def connection_made(self, transport: Any) -> None:
        """Accept the connection. If there are too many, close the most silent one, or this one if all are being answered."""
        self._heard = next(_numbers)
        super().connection_made(transport)
        everybody = [other for other in self.connections if isinstance(other, BoundedProtocol)]
        own = [other for other in everybody if other._address == self._address]
        for crowd, most in ((own, MOST_PER_ADDRESS), (everybody, MOST)):
            if len(crowd) > most:
                min((other for other in crowd if not other.answering), key=lambda other: other._heard)._end()
        self._await_head()

    def data_received(self, data: bytes) -> None:
        """Something of a request has come."""
        self._heard = next(_numbers)
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        self._stop_waiting()
        self._stop_unread()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """What is sent is not read, and no more is sent for now."""
        super().pause_writing()
        self._unread = self.loop.call_later(READ_S, self._end)

    def resume_writing(self) -> None:
        """Enough of it was read."""
        self._stop_unread()
        super().resume_writing()

    @override
    def on_response_complete(self) -> None:
        """A request was answered; the next one must come in time."""
        super().on_response_complete()
        if not self.transport.is_closing():
            self._await_head()

    @property
    def _address(self) -> str:
        return self.client[0] if self.client else ""

    def _await_head(self) -> None:
        self._stop_waiting()
        self._timer = self.loop.call_later(HEAD_S, self._late)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _stop_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _late(self) -> None:
        if not self.under_way:
            self._end()

    def _end(self) -> None:
        self.connections.discard(self)
        self.transport.abort()
