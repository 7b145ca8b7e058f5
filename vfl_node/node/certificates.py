"""Whether certificates still hold while links are up.

A link ends, with the cause, when the certificate of either side has expired, and when nobody vouches for the peer's any more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timezone

import structlog
from cryptography import x509

from vfl_node.errors import PeerLost, PolicyError, UsageError, VflError
from vfl_node.node.peer_state import PeerState, days_left
from vfl_node.transport.credentials import Credentials
from vfl_node.transport.dialer import Dialer
from vfl_node.transport.identity import MALFORMED
from vfl_node.transport.link_stream import LinkStream

log = structlog.get_logger()

LOOK_S = 20.0
"""How often they are checked: a job that waits names the cause within a minute."""


class CertificateWatch:
    """Checks the certificates of this node and of its peers against this node's clock.

    Args:
        credentials: of this node, as they were when it started.
        dialers: of the peers that it dials, whose certificates a stream does not show.
        states: of all peers.
        down: called with (peer, cause, code) for each peer without a link while this node's own certificate cannot be used.
        cut: called with (peer, error) for each peer for whose certificate nobody vouches any more: its conversations end.
        clock: gives the time, in UTC.
        renew: called with the end of this node's own certificate and the time, before each check.
        looked: called after each check.

    Attributes:
        fault: why this node's own certificate cannot be used now; empty if it can.
    """

    def __init__(
        self,
        credentials: Credentials,
        dialers: Mapping[str, Dialer],
        states: Mapping[str, PeerState],
        down: Callable[[str, str, str], None],
        cut: Callable[[str, VflError], None],
        clock: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
        renew: Callable[[datetime, datetime], None] = lambda until, now: None,
        looked: Callable[[], None] = lambda: None,
    ) -> None:
        self.fault = ""
        self._credentials, self._dialers, self._states = credentials, dialers, states
        self._down, self._cut, self._clock = down, cut, clock
        self._renew, self._looked = renew, looked
        self._warned = clock().date()  # there was a warning when they were read

    @property
    def days(self) -> int | None:
        """For how many days this node's own certificate is still valid, as it was when it was last read."""
        return days_left(self._credentials.validity)

    def list_ends(self) -> Iterator[tuple[str, str, datetime]]:
        """Party, kind and end of each certificate that is known: this node's own and its authorities', and those of links."""
        own = self._credentials
        if own.validity:
            yield own.name, "leaf", own.validity.until
        pinned = {peer: pem for peer, pem in own.pins.items() if pem}
        for party, pem in {own.name: own.authority, **pinned}.items():
            with suppress(*MALFORMED):
                authorities = x509.load_pem_x509_certificates(pem)
                yield party, "authority", max(each.not_valid_after_utc for each in authorities)
        for peer, state in list(self._states.items()):
            if (link := state.link) and (validity := link.validity):
                yield peer, "leaf", validity.until

    def find_crl_due(self) -> datetime | None:
        """When the first list of revoked certificates is due; None: there is none, or it cannot be read."""
        lists = self._credentials.lists
        with suppress(UsageError):
            due = [each.next_update_utc for each in lists.read()] if lists else []
            return min((moment for moment in due if moment), default=None)
        return None

    def start(self, stopping: threading.Event) -> None:
        """Check until ``stopping`` is set."""
        threading.Thread(target=self._watch, args=(stopping,), name="certificates", daemon=True).start()

    def look(self) -> None:
        """Check once: end the links that have no valid certificate at both ends, and warn once a day of an early expiry."""
        now = self._clock()
        if self._credentials.validity:
            self._renew(self._credentials.validity.until, now)
        earlier, before, self.fault = self._credentials.validity, self.fault, ""
        self._credentials = own = self._credentials.current(now)
        if own.validity:
            fault = own.validity.fault(f"this node's certificate {own.files.certificate}", now)
            self.fault = before if fault and before and own.validity == earlier else fault  # the same one is no news
            warning = own.validity.warning(str(own.files.certificate), now)
            if warning and not self.fault and now.date() != self._warned:
                log.warning(warning)
                self._warned = now.date()
        for peer, state in list(self._states.items()):
            self._look_at(peer, state, before, now)
        self._looked()

    def _look_at(self, peer: str, state: PeerState, before: str, now: datetime) -> None:
        link = state.link
        if link is None:
            if self.fault or (before and state.cause == before):
                self._down(peer, self.fault, "E_CERTIFICATE" if self.fault else "")
            return
        if not link.shown and (dialer := self._dialers.get(peer)):
            link.shown = dialer.shown()
        name, own = self._credentials.name, self._credentials.validity
        for whose, cause, validity in (
            (name, self.fault, own),
            (peer, link.validity and link.validity.fault(f"{peer}'s certificate", now), link.validity),
        ):
            if cause and validity:
                told = validity.fault(f"the certificate of {whose}", now, clock="its clock")
                link.part(told, PeerLost(cause, code="E_CERTIFICATE"))
                return
        if link.shown:
            try:
                self._credentials.check_peer(peer, link.shown, now)
            except PolicyError as error:
                if error.code == "E_CRL":
                    return  # no new link begins
                lost = PeerLost(error.message, code=error.code)
                if not self._was_vouched_for(peer, link, state.since):
                    self._cut(peer, lost)
                link.part(error.for_peer, lost)

    def _was_vouched_for(self, peer: str, link: LinkStream, since: float) -> bool:
        """Whether who vouches for ``peer`` now did so when the link began: then only an authority has ended since."""
        try:
            self._credentials.check_peer(peer, link.shown, self._clock(), since=datetime.fromtimestamp(since, timezone.utc))
        except PolicyError as error:
            return error.code == "E_CRL"
        return True

    def _watch(self, stopping: threading.Event) -> None:
        while not stopping.wait(LOOK_S):
            try:
                self.look()
            except Exception:
                log.exception("internal error")  # the watch must outlive it
