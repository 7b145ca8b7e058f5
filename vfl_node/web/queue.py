"""The queue of a node over HTTP: the priority of a job that is submitted, and whether the node begins nothing new."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from vfl_node.errors import UsageError

PRIORITIES = range(-2, 3)
"""That a job of this owner may have."""


class QueueView(Protocol):
    """The queue of a node."""

    def drain(self, *, on: bool) -> None:
        """Begin nothing new from now on, or begin again. Raises VflError."""


def read_priority(query: Mapping[str, str]) -> int:
    """The priority that a request gives its job; 0 where it gives none. Raises UsageError (``E_REQUEST``)."""
    known = {str(priority): priority for priority in PRIORITIES}
    if (text := query.get("priority", "0")) not in known:
        raise UsageError(f"priority is one of {', '.join(known)}", code="E_REQUEST")
    return known[text]


def list_queue_routes(view: QueueView) -> list[Route]:
    """The routes of a node."""

    def answer(request: Request) -> Response:
        on = request.method == "POST"
        view.drain(on=on)
        return JSONResponse({"draining": on})

    return [Route("/api/drain", answer, methods=["POST", "DELETE"])]
