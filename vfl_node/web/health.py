"""The routes by which others see whether a node works: for a supervisor, for an orchestrator, and for its owner."""

from __future__ import annotations

from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from vfl_node.web.gate import caller_of
from vfl_node.web.roles import LOOKERS


class HealthView(Protocol):
    """A node as these routes need it."""

    def health(self) -> dict[str, Any]:
        """How the node is, for those who may look.

        It has status (ok, degraded or failing), causes (code, since, text, hint), party, role, version, peers (name → {online,
        address, since, cause, version, round_trip_ms, certificate_days, clock_ahead_s}; online is None of one that is relayed),
        data (what is known of its table, or of each of several, or None), places (busy, most, queued), certificate_days,
        certificates (party, kind, days), ledger (partner → {entries, head_age_s}), backup_age_s, memory_free and disk_free
        (bytes; None where not known), budgets (:func:`vfl_node.node.budgets.budgets`) and services
        (:func:`vfl_node.node.services.list_services`).
        """

    def find_status(self) -> str:
        """The status alone, for everybody."""

    def is_live(self) -> bool:
        """Whether the node's main loop goes round."""

    def list_faults(self) -> list[str]:
        """Codes of what keeps the node from any job; none: it is ready."""


def list_health_routes(view: HealthView) -> list[Route]:
    """The routes."""

    def live(request: Request) -> Response:
        """Whether a restart would help."""
        lives = view.is_live()
        return JSONResponse({"live": lives}, 200 if lives else 503)

    def ready(request: Request) -> Response:
        """Whether jobs can run. Anybody may ask, so of what is wrong the answer has the codes only."""
        codes = view.list_faults()
        return JSONResponse({"ready": not codes, "codes": codes}, 503 if codes else 200)

    def health(request: Request) -> Response:
        """For those who may not look, the answer is only the status, and nothing else is found out."""
        caller = caller_of(request)
        whole = caller is not None and not caller.roles.isdisjoint(LOOKERS)
        return JSONResponse(view.health() if whole else {"status": view.find_status()})

    return [Route("/live", live), Route("/ready", ready), Route("/health", health)]
