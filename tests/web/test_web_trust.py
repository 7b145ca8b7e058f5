"""The routes of invites and peers: the node's token opens them, and nothing else does."""

from __future__ import annotations

import pytest

from tests.web.shown_node import AUTHORISED, TOKEN, View, browser
from vfl_node.web.access import Access

ROUTES = [
    ("POST", "/api/invite"),
    ("GET", "/api/invite"),
    ("DELETE", "/api/invite"),
    ("POST", "/api/peers/lab"),
    ("POST", "/api/peers/lab/revoke"),
]


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_only_the_token_opens_them(view: View, method: str, path: str) -> None:
    assert browser(view, headers={}).request(method, path).status_code == 401
    access = Access(TOKEN, party="clinic")
    client = browser(view, token=access, headers={})
    client.post("/login", content=access.ticket())
    for headers in ({}, {"X-Vfl-Board": "cancel", "Origin": "http://127.0.0.1:8080"}, {"Authorization": "Bearer wrong"}):
        answer = client.request(method, path, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (401, "E_TOKEN")
    assert browser(view, token=None, headers={}).request(method, path).status_code == 403
    assert view.trusted == []
    assert browser(view).request(method, path, headers=AUTHORISED).status_code in (200, 201)


def test_they_do_what_they_say(view: View) -> None:
    client = browser(view, headers=AUTHORISED)
    assert client.post("/api/invite?minutes=2&address=clinic.example:7443").json()["code"] == "7KQ4-M2XP"
    assert client.get("/api/invite").json() == {"left": 5, "met": ""}
    client.delete("/api/invite")
    client.post("/api/peers/lab")
    assert client.post("/api/peers/lab/revoke?reason=lost").json() == {"paused": ["running-1"]}
    assert view.trusted == [
        ("invite", "2", "clinic.example:7443"),
        ("close",),
        ("admit", "lab"),
        ("revoke", "lab", "lost"),
    ]


@pytest.mark.parametrize(
    "path", ["invite?minutes=x", "invite?address=nowhere", "peers/..%2Fx", "peers/LAB", "peers/a.b/revoke"]
)
def test_what_cannot_be_asked_for_is_an_error(view: View, path: str) -> None:
    answer = browser(view, headers=AUTHORISED).post(f"/api/{path}")
    assert answer.status_code in (400, 404)
    assert view.trusted == []
