"""Routes with which an owner gives people tokens, takes them back, and reads what they did (:mod:`vfl_node.web.roles`)."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from vfl_node.errors import UsageError
from vfl_node.process.files import fault
from vfl_node.trust.audit_log import AuditLog
from vfl_node.trust.tokens import Tokens
from vfl_node.web.gate import name_object

MOST_READ = 1000
"""Lines of the audit log in one answer."""


def list_token_routes(tokens: Tokens) -> list[Route]:
    """The routes of a node with these ``tokens``."""
    ends = _TokenEnds(tokens)
    return [
        Route("/api/tokens", ends.create, methods=["POST"]),
        Route("/api/tokens", ends.list, methods=["GET"]),
        Route("/api/tokens/{name}", ends.revoke, methods=["DELETE"]),
    ]


def list_audit_routes(audit: AuditLog) -> list[Route]:
    """The route that reads this log."""

    def read(request: Request) -> Response:
        query = request.query_params
        try:
            size, before = int(query.get("size", "100")), int(query["before"]) if "before" in query else None
        except ValueError:
            raise UsageError("size and before are whole numbers", code="E_REQUEST") from None
        if not 1 <= size <= MOST_READ:
            raise UsageError(f"size is from 1 to {MOST_READ}", code="E_REQUEST")
        try:
            return JSONResponse({"lines": audit.newest(size, before)})
        except OSError as error:
            raise fault(error) from None

    return [Route("/api/audit-log", read)]


class _TokenEnds:
    """The endpoints, on worker threads."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    def create(self, request: Request) -> Response:
        query = request.query_params
        try:
            days = int(query.get("days", "90"))
        except ValueError:
            raise UsageError("days is a whole number", code="E_REQUEST") from None
        name, roles = query.get("name", ""), query.get("roles", "")
        name_object(request, name)
        token = self._tokens.create(name, list(filter(None, roles.split(","))), days)
        (kept,) = [kept for kept in self._tokens.tokens() if kept["name"] == name]
        return JSONResponse(kept | {"token": token}, 201)

    def list(self, request: Request) -> Response:
        return JSONResponse({"tokens": self._tokens.tokens()})

    def revoke(self, request: Request) -> Response:
        self._tokens.revoke(request.path_params["name"])
        return JSONResponse({"status": "ok"})
