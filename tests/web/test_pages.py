"""The pages of the board: what they show, and what they let a browser run."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest
import yaml

from tests.web.shown_node import HOSTILE, View, browser
from vfl_node.job import Job
from vfl_node.node.record import describe_spec
from vfl_node.web.wanted import Wanted


class Attributes(HTMLParser):
    """Gathers the names of all attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names |= {name for name, _ in attrs}


@pytest.mark.parametrize("path", ["/", "/jobs/failed-1", "/jobs/running-1", "/login"])
def test_pages_run_and_load_only_what_this_node_serves(view: View, path: str) -> None:
    client = browser(view)
    answer = client.get(path)
    policy = answer.headers["content-security-policy"]
    assert "script-src 'self';" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"<style|<script>|://", answer.text)
    loaded = re.findall(r'(?:src|stylesheet" href)="([^"]+)"', answer.text)
    assert len(loaded) > 1
    for place in loaded:
        served = client.get(place)
        assert served.headers["content-type"].startswith(("text/css", "text/javascript")), place
        assert "immutable" in served.headers["cache-control"]
    found = Attributes()
    found.feed(answer.text)
    assert not {name for name in found.names if name.startswith("on") or name == "style"}


def test_a_page_with_all_its_files_is_small(view: View) -> None:
    client = browser(view)
    for path in ("/", "/jobs/running-1"):
        html = client.get(path).text
        files = re.findall(r'(?:src|stylesheet" href)="([^"]+)"', html)
        assert len(html) + sum(len(client.get(place).content) for place in files) < 70_000, path


def test_the_overview_names_schedules_that_refusals_have_paused(view: View) -> None:
    text = browser(view).get("/").text
    assert "Schedule weekly is paused after 3 refusals in a row." in text
    assert "vfl-node schedule resume weekly" in text
    assert "daily" not in text
    assert HOSTILE not in text


@pytest.mark.parametrize("place", ["board.css", "../app.py", "..%2fapp.py", "0123456789ab-board.css", "login.html.j2"])
def test_no_other_file_is_served(view: View, place: str) -> None:
    assert browser(view).get(f"/static/{place}").status_code == 404


def test_the_overview_shows_states_progress_and_peers(view: View) -> None:
    html = browser(view).get("/").text
    assert 'class="state running"><svg' in html
    assert "train: 120 of 400 batches" in html
    assert '<progress max="400" value="120"' in html
    assert html.count('name="run"') == 1  # of the only job that can be compared
    assert "1 of 2 partners connected" in html
    assert "<code>E_CSV</code>" in html  # why its table cannot be used, and why a job failed
    said = " ".join(html.split())
    assert "Version 0, same as yours. Round trip 12 ms." in said
    assert 'Certificate <span class="warn">12 days</span>: ask for a new one.' in said


def test_the_overview_shows_the_figures_of_a_job(view: View) -> None:
    metric = {"name": "auc", "value": 0.977, "low": 0.961, "high": 0.994, "alone": 0.903, "same_rows": False}
    leaks = {"labels": "high", "membership": "open", "columns": "not_measured"}
    view.all[2] |= {"metric": metric, "leaks": leaks, "took_s": 69.0, "purpose": "Does <b>it help?", "submitter": "lab"}
    html = browser(view).get("/").text
    assert '<b>0.977</b><span class="sub">AUC 0.961 to 0.994</span>' in html
    assert '0.903<span class="sub">other rows</span>' in html
    assert "Does &lt;b&gt;it help?" in html
    for title in ("labels: high", "membership: open", "columns: not measured"):
        assert f'title="{title}"' in html
    assert 'data-label="By">lab<' in html


def test_the_overview_names_earlier_jobs_in_which_others_could_tell_less(view: View) -> None:
    assert "could tell less" not in browser(view).get("/").text
    leaks = {"labels": {"level": "low", "value": 0.5249}, "columns": {"level": "low", "value": None}}
    view.safer = {"done-1": [{"job": "done-0", "name": "first <b>try", "algorithm": "hidden", "leaks": leaks}]}
    html = browser(view).get("/").text
    link = '<a id="safer-done-1-1" href="/compare?run=done-0&amp;run=done-1">first &lt;b&gt;try</a>'
    assert f"Others could tell less in your job {link} (hidden training): labels low 0.52, columns low.</span>" in html
    assert html.count("could tell less") == 1


