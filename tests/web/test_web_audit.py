"""What the audit log has of requests at the HTTP port, and what not."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.web.shown_node import TOKEN, View, browser
from vfl_node.errors import PolicyError
from vfl_node.trust.audit_log import AuditLog, verify_log
from vfl_node.trust.tokens import Tokens
from vfl_node.web.access import Access, OwnersSocket
from vfl_node.web.roles import ROWS

PREDICTIONS = "/api/jobs/done-1/predictions"


class Recorded:
    """A port that records, and what it has recorded."""

    def __init__(self, view: View) -> None:
        self.view, self.audit, self.tokens = view, AuditLog(view.folder), Tokens(view.folder)
        self.access = Access(TOKEN, party="clinic", people=self.tokens)

    def client(self, token: str = "", access: Access | None = None) -> TestClient:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return browser(self.view, token=access or self.access, tokens=self.tokens, audit=self.audit, headers=headers)

    def told(self, *keys: str) -> list[tuple[Any, ...]]:
        """These keys of each line, oldest first."""
        self.audit.flush()
        return [tuple(line[key] for key in keys) for line in reversed(self.audit.newest(1000))]


@pytest.fixture
def port(view: View) -> Recorded:
    return Recorded(view)


def test_deeds_stand_in_the_log_with_who_how_what_and_result(port: Recorded) -> None:
    anna = port.client(port.tokens.create("anna", ["submitter"], 30))
    anna.post("/api/jobs", content="name: x")
    anna.post("/api/jobs/none-such/cancel")
    anna.post(PREDICTIONS, content=b"id\na\n")
    anna.post(f"{PREDICTIONS}?rows=new", content=b"id\na\n")
    anna.get(PREDICTIONS)
    port.client(TOKEN).delete("/api/invite")
    port.client(access=OwnersSocket(port.access)).post("/api/tokens?name=ben&roles=viewer")
    assert port.told("person", "how", "method", "route", "object", "result") == [
        ("anna", "token", "POST", "/api/jobs", "running-1", 201),
        ("anna", "token", "POST", "/api/jobs/{job_id}/cancel", "none-such", 404),
        ("anna", "token", "POST", "/api/jobs/{job_id}/predictions", "done-1", 200),
        ("anna", "token", "POST", "/api/jobs/{job_id}/predictions", "done-1 waiting-1", 202),
        ("anna", "token", "GET", "/api/jobs/{job_id}/predictions", "done-1", 404),
        ("owner", "token", "DELETE", "/api/invite", "", 200),
        ("owner", "socket", "POST", "/api/tokens", "ben", 201),
    ]
    assert verify_log(port.view.folder).faults == ()


def test_reading_is_no_deed(port: Recorded) -> None:
    client = port.client(TOKEN)
    for path in ("/", "/health", "/metrics", "/api/jobs", "/api/tokens", "/api/audit-log", "/login"):
        assert client.get(path).status_code == 200
    assert port.told() == []


def test_logins_and_what_a_browser_does_are_recorded(port: Recorded) -> None:
    port.tokens.create("anna", ["approver"], 30)
    client = port.client()
    client.post("/login", content=port.access.ticket("anna"))
    client.post("/api/jobs/running-1/cancel", headers={"X-Vfl-Board": "cancel", "Origin": "http://127.0.0.1:8080"})
    client.post("/login", content="wrong")
    assert port.told("person", "how", "route", "object", "result") == [
        ("", "", "/login", "anna", 200),
        ("anna", "cookie", "/api/jobs/{job_id}/cancel", "running-1", 202),
        ("anna", "cookie", "/login", "", 403),
    ]


def test_strangers_get_a_line_a_second_together(port: Recorded) -> None:
    client = port.client()
    for _ in range(100):
        client.get("/api/jobs")
        client.post("/login", content="wrong")
        client.post("/api/jobs", content="name: x")
        client.post("/login", content="x" * 1000)
    lines = port.told("count", "person", "result")
    assert sum(count for count, *_ in lines) == 400
    assert len(lines) < 40


def test_who_may_not_is_recorded_by_name(port: Recorded) -> None:
    port.client(port.tokens.create("anna", ["viewer"], 30)).post("/api/jobs", content="name: x")
    assert port.told("person", "route", "result", "count") == [("anna", "/api/jobs", 403, 1)]
    port.view.error = PolicyError("p")
    port.client(TOKEN).post("/api/jobs", content="name: x")
    assert port.told("person", "result")[-1] == ("owner", 403)


def test_a_defect_is_recorded_too(port: Recorded) -> None:
    port.view.error = RuntimeError("x")
    assert port.client(TOKEN).post("/api/jobs", content="name: x").status_code == 500
    assert port.told("person", "result") == [("owner", 500)]


def test_no_secret_stands_in_the_log(port: Recorded) -> None:
    token = port.client(TOKEN).post("/api/tokens?name=anna&roles=submitter").json()["token"]
    ticket = port.client(token).post("/api/tickets").json()["ticket"]
    cookie = port.client().post("/login", content=ticket).cookies[port.access.cookie]
    port.client(token).post(PREDICTIONS, content=b"id\nsecret-person\n")
    port.client("vfl_wrong-secret").get("/api/jobs")
    port.audit.flush()
    text = (port.view.folder / "audit.log").read_text()
    for secret in (TOKEN, token, ticket, cookie, cookie.split(".")[-1], "secret-person", "wrong-secret"):
        assert secret not in text


def test_the_owner_reads_it_by_page(port: Recorded) -> None:
    client = port.client(TOKEN)
    for _ in range(5):
        client.post("/api/jobs", content="name: x")
    lines = client.get("/api/audit-log?size=2").json()["lines"]
    assert [line["n"] for line in lines] == [5, 4]
    assert [line["n"] for line in client.get("/api/audit-log?before=3").json()["lines"]] == [2, 1]
    for query in ("size=0", "size=1001", "size=x", "before=x"):
        assert client.get(f"/api/audit-log?{query}").status_code == 400


def test_a_disk_that_is_full_stops_no_request(port: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("vfl_node.trust.audit_log.append_durably", refuse)
    assert port.client(TOKEN).post("/api/jobs", content="name: x").status_code == 201


def test_only_what_is_told_apart_needs_a_mark() -> None:
    """Of what is read, predictions alone are recorded."""
    assert [route for route, row in ROWS.items() if row.recorded] == ["GET /api/jobs/{job_id}/predictions"]
