"""Which roles may use which route of the HTTP port: one table, which :mod:`vfl_node.web.gate` keeps to.

A route that has no row here cannot be served. docs/reference/http-roles.md shows the same table, and a test compares both with
what the port answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from vfl_node.trust.people import DECIDERS, PersonRole

Browser = Literal["refused", "looks", "presses"]
"""What a cookie is good for: nothing; reading; an act, where a button on a page of this node sends it."""

LOOKERS: frozenset[PersonRole] = frozenset(("viewer", "submitter", "approver", "admin"))
_SUBMITTERS: frozenset[PersonRole] = frozenset(("submitter", "admin"))
_ADMIN: frozenset[PersonRole] = frozenset(("admin",))


@dataclass(frozen=True)
class Admission:
    """Who may use one route.

    Attributes:
        roles: those who may; None: everybody, also without credentials.
        browser: what the cookie of a browser is good for there; it has the roles of who let the browser in.
        own: roles of them that may do it with their own jobs only.
        recorded: whether the audit log has also what is read there; it has everything else that is done.
    """

    roles: frozenset[PersonRole] | None
    browser: Browser = "refused"
    own: frozenset[PersonRole] = frozenset()
    recorded: bool = False

    def admits(self, roles: frozenset[PersonRole]) -> bool:
        """Whether somebody with these roles may use the route."""
        return self.roles is None or not self.roles.isdisjoint(roles)

    def admits_to_all(self, roles: frozenset[PersonRole]) -> bool:
        """Whether somebody with these roles may use it for the jobs of others, too."""
        return self.roles is None or not (self.roles - self.own).isdisjoint(roles)


_EVERYBODY = Admission(None, "looks")
_LOOK = Admission(LOOKERS, "looks")
_SUBMIT = Admission(_SUBMITTERS)
_APPROVE = Admission(DECIDERS, "presses")
_OWNER = Admission(_ADMIN)

ROWS: dict[str, Admission] = {
    "GET /live": _EVERYBODY,
    "GET /ready": _EVERYBODY,
    "GET /health": _EVERYBODY,
    "GET /static/{place}": _EVERYBODY,
    "GET /login": _EVERYBODY,
    "POST /login": _EVERYBODY,
    "GET /metrics": Admission(LOOKERS | {"metrics"}, "looks"),
    "GET /": _LOOK,
    "GET /jobs/{job_id}": _LOOK,
    "GET /jobs/{job_id}/report.html": _LOOK,
    "GET /jobs/{job_id}/report.json": _LOOK,
    "GET /jobs/{job_id}/trace.json": _LOOK,
    "GET /compare": _LOOK,
    "GET /api/compare": _LOOK,
    "GET /api/jobs": _LOOK,
    "GET /api/jobs/{job_id}": _LOOK,
    "GET /api/jobs/{job_id}/events": _LOOK,
    "POST /api/tickets": Admission(LOOKERS),
    "POST /api/jobs": _SUBMIT,
    "POST /api/jobs/{job_id}/resume": _SUBMIT,
    "POST /api/jobs/{job_id}/predictions": _SUBMIT,
    "GET /api/jobs/{job_id}/predictions": Admission(_SUBMITTERS, recorded=True),
    "POST /api/jobs/{job_id}/cancel": Admission(_SUBMITTERS | {"approver"}, "presses", own=frozenset(("submitter",))),
    "GET /api/asks": _LOOK,
    "GET /api/jobs/{job_id}/manifest": _LOOK,
    "POST /api/jobs/{job_id}/approve": _APPROVE,
    "POST /api/jobs/{job_id}/refuse": _APPROVE,
    "GET /ledger": _LOOK,
    "GET /api/ledger": _LOOK,
    "GET /api/extensions": _LOOK,
    "POST /api/extensions": Admission(DECIDERS),
    "POST /api/extensions/{request_id}/approve": _APPROVE,
    "POST /api/extensions/{request_id}/refuse": _APPROVE,
    "GET /api/schedules": _LOOK,
    "POST /api/schedules/{name}/pause": _SUBMIT,
    "POST /api/schedules/{name}/resume": _SUBMIT,
    "POST /api/schedules/{name}/run": _SUBMIT,
    "GET /api/policy": _LOOK,
    "POST /api/policy": _OWNER,
    "POST /api/policy/check": _OWNER,
    "POST /api/prune": _OWNER,
    "POST /api/drain": _OWNER,
    "DELETE /api/drain": _OWNER,
    "GET /api/audit-log": _OWNER,
    "POST /api/tokens": _OWNER,
    "GET /api/tokens": _OWNER,
    "DELETE /api/tokens/{name}": _OWNER,
    "POST /api/invite": _OWNER,
    "GET /api/invite": _OWNER,
    "DELETE /api/invite": _OWNER,
    "POST /api/peers/{name}": _OWNER,
    "POST /api/peers/{name}/revoke": _OWNER,
}
"""Method and path of each route → who may use it. ``HEAD`` is as ``GET``. Whoever may look gets the whole of ``/health``."""
