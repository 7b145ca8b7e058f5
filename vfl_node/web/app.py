"""The routes of a node's HTTP port: JSON for programs, plain pages for people.

Anyone who reaches the port learns that the node runs, whether it is ready, and nothing else. Each route stands behind a gate
(:mod:`vfl_node.web.gate`), which finds out who asks (:mod:`vfl_node.web.access`) and lets in whose roles suffice
(:mod:`vfl_node.web.roles`). The owner's socket lets its user do everything. A page never shows anything that its JSON does not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from functools import partial
from typing import Any

import structlog
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from vfl_node.errors import Cancelled, DataError, PeerError, PolicyError, ProtocolError, StateError, UsageError, VflError
from vfl_node.process.counters import LOGINS
from vfl_node.report.choice import to_document
from vfl_node.settings.retention import Retention
from vfl_node.trust.audit_log import AuditLog
from vfl_node.trust.tokens import Tokens
from vfl_node.web.access import COOKIE_S, TICKET_S, Access
from vfl_node.web.asks import list_ask_routes
from vfl_node.web.bodies import read_body
from vfl_node.web.compare import compare_jobs
from vfl_node.web.events import MOST_VIEWERS, EventStream, JobStreams
from vfl_node.web.extensions import list_extension_routes
from vfl_node.web.gate import caller_of, check_own, guard, may_still, name_object, person_of
from vfl_node.web.guards import HostGuard, SecurityHeaders, problem
from vfl_node.web.health import list_health_routes
from vfl_node.web.ledger import list_ledger_routes
from vfl_node.web.pages import REPORT_POLICY, Pages
from vfl_node.web.people import list_audit_routes, list_token_routes
from vfl_node.web.policy import list_policy_routes
from vfl_node.web.queue import list_queue_routes, read_priority
from vfl_node.web.schedules import list_schedule_routes
from vfl_node.web.trust import list_routes
from vfl_node.web.view import NodeView, find_job
from vfl_node.web.waiting import AskedAtPort, wait_for
from vfl_node.web.wanted import WAITING, read_wanted

log = structlog.get_logger()

MAX_JOB_BYTES = 1 << 16  # as many as a peer accepts
MAX_REQUEST_BYTES = 64 << 20
MAX_TICKET_BYTES = 100
LOGIN_S = 5.0
"""How long sending a ticket may take: the sender has no credentials yet."""

CSV = "text/csv; charset=utf-8"

STATUS_OF_CODE = {
    "E_UNKNOWN_JOB": 404,
    "E_UNKNOWN_PERSON": 404,
    "E_NO_REPORT": 404,
    **dict.fromkeys(("E_JOB_ENDED", "E_NOT_ASKED", "E_STALE", "E_PERSON", "E_CONSENT"), 409),
    "E_NO_MANIFEST": 404,
    "E_SCHEDULE": 404,
    "E_BUSY": 429,
    "E_DISK_FULL": 507,
    **dict.fromkeys(("E_FILES", "E_THREAD", "E_MEMORY", "E_STATE", "E_STATE_LOCKED", "E_PAUSED"), 503),
}
STATUS_OF_KIND = {
    UsageError: 400,
    PolicyError: 403,
    StateError: 409,
    Cancelled: 409,
    DataError: 422,
    PeerError: 502,
    ProtocolError: 502,
}


def create_app(
    view: NodeView,
    *,
    token: str | Access | None,
    names: Collection[str] = ("localhost",),
    tokens: Tokens | None = None,
    audit: AuditLog | None = None,
) -> Starlette:
    """The application that shows ``view``.

    Args:
        view: the node.
        token: the keys, or the node's token alone; None: nothing but the plain health status is allowed.
        names: host names it answers to, besides IP addresses.
        tokens: of people, which its owner may change; None: there are none.
        audit: where it is recorded who did what; None: nowhere.
    """
    access = token if isinstance(token, Access) else Access(token)
    board = _Board(view, access)
    routes = [
        Route("/", board.page),
        *list_health_routes(view),
        Route("/static/{place}", board.asset),
        Route("/login", board.login_page, methods=["GET"]),
        Route("/login", board.login, methods=["POST"]),
        Route("/metrics", board.metrics),
        Route("/api/tickets", board.ticket, methods=["POST"]),
        Route("/api/jobs", board.jobs, methods=["GET"]),
        Route("/api/jobs", board.submit, methods=["POST"]),
        Route("/api/prune", board.prune, methods=["POST"]),
        Route("/api/jobs/{job_id}", board.job),
        Route("/api/jobs/{job_id}/events", board.events),
        Route("/api/jobs/{job_id}/cancel", board.cancel, methods=["POST"]),
        Route("/api/jobs/{job_id}/resume", board.resume, methods=["POST"]),
        Route("/api/jobs/{job_id}/predictions", board.predict, methods=["POST"]),
        Route("/api/jobs/{job_id}/predictions", board.predictions, methods=["GET"]),
        Route("/api/compare", board.comparison),
        Route("/compare", board.compare_page),
        Route("/jobs/{job_id}", board.job_page),
        Route("/jobs/{job_id}/report.html", board.report_html),
        Route("/jobs/{job_id}/report.json", board.report_json),
        Route("/jobs/{job_id}/trace.json", board.trace),
        *list_routes(view),
        *list_ask_routes(view),
        *list_policy_routes(view),
        *list_ledger_routes(view, board.ledger),
        *list_extension_routes(view),
        *list_queue_routes(view),
        *list_schedule_routes(view),
        *(list_token_routes(tokens) if tokens else ()),
        *(list_audit_routes(audit) if audit else ()),
    ]
    app = Starlette(
        routes=guard(routes, access, audit),
        middleware=[Middleware(SecurityHeaders), Middleware(HostGuard, names=names)],
        exception_handlers={
            VflError: _answer_error,
            HTTPException: board.no_such,
            ClientDisconnect: _answer_nobody,
            Exception: _defect,
        },
    )
    app.router.redirect_slashes = False  # one address for each page
    return app


class _Board:
    """The endpoints. Those that are not coroutines run on worker threads."""

    def __init__(self, view: NodeView, access: Access) -> None:
        self._view = view
        self._access = access
        self._pages = Pages()
        self._streams = JobStreams()
        self._asking = AskedAtPort(view)

    def asset(self, request: Request) -> Response:
        """A style sheet or script: part of the software, which the login page needs, too."""
        if (found := self._pages.asset(request.path_params["place"])) is None:
            raise HTTPException(404)
        return found

    def login_page(self, request: Request) -> Response:
        return self._pages.login(200)

    async def login(self, request: Request) -> Response:
        """A cookie for a ticket."""
        try:
            body = await asyncio.wait_for(read_body(request, MAX_TICKET_BYTES), LOGIN_S)
        except asyncio.TimeoutError:  # not the builtin one before Python 3.11
            raise HTTPException(408) from None
        cookie = self._access.redeem((body or b"").decode("latin-1"))
        LOGINS.series("link", "ok" if cookie else "refused").inc()
        if cookie is None:
            return problem(403, "E_TICKET", "this link was used already, or is too old", "vfl-node board --config FILE")
        name_object(request, cookie.split(".")[1])
        answer = JSONResponse({"status": "ok"})
        secure = request.url.scheme == "https"
        answer.set_cookie(self._access.cookie, cookie, max_age=COOKIE_S, httponly=True, samesite="strict", secure=secure)
        return answer

    def ticket(self, request: Request) -> Response:
        caller = caller_of(request)
        assert caller is not None  # the gate lets nobody else in
        return JSONResponse({"ticket": self._access.ticket(caller.person), "valid_s": TICKET_S}, 201)

    def metrics(self, request: Request) -> Response:
        return Response(self._view.metrics_text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    def jobs(self, request: Request) -> Response:
        if not request.query_params:
            return JSONResponse({"jobs": self._view.jobs()})
        wanted = read_wanted(request.query_params)
        (found,) = self._view.find_jobs(wanted)
        return JSONResponse(found | {"page": wanted.page, "size": wanted.size})

    def job(self, request: Request) -> Response:
        return JSONResponse(self._job(request))

    async def submit(self, request: Request) -> Response:
        body = await read_body(request, MAX_JOB_BYTES)
        if body is None:
            return problem(413, "E_TOO_LARGE", f"a job has at most {MAX_JOB_BYTES} bytes")
        try:
            text = body.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise UsageError(f"the job is not UTF-8 text (byte {error.start})", code="E_YAML") from None
        job = await run_in_threadpool(self._view.submit, text, person_of(request), read_priority(request.query_params))
        name_object(request, job["id"])
        return JSONResponse(job, 201)

    async def events(self, request: Request) -> Response:
        """What happens in a job, as server-sent events (:mod:`vfl_node.web.events`)."""
        job_id = (await run_in_threadpool(self._job, request))["id"]
        if self._streams.full:
            busy = f"{MOST_VIEWERS} pages already watch jobs of this node"
            return problem(503, "E_BUSY", busy, "close some of them, or ask for /api/jobs/ID again and again")
        stream = self._streams.open(job_id, partial(self._view.job, job_id))
        last = request.headers.get("last-event-id", "")
        return EventStream(stream, last, partial(may_still, request))

    def cancel(self, request: Request) -> Response:
        check_own(request, job := self._job(request))
        return JSONResponse(self._view.cancel(job["id"]), 202)

    def resume(self, request: Request) -> Response:
        return JSONResponse(self._view.resume(self._job(request)["id"]), 202)

    def prune(self, request: Request) -> Response:
        query = request.query_params
        try:
            asked = {"jobs_days": query.get("days"), "jobs_keep": query.get("keep"), "models_days": query.get("models_days")}
            limits = Retention.model_validate(asked)
        except ValueError:
            raise UsageError("days, keep and models_days are numbers from 0 on", code="E_REQUEST") from None
        return JSONResponse({"jobs": self._view.prune(limits, models="models" in query, dry="dry" in query)})

    async def predict(self, request: Request) -> Response:
        """Known records are answered when they are predicted; new records become a separate job."""
        model = request.path_params["job_id"]
        body = await read_body(request, MAX_REQUEST_BYTES)
        if body is None:
            return problem(413, "E_TOO_LARGE", f"a request has at most {MAX_REQUEST_BYTES} bytes", "ask in several requests")
        if request.query_params.get("rows") == "new":
            job = await run_in_threadpool(self._view.predict_new, model, body, person_of(request))
            name_object(request, f"{model} {job['id']}")
            return JSONResponse(job, 202)
        prediction, over = await self._asking.ask(model, body), False
        try:
            over = await wait_for(prediction, request)
        finally:
            if not over:
                prediction.withdraw()
        return Response(prediction.ready(), media_type=CSV) if over else _answer_nobody(request)

    def predictions(self, request: Request) -> Response:
        path = self._view.artefact(self._job(request)["id"], "predictions.csv")
        if path is None:
            return problem(
                404, "E_NOT_FOUND", "this job has no predictions", "it predicts no new records, or has not ended yet"
            )
        return FileResponse(path, media_type=CSV)

    def page(self, request: Request) -> Response:
        wanted = read_wanted(request.query_params)
        found = self._view.find_jobs(wanted, WAITING)
        more = self._view.extensions.list()
        return self._pages.jobs(self._view.health(), wanted, *found, asks=self._view.asks(), extensions=more)

    def job_page(self, request: Request) -> Response:
        job = self._job(request)
        if job["report"] and job["state"] == "done":
            return RedirectResponse(f"/jobs/{job['id']}/report.html")
        return self._pages.job(self._view, job)

    def comparison(self, request: Request) -> Response:
        return JSONResponse(to_document(compare_jobs(self._view, request.query_params.getlist("run"))))

    def ledger(self) -> Response:
        return self._pages.ledger(self._view)

    def compare_page(self, request: Request) -> Response:
        return self._pages.compare(self._view, request.query_params.getlist("run"))

    def report_html(self, request: Request) -> Response:
        return self._file(request, "report.html", {"Content-Security-Policy": REPORT_POLICY})

    def report_json(self, request: Request) -> Response:
        return self._file(request, "report.json", {})

    def trace(self, request: Request) -> Response:
        trace = self._view.trace(self._job(request)["id"])
        if trace is None:
            hint = "it has not begun, it ended without a report, or this node kept no traces then"
            return problem(404, "E_NO_TRACE", "this job has no trace", hint)
        return Response(trace, media_type="application/json")

    def _job(self, request: Request) -> dict[str, Any]:
        """The job that the path names. Raises UsageError (``E_UNKNOWN_JOB``)."""
        return find_job(self._view, request.path_params["job_id"])

    def _file(self, request: Request, name: str, headers: dict[str, str]) -> Response:
        path = self._view.artefact(self._job(request)["id"], name)
        if path is None:
            return problem(404, "E_NO_REPORT", "this job has no report", "it has not ended yet, or it failed")
        return FileResponse(path, headers=headers)

    def no_such(self, request: Request, error: Exception) -> Response:
        """An error of HTTP itself."""
        assert isinstance(error, HTTPException)  # registered for this type
        if error.status_code == 401 and request.method == "GET" and "text/html" in request.headers.get("accept", ""):
            return self._pages.login(401)
        code, message, hint = {
            401: (
                "E_TOKEN",
                "this needs a token of the node",
                "send 'Authorization: Bearer TOKEN', it lies in the state folder; for a browser: vfl-node board --config FILE",
            ),
            403: ("E_READ_ONLY", "this port lets nobody in", ""),
            404: ("E_NOT_FOUND", "there is nothing at this address", ""),
            405: ("E_METHOD", "this address does not know that method", ""),
        }.get(error.status_code, ("E_HTTP", error.detail, ""))
        headers = dict(error.headers or {}) | ({"WWW-Authenticate": "Bearer"} if error.status_code == 401 else {})
        return problem(error.status_code, code, message, hint, headers)


def _answer_error(request: Request, error: Exception) -> Response:
    """The answer for an error of :mod:`vfl_node.errors`, with the status of its kind."""
    assert isinstance(error, VflError)  # registered for this type
    of_kind = (STATUS_OF_KIND[kind] for kind in type(error).__mro__ if kind in STATUS_OF_KIND)
    status = STATUS_OF_CODE.get(error.code) or next(of_kind, 500)
    return problem(status, error.code, error.message, error.hint)


def _answer_nobody(request: Request, error: Exception | None = None) -> Response:
    """Who asked has hung up: nobody reads the answer."""
    return Response(status_code=499)


def _defect(request: Request, error: Exception) -> Response:
    """A bug: the log has the details, the answer does not."""
    log.error("internal error", path=request.url.path, exc_info=error)
    return problem(500, "E_INTERNAL", "internal error", "see the node's log")
