"""Offers that are sent over links, and the replies to them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from vfl_node.errors import PeerError, PeerLost
from vfl_node.node.calls import Waiting
from vfl_node.node.peer_state import PeerState
from vfl_node.session.preflight import SAME_VERSION
from vfl_node.transport.generated.vfl.v1.session_pb2 import Notice
from vfl_node.transport.link_stream import LinkStream


class Questions:
    """What is asked over the links. Safe to use from several threads.

    Args:
        states: of the peers.
        changed: guards them; notified when a link comes up or goes down.
        send: sends a notice to a peer over its link; raises PeerLost.
    """

    def __init__(
        self,
        states: Mapping[str, PeerState],
        changed: threading.Condition,
        send: Callable[[str, LinkStream, Notice], None],
    ) -> None:
        self._states, self._changed, self._send = states, changed, send

    def ask(self, peer: str, notice: Notice, *, key: str, waiting: Waiting, deadline: float) -> Notice:
        """Send an offer once the link is up and wait for the reply to ``key``.

        Raises:
            PeerLost: no reply until ``deadline`` (monotonic seconds; ``E_PEER_ABSENT``).
            PeerError: the peer speaks another version of the protocol (``E_VERSION``).
            VflError: what ``waiting`` raises.
        """
        state = self._states[peer]
        try:
            while True:
                waiting.check()
                self.check_version(peer)
                with self._changed:
                    link = state.link
                    state.asked.add(key)
                    state.replies.pop(key, None)
                if link is not None:
                    try:
                        self._send(peer, link, notice)
                        reply = self._reply(peer, key, link, waiting, deadline)
                        if reply is not None:
                            return reply
                    except PeerLost:
                        pass
                if time.monotonic() > deadline:
                    raise self._silence(state)
                waiting.wait(0.1)
        finally:
            with self._changed:
                state.asked.discard(key)
                state.replies.pop(key, None)

    def check_version(self, peer: str) -> None:
        """Raise PeerError (``E_VERSION``) if ``peer`` has said that it speaks another version of the protocol."""
        with self._changed:
            state = self._states[peer]
            if state.code == "E_VERSION":
                told = f"{peer} speaks another protocol version"
                raise PeerError(state.cause, code=state.code, hint=SAME_VERSION, for_peer=told)

    def hear(self, peer: str, notice: Notice) -> None:
        """A reply of ``peer`` has come."""
        with self._changed:
            state, key = self._states[peer], notice.offer_reply.job_id
            if key in state.asked:  # else nobody waits for it any more, or ever did
                state.replies[key] = notice
                self._changed.notify_all()

    def _reply(self, peer: str, key: str, link: LinkStream, waiting: Waiting, deadline: float) -> Notice | None:
        state = self._states[peer]
        with self._changed:
            while key not in state.replies and state.link is link and time.monotonic() < deadline:
                waiting.check()
                self._changed.wait(0.1)
            return state.replies.pop(key, None)

    def _silence(self, state: PeerState) -> PeerLost:
        with self._changed:
            text = f"no word from {state.describe()}"
        if state.code == "E_FENCED":
            hint = "two nodes run under one certificate: stop one, then go on: vfl-node resume JOB"
            return PeerLost(text, code="E_FENCED", hint=hint)
        hint = "is that node running, and are its address and certificate right?"
        return PeerLost(text, code="E_PEER_ABSENT", hint=hint)
