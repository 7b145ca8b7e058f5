"""The routes of the HTTP port: who may read and act, what is answered, and which errors."""

from __future__ import annotations

import pytest

from tests.web.shown_node import AUTHORISED, TOKEN, Asked, View, at_the_board, browser
from vfl_node.errors import (
    Cancelled,
    DataError,
    Paused,
    PeerError,
    PolicyError,
    ProtocolError,
    StateError,
    UsageError,
    VflError,
)
from vfl_node.web import app
from vfl_node.web.access import MOST_TICKETS, TICKET_S, Access, OwnersSocket
from vfl_node.web.app import MAX_JOB_BYTES
from vfl_node.web.guards import SECURITY
from vfl_node.web.wanted import Wanted


def test_health_and_jobs_are_json(view: View) -> None:
    client = browser(view)
    assert client.get("/health").json()["party"] == "clinic"
    assert [job["id"] for job in client.get("/api/jobs").json()["jobs"]] == ["running-1", "waiting-1", "done-1", "failed-1"]
    assert client.get("/api/jobs/running-1").json()["done"] == 120


def test_jobs_can_be_asked_for_by_page(view: View) -> None:
    client = browser(view)
    answer = client.get("/api/jobs?state=done&search=%20lab&sort=-metric&page=1&size=7").json()
    assert view.asked_for == [Wanted(state="done", search="lab", sort="-metric", page=1, size=7)]
    assert [job["id"] for job in answer["jobs"]] == ["done-1"]
    assert (answer["total"], answer["page"], answer["size"], answer["counts"][""]) == (1, 1, 7, 4)


@pytest.mark.parametrize(
    "query", ["state=x", "sort=colour", "sort=--age", "page=0", "page=x", "page=99999999", "size=201", "size=-1"]
)
@pytest.mark.parametrize("path", ["/", "/api/jobs"])
def test_what_cannot_be_asked_for_is_an_error(view: View, path: str, query: str) -> None:
    answer = browser(view).get(f"{path}?{query}")
    assert (answer.status_code, answer.json()["code"]) == (400, "E_REQUEST")
    assert answer.json()["message"].startswith(f"{query.partition('=')[0]} is ")


def test_metrics_are_prometheus_text(view: View) -> None:
    answer = browser(view).get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "vfl_jobs 4.0" in answer.text


def test_submit_and_cancel(view: View) -> None:
    client = browser(view)
    answer = client.post("/api/jobs", content="\ufeffname: é".encode(), headers=AUTHORISED)
    assert (answer.status_code, answer.json()["id"], view.submitted) == (201, "running-1", ["name: é"])
    answer = client.post("/api/jobs/running-1/cancel", headers=AUTHORISED)
    assert (answer.status_code, view.cancelled) == (202, ["running-1"])
    assert client.post("/api/jobs/none-such/cancel", headers=AUTHORISED).status_code == 404


PREDICTIONS = "/api/jobs/done-1/predictions"


def test_known_records_are_answered_when_they_are_predicted(view: View) -> None:
    client = browser(view)
    answer = client.post(PREDICTIONS, content=b"id\na\n", headers=AUTHORISED)
    assert (answer.status_code, answer.content) == (200, b"id,probability\na,0.5\n")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert answer.headers["cache-control"] == "no-store"
    assert view.submitted == ["done-1 b'id\\na\\n'"]
    assert not view.asked.withdrawn
    view.asked = Asked(DataError("1 of 1 ids", code="E_UNKNOWN_ID", hint="leave it out"))
    answer = client.post(PREDICTIONS, content=b"id\nb\n", headers=AUTHORISED)
    assert (answer.status_code, answer.json()["code"]) == (422, "E_UNKNOWN_ID")
    assert client.post("/api/jobs/none-such/predictions", content=b"", headers=AUTHORISED).status_code == 404


