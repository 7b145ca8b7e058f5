"""Protection against browsers of other sites: the host names that the port answers to, and headers on every answer."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

SECURITY = {
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Headers of every answer that does not set them itself. There is no CORS header: no other site may read anything."""


def problem(status: int, code: str, message: str, hint: str = "", headers: dict[str, str] | None = None) -> JSONResponse:
    """An error as JSON."""
    return JSONResponse({"code": code, "message": message, "hint": hint}, status, headers=SECURITY | (headers or {}))


HOST = re.compile(r"([^:\[\]]+|\[[^\[\]]+\])(?::[0-9]{1,5})?")


class HostGuard:
    """Refuses requests that were not addressed to this machine by a known name.

    DNS rebinding makes the name of another site resolve to this machine, so that its scripts
    count as the same origin. Such a request has the other site's name in ``Host``. An IP
    address cannot be rebound, so all addresses are allowed.
    """

    def __init__(self, app: ASGIApp, *, names: Collection[str]) -> None:
        self._app = app
        self._names = {name.lower() for name in names}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on or answer 421."""
        if scope["type"] == "http" and not self._is_known(Headers(scope=scope).getlist("host")):
            answer = problem(
                421,
                "E_HOST",
                "this port does not answer to the name in the Host header",
                "use the address 127.0.0.1 or localhost, or a name that the node was told to answer to",
            )
            await answer(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _is_known(self, hosts: list[str]) -> bool:
        parts = HOST.fullmatch(hosts[0].lower()) if len(hosts) == 1 else None
        if parts is None:
            return False
        host = parts[1].strip("[]")
        if host in self._names:
            return True
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return False
        return True


class SecurityHeaders:
    """Adds :data:`SECURITY` to every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and complete the head of its answer."""

        async def complete(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, complete)
