"""People with tokens of their own at the HTTP port: what they get, and how it ends."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.web.shown_node import AUTHORISED, TOKEN, Asked, View, browser
from vfl_node.trust.tokens import DAY_S, Tokens
from vfl_node.web.access import Access

FROM_THE_BOARD = {"X-Vfl-Board": "cancel", "Origin": "http://127.0.0.1:8080"}


class Port:
    """The port of a node that gives people tokens, and its clock."""

    def __init__(self, view: View) -> None:
        self.view, self.now = view, 1_800_000_000.0
        self.tokens = Tokens(view.folder, clock=lambda: self.now)
        self.access = Access(TOKEN, party="clinic", people=self.tokens, clock=lambda: self.now)

    def client(self, token: str = "") -> TestClient:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return browser(self.view, token=self.access, tokens=self.tokens, headers=headers)

    def board(self, token: str) -> TestClient:
        """A browser that came in by a link of who has this token."""
        ticket = self.client(token).post("/api/tickets").json()["ticket"]
        client = self.client()
        assert client.post("/login", content=ticket).status_code == 200
        return client


@pytest.fixture
def port(view: View) -> Port:
    return Port(view)


def test_the_owner_makes_lists_and_ends_tokens(port: Port) -> None:
    owner = port.client(TOKEN)
    made = owner.post("/api/tokens?name=anna&roles=viewer,submitter&days=30")
    assert made.status_code == 201
    token = made.json().pop("token")
    assert owner.get("/api/tokens").json() == {"tokens": [{k: v for k, v in made.json().items() if k != "token"}]}
    assert token not in owner.get("/api/tokens").text
    anna = port.client(token)
    assert anna.get("/api/jobs").status_code == 200
    assert anna.post("/api/tokens?name=ben&roles=admin").status_code == 403
    assert owner.delete("/api/tokens/anna").status_code == 200
    refused = anna.get("/api/jobs")
    assert (refused.status_code, refused.json()["code"]) == (401, "E_TOKEN")
    assert (owner.delete("/api/tokens/anna").status_code) == 404


@pytest.mark.parametrize(
    "query", ["", "name=anna", "name=anna&roles=root", "name=A&roles=viewer", "name=a&roles=viewer&days=x"]
)
def test_a_token_that_cannot_be_made_is_an_error(port: Port, query: str) -> None:
    answer = port.client(TOKEN).post(f"/api/tokens?{query}")
    assert answer.status_code == 400
    assert port.tokens.tokens() == []


def test_an_old_token_is_refused(port: Port) -> None:
    token = port.tokens.create("anna", ["admin"], 1)
    assert port.client(token).get("/api/tokens").status_code == 200
    port.now += DAY_S
    assert port.client(token).get("/api/tokens").status_code == 401


def test_a_browser_has_the_roles_of_who_let_it_in_and_ends_with_that_token(port: Port) -> None:
    viewer = port.board(port.tokens.create("anna", ["viewer"], 30))
    approver = port.board(port.tokens.create("ben", ["approver"], 30))
    cancel = "/api/jobs/running-1/cancel"
    assert viewer.get("/").status_code == approver.get("/").status_code == 200
    assert viewer.post(cancel, headers=FROM_THE_BOARD).status_code == 403
    assert approver.post(cancel).status_code == 401  # no page of the board says so
    assert approver.post(cancel, headers=FROM_THE_BOARD).status_code == 202
    port.tokens.revoke("anna")
    port.tokens.create("anna", ["viewer"], 30)
    assert viewer.get("/").status_code == 401
    assert approver.get("/").status_code == 200


def test_a_cookie_of_one_person_is_none_of_another(port: Port) -> None:
    token = port.tokens.create("anna", ["viewer"], 30)
    port.tokens.create("ben", ["admin"], 30)
    until, _, proof = port.board(token).cookies[port.access.cookie].split(".")
    for forged in (f"{until}.ben.{proof}", f"{until}.owner.{proof}", f"{until}..{proof}", f"{until}.{proof}"):
        assert port.client().get("/", headers={"Cookie": f"{port.access.cookie}={forged}"}).status_code == 401


def test_a_ticket_of_somebody_who_was_revoked_lets_nobody_in(port: Port) -> None:
    ticket = port.client(port.tokens.create("anna", ["viewer"], 30)).post("/api/tickets").json()["ticket"]
    port.tokens.revoke("anna")
    assert port.client().post("/login", content=ticket).status_code == 403


def test_a_job_says_who_submitted_it_and_only_this_submitter_cancels_it(port: Port, view: View) -> None:
    anna, ben = (port.client(port.tokens.create(name, ["submitter"], 30)) for name in ("anna", "ben"))
    assert anna.post("/api/jobs", content="name: x").json()["by"] == "anna"
    assert '<td data-label="By">anna</td>' in anna.get("/").text
    assert "by anna" in anna.get("/jobs/running-1").text
    assert ben.post("/api/jobs/running-1/cancel").status_code == 403
    assert anna.post("/api/jobs/running-1/cancel").status_code == 202
    assert port.client(TOKEN).post("/api/jobs", content="name: x").json()["by"] is None
    assert anna.post("/api/jobs/running-1/cancel").status_code == 403


def test_prometheus_gets_figures_and_nothing_else(port: Port) -> None:
    client = port.client(port.tokens.create("prometheus", ["metrics"], 365))
    assert "vfl_jobs 4.0" in client.get("/metrics").text
    assert client.get("/health").json() == {"status": "ok"}
    assert client.get("/api/jobs").status_code == client.post("/api/tickets").status_code == 403


def test_a_request_that_waits_ends_with_its_token(port: Port, view: View) -> None:
    view.asked = Asked(None)
    view.asked.ready = lambda: None  # type: ignore[method-assign]
    client = port.client(port.tokens.create("anna", ["submitter"], 30))
    found: list[Any] = []
    waiting = threading.Thread(target=lambda: found.append(client.post("/api/jobs/done-1/predictions", content=b"id\na\n")))
    waiting.start()
    time.sleep(0.1)
    assert port.client(AUTHORISED["Authorization"].split()[1]).delete("/api/tokens/anna").status_code == 200
    waiting.join(20)
    assert found[0].status_code == 401
    assert view.asked.withdrawn
