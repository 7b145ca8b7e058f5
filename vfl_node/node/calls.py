"""Conversations on demand: this node calls a peer that it dials, and waits for the call of any other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Protocol

import structlog

from vfl_node.errors import PeerError, PeerLost, PolicyError
from vfl_node.transport.dialer import Dialer
from vfl_node.transport.streams import StreamPipe

log = structlog.get_logger()

CONNECT_S = 5.0
"""How long a call may take to be answered."""

RETRY_S = (0.2, 0.5, 1.0, 2.0, 3.0)
"""Pauses after the first, second, … try that failed; the last one from then on."""


class Waiting(Protocol):
    """Whoever waits for a peer, and what may end the wait (:class:`vfl_node.execution.live.Stop`, a meeting)."""

    def check(self) -> None:
        """Raise if there is no more use in waiting."""

    def wait(self, timeout_s: float) -> None:
        """Sleep up to ``timeout_s``, and raise at once when the owner wants the end."""


class Calls:
    """The conversations that are being opened. Safe to use from several threads.

    Args:
        dialers: of the peers that this node dials.
        check: called with (peer, pipe) of each call that this node made; raises PolicyError if it must not be used.
        expects: whether a conversation of a peer about a job may be waited for: no other is.
        describe: a peer as this node's owner knows it.
        stopping: set when the node stops.
    """

    def __init__(
        self,
        dialers: Mapping[str, Dialer],
        *,
        check: Callable[[str, StreamPipe], None],
        expects: Callable[[str, str], bool],
        describe: Callable[[str], str],
        stopping: threading.Event,
    ) -> None:
        self._dialers, self._check, self._expects, self._describe = dialers, check, expects, describe
        self._stopping = stopping
        self._changed = threading.Condition()
        self._arrived: dict[tuple[str, str], StreamPipe] = {}  # calls of peers about a job that somebody here awaits
        self._awaited: set[tuple[str, str]] = set()

    def open(self, peer: str, job_id: str, *, waiting: Waiting, deadline: float) -> StreamPipe:
        """Call ``peer`` about ``job_id``, or wait for its call.

        Raises:
            PeerLost: no conversation until ``deadline``, monotonic seconds (``E_PEER_ABSENT``).
            VflError: what ``waiting`` raises.
        """
        key = (peer, job_id)
        with self._changed:
            self._awaited.add(key)
        try:
            tries = 0
            while True:
                waiting.check()
                pipe, cause = self._try(peer, job_id, key, waiting)
                if pipe is not None:
                    log.debug("conversation begins", job=job_id, peer=peer, tries=tries)
                    return pipe
                if cause:
                    log.debug("no conversation yet", job=job_id, peer=peer, cause=cause.removeprefix(": "))
                if time.monotonic() > deadline:
                    raise PeerLost(
                        f"no conversation with {self._describe(peer)}{cause}",
                        code="E_PEER_ABSENT",
                        hint="is that node running, and does it accept jobs from this one?",
                    )
                waiting.wait(RETRY_S[min(tries, len(RETRY_S) - 1)] if peer in self._dialers else 0.02)
                tries += 1
        finally:
            with self._changed:
                self._awaited.discard(key)
                late = self._arrived.pop(key, None)  # it called while we did, or while the wait ended
            if late is not None:
                late.close()

    def take(self, peer: str, job_id: str, pipe: StreamPipe) -> None:
        """Hand a call of ``peer`` to whoever awaits it here; waits a moment for somebody to do so.

        Raises:
            PeerError: nobody does (``E_NOT_WAITING``).
        """
        if not self._expects(peer, job_id):
            raise _not_waiting(peer)
        key = (peer, job_id)
        limit = time.monotonic() + CONNECT_S / 2
        with self._changed:
            while key not in self._awaited:
                left = limit - time.monotonic()
                if left <= 0 or self._stopping.is_set() or pipe.ended:
                    raise _not_waiting(peer)
                self._changed.wait(min(left, 0.05))
            stale = self._arrived.pop(key, None)
            self._arrived[key] = pipe
            self._changed.notify_all()
        if stale is not None:
            stale.close()

    def stop(self) -> None:
        """Close the calls that nobody has taken."""
        with self._changed:
            pipes = list(self._arrived.values())
            self._changed.notify_all()
        for pipe in pipes:
            pipe.close()

    def _try(self, peer: str, job_id: str, key: tuple[str, str], waiting: Waiting) -> tuple[StreamPipe | None, str]:
        """The peer's call if it has come, or our own if we dial it; else None, and the cause as the end of a sentence."""
        with self._changed:
            if key in self._arrived:
                return self._arrived.pop(key), ""
        dialer = self._dialers.get(peer)
        if dialer is None:
            with self._changed:
                self._changed.wait(0.2)
                return self._arrived.pop(key, None), ""
        try:
            pipe = dialer.converse(job_id, timeout_s=CONNECT_S, check=waiting.check)
            try:
                self._check(peer, pipe)
            except PolicyError:
                pipe.close()
                raise
            return pipe, ""
        except (PeerError, PolicyError) as error:
            waiting.check()  # perhaps that has ended the call
            with self._changed:  # it may have called meanwhile
                return self._arrived.pop(key, None), f": {error.message}"


def _not_waiting(peer: str) -> PeerError:
    return PeerError(
        f"{peer} asked about a job that is not waiting here",
        code="E_NOT_WAITING",
        for_peer="this job is not waiting for a conversation here",
    )