def test_the_overview_shows_what_is_used_of_limits(view: View) -> None:
    html = browser(view).get("/").text
    assert '<span>Different pairs of sets</span><span class="soft">17 of 20 left</span>' in html
    assert '<span>Rows told by predictions</span><span class="soft">9,993 of 10,000 left</span>' in html
    assert "What was counted is damaged." in html
    assert "1 budget is nearly used up" in html  # the damaged one


def test_what_needs_the_owner_stands_first(view: View) -> None:
    view.resumable = 2
    html = browser(view).get("/").text
    first = html.index("No job can use this node")
    assert first < html.index("2 jobs can be resumed.") < html.index("Readiness of this node") < html.index('aria-label="Jobs"')


def test_filters_search_and_sorting_are_links_and_a_form(view: View) -> None:
    client = browser(view)
    html = client.get("/?state=done&search=lab&sort=-took&page=1").text
    assert view.asked_for[0] == Wanted(state="done", search="lab", sort="-took")
    assert "form-action 'self'" in client.get("/").headers["content-security-policy"]
    assert 'href="/?state=open&amp;search=lab&amp;sort=-took"' in html  # another state, with what else is wanted
    assert 'aria-sort="descending"><a id="sort-took" href="/?state=done&amp;search=lab&amp;sort=took"' in html
    assert '<input type=hidden name="state" value="done">' in html
    assert '<input type="search" id="search" name="search" value="lab"' in html
    assert '<form id="pick" action="/compare">' in html


def test_a_list_of_many_jobs_has_pages(view: View) -> None:
    view.all = [view.all[2] | {"id": f"done-{number}"} for number in range(120)]
    client = browser(view)
    html = client.get("/?page=2").text
    assert "page 2 of 3" in html
    assert 'href="/" rel="prev"' in html
    assert 'href="/?page=3" rel="next"' in html
    assert "There is no such page" in client.get("/?page=9").text


def test_the_page_of_a_job_shows_the_audit_and_what_training_costs_while_it_runs(view: View) -> None:
    view.all[0] |= {"attacks": {"longitudinal": None, "same_step_twin": 0.514, "spectral": 0.5}, "remark": "on <b>the union"}
    html = browser(view).get("/jobs/running-1").text
    assert "AUC of own attacks on what is sent, 0.5 is chance: same-step twin 0.51, spectral 0.50<" in html
    assert "on &lt;b&gt;the union" in html
    for changes in ({"attacks": {"longitudinal": None}, "remark": ""}, {"state": "cancelled"}):
        before = view.all[0]
        view.all[0] = before | changes
        html = browser(view).get("/jobs/running-1").text
        assert "own attacks" not in html
        assert "the union" not in html
        view.all[0] = before


def test_the_page_of_a_job_shows_its_worst_columns_while_it_runs(view: View) -> None:
    view.all[0] |= {"rebuilt": {f"<b>{number}": {"constant": 0.1, "static": 0.9 - number / 100} for number in range(12)}}
    html = browser(view).get("/jobs/running-1").text
    assert "(beside the best constant): &lt;b&gt;0 0.90 (0.10), &lt;b&gt;1 0.89" in html
    assert "&lt;b&gt;9 0.81 (0.10), and 2 more<" in html
    assert "rebuilt" not in browser(view).get("/").text


def test_a_page_says_in_plain_words_what_was_agreed_and_offers_to_cancel(view: View) -> None:
    spec = {"name": "t", "parties": {"active": "clinic", "passive": ["lab"]}, "serve": {"to": "both"}}
    spec |= {"train": {"epochs": 7, "patience": 3}, "evaluate": {"validation_fraction": 0.2, "repeats": 1}}
    view.all[0]["spec"] = describe_spec(Job.model_validate(spec).canonical())
    html = browser(view).get("/jobs/running-1").text
    for words in ("clinic (has the labels and decides), lab", "at most 7 epochs", "20 % decide when training stops"):
        assert words in html
    assert "every data party may ask" in html
    assert "to clinic only" in html
    assert "patience: 3" in html
    assert 'value="no" autofocus>Go on<' in html
    assert "Cancel trial?" in html


