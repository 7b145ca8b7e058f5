"""The gate before each route: it finds out who asks, and lets in those whom :data:`vfl_node.web.roles.ROWS` allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from vfl_node.errors import PolicyError
from vfl_node.trust.people import OWNER
from vfl_node.web.access import Access, Caller
from vfl_node.web.roles import ROWS, Admission


def guard(routes: Sequence[Route], access: Access, rows: Mapping[str, Admission] = ROWS) -> list[Route]:
    """The ``routes``, each behind its gate.

    Args:
        routes: of the port.
        access: the keys of the node.
        rows: who may use which.

    Raises:
        LookupError: a route has no row.
    """
    for route in routes:
        found = {}
        for method in sorted((route.methods or set()) - {"HEAD"}):
            name = f"{method} {route.path}"
            if name not in rows:
                raise LookupError(f"nobody has said who may use {name}: add a row to vfl_node/web/roles.py")
            found[method] = rows[name]
        route.app = Gate(route.app, found, access)
    return list(routes)


def caller_of(request: Request) -> Caller | None:
    """Who asks; None: somebody without credentials, at a route that is everybody's."""
    found: Caller | None = request.state.caller
    return found


def person_of(request: Request) -> str | None:
    """The name of the person who asks; None: the owner."""
    caller = caller_of(request)
    return None if caller is None or caller.person == OWNER else caller.person


def check_own(request: Request, job: Mapping[str, Any]) -> None:
    """Raises PolicyError (``E_FORBIDDEN``) if who asks may do this with own jobs only, and ``job`` is not one of these."""
    caller, gate = caller_of(request), request.state.gate
    roles = caller.roles if caller else frozenset()
    if not gate.row(request).admits_to_all(roles) and job["by"] != person_of(request):
        raise PolicyError("this job is another person's", code="E_FORBIDDEN", hint="its submitter, or an approver, may do this")


def may_still(request: Request) -> bool:
    """Whether who asks may still use the route: a token may have been revoked, or a cookie be too old, since the gate."""
    gate: Gate = request.state.gate
    return gate.admits(request)


class Gate:
    """The gate of one route.

    Args:
        app: the route's own.
        rows: method → who may use it.
        access: the keys of the node.
    """

    def __init__(self, app: ASGIApp, rows: Mapping[str, Admission], access: Access) -> None:
        self._app, self._rows, self._access = app, rows, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on.

        Raises:
            HTTPException: it has no credentials (401), or nobody has access (403).
            PolicyError: its roles do not suffice (``E_FORBIDDEN``).
        """
        request = Request(scope)
        request.state.gate = self
        request.state.caller = self._admit(request)
        await self._app(scope, receive, send)

    def admits(self, request: Request) -> bool:
        """Whether the request may pass."""
        row = self.row(request)
        caller = self._access.identify(request, row.browser)
        return row.admits(caller.roles if caller else frozenset())

    def _admit(self, request: Request) -> Caller | None:
        row = self.row(request)
        caller = self._access.identify(request, row.browser)
        if row.roles is None:
            return caller
        if caller is None:
            raise HTTPException(403 if self._access.closed and row.browser != "looks" else 401)
        if not row.admits(caller.roles):
            needed = " or ".join(sorted(row.roles))
            raise PolicyError(
                f"{caller.person} may not do this", code="E_FORBIDDEN", hint=f"it needs a token with the role {needed}"
            )
        return caller

    def row(self, request: Request) -> Admission:
        """Who may use the route with the method of this request."""
        return self._rows["GET" if request.method == "HEAD" else request.method]
