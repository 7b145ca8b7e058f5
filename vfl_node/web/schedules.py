"""Routes with which an owner looks at schedules, pauses and resumes them, and runs their jobs (:mod:`vfl_node.web.roles`)."""

from __future__ import annotations

from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from vfl_node.web.gate import person_of


class ScheduleActs(Protocol):
    """The schedules of a node (:class:`vfl_node.node.schedules.Schedules`)."""

    def describe(self) -> list[dict[str, Any]]:
        """All of them. Raises VflError."""

    def pause(self, name: str) -> None:
        """Submit nothing by one. Raises VflError."""

    def resume(self, name: str) -> None:
        """Submit by it again. Raises VflError."""

    def run(self, name: str, person: str | None) -> str:
        """Submit its job now; returns the job's id. Raises VflError."""


class ScheduleView(Protocol):
    """What these routes need of a node."""

    @property
    def schedules(self) -> ScheduleActs:
        """Its schedules; the methods may be called from several threads."""


def list_schedule_routes(view: ScheduleView) -> list[Route]:
    """The routes of a node that is seen so."""

    def show(request: Request) -> Response:
        return JSONResponse({"schedules": view.schedules.describe()})

    def pause(request: Request) -> Response:
        view.schedules.pause(request.path_params["name"])
        return JSONResponse({"paused": True})

    def resume(request: Request) -> Response:
        view.schedules.resume(request.path_params["name"])
        return JSONResponse({"paused": False})

    def run(request: Request) -> Response:
        return JSONResponse({"job": view.schedules.run(request.path_params["name"], person_of(request))}, 201)

    return [
        Route("/api/schedules", show, methods=["GET"]),
        Route("/api/schedules/{name}/pause", pause, methods=["POST"]),
        Route("/api/schedules/{name}/resume", resume, methods=["POST"]),
        Route("/api/schedules/{name}/run", run, methods=["POST"]),
    ]
