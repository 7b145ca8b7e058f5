"""The peers that this node dials: it keeps a link with each of them for as long as it runs, and the peer is one."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable

import structlog

from vfl_node.errors import PeerLost, PolicyError, VflError
from vfl_node.node.calls import CONNECT_S, RETRY_S
from vfl_node.node.peer_state import PeerStates
from vfl_node.settings.node import Settings
from vfl_node.transport.credentials import Credentials
from vfl_node.transport.dialer import Dialer
from vfl_node.transport.link_stream import LinkStream

log = structlog.get_logger()

REVOKED_RETRY_S = 60.0
"""How often a peer is dialled that has revoked this node: its owner may have meant another one."""


class Dialling:
    """Dials peers again and again. Safe to use from several threads.

    Args:
        settings: of this node.
        credentials: its TLS material, or None for plaintext on loopback.
        states: of all peers.
        check: raises PolicyError if a link must not be used.
        serve: serves a link with a peer until it ends.
        down: called with (peer, cause, code) when there is no link.
        stopping: set when the node stops.

    Attributes:
        instance: id of this process.
        dialers: peer → how it is dialled.
        fault: says why this node's own certificate cannot be used now; empty if it can.
    """

    def __init__(
        self,
        settings: Settings,
        credentials: Credentials | None,
        states: PeerStates,
        *,
        check: Callable[[str, LinkStream], None],
        serve: Callable[[str, LinkStream], None],
        down: Callable[[str, str, str], None],
        stopping: threading.Event,
    ) -> None:
        self.instance = secrets.token_hex(16)
        self.fault: Callable[[], str] = lambda: ""
        self._settings, self._credentials, self._states = settings, credentials, states
        self._check, self._serve, self._down, self._stopping = check, serve, down, stopping
        self._started = False
        self._lock = threading.Lock()
        connected = settings.connected.items()
        self.dialers = {name: self._make(name, peer.address) for name, peer in connected if peer.address}

    def start(self) -> None:
        """Dial all of them."""
        with self._lock:
            self._started, dialers = True, dict(self.dialers)
        for name, dialer in dialers.items():
            self._begin(name, dialer)

    def add(self, name: str, address: str) -> None:
        """Dial one more peer."""
        dialer = self._make(name, address)
        with self._lock:
            self.dialers[name] = dialer
            started = self._started
        if started:
            self._begin(name, dialer)

    def remove(self, name: str) -> Dialer | None:
        """Dial a peer no more; returns what has what was opened to it, to be closed. Idempotent."""
        with self._lock:
            return self.dialers.pop(name, None)

    def reaches(self, name: str) -> bool | None:
        """As :meth:`vfl_node.transport.dialer.Dialer.reaches`; None for a peer of which this node has no address."""
        dialer = self.dialers.get(name)
        return dialer.reaches() if dialer else None

    def stop(self) -> None:
        """Close everything that is still open."""
        for dialer in list(self.dialers.values()):
            dialer.close()

    def _make(self, name: str, address: str) -> Dialer:
        own = self._settings
        return Dialer(
            address,
            own=own.name,
            peer=name,
            federation=own.federation,
            credentials=self._credentials,
            instance=self.instance,
        )

    def _begin(self, name: str, dialer: Dialer) -> None:
        threading.Thread(target=self._keep_link, args=(name, dialer), name=f"link-{name}", daemon=True).start()

    def _keep_link(self, peer: str, dialer: Dialer) -> None:
        """Keep a link to a peer for as long as it is dialled by this ``dialer``."""
        failures = 0
        while not self._stopping.is_set() and self.dialers.get(peer) is dialer:
            try:
                if fault := self.fault():
                    raise PeerLost(fault, code="E_CERTIFICATE")  # the peer would only say that it refuses it
                link = dialer.link(timeout_s=CONNECT_S)
                failures, self._states[peer].dialable = 0, True
                try:
                    self._check(peer, link)
                except PolicyError as error:
                    link.close()
                    log.warning(error.message, peer=peer, code=error.code)
                else:
                    self._serve(peer, link)
            except VflError as error:
                if error.code != "E_CALL_BACK" and self.dialers.get(peer) is dialer:
                    self._states[peer].dialable = False
                    if self._states[peer].code != "E_REVOKED":  # of which a refused handshake says nothing
                        self._down(peer, error.message, error.code)
            except Exception:
                log.exception("internal error", peer=peer)  # the link is begun again whatever happened
            revoked = self._states[peer].code == "E_REVOKED"
            self._stopping.wait(REVOKED_RETRY_S if revoked else RETRY_S[min(failures, len(RETRY_S) - 1)])
            failures += 1
