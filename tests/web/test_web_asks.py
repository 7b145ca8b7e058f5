"""The routes about jobs that wait for the owner: who may read, who may answer, and what is an answer."""

from __future__ import annotations

import re

import pytest
from starlette.testclient import TestClient

from tests.web.shown_node import AUTHORISED, SHOWN, TOKEN, View, a_job, at_the_board, browser
from tests.web.test_pages import Attributes
from vfl_node.errors import UsageError
from vfl_node.trust.refusal import RefusalReason
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
    assert [ask["id"] for ask in client.get(READS[0]).json()["asks"]] == ["asked-1", "asked-2"]
    assert client.get(READS[1]).json()["digits"] == "8ac00b0a"


FROM_THE_BOARD = {"Origin": "http://127.0.0.1:8080", "Host": "127.0.0.1:8080"}


def asked(view: View) -> TestClient:
    view.all.append(a_job("asked-1", "asked", submitter="lab", name="weekly"))
    return at_the_board(view)


def test_the_page_shows_what_is_asked_and_its_forms_have_the_digest(view: View) -> None:
    text = asked(view).get("/jobs/asked-1").text
    for part in (
        "lab asks to run weekly",
        "waits until 2026-03-08",
        "gradients",
        "Different pairs of sets",
        "2 per week",
        "train.epochs",
        "done-1",
    ):
        assert part in text
    assert f'<input type=hidden name="digest" value="{SHOWN["digest"]}">' in text
    assert text.count("tag warn") == 1
    assert "<script>alert" not in text
    assert not re.search(r"<style|<script>|://", text)
    found = Attributes()
    found.feed(text)
    assert not {name for name in found.names if name.startswith("on") or name == "style"}
    assert set(re.findall(r'<option value="(\w+)"', text)) == {reason.value for reason in RefusalReason}


def test_the_overview_says_that_a_job_waits_for_the_owner(view: View) -> None:
    text = asked(view).get("/").text
    assert "<b>weekly waits for you.</b>" in text
    assert "<b>monthly waits for you, and cannot be read.</b>" in text
    assert "vfl-node cancel asked-2" in text
    assert '<a href="/jobs/asked-1">' in text
    assert "<script>alert" not in text


@pytest.mark.parametrize("what", ANSWERS)
def test_a_button_of_the_board_answers_and_nothing_else_does(view: View, what: str) -> None:
    client, path, body = at_the_board(view), f"/api/jobs/asked-1/{what}", ANSWERS[what]
    other = next(name for name in ANSWERS if name != what)
    for changes in (
        {"X-Vfl-Board": other},
        {"X-Vfl-Board": "cancel"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
    ):
        assert client.post(path, json=body, headers=FROM_THE_BOARD | {"X-Vfl-Board": what} | changes).status_code == 401
    assert browser(view, headers={}).post(path, json=body, headers=FROM_THE_BOARD | {"X-Vfl-Board": what}).status_code == 401
    assert view.answered == []
    answer = client.post(path, json=body | {"note": ""}, headers=FROM_THE_BOARD | {"X-Vfl-Board": what})
    assert answer.status_code == 202
    assert [said[0] for said in view.answered] == [what]


@pytest.mark.parametrize("what", ANSWERS)
def test_only_the_token_or_a_button_answers(view: View, what: str) -> None:
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
