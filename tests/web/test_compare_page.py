"""Runs side by side on the board."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest

from tests.compared_runs import HIGH, LOW, SOME, a_report, store
from tests.web.shown_node import HOSTILE, View, a_job, browser
from tests.web.test_pages import Attributes
from vfl_node.report.terms import TERMS

TWO = "run=done-1&run=done-2"


@pytest.fixture
def compared(view: View) -> View:
    """A node with reports of seven jobs, the second one with a name that is none of a job."""
    for number in range(1, 8):
        name = HOSTILE if number == 2 else f"trial-{number}"
        own = a_report(f"trial-{number}", labels=(HIGH, SOME, LOW)[number % 3], sent=number, epochs=number)
        own["job"] |= {"id": f"done-{number}", "name": name}
        store(view.folder / f"done-{number}", own)
    view.all[2:3] = [a_job(f"done-{number}", "done", name=f"trial-{number}", report=True) for number in range(1, 8)]
    return view


def test_the_page_has_choice_table_drawings_and_links(compared: View) -> None:
    answer = browser(compared).get(f"/compare?{TWO}")
    html = answer.text
    assert answer.status_code == 200
    assert '<p class="say">Choose “' in html
    assert '1 <a href="/jobs/done-1/report.html">trial-1</a>' in html
    assert '<code>train.epochs</code></span></th>\n<td>1</td>\n<td class="dif">2</td>' in html
    assert "Other rows were held out." in html
    assert html.count('<path class="curve ') == 2
    assert 'aria-current="page">Compare' in html
    assert "equal settings</summary>" in html
    assert "/compare?run=done-1&amp;run=done-2&amp;run=done-3" in html
    assert 'href="/compare?run=done-2">Leave out trial-1' in html


def test_its_metrics_link_to_words_that_explain_them(compared: View) -> None:
    html = browser(compared).get(f"/compare?{TWO}").text
    assert f'<a class="term" href="#word-auc" title="{TERMS["AUC"]}">AUC</a>' in html
    listed = re.findall(r'<dt id="([^"]+)">', html)
    assert set(listed) == set(re.findall(r'class="term" href="#([^"]+)"', html))
    assert len(listed) == len(set(listed))
    assert "Words on this page" not in browser(compared).get("/compare").text


def test_it_loads_little_and_only_what_this_node_serves(compared: View) -> None:
    client = browser(compared)
    html = client.get("/compare?" + "&".join(f"run=done-{number}" for number in range(1, 7))).text
    files = re.findall(r'(?:src|stylesheet" href)="([^"]+)"', html)
    assert len(html) + sum(len(client.get(place).content) for place in files) < 70_000
    assert not re.search(r"<style|<script>|://|http-equiv", html)
    found = Attributes()
    found.feed(html)
    assert not {name for name in found.names if name.startswith("on") or name == "style"}


def test_hostile_names_stay_text_beside_runs(compared: View) -> None:
    html = browser(compared).get(f"/compare?{TWO}").text
    assert "&lt;img src=x" in html
    assert "<img" not in html
    assert "<script>alert" not in html


def test_its_json_has_what_the_page_has(compared: View) -> None:
    found = browser(compared).get(f"/api/compare?{TWO}").json()
    assert [run["job"] for run in found["runs"]] == ["done-1", "done-2"]
    assert found["choice"]["words"] in unescape(browser(compared).get(f"/compare?{TWO}").text)


@pytest.mark.parametrize(
    ("query", "status", "code", "words"),
    [
        ("run=done-1&run=none-such", 404, "E_UNKNOWN_JOB", "no such job here"),
        ("run=done-1&run=../token", 404, "E_UNKNOWN_JOB", "no such job here"),
        ("run=done-1&run=running-1", 404, "E_NO_REPORT", "running-1 has no report"),
        ("&".join(f"run=done-{number}" for number in range(1, 8)), 400, "E_REQUEST", "7 are named, and two to six runs"),
    ],
)
def test_what_cannot_be_compared_ends_in_one_sentence(compared: View, query: str, status: int, code: str, words: str) -> None:
    client = browser(compared)
    answer = client.get(f"/api/compare?{query}")
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    page = client.get(f"/compare?{query}")
    assert page.status_code == 400
    assert words in page.text
    assert "Add trial-" in page.text or "Leave out trial-" in page.text  # and how to go on


def test_runs_are_chosen_by_links(compared: View) -> None:
    client = browser(compared)
    html = client.get("/compare").text
    assert "Choose the first of two to six runs." in html
    assert 'href="/compare?run=done-3">Compare trial-3' in html
    assert "running-1" not in html
    html = client.get("/compare?run=done-3").text
    assert "Choose a run to compare it with." in html
    assert 'href="/compare?run=done-3&amp;run=done-1">Add trial-1' in html
    assert client.get("/api/compare?run=done-3").json()["code"] == "E_REQUEST"


def test_a_node_without_reports_says_what_to_do(view: View) -> None:
    view.all = []
    assert "vfl-node submit" in browser(view).get("/compare").text


def test_a_run_that_is_named_twice_counts_once(compared: View) -> None:
    found: dict[str, Any] = browser(compared).get(f"/api/compare?{TWO}&run=done-1").json()
    assert len(found["runs"]) == 2
