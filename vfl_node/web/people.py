"""Routes with which a node's owner gives people tokens, and takes them back (:mod:`vfl_node.web.roles`)."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from vfl_node.errors import UsageError
from vfl_node.trust.tokens import Tokens


def list_token_routes(tokens: Tokens) -> list[Route]:
    """The routes of a node with these ``tokens``."""
    ends = _TokenEnds(tokens)
    return [
        Route("/api/tokens", ends.create, methods=["POST"]),
        Route("/api/tokens", ends.list, methods=["GET"]),
        Route("/api/tokens/{name}", ends.revoke, methods=["DELETE"]),
    ]


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
        token = self._tokens.create(name, list(filter(None, roles.split(","))), days)
        (kept,) = [kept for kept in self._tokens.tokens() if kept["name"] == name]
        return JSONResponse(kept | {"token": token}, 201)

    def list(self, request: Request) -> Response:
        return JSONResponse({"tokens": self._tokens.tokens()})

    def revoke(self, request: Request) -> Response:
        self._tokens.revoke(request.path_params["name"])
        return JSONResponse({"status": "ok"})
