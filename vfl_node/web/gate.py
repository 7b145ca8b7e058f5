"""The gate before each route: it finds out who asks, lets in those whom :data:`vfl_node.web.roles.ROWS` allows, and records it.

Everything but reading is recorded when its answer begins, and so is every refusal. An answer waits until its line is written.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from vfl_node.errors import PolicyError
from vfl_node.process.counters import HTTP_REQUESTS, HTTP_SECONDS, LOGINS
from vfl_node.trust.audit_log import AuditLog, Deed
from vfl_node.trust.people import OWNER
from vfl_node.web.access import Access, Caller
from vfl_node.web.roles import ROWS, Admission
from vfl_node.web.together import Together

log = structlog.get_logger()


def guard(
    routes: Sequence[Route], access: Access, audit: AuditLog | None = None, rows: Mapping[str, Admission] = ROWS
) -> list[Route]:
    """The ``routes``, each behind its gate.

    Args:
        routes: of the port.
        access: the keys of the node.
        audit: where it is recorded; None: nowhere.
        rows: who may use which.

    Raises:
        LookupError: a route has no row.
    """
    recorder = Together(audit.add_all) if audit else None
    for route in routes:
        found = {}
        for method in sorted((route.methods or set()) - {"HEAD"}):
            name = f"{method} {route.path}"
            if name not in rows:
                raise LookupError(f"nobody has said who may use {name}: add a row to vfl_node/web/roles.py")
            found[method] = rows[name]
        route.app = Gate(route, found, access, recorder)
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


def name_object(request: Request, name: str) -> None:
    """Have the audit log say what the request was about, where its path does not: the id of a new job, the name of a person."""
    request.state.object = name


class Gate:
    """The gate of one route.

    Args:
        route: the route.
        rows: method → who may use it.
        access: the keys of the node.
        recorder: records it; None: nobody does.
    """

    def __init__(
        self, route: Route, rows: Mapping[str, Admission], access: Access, recorder: Together[Deed, None] | None
    ) -> None:
        self._app, self._pattern = route.app, route.path
        self._rows, self._access, self._recorder = rows, access, recorder

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As :meth:`_pass`, and count it."""
        began, counted = time.monotonic(), False

        def count(status: int) -> None:
            nonlocal counted
            if not counted:
                counted = True
                HTTP_REQUESTS.series(self._pattern, scope["method"], str(status)).inc()
                HTTP_SECONDS.series(self._pattern).observe(time.monotonic() - began)

        async def note(message: Message) -> None:
            if message["type"] == "http.response.start":
                count(message["status"])
            await send(message)

        try:
            await self._pass(scope, receive, note)
        except HTTPException as refused:
            count(refused.status_code)
            raise
        except PolicyError:
            count(403)
            raise

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on.

        Raises:
            HTTPException: it has no credentials (401), or nobody has access (403).
            PolicyError: its roles do not suffice (``E_FORBIDDEN``).
        """
        request = Request(scope)
        row = self.row(request)
        request.state.gate = self
        request.state.caller = self._access.identify(request, row.browser)
        if request.state.caller is None and "authorization" in request.headers:
            LOGINS.series("token", "refused").inc()
        refused = self._refuse(row, request.state.caller)
        log.debug("request", method=request.method, route=self._pattern, refused=refused is not None)
        if refused is not None:
            await self._record(request, refused.status_code if isinstance(refused, HTTPException) else 403)
            raise refused
        if self._recorder is None or (request.method in ("GET", "HEAD") and not row.recorded):
            await self._app(scope, receive, send)
            return
        await self._app_recorded(request, scope, receive, send)

    def admits(self, request: Request) -> bool:
        """Whether the request may pass."""
        row = self.row(request)
        caller = self._access.identify(request, row.browser)
        return row.admits(caller.roles if caller else frozenset())

    def row(self, request: Request) -> Admission:
        """Who may use the route with the method of this request."""
        return self._rows["GET" if request.method == "HEAD" else request.method]

    def _refuse(self, row: Admission, caller: Caller | None) -> HTTPException | PolicyError | None:
        """Why this caller may not pass; None: it may."""
        if row.roles is None:
            return None
        if caller is None:
            return HTTPException(403 if self._access.closed and row.browser != "looks" else 401)
        if row.admits(caller.roles):
            return None
        needed = " or ".join(sorted(row.roles))
        return PolicyError(
            f"{caller.person} may not do this", code="E_FORBIDDEN", hint=f"it needs a token with the role {needed}"
        )

    async def _app_recorded(self, request: Request, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and record with which status it is answered, before it is."""
        recorded = False

        async def note(message: Message) -> None:
            nonlocal recorded
            if message["type"] == "http.response.start" and not recorded:
                recorded = True
                await self._record(request, message["status"])
            await send(message)

        try:
            await self._app(scope, receive, note)
        except Exception:
            if not recorded:
                await self._record(request, 500)
            raise

    async def _record(self, request: Request, status: int) -> None:
        if self._recorder is None:
            return
        caller = caller_of(request)
        deed = Deed(
            person=caller.person if caller else "",
            how=caller.how if caller else "",
            address=request.client.host if request.client and not (caller and caller.how == "socket") else "",
            method=request.method,
            route=self._pattern,
            object=getattr(request.state, "object", "") or " ".join(map(str, request.path_params.values())),
            result=status,
        )
        await self._recorder.ask(deed)
