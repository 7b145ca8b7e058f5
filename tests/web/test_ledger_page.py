"""The page with the ledgers, and the same as JSON."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.web.shown_node import HOSTILE, View, browser


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