def test_new_records_make_a_job_whose_predictions_are_fetched_from_it(view: View) -> None:
    client = browser(view)
    answer = client.post(f"{PREDICTIONS}?rows=new", content=b"id\na\n", headers=AUTHORISED)
    assert (answer.status_code, answer.json()["id"]) == (202, "waiting-1")
    assert view.submitted == ["done-1 b'id\\na\\n' new"]
    assert client.get(PREDICTIONS, headers=AUTHORISED).status_code == 404
    (view.folder / "done-1/predictions.csv").write_bytes(b"id,probability\na,0.5\n")
    answer = client.get(PREDICTIONS, headers=AUTHORISED)
    assert (answer.status_code, answer.content) == (200, b"id,probability\na,0.5\n")
    stranger = browser(view, headers={})
    assert stranger.get(PREDICTIONS).status_code == 401


def test_a_request_that_is_too_large_is_not_read(view: View, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "MAX_REQUEST_BYTES", 100)
    answer = browser(view).post(PREDICTIONS, content=b"x" * 101, headers=AUTHORISED)
    assert (answer.status_code, answer.json()["code"]) == (413, "E_TOO_LARGE")
    assert view.submitted == []


@pytest.mark.parametrize("path", ["/api/jobs", "/api/jobs/running-1/cancel", PREDICTIONS])
@pytest.mark.parametrize(
    "given", [None, "", TOKEN, f"Basic {TOKEN}", "Bearer", "Bearer wrong", f"Bearer {TOKEN}x", "Bearer \xe9"]
)
def test_without_the_token_nothing_is_done(view: View, path: str, given: str | None) -> None:
    headers = {} if given is None else {"Authorization": given.encode("latin-1")}
    answer = browser(view, headers={}).post(path, content="name: x", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (401, "E_TOKEN")
    assert answer.headers["www-authenticate"] == "Bearer"
    assert TOKEN not in answer.text
    assert view.submitted == view.cancelled == []


def test_a_node_without_token_lets_nobody_in(view: View) -> None:
    for given in ("Bearer None", "Bearer ", "Bearer"):
        client = browser(view, token=None, headers={"Authorization": given})
        answer = client.post("/api/jobs", content="name: x")
        assert (answer.status_code, answer.json()["code"], view.submitted) == (403, "E_READ_ONLY", [])
        assert client.get("/api/jobs").status_code == 401


SHOWN = [
    "/",
    "/?state=done",
    "/metrics",
    "/api/jobs",
    "/api/jobs?size=1",
    "/api/jobs/done-1",
    "/api/jobs/done-1/events",
    "/jobs/done-1",
    "/jobs/done-1/report.html",
    "/jobs/done-1/report.json",
    "/compare",
    "/compare?run=done-1",
    "/jobs/running-1/trace.json",
]
COMPARED = "run=done-1&run=running-1"


@pytest.mark.parametrize("path", [*SHOWN, f"/compare?{COMPARED}", f"/api/compare?{COMPARED}"])
@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}, {"Cookie": "vfl-board-node=9999999999."}])
def test_a_stranger_learns_nothing_but_that_the_node_lives(view: View, path: str, headers: dict[str, str]) -> None:
    stranger = browser(view, headers=headers)
    answer = stranger.get(path, follow_redirects=False)
    assert (answer.status_code, answer.json()["code"]) == (401, "E_TOKEN")
    page = stranger.get(path, headers={"Accept": "text/html"}, follow_redirects=False)
    assert page.status_code == 401
    for text in (answer.text, page.text):
        assert not [secret for secret in ("running-1", "clinic", "vfl_jobs", TOKEN) if secret in text]
    assert stranger.get("/health").json() == {"status": "ok"}
    assert stranger.get("/api/jobs/none-such").status_code == 401  # nor which jobs there are


