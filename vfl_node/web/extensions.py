"""Routes with which an owner asks a partner for more of a budget, and answers such requests (:mod:`vfl_node.web.roles`)."""

from __future__ import annotations

import json
from typing import Any, Protocol

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from vfl_node.errors import UsageError
from vfl_node.web.bodies import read_body
from vfl_node.web.gate import name_object, person_of

MOST_REQUEST_BYTES = 4096

_TEXTS = {"partner", "budget", "until", "reason"}


class ExtensionActs(Protocol):
    """The requests of a node and its peers (:class:`vfl_node.node.extensions.Extensions`)."""

    def list(self) -> list[dict[str, Any]]:
        """The newest ones."""

    def ask(self, partner: str, budget: str, more: float, until: str, reason: str, person: str | None) -> dict[str, Any]:
        """Ask for more. Raises VflError."""

    def approve(self, request_id: str, person: str | None) -> dict[str, Any]:
        """Say yes to a request. Raises VflError."""

    def refuse(self, request_id: str) -> dict[str, Any]:
        """Refuse a request, or take one back. Raises VflError."""


class ExtensionView(Protocol):
    """What these routes need of a node."""

    @property
    def extensions(self) -> ExtensionActs:
        """Its requests; the methods may be called from several threads."""


def list_extension_routes(view: ExtensionView) -> list[Route]:
    """The routes of a node that is seen so."""

    def show(request: Request) -> Response:
        return JSONResponse({"extensions": view.extensions.list()})

    async def ask(request: Request) -> Response:
        said = await _read(request)
        asked = await run_in_threadpool(view.extensions.ask, person=person_of(request), **said)
        name_object(request, asked["id"])
        return JSONResponse(asked, 201)

    def approve(request: Request) -> Response:
        return JSONResponse(view.extensions.approve(request.path_params["request_id"], person_of(request)), 202)

    def refuse(request: Request) -> Response:
        return JSONResponse(view.extensions.refuse(request.path_params["request_id"]), 202)

    return [
        Route("/api/extensions", show, methods=["GET"]),
        Route("/api/extensions", ask, methods=["POST"]),
        Route("/api/extensions/{request_id}/approve", approve, methods=["POST"]),
        Route("/api/extensions/{request_id}/refuse", refuse, methods=["POST"]),
    ]


async def _read(request: Request) -> dict[str, Any]:
    """A JSON object with partner, budget, until and reason as text, and more as a number. Raises UsageError (``E_REQUEST``)."""
    body = await read_body(request, MOST_REQUEST_BYTES)
    try:
        said = json.loads(body or b"")
    except (ValueError, RecursionError):
        said = None
    whole = isinstance(said, dict) and said.keys() == {*_TEXTS, "more"}
    if not (whole and all(isinstance(said[name], str) for name in _TEXTS) and type(said["more"]) in (int, float)):
        raise UsageError("a request is JSON with partner, budget, more, until and reason", code="E_REQUEST")
    return dict(said)
