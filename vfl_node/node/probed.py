"""Answers the probes of peers: one at a time, and one a minute of each, within limits of time and bytes."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from hashlib import sha256

from vfl_node.crypto.kernels import kernel
from vfl_node.errors import PeerLost, PolicyError, ProtocolError
from vfl_node.node.peer_state import greeting
from vfl_node.settings.node import Settings
from vfl_node.transport.bounds import MOST_PROBE_BYTES
from vfl_node.transport.generated.vfl.v1.session_pb2 import ProbeMessage
from vfl_node.transport.probes import (
    HOLD_S,
    NO_ADDRESS,
    NOT_REACHED,
    PROBE_BYTES,
    PROBE_EVERY_S,
    PROBE_S,
    REACHED,
    ProbeStream,
)

LOOK_S = 2.0
"""How often it is checked, while a probe is kept open, whether its caller is still a peer."""

_HEAD_BYTES = 1024  # of a message beside its random bytes


class Probed:
    """The probed side. Safe to use from several threads.

    Args:
        settings: of this node.
        reaches: whether this node reaches a peer at the address that it has; None: it has none.
        clock: monotonic seconds.
    """

    def __init__(
        self, settings: Settings, reaches: Callable[[str], bool | None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings, self._reaches, self._clock = settings, reaches, clock
        self._lock = threading.Lock()
        self._measuring = ""  # the peer whose probe is at work
        self._open: set[str] = set()  # peers whose probes are open, also in silence
        self._begun: dict[str, float] = {}

    def answer(self, peer: str, stream: ProbeStream) -> None:
        """Answer one probe until its end.

        Raises:
            PolicyError: this peer has probed within a minute, or another one does so now (``E_BUSY``).
            ProtocolError: it asks for more than a probe may have.
            PeerLost: the stream has ended.
        """
        self._begin(peer)
        try:
            try:
                last = self._measure(peer, stream)
            finally:
                with self._lock:
                    self._measuring = ""
            self._hold(peer, stream, last)
        finally:
            stream.close()
            with self._lock:
                self._open.discard(peer)

    def _begin(self, peer: str) -> None:
        with self._lock:
            left = self._begun.get(peer, -PROBE_EVERY_S) + PROBE_EVERY_S - self._clock()
            if self._measuring or peer in self._open or left > 0:
                when = f"in {left:.0f} s" if left > 0 else "in a moment"
                text = f"a peer may probe once in {PROBE_EVERY_S:.0f} s, and one at a time: try again {when}"
                raise PolicyError(text, code="E_BUSY", for_peer=text)
            self._measuring, self._begun[peer] = peer, self._clock()
            self._open.add(peer)

    def _measure(self, peer: str, stream: ProbeStream) -> ProbeMessage:
        """Answer questions until one wants silence, which is returned. Raises as :meth:`answer`."""
        over = PeerLost(f"a probe may take {PROBE_S:.0f} s")
        limit = threading.Timer(PROBE_S, stream.cancel, (over,))
        limit.daemon = True
        limit.start()
        try:
            stream.send(ProbeMessage(hello=greeting(self._settings).hello, kernel=kernel().name))
            heard = said = dialled = 0
            while True:
                stream.most_bytes = min(MOST_PROBE_BYTES, PROBE_BYTES - heard) + _HEAD_BYTES
                question = stream.receive(PROBE_S)
                if question is None:
                    raise over
                at = _now_us()
                heard += len(question.random)
                said += question.wanted_bytes
                if question.wanted_bytes > MOST_PROBE_BYTES or max(heard, said) > PROBE_BYTES:
                    raise ProtocolError(f"{peer} wants more bytes than a probe may have", code="E_SIZE")
                if question.hold_s:
                    return question
                answer = ProbeMessage(number=question.number, heard_us=at, random=os.urandom(question.wanted_bytes))
                if question.random or answer.random:
                    answer.sha256 = sha256(question.random + answer.random).digest()
                if question.dial_back and not dialled:  # once: it takes seconds
                    dialled = {None: NO_ADDRESS, True: REACHED, False: NOT_REACHED}[self._reaches(peer)]
                answer.dialled = dialled if question.dial_back else 0
                answer.answered_us = _now_us()
                stream.send(answer)
        finally:
            limit.cancel()

    def _hold(self, peer: str, stream: ProbeStream, last: ProbeMessage) -> None:
        """Say nothing for as long as was asked, then answer. Raises as :meth:`answer`."""
        until = self._clock() + min(last.hold_s, HOLD_S)
        while (left := until - self._clock()) > 0:
            if peer not in self._settings.connected:
                text = f"{peer} is no peer any more"
                raise PolicyError(text, code="E_IDENTITY", for_peer=text)
            if stream.receive(min(LOOK_S, left)) is not None:
                raise ProtocolError(f"{peer} speaks where it has asked for silence")
        stream.send(ProbeMessage(number=last.number, answered_us=_now_us()))


def _now_us() -> int:
    return time.time_ns() // 1000
