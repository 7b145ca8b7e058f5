"""A node as the HTTP port sees it, and a browser at that port."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from vfl_node.errors import VflError
from vfl_node.job import Job
from vfl_node.node.record import describe_spec
from vfl_node.web.access import Access
from vfl_node.web.app import create_app
from vfl_node.web.view import find_job
from vfl_node.web.wanted import KINDS, Wanted

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"


TOKEN = "a-token-of-the-node"


AUTHORISED = {"Authorization": f"Bearer {TOKEN}"}


SPEC = describe_spec(Job.model_validate({"name": "trial", "parties": {"active": "clinic", "passive": ["lab"]}}).canonical())


def a_job(job_id: str, state: str, **changes: Any) -> dict[str, Any]:
    base = {
        "id": job_id,
        "name": "trial",
        "state": state,
        "phase": "",
        "done": 0,
        "total": 0,
        "unit": "",
        "note": "",
        "remark": "",
        "loss": None,
        "validation_loss": None,
        "attacks": {},
        "purpose": None,
        "parties": ["clinic", "lab"],
        "submitter": "clinic",
        "by": None,
        "algorithm": "split",
        "protocol": "psu",
        "predict": None,
        "metric": None,
        "leaks": {},
        "took_s": None,
        "queue": None,
        "time_left_s": None,
        "submitted": "2026-03-01T10:00:00+00:00",
        "finished": None,
        "error": None,
        "report": False,
        "resumable": False,
        "live": None,
        "spec": SPEC,
    }
    return base | changes


SHOWN: dict[str, Any] = {
    "submitter": "lab",
    "purpose": HOSTILE,
    "digest": "8ac00b0a" * 8,
    "digits": "8ac00b0a",
    "created": "2026-03-01T10:00:00+00:00",
    "expires": "2026-03-08T10:00:00+00:00",
    "parties": [{"name": "clinic", "role": "active"}, {"name": "lab", "role": "passive"}],
    "steps": ["The records are matched."],
    "reveals": [
        {"to": "lab", "what": "gradients", "bound": "from clinic a gradient of each row", "new": True},
        {"to": "clinic", "what": "embeddings", "bound": "from lab an embedding of each row", "new": False},
    ],
    "budgets": [
        {"partner": "lab", "limit": "alignments", "used": 1, "after": 2, "allowed": 20},
        {"partner": "lab", "limit": "trainings", "used": 2, "after": 3, "allowed": 2, "per": "week", "free": "2027-01-31"},
    ],
    "previous": "done-1",
    "same": False,
    "differences": [{"key": "train.epochs", "before": "3", "now": HOSTILE}],
    "signed": True,
    "told": [],
    "decision": None,
    "by": "one",
    "yes": [],
    "manifest": {},
}
"""What a job asks for (:func:`vfl_node.node.asked_words.describe`)."""


EXTENSION: dict[str, Any] = {
    "id": "0123456789abcdef",
    "partner": "lab",
    "side": "theirs",
    "budget": "changes",
    "more": 10.0,
    "until": "2027-01-31",
    "at": "2026-03-01T10:00:00+00:00",
    "expires": "2026-03-08T10:00:00+00:00",
    "reason": HOSTILE,
    "state": "asked",
    "needs": 2,
    "yes": [],
    "why": "",
}
"""A request of the lab for more of a budget (:meth:`vfl_node.node.extensions.Extensions.list`)."""


class ShownSchedules:
    """One schedule, whose text tries to break out."""

    def __init__(self) -> None:
        self.said: list[tuple[Any, ...]] = []

    def describe(self) -> list[dict[str, Any]]:
        return [{"name": "weekly", "became": HOSTILE}]

    def pause(self, name: str) -> None:
        self.said.append(("pause", name))

    def resume(self, name: str) -> None:
        self.said.append(("resume", name))

    def run(self, name: str, person: str | None) -> str:
        self.said.append(("run", name, person))
        return "weekly-20261130-1200"


class Extensions:
    """Requests: one of the lab, one of this node that waits for a second person, one that is refused."""

    def __init__(self) -> None:
        drafted = {
            "id": "fedcba9876543210",
            "side": "ours",
            "state": "drafted",
            "yes": ["ann"],
            "budget": "epsilon",
            "more": 0.5,
        }
        self.all = [EXTENSION, EXTENSION | drafted, EXTENSION | {"id": "0" * 16, "side": "ours", "state": "refused"}]
        self.said: list[tuple[Any, ...]] = []

    def list(self) -> list[dict[str, Any]]:
        return self.all

    def ask(self, partner: str, budget: str, more: float, until: str, reason: str, person: str | None) -> dict[str, Any]:
        self.said.append(("ask", partner, budget, more, until, reason, person))
        return EXTENSION

    def approve(self, request_id: str, person: str | None) -> dict[str, Any]:
        self.said.append(("approve", request_id, person))
        return EXTENSION

    def refuse(self, request_id: str) -> dict[str, Any]:
        self.said.append(("refuse", request_id))
        return EXTENSION


class Asked:
    """A request that is answered on another thread, if at all."""

    def __init__(self, answer: bytes | VflError | None) -> None:
        self.answer = answer
        self.withdrawn = False

    def call_when_over(self, listener: Callable[[], None]) -> None:
        if self.answer is not None:
            threading.Thread(target=listener).start()

    def ready(self) -> bytes | None:
        if isinstance(self.answer, VflError):
            raise self.answer
        return self.answer

    def withdraw(self) -> None:
        self.withdrawn = True


WAITS: dict[str, Any] = {"place": 3, "of": 5, "kind": "away", "reason": f"{HOSTILE} away since 12:04", "priority": 0}


class View:
    """A node that is only seen."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.submitted: list[str] = []
        self.cancelled: list[str] = []
        self.error: Exception | None = None
        self.asked = Asked(b"id,probability\na,0.5\n")
        link = {"address": None, "since": "2026-03-01T10:00:00+00:00", "version": None}
        link |= {"round_trip_ms": None, "certificate_days": None, "clock_ahead_s": None}
        self.peers: dict[str, Any] = {
            "lab": link | {"online": True, "cause": "", "version": "0", "round_trip_ms": 12.34, "certificate_days": 12},
            "bank": link | {"online": False, "cause": HOSTILE},
        }
        self.asked_for: list[Wanted] = []
        self.trusted: list[tuple[str, ...]] = []
        self.answered: list[tuple[str, ...]] = []
        self.answers_with: VflError | None = None
        self.resumable = 0
        self.draining = False
        self.requests, self.schedules = Extensions(), ShownSchedules()
        self.lives, self.faults, self.status = True, list[str](), "ok"
        self.causes = [{"code": "E_FILE", "since": "2026-03-01T10:00:00+00:00", "text": HOSTILE, "hint": HOSTILE}]
        self.safer: dict[str, list[dict[str, Any]]] = {}
        failed = {"code": "E_CSV", "message": HOSTILE, "hint": f"mend it {HOSTILE}"}
        self.all = [
            a_job("running-1", "running", phase="train", done=120, total=400, unit="batches", loss=0.25, validation_loss=0.5),
            a_job("waiting-1", "waiting", phase="waiting", note=f"waiting for {HOSTILE}", queue=WAITS),
            a_job("done-1", "done", report=True, finished="2026-03-01T10:01:00+00:00"),
            a_job("failed-1", "failed", error=failed, name=HOSTILE, parties=[HOSTILE]),
        ]

    def is_live(self) -> bool:
        return self.lives

    def list_faults(self) -> list[str]:
        return self.faults

    def find_status(self) -> str:
        return self.status

    def health(self) -> dict[str, Any]:
        data = {"status": "unusable", "errors": [{"code": "E_CSV", "message": HOSTILE, "hint": ""}]}
        told = {"predicted_rows": {"used": 7, "allowed": 10_000}}
        budgets = {"peers": {"lab": {"alignments": {"used": 3, "allowed": 20}}, "bank": None}, "models": {"done-1": told}}
        node = {
            "status": self.status,
            "causes": self.causes,
            "party": "clinic",
            "role": "active",
            "version": "0",
            "peers": self.peers,
            "data": data,
        }
        machine = {"certificate_days": 311, "disk_free": 69e9, "memory_free": 13e9}
        stands = {"became": "", "paused": "refusals", "refusals": 3, "reason": HOSTILE, "last_job": "", "ended": ""}
        node["schedules"] = [{"name": "weekly"} | stands, {"name": "daily"} | stands | {"paused": "owner"}]
        return node | machine | {"places": {"busy": 1, "most": 16, "queued": 1}, "budgets": budgets, "draining": self.draining}

    def jobs(self) -> list[dict[str, Any]]:
        return self.all

    def find_jobs(self, *asked: Wanted) -> list[dict[str, Any]]:
        self.asked_for += asked
        kinds = dict.fromkeys(KINDS, 0) | {"": len(self.all), "open": 2, "resumable": self.resumable}
        found = [[job for job in self.all if wanted.state in ("", job["state"])] for wanted in asked]
        pages = [jobs[(wanted.page - 1) * wanted.size :][: wanted.size] for jobs, wanted in zip(found, asked, strict=True)]
        more = {"counts": kinds, "safer": self.safer}
        return [{"jobs": page, "total": len(jobs)} | more for page, jobs in zip(pages, found, strict=True)]

    def job(self, job_id: str) -> dict[str, Any] | None:
        return next((job for job in self.all if job["id"] == job_id), None)

    def drain(self, *, on: bool) -> None:
        self.draining = on

    def submit(self, job_yaml: str, person: str | None, priority: int = 0) -> dict[str, Any]:
        if self.error:
            raise self.error
        self.all[0]["priority"] = priority
        self.all[0]["by"] = person
        self.submitted.append(job_yaml)
        return self.all[0]

    def cancel(self, job_id: str) -> dict[str, Any]:
        if self.error:
            raise self.error
        self.cancelled.append(job_id)
        return self.all[0]

    def asks(self) -> list[dict[str, Any]]:
        ask = {"id": "asked-1", "name": "weekly", "submitter": "lab", "purpose": HOSTILE, "by": "one", "yes": []}
        damaged = ask | {"id": "asked-2", "name": "monthly", "purpose": None, "by": None, "expires": None}
        return [
            ask | {"expires": "2026-03-08T10:00:00+00:00", "error": None},
            damaged | {"error": "what is kept with job asked-2 is damaged"},
        ]

    def show(self, job_id: str) -> dict[str, Any]:
        return SHOWN | {"id": job_id}

    def approve(self, job_id: str, digits: str, note: str, person: str | None) -> dict[str, Any]:
        return self._answered("approve", job_id, digits, note)

    def refuse(self, job_id: str, reason: str, note: str, person: str | None) -> dict[str, Any]:
        return self._answered("refuse", job_id, reason, note)

    def _answered(self, *answer: str) -> dict[str, Any]:
        if self.answers_with:
            raise self.answers_with
        self.answered.append(answer)
        return self.all[1]

    def ledgers(self, since: str = "") -> list[dict[str, Any]]:
        week = {"used": 2, "allowed": 2, "per": "week", "free": "2027-01-31"}
        budgets = {"alignments": {"used": 3, "allowed": 20}, "trainings": {"used": 0, "allowed": None}, "linkages": week}
        listed = [{"n": n, "at": "2026-03-01T10:00:00+00:00", "kind": "count", "text": HOSTILE} for n in range(1, 131)]
        lane = {"partner": "lab", "error": None, "entries": 130, "head": "ab" * 32, "budgets": budgets, "listed": listed}
        lane |= {"seen": {"entry": 129, "at": "2026-03-01T10:00:00+00:00"}}
        return [lane, {"partner": "bank", "error": f"entry 3 is damaged {HOSTILE}"}][: 2 if since == "" else 1]

    @property
    def extensions(self) -> Extensions:
        return self.requests

    def policy(self) -> dict[str, Any]:
        return {"preset": "careful"}

    def check_policy(self, text: str) -> dict[str, Any]:
        return {"differences": [], "jobs": []}

    def apply_policy(self, text: str, person: str | None) -> dict[str, Any]:
        return self.policy() | {"applied": True}

    def invite(self, minutes: float, address: str, only: str) -> dict[str, Any]:
        self.trusted.append(("invite", f"{minutes:g}", address))
        return {"address": address, "code": "7KQ4-M2XP"}

    def invite_status(self) -> dict[str, Any]:
        return {"left": 5, "met": ""}

    def close_invite(self) -> None:
        self.trusted.append(("close",))

    def admit(self, name: str) -> None:
        self.trusted.append(("admit", name))

    def revoke(self, name: str, reason: str) -> list[str]:
        self.trusted.append(("revoke", name, reason))
        return ["running-1"]

    def predict(self, model: str, request: bytes) -> Asked:
        find_job(self, model)
        self.submitted.append(f"{model} {request!r}")
        return self.asked

    def predict_new(self, model: str, request: bytes, person: str | None) -> dict[str, Any]:
        self.submitted.append(f"{model} {request!r} new")
        return self.all[1]

    def artefact(self, job_id: str, name: str) -> Path | None:
        path = self.folder / job_id / name
        return path if path.exists() else None

    def trace(self, job_id: str) -> bytes | None:
        return b'{"traceEvents": []}' if job_id == "running-1" else None

    def metrics_text(self) -> bytes:
        return b"# TYPE vfl_jobs gauge\nvfl_jobs 4.0\n"


def browser(
    view: View,
    *,
    token: Any = TOKEN,
    headers: Any = AUTHORISED,
    base_url: str = "http://127.0.0.1:8080",
    **options: Any,
) -> TestClient:
    app = create_app(view, token=token, **options)
    return TestClient(app, base_url=base_url, headers=dict(headers), raise_server_exceptions=False)


def at_the_board(view: View) -> TestClient:
    """A browser that came in by a link."""
    access = Access(TOKEN, party="clinic")
    client = browser(view, token=access, headers={})
    client.post("/login", content=access.ticket())
    return client