def test_a_page_says_of_a_sweep_what_is_tried(view: View) -> None:
    spec = {"name": "t", "parties": {"active": "clinic", "passive": ["lab"]}, "evaluate": {"validation_fraction": 0.2}}
    spec |= {"train": {"epochs": 1}, "sweep": {"over": {"epochs": [200, 400], "learning_rate": [0.1, 0.01]}}}
    view.all[0]["spec"] = describe_spec(Job.model_validate(spec).canonical())
    html = browser(view).get("/jobs/running-1").text
    for words in ("at most 400 epochs", "different values of epochs, learning_rate are tried"):
        assert words in html


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({}, "none: the records are only aligned"),
        ({"predict": {"model": "done-1", "to": "active"}}, "of known records by the model of <code>done-1</code>, for active"),
    ],
)
def test_a_job_that_does_not_train_says_so(view: View, section: dict[str, Any], words: str) -> None:
    job = Job.model_validate({"name": "t", "parties": {"active": "clinic", "passive": ["lab"]}} | section)
    view.all[0]["spec"] = describe_spec(job.canonical())
    assert words in browser(view).get("/jobs/running-1").text


@pytest.mark.parametrize(
    ("train", "words"),
    [
        ({"algorithm": "logistic", "iterations": 12}, "at most 12 iterations"),
        ({"algorithm": "linear", "iterations": 12}, "at most 12 iterations"),
        ({"algorithm": "hidden"}, "<code>hidden</code>, classification"),
        ({"algorithm": "split"}, "at most"),
    ],
)
def test_the_page_knows_every_way_of_training(view: View, train: dict[str, Any], words: str) -> None:
    parties = {"active": "clinic", "passive": ["lab"]} | ({"coordinator": "notary"} if train["algorithm"] == "hidden" else {})
    job = Job.model_validate({"name": "t", "parties": parties, "align": {"protocol": "psi"}, "train": train})
    view.all[0]["spec"] = describe_spec(job.canonical())
    assert words in browser(view).get("/jobs/running-1").text


def test_the_short_form_of_a_job_is_the_job(view: View) -> None:
    spec = {"name": "t", "parties": {"active": "clinic", "passive": ["lab"]}, "serve": {"to": "active"}}
    job = Job.model_validate(spec | {"align": {"protocol": "psu"}, "train": {"missing": {"features": "sampling"}}})
    assert Job.model_validate(yaml.safe_load(describe_spec(job.canonical())["yaml"])).canonical() == job.canonical()


def test_a_job_whose_part_is_stored_and_that_is_not_done_has_its_own_page(view: View) -> None:
    view.all[0] |= {"report": True}
    assert browser(view).get("/jobs/running-1", follow_redirects=False).status_code == 200


def test_a_job_of_another_version_is_shown_as_it_was_written(view: View) -> None:
    view.all[0]["spec"] = describe_spec('{"name": "old", "weights": "<b>"}')
    html = browser(view).get("/jobs/running-1").text
    assert "This version cannot read the job any more." in html
    assert "weights: &lt;b&gt;" in html


def test_the_events_of_a_job_are_there_without_a_script(view: View) -> None:
    line = {"number": 1, "at": "2026-03-01T10:00:05.123+00:00", "text": f"waiting for {HOSTILE}"}
    view.all[0]["live"] = {"log": [line]}
    html = browser(view).get("/jobs/running-1").text
    assert ">10:00:05</time><span>waiting for &lt;script&gt;" in html


def test_hostile_names_stay_text(view: View) -> None:
    for path in ("/", "/jobs/failed-1", "/jobs/waiting-1"):
        html = browser(view).get(path).text
        assert "<img" not in html
        assert "<script>alert" not in html
        assert "&lt;img src=x" in html


def test_a_board_without_jobs_says_what_to_do(view: View) -> None:
    view.all, view.peers = [], {}
    assert "vfl-node submit" in browser(view).get("/").text


def test_the_page_of_a_failed_job_has_its_error_and_hint(view: View) -> None:
    view.all[3]["error"] = {"code": "E_CSV", "message": "column age holds text", "hint": "declare it"}
    html = browser(view).get("/jobs/failed-1").text
    assert "column age holds text <code>E_CSV</code>" in html
    assert "<li>declare it</li>" in html
    assert "The same job would end the same way" in html
    assert 'data-open="cancel"' not in html
    view.all[3] |= {"resumable": True}
    assert "vfl-node resume failed-1 --config FILE" in browser(view).get("/jobs/failed-1").text
