"""The routes about jobs that wait for the owner: who may read, who may answer, and what is an answer."""

from __future__ import annotations

import pytest

from tests.web.shown_node import AUTHORISED, TOKEN, View, browser
from vfl_node.errors import UsageError
from vfl_node.web.access import Access

READS = ("/api/asks", "/api/jobs/asked-1/manifest")
ANSWERS = {"approve": {"digest": "8ac00b0a"}, "refuse": {"reason": "data"}}


def test_a_browser_reads_what_is_asked(view: View) -> None:
    access = Access(TOKEN, party="clinic")
    client = browser(view, token=access, headers={})
    assert [client.get(path).status_code for path in READS] == [401, 401]
    assert browser(view, token=None, headers={}).get(READS[0]).status_code == 401
    client.post("/login", content=access.ticket())
    assert [client.get(path).status_code for path in READS] == [200, 200]
    assert client.get(READS[0]).json() == {"asks": [{"id": "asked-1"}]}
    assert client.get(READS[1]).json()["digits"] == "8ac00b0a"


@pytest.mark.parametrize("what", ANSWERS)
def test_only_the_token_answers(view: View, what: str) -> None:
    path, body = f"/api/jobs/asked-1/{what}", ANSWERS[what]
    access = Access(TOKEN, party="clinic")
    client = browser(view, token=access, headers={})
    client.post("/login", content=access.ticket())
    for headers in ({}, {"X-Vfl-Board": "cancel", "Origin": "http://127.0.0.1:8080"}, {"Authorization": "Bearer wrong"}):
        answer = client.post(path, json=body, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (401, "E_TOKEN")
    assert browser(view, token=None, headers={}).post(path, json=body).status_code == 403
    assert view.answered == []
    assert client.get(path, headers=AUTHORISED).status_code == 405


def test_an_answer_reaches_the_node(view: View) -> None:
    client = browser(view, headers=AUTHORISED)
    assert client.post("/api/jobs/asked-1/approve", json={"digest": "8ac00b0a", "note": "weekly"}).status_code == 202
    assert client.post("/api/jobs/asked-1/refuse", json={"reason": "data"}).status_code == 202
    assert view.answered == [("approve", "asked-1", "8ac00b0a", "weekly"), ("refuse", "asked-1", "data", "")]


@pytest.mark.parametrize(
    "body",
    [b"", b"8ac00b0a", b"[]", b"{}", b'{"digest": 8}', b'{"digest": "8", "more": "x"}', b'{"note": "x"}', b"[" * 4000],
)
def test_what_is_no_answer_is_refused(view: View, body: bytes) -> None:
    answer = browser(view, headers=AUTHORISED).post("/api/jobs/asked-1/approve", content=body)
    assert (answer.status_code, answer.json()["code"]) == (400, "E_REQUEST")
    assert view.answered == []


@pytest.mark.parametrize("note", ["two\nlines", "\x1b[31mred", "\u202etfel"])
def test_a_note_is_one_line_of_characters_that_can_be_shown(view: View, note: str) -> None:
    answer = browser(view, headers=AUTHORISED).post("/api/jobs/asked-1/refuse", json={"reason": "data", "note": note})
    assert (answer.status_code, answer.json()["code"]) == (400, "E_REQUEST")


@pytest.mark.parametrize(
    ("code", "status"), [("E_STALE", 409), ("E_NOT_ASKED", 409), ("E_CONSENT", 409), ("E_UNKNOWN_JOB", 404)]
)
def test_an_answer_that_does_not_count_says_why(view: View, code: str, status: int) -> None:
    view.answers_with = UsageError("no", code=code)
    answer = browser(view, headers=AUTHORISED).post("/api/jobs/asked-1/approve", json={"digest": "8ac00b0a"})
    assert (answer.status_code, answer.json()["code"]) == (status, code)
