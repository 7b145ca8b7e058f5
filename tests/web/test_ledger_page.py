"""The page with the ledgers, and the same as JSON."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.web.shown_node import AUTHORISED, EXTENSION, HOSTILE, View, browser


@pytest.fixture
def view(tmp_path: Path) -> View:
    return View(tmp_path)


def test_the_page_has_what_is_used_and_the_newest_entries(view: View) -> None:
    html = browser(view).get("/ledger").text
    assert "130 entries; lab has signed entry 129" in html
    assert "17 of 20 left" in html
    assert "0 of 2 per week left, the next is free on 2027-01-31" in html
    assert "Trainings over" not in html  # of which nothing is used
    assert html.count("<td>count</td>") == 100
    assert html.index('<td class="num">130</td>') < html.index('<td class="num">31</td>')
    assert '<td class="num">30</td>' not in html
    assert "vfl-node ledger --partner lab" in html
    assert "entry 3 is damaged" in html  # and the other ledger is shown all the same


def test_hostile_words_stay_text(view: View) -> None:
    html = browser(view).get("/ledger").text
    assert HOSTILE not in html
    assert "&lt;script&gt;" in html


def test_its_json_is_whole(view: View) -> None:
    found = browser(view).get("/api/ledger").json()["ledgers"]
    assert [len(found[0]["listed"]), found[1]["error"][:7]] == [130, "entry 3"]
    assert len(browser(view).get("/api/ledger?since=2027").json()["ledgers"]) == 1


def test_with_nobody_it_says_so(view: View, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "ledgers", list)
    assert "Nothing was agreed with anybody yet" in browser(view).get("/ledger").text


def test_open_requests_stand_on_both_pages_with_their_buttons(view: View) -> None:
    html, overview = browser(view).get("/ledger").text, browser(view).get("/").text
    assert "lab asks you for 10 more of" in html
    assert "A second person must say yes before lab is asked for 0.5 more of" in html
    assert "ann has said yes" in html
    for request_id in ("0123456789abcdef", "fedcba9876543210"):
        for answer in ("approve", "refuse"):
            assert html.count(f'data-post="/api/extensions/{request_id}/{answer}"') == 1
            assert html.count(f'data-open="{answer}-{request_id}"') == 1
    assert "0" * 16 not in html  # it is refused
    assert (overview.count("lab asks you for more of"), overview.count("Your node is to ask lab for more of")) == (1, 1)
    view.requests.all = [EXTENSION | {"state": "agreed"}]
    assert "asks you for" not in browser(view).get("/ledger").text + browser(view).get("/").text


def test_a_request_is_asked_for_and_answered(view: View) -> None:
    client, about = browser(view), {"partner": "lab", "budget": "trainings", "more": 10, "until": "2027-01-31", "reason": "a"}
    asked = client.post("/api/extensions", json=about, headers=AUTHORISED)
    assert (asked.status_code, asked.json()["id"]) == (201, EXTENSION["id"])
    for answer in ("approve", "refuse"):
        assert client.post(f"/api/extensions/{EXTENSION['id']}/{answer}", headers=AUTHORISED).status_code == 202
    assert view.requests.said == [
        ("ask", "lab", "trainings", 10, "2027-01-31", "a", None),
        ("approve", EXTENSION["id"], None),
        ("refuse", EXTENSION["id"]),
    ]
    for wrong in (
        {**about, "more": "10"},
        {**about, "more": True},
        {**about, "until": 3},
        {"partner": "lab"},
        [],
        {**about, "x": 1},
    ):
        refused = client.post("/api/extensions", json=wrong, headers=AUTHORISED)
        assert (refused.status_code, refused.json()["code"]) == (400, "E_REQUEST")