def test_a_link_lets_one_browser_look_and_do_nothing(view: View) -> None:
    access = Access(TOKEN, party="clinic")
    client = browser(view, token=access, headers={})
    assert client.post("/api/tickets").status_code == 401
    made = client.post("/api/tickets", headers=AUTHORISED)
    assert made.status_code == 201
    ticket = made.json()["ticket"]
    door = client.get("/login")
    assert (door.status_code, "script-src 'self'" in door.headers["content-security-policy"]) == (200, True)
    assert door.headers["referrer-policy"] == "no-referrer"
    entered = client.post("/login", content=ticket)
    cookie = entered.headers["set-cookie"]
    assert cookie.startswith("vfl-board-clinic=")
    for attribute in ("HttpOnly", "SameSite=strict", "Path=/"):
        assert attribute in cookie
    assert TOKEN not in cookie
    assert ticket not in cookie
    for path in SHOWN:
        assert client.get(path).status_code == 200, path
    assert client.get("/health").json()["party"] == "clinic"
    assert client.get("/health").json()["data"]["errors"][0]["code"] == "E_CSV"
    for path in ("/api/jobs", "/api/jobs/running-1/cancel", "/api/jobs/failed-1/resume", "/api/tickets", PREDICTIONS):
        assert client.post(path, content="name: x").status_code == 401, path
    assert client.get(PREDICTIONS).status_code == 401
    other = browser(view, token=access, headers={})
    for used in (ticket, "", "x" * 1000, "é"):
        refused = other.post("/login", content=used.encode())
        assert (refused.status_code, refused.json()["code"]) == (403, "E_TICKET")
    assert other.get("/").status_code == 401


CANCEL = "/api/jobs/running-1/cancel"
FROM_THE_BOARD = {"X-Vfl-Board": "cancel", "Origin": "http://127.0.0.1:8080"}


@pytest.mark.parametrize("more", [{}, {"Sec-Fetch-Site": "same-origin"}])
def test_a_page_of_the_board_may_cancel_and_do_nothing_else(view: View, more: dict[str, str]) -> None:
    client, headers = at_the_board(view), FROM_THE_BOARD | more
    assert client.post(CANCEL, headers=headers).status_code == 202
    assert view.cancelled == ["running-1"]
    for path in ("/api/jobs", "/api/jobs/failed-1/resume", "/api/prune", "/api/tickets", PREDICTIONS):
        assert client.post(path, content="name: x", headers=headers).status_code == 401, path
    assert client.get(PREDICTIONS, headers=headers).status_code == 401
    assert view.submitted == []


