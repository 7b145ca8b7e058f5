"""Access to a node, for reading or for everything: the node's token, its owner's socket, and links that let a browser in once.

A link has a ticket after ``#``, a part that a browser never sends. The page posts the ticket once and gets a cookie, which
allows reading until it expires, and besides only that a page of the board itself cancels a job. The cookie is its time of
expiry and the HMAC of that under the token. So nothing is stored, and a new token makes all cookies invalid.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Callable

from starlette.requests import Request

TICKET_S = 3600
"""How long a ticket can be used."""

COOKIE_S = 12 * 3600
"""How long a browser may read, and cancel."""

MOST_TICKETS = 32
"""Number of unused tickets; beyond it the oldest are deleted."""


class Access:
    """The keys of one node; safe to use from several threads.

    Args:
        token: the secret that programs send; None: nobody has access.
        party: the node's name; it keeps the cookies of several nodes at one host apart.
        clock: seconds since the epoch.
    """

    def __init__(self, token: str | None, *, party: str = "node", clock: Callable[[], float] = time.time) -> None:
        self.cookie = f"vfl-board-{party}"
        self._token = token.encode() if token else b""
        self._clock = clock
        self._lock = threading.Lock()
        self._tickets: dict[bytes, float] = {}  # digest → time of expiry

    @property
    def closed(self) -> bool:
        """Whether nobody has access."""
        return not self._token

    def ticket(self) -> str:
        """A new ticket, for one browser."""
        ticket = secrets.token_urlsafe(24)
        with self._lock:
            while len(self._tickets) >= MOST_TICKETS:
                del self._tickets[next(iter(self._tickets))]
            self._tickets[_digest(ticket)] = self._clock() + TICKET_S
        return ticket

    def redeem(self, ticket: str) -> str | None:
        """The cookie for a ticket, which can be used only once; None if the ticket is invalid, used or too old."""
        with self._lock:
            ends = self._tickets.pop(_digest(ticket), 0.0)
        if self.closed or self._clock() > ends:
            return None
        until = str(int(self._clock()) + COOKIE_S)
        return f"{until}.{self._proof(until)}"

    def may_act(self, request: Request) -> bool:
        """Whether the request has the token."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        right = hmac.compare_digest(token.strip().encode(), self._token)
        return right and scheme.lower() == "bearer" and not self.closed

    def may_look(self, request: Request) -> bool:
        """Whether the request has the token, or a cookie that has not expired."""
        until, _, proof = request.cookies.get(self.cookie, "").partition(".")
        right = hmac.compare_digest(proof.encode(), self._proof(until).encode())
        return self.may_act(request) or (right and not self.closed and self._clock() < int(until))

    def may_press(self, request: Request) -> bool:
        """Whether the request may act, or has a cookie that has not expired and comes from a button on a page of this node.

        The header names the button, which is the last word of the address: cancel, approve or refuse.
        A form cannot send the header. A script of another site can only if this node allowed that, which it never does;
        and whatever a browser sends names the site that it comes from.
        """
        headers = request.headers
        own = headers.get("origin", "").partition("://")[2] == headers.get("host")
        here = own and headers.get("sec-fetch-site", "same-origin") == "same-origin"
        pressed = headers.get("x-vfl-board") == request.url.path.rpartition("/")[2]
        return self.may_act(request) or (here and pressed and self.may_look(request))

    def _proof(self, until: str) -> str:
        return hmac.new(self._token, b"board until " + until.encode(), "sha256").hexdigest()


class OwnersSocket(Access):
    """Access over the owner's socket. The operating system lets only the owner open it, so everything is allowed.

    Args:
        of: the node's access over the port, which issues tickets.
    """

    def __init__(self, access: Access) -> None:
        super().__init__(None)
        self._of = access

    def ticket(self) -> str:
        """A new ticket, for the port."""
        return self._of.ticket()

    @property
    def closed(self) -> bool:
        """Never."""
        return False

    def may_act(self, request: Request) -> bool:
        """Always."""
        return True

    def may_look(self, request: Request) -> bool:
        """Always."""
        return True


def _digest(ticket: str) -> bytes:
    return hashlib.sha256(ticket.encode()).digest()
