"""Routes with which a node's owner looks at its policy and changes it (:mod:`vfl_node.web.roles`)."""

from __future__ import annotations

import hashlib
from typing import Any, Protocol

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from vfl_node.configuration.yaml_text import MOST_BYTES
from vfl_node.errors import UsageError
from vfl_node.web.bodies import read_body
from vfl_node.web.gate import name_object, person_of


class PolicyView(Protocol):
    """What these routes need of a node; its methods may be called from several threads."""

    def policy(self) -> dict[str, Any]:
        """The policy that holds (:func:`vfl_node.node.policies.describe`)."""

    def check_policy(self, text: str) -> dict[str, Any]:
        """What another one would change. Raises VflError."""

    def apply_policy(self, text: str, person: str | None) -> dict[str, Any]:
        """Put another one in force. Raises VflError."""


def list_policy_routes(view: PolicyView) -> list[Route]:
    """The routes of a node that is seen so."""

    def show(request: Request) -> Response:
        return JSONResponse(view.policy())

    async def check(request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(view.check_policy, await _text(request)))

    async def apply(request: Request) -> Response:
        text = await _text(request)
        name_object(request, hashlib.sha256(text.encode()).hexdigest())
        return JSONResponse(await run_in_threadpool(view.apply_policy, text, person_of(request)))

    return [
        Route("/api/policy", show, methods=["GET"]),
        Route("/api/policy", apply, methods=["POST"]),
        Route("/api/policy/check", check, methods=["POST"]),
    ]


async def _text(request: Request) -> str:
    """The policy that was sent, as text. Raises UsageError (``E_REQUEST``)."""
    body = await read_body(request, MOST_BYTES)
    try:
        if body is not None:
            return body.decode()
    except UnicodeDecodeError:
        pass
    raise UsageError(f"a policy is YAML in UTF-8, of at most {MOST_BYTES:,} bytes", code="E_REQUEST")
