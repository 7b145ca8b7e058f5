"""The ledgers with a node's partners, as JSON and as a page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route


class LedgerView(Protocol):
    """What these routes need of a node; its methods may be called from several threads."""

    def ledgers(self, since: str = "") -> list[dict[str, Any]]:
        """The ledger with each partner (:func:`vfl_node.node.ledgers.describe_all`)."""


def list_ledger_routes(view: LedgerView, show: Callable[[], Response]) -> list[Route]:
    """The routes of a node that is seen so; ``show``: the page."""

    def read(request: Request) -> Response:
        return JSONResponse({"ledgers": view.ledgers(request.query_params.get("since", ""))})

    def look(request: Request) -> Response:
        return show()

    return [Route("/api/ledger", read), Route("/ledger", look)]
