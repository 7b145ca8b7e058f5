"""Routes with which a node's owner invites, takes up and revokes peers (:mod:`vfl_node.web.roles`)."""

from __future__ import annotations

from typing import Any, Protocol

from pydantic import TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from vfl_node.errors import UsageError
from vfl_node.job import Name
from vfl_node.settings.node import Address


class TrustView(Protocol):
    """What these routes need of a node; its methods may be called from several threads."""

    def invite(self, minutes: float, address: str, only: str) -> dict[str, Any]:
        """Open an invite; its address and code. Raises VflError."""

    def invite_status(self) -> dict[str, Any]:
        """left (tries of the open invite, 0: none is open) and met (who has joined by the latest one, or empty)."""

    def close_invite(self) -> None:
        """End the invite. Idempotent."""

    def admit(self, name: str) -> None:
        """Take up a peer whose file pairing has written. Raises VflError."""

    def revoke(self, name: str, reason: str) -> list[str]:
        """End everything with a peer; the jobs that are paused. Raises VflError."""


def list_routes(view: TrustView) -> list[Route]:
    """The routes of a node."""
    ends = _Ends(view)
    return [
        Route("/api/invite", ends.invite, methods=["POST"]),
        Route("/api/invite", ends.status, methods=["GET"]),
        Route("/api/invite", ends.close, methods=["DELETE"]),
        Route("/api/peers/{name}", ends.admit, methods=["POST"]),
        Route("/api/peers/{name}/revoke", ends.revoke, methods=["POST"]),
    ]


class _Ends:
    """The endpoints, on worker threads."""

    def __init__(self, view: TrustView) -> None:
        self._view = view

    def invite(self, request: Request) -> Response:
        query = request.query_params
        try:
            minutes = float(query.get("minutes", "5"))
            address = TypeAdapter(Address).validate_python(query["address"]) if query.get("address") else ""
            only = TypeAdapter(Name).validate_python(query["for"]) if query.get("for") else ""
        except (ValueError, ValidationError):
            raise UsageError("minutes is a number, address is HOST:PORT, for is a party's name", code="E_REQUEST") from None
        return JSONResponse(self._view.invite(minutes, address, only), 201)

    def status(self, request: Request) -> Response:
        return JSONResponse(self._view.invite_status())

    def close(self, request: Request) -> Response:
        self._view.close_invite()
        return JSONResponse({"status": "ok"})

    def admit(self, request: Request) -> Response:
        self._view.admit(_name(request))
        return JSONResponse({"status": "ok"}, 201)

    def revoke(self, request: Request) -> Response:
        return JSONResponse({"paused": self._view.revoke(_name(request), request.query_params.get("reason", ""))})


def _name(request: Request) -> str:
    """The party that the path names. Raises UsageError (``E_REQUEST``) if none can have this name."""
    try:
        return TypeAdapter(Name).validate_python(request.path_params["name"])
    except ValidationError:
        raise UsageError("this is no name of a party", code="E_REQUEST") from None
