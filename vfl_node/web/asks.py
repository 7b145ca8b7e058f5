"""Routes about jobs that wait for this node's owner: what they ask for, and the answer."""

from __future__ import annotations

import json
from typing import Any, Protocol

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from vfl_node.errors import UsageError
from vfl_node.web.bodies import read_body
from vfl_node.web.gate import person_of

MOST_ANSWER_BYTES = 4096
"""Largest answer of an owner, with its note."""


class AskView(Protocol):
    """What these routes need of a node; its methods may be called from several threads."""

    def asks(self) -> list[dict[str, Any]]:
        """The jobs that wait for the owner, oldest first (:meth:`vfl_node.node.approvals.Approvals.asks`)."""

    def show(self, job_id: str) -> dict[str, Any]:
        """What a job asks for (:func:`vfl_node.node.asked_words.describe`). Raises VflError."""

    def approve(self, job_id: str, digits: str, note: str, person: str | None) -> dict[str, Any]:
        """Let a job run, as this person says, or the owner. Raises VflError."""

    def refuse(self, job_id: str, reason: str, note: str, person: str | None) -> dict[str, Any]:
        """Refuse a job, likewise. Raises VflError."""


def list_ask_routes(view: AskView) -> list[Route]:
    """The routes of a node that is seen so."""
    ends = _AskEnds(view)
    return [
        Route("/api/asks", ends.asks, methods=["GET"]),
        Route("/api/jobs/{job_id}/manifest", ends.show, methods=["GET"]),
        Route("/api/jobs/{job_id}/approve", ends.approve, methods=["POST"]),
        Route("/api/jobs/{job_id}/refuse", ends.refuse, methods=["POST"]),
    ]


class _AskEnds:
    """The endpoints. Those that are not coroutines run on worker threads."""

    def __init__(self, view: AskView) -> None:
        self._view = view

    def asks(self, request: Request) -> Response:
        return JSONResponse({"asks": self._view.asks()})

    def show(self, request: Request) -> Response:
        return JSONResponse(self._view.show(request.path_params["job_id"]))

    async def approve(self, request: Request) -> Response:
        said = await self._answer(request, "digest")
        job_id = request.path_params["job_id"]
        person = person_of(request)
        return JSONResponse(await run_in_threadpool(self._view.approve, job_id, said["digest"], said["note"], person), 202)

    async def refuse(self, request: Request) -> Response:
        said = await self._answer(request, "reason")
        job_id = request.path_params["job_id"]
        person = person_of(request)
        return JSONResponse(await run_in_threadpool(self._view.refuse, job_id, said["reason"], said["note"], person), 202)

    async def _answer(self, request: Request, key: str) -> dict[str, str]:
        """A JSON object with this ``key`` and perhaps a ``note``, both text. Raises UsageError (``E_REQUEST``)."""
        body = await read_body(request, MOST_ANSWER_BYTES)
        try:
            said = json.loads(body or b"")
        except (ValueError, RecursionError):
            said = None
        texts = {"note": "", **said} if isinstance(said, dict) else {}
        if texts.keys() != {key, "note"} or not all(isinstance(text, str) and text.isprintable() for text in texts.values()):
            raise UsageError(f"an answer is JSON with {key} and perhaps a note, one line each", code="E_REQUEST")
        return texts