@pytest.mark.parametrize(
    "changes",
    [
        {"X-Vfl-Board": ""},
        {"X-Vfl-Board": "submit"},
        {"Origin": ""},
        {"Origin": "null"},
        {"Origin": "http://evil.example"},
        {"Origin": "http://127.0.0.1:8081"},
        {"Origin": "http://[127.0.0.1:8080"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
    ],
)
def test_another_site_cancels_nothing_with_the_cookie(view: View, changes: dict[str, str]) -> None:
    given = {name: value for name, value in (FROM_THE_BOARD | changes).items() if value}
    assert at_the_board(view).post(CANCEL, headers=given).status_code == 401
    assert browser(view, headers={}).post(CANCEL, headers=FROM_THE_BOARD).status_code == 401  # without the cookie
    assert browser(view, token=None, headers={}).post(CANCEL, headers=FROM_THE_BOARD).status_code == 403
    assert view.cancelled == []


def test_tickets_and_cookies_end_and_are_of_one_token(view: View) -> None:
    now = [1000.0]
    access = Access(TOKEN, clock=lambda: now[0])
    ticket, late = access.ticket(), access.ticket()
    cookie = access.redeem(ticket)
    now[0] += TICKET_S + 1
    assert cookie
    assert access.redeem(late) is None

    def seen(cookie: str, of: Access = access) -> int:
        return browser(view, token=of, headers={"Cookie": f"{access.cookie}={cookie}".encode("latin-1")}).get("/").status_code

    until, _, proof = cookie.partition(".")
    assert seen(cookie) == 200
    for forged in (f"{int(until) + 1}.{proof}", f"{until}.{proof[:-1]}", f"{until}.", ".", "é.é", proof):
        assert seen(forged) == 401
    assert seen(cookie, Access("another", clock=lambda: now[0])) == 401
    now[0] = float(until)
    assert seen(cookie) == 401
    first, *rest = [access.ticket() for _ in range(MOST_TICKETS + 1)]
    assert access.redeem(first) is None
    assert all(map(access.redeem, rest))


def test_over_the_owners_socket_nothing_is_asked_for(view: View) -> None:
    access = Access(TOKEN)
    owner = browser(view, token=OwnersSocket(access), headers={})
    for path in (*SHOWN, "/health"):
        assert owner.get(path).status_code == 200
    assert owner.post("/api/jobs", content="name: x").status_code == 201
    assert access.redeem(owner.post("/api/tickets").json()["ticket"])


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (UsageError("u", code="E_YAML", hint="h"), 400),
        (UsageError("u", code="E_UNKNOWN_JOB"), 404),
        (UsageError("u", code="E_JOB_ENDED"), 409),
        (PolicyError("p"), 403),
        (PolicyError("p", code="E_BUSY"), 429),
        (StateError("s", code="E_DISK_FULL"), 507),
        (StateError("s", code="E_FILES"), 503),
        (DataError("d"), 422),
        (PeerError("p"), 502),
        (PeerError("p", code="E_INTERNAL"), 502),
        (ProtocolError("p", code="E_NAN"), 502),
        (Cancelled("c"), 409),
        (StateError("s"), 503),
        (StateError("s", code="E_INPUT_CHANGED"), 409),
        (Paused("p"), 503),
        (VflError("v"), 500),
    ],
)
def test_errors_have_status_code_message_and_hint(view: View, error: VflError, status: int) -> None:
    view.error = error
    answer = browser(view).post("/api/jobs", content="name: x", headers=AUTHORISED)
    assert answer.status_code == status
    assert answer.json() == {"code": error.code, "message": error.message, "hint": error.hint}


def test_a_defect_shows_nothing_of_itself(view: View) -> None:
    view.error = RuntimeError("secret in /etc/passwd")
    answer = browser(view).post("/api/jobs", content="name: x", headers=AUTHORISED)
    assert (answer.status_code, answer.json()["code"]) == (500, "E_INTERNAL")
    assert "secret" not in answer.text
    assert {name.lower(): value for name, value in SECURITY.items()}.items() <= answer.headers.items()


def test_a_job_too_large_or_not_text_is_refused(view: View) -> None:
    client = browser(view)
    answer = client.post("/api/jobs", content=b"x" * (MAX_JOB_BYTES + 1), headers=AUTHORISED)
    assert (answer.status_code, answer.json()["code"]) == (413, "E_TOO_LARGE")
    answer = client.post("/api/jobs", content=b"name: \xff", headers=AUTHORISED)
    assert (answer.status_code, answer.json()["code"]) == (400, "E_YAML")
    assert view.submitted == []


