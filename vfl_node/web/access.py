"""Who asks at the HTTP port: by the node's token, a person's token, the owner's socket, or a link that let a browser in once.

A link has a ticket after ``#``, a part that a browser never sends. The page posts the ticket once and gets a cookie, which
allows reading until it expires, and besides only what a button on a page of the board does, such as cancel. The cookie is its
time of expiry, the person who let the browser in, and the HMAC of both under the node's token. So nothing is stored, and a new
token of the node makes all cookies invalid. A cookie of a person has this person's roles, and ends with this person's token.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from starlette.requests import Request

from vfl_node.trust.people import OWNER, Nobody, People, Person, PersonRole
from vfl_node.web.roles import Browser

TICKET_S = 3600
"""How long a ticket can be used."""

COOKIE_S = 12 * 3600
"""How long a browser may read, and cancel."""

MOST_TICKETS = 32
"""Number of unused tickets; beyond it the oldest are deleted."""


@dataclass(frozen=True)
class Caller:
    """Who asks.

    Attributes:
        person: the name.
        roles: what this person may do.
        how: by what that is known.
    """

    person: str
    roles: frozenset[PersonRole]
    how: Literal["socket", "token", "cookie"]


_ADMIN: frozenset[PersonRole] = frozenset(("admin",))


class Access:
    """The keys of one node; safe to use from several threads.

    Args:
        token: the secret of the owner's programs; None: nobody has access.
        party: the node's name; it keeps the cookies of several nodes at one host apart.
        clock: seconds since the epoch.
        people: those who have tokens of their own.
    """

    def __init__(
        self,
        token: str | None,
        *,
        party: str = "node",
        clock: Callable[[], float] = time.time,
        people: People | None = None,
    ) -> None:
        self.cookie = f"vfl-board-{party}"
        self._token = token.encode() if token else b""
        self._clock = clock
        self._people = people or Nobody()
        self._lock = threading.Lock()
        self._tickets: dict[bytes, tuple[float, str]] = {}  # digest → time of expiry, person

    @property
    def closed(self) -> bool:
        """Whether nobody has access."""
        return not self._token

    def ticket(self, person: str = OWNER) -> str:
        """A new ticket, for one browser of this ``person``."""
        ticket = secrets.token_urlsafe(24)
        with self._lock:
            while len(self._tickets) >= MOST_TICKETS:
                del self._tickets[next(iter(self._tickets))]
            self._tickets[_digest(ticket)] = (self._clock() + TICKET_S, person)
        return ticket

    def redeem(self, ticket: str) -> str | None:
        """The cookie for a ticket, which can be used only once; None if the ticket is invalid, used or too old."""
        with self._lock:
            ends, name = self._tickets.pop(_digest(ticket), (0.0, OWNER))
        person = self._get(name)
        if self.closed or person is None or self._clock() > ends:
            return None
        until = str(int(self._clock()) + COOKIE_S)
        return f"{until}.{name}.{self._proof(until, person)}"

    def identify(self, request: Request, browser: Browser) -> Caller | None:
        """Who asks; None: somebody without credentials that count.

        Args:
            request: what is asked.
            browser: what a cookie is good for.
        """
        if self.closed:
            return None
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and (person := self._find(token.strip())):
            return Caller(person.name, person.roles, "token")
        if browser == "looks" or (browser == "presses" and _is_from_a_button(request)):
            person = self._enter(request.cookies.get(self.cookie, ""))
            return Caller(person.name, person.roles, "cookie") if person else None
        return None

    def _find(self, token: str) -> Person | None:
        """Whose token this is."""
        right = hmac.compare_digest(token.encode(), self._token)
        return self._get(OWNER) if right else self._people.find(token)

    def _enter(self, cookie: str) -> Person | None:
        """Whose cookie this is, if it has not expired."""
        until, name, proof = [*cookie.split("."), "", "", ""][:3]
        person = self._get(name)
        right = hmac.compare_digest(proof.encode(), self._proof(until, person).encode()) if person else False
        return person if right and self._clock() < int(until) else None

    def _get(self, name: str) -> Person | None:
        return Person(OWNER, _ADMIN) if name == OWNER else self._people.get(name)

    def _proof(self, until: str, person: Person) -> str:
        content = f"board until {until} for {person.name} {person.mark}"
        return hmac.new(self._token, content.encode(), "sha256").hexdigest()


class OwnersSocket(Access):
    """Access over the owner's socket. The operating system lets only the owner open it, so everything is allowed.

    Args:
        of: the node's access over the port, which issues tickets.
    """

    def __init__(self, access: Access) -> None:
        super().__init__(None)
        self._of = access

    def ticket(self, person: str = OWNER) -> str:
        """A new ticket, for the port."""
        return self._of.ticket(person)

    @property
    def closed(self) -> bool:
        """Never."""
        return False

    def identify(self, request: Request, browser: Browser) -> Caller | None:
        """The owner."""
        return Caller(OWNER, _ADMIN, "socket")


def _is_from_a_button(request: Request) -> bool:
    """Whether a button on a page of this node asks. The header names it: it is the last word of the path, such as cancel.

    A form cannot send the header. A script of another site can only if this node allowed that, which it never does;
    and whatever a browser sends names the site that it comes from.
    """
    headers = request.headers
    own = headers.get("origin", "").partition("://")[2] == headers.get("host")
    here = own and headers.get("sec-fetch-site", "same-origin") == "same-origin"
    return here and headers.get("x-vfl-board") == request.url.path.rpartition("/")[2]


def _digest(ticket: str) -> bytes:
    return hashlib.sha256(ticket.encode()).digest()