def test_reports(view: View) -> None:
    client = browser(view)
    page = client.get("/jobs/done-1/report.html")
    assert page.headers["content-type"].startswith("text/html")
    assert "script" not in page.headers["content-security-policy"]
    assert client.get("/jobs/done-1/report.json").json() == {"format": 1}
    answer = client.get("/jobs/done-1", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (307, "/jobs/done-1/report.html")
    answer = client.get("/jobs/running-1/report.json")
    assert (answer.status_code, answer.json()["code"]) == (404, "E_NO_REPORT")


def test_traces(view: View) -> None:
    client = browser(view)
    answer = client.get("/jobs/running-1/trace.json")
    assert (answer.headers["content-type"], answer.json()) == ("application/json", {"traceEvents": []})
    answer = client.get("/jobs/waiting-1/trace.json")
    assert (answer.status_code, answer.json()["code"]) == (404, "E_NO_TRACE")
    assert client.get("/jobs/none-such/trace.json").json()["code"] == "E_UNKNOWN_JOB"


@pytest.mark.parametrize("prefix", ["/jobs/", "/api/jobs/"])
@pytest.mark.parametrize(
    "job_id",
    ["%2e%2e%2f", "..%2f..%2ftoken", "%2e%2e%2ftoken", "done-1%2f..%2f..", "DONE-1", "done_1", "x" * 101, "%00", "é"],
)
def test_ids_that_are_not_ids_reach_nothing(view: View, prefix: str, job_id: str) -> None:
    asked: list[str] = []
    view.artefact = lambda job, name: asked.append(job)  # type: ignore[method-assign, assignment, return-value]
    view.job = lambda job: asked.append(job)  # type: ignore[method-assign, assignment, return-value]
    client = browser(view)
    for name in ("", "/report.json", "/report.html", "/trace.json"):
        path = f"{prefix}{job_id}{name}"
        answer = client.get(path, follow_redirects=False)
        assert answer.status_code == 404, path
        assert "hidden" not in answer.text
    assert asked == []


def test_unknown_addresses_and_methods_are_json_errors(view: View) -> None:
    client = browser(view)
    assert (client.get("/token").status_code, client.get("/token").json()["code"]) == (404, "E_NOT_FOUND")
    answer = client.delete("/api/jobs/done-1")
    assert (answer.status_code, answer.json()["code"], "GET" in answer.headers["allow"]) == (405, "E_METHOD", True)


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:8080", "127.0.0.1", "localhost", "LOCALHOST:9", "[::1]:8080", "[::1]", "10.0.0.7:80", "board.internal:80"],
)
def test_hosts_that_are_answered(view: View, host: str) -> None:
    client = browser(view, names=("localhost", "board.internal"))
    assert client.get("/health", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example:8080",
        "",
        "127.0.0.1@evil",
        "[::1",
        "::1",
        "localhost:x",
        "board.internal",
    ],
)
def test_hosts_that_are_refused(view: View, host: str) -> None:
    answer = browser(view).get("/api/jobs", headers={"Host": host})
    assert (answer.status_code, answer.json()["code"]) == (421, "E_HOST")
    assert "jobs" not in answer.json()
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_two_hosts_are_refused(view: View) -> None:
    headers = [(b"host", b"localhost"), (b"host", b"evil.example")]
    assert browser(view).get("/health", headers=headers).status_code == 421


@pytest.mark.parametrize(
    "path", ["/", "/health", "/metrics", "/api/jobs", "/jobs/failed-1", "/jobs/done-1/report.html", "/none"]
)
def test_every_answer_has_the_security_headers_and_no_cors(view: View, path: str) -> None:
    headers = browser(view).get(path, headers={"Origin": "http://evil.example"}).headers
    for name, value in SECURITY.items():
        if name != "Content-Security-Policy":
            assert headers[name] == value
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert "default-src 'none'" in headers["content-security-policy"]
    assert not [name for name in headers if name.startswith("access-control")]
    assert "server" not in headers


def test_the_owner_gives_a_job_a_priority_and_drains_the_node(view: View) -> None:
    owner = browser(view)
    owner.headers.update(AUTHORISED)
    assert owner.post("/api/jobs?priority=-2", content="name: x").status_code == 201
    assert view.all[0]["priority"] == -2
    refused = owner.post("/api/jobs?priority=3", content="name: x")
    assert (refused.status_code, refused.json()["code"]) == (400, "E_REQUEST")
    assert owner.post("/api/drain").json() == {"draining": True}
    assert "It begins no job" in owner.get("/").text
    assert owner.delete("/api/drain").json() == {"draining": False}
    assert not view.draining
