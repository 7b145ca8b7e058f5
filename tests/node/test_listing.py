"""Lists of jobs: which are chosen, in which order, how many there are, and what they show of reports."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vfl_node.configuration.models import parse
from vfl_node.job import Job
from vfl_node.node import index
from vfl_node.node.figures import attach_figures, fill_in
from vfl_node.node.listing import Selection, needed, select
from vfl_node.node.record import Record
from vfl_node.node.store import Store
from vfl_node.web.wanted import Wanted

REPORT = {
    "started": "2026-03-01T10:00:00+00:00",
    "finished": "2026-03-01T10:00:24+00:00",
    "metrics": {"auc": 0.977, "rows": 154, "population": "owned", "intervals": {"auc": {"low": 0.961, "high": 0.994}}},
    "local_metrics": {"auc": 0.903, "rows": 154, "population": "owned"},
    "meters": {"labels": {"level": "high", "value": 0.97}, "membership": {"level": "some"}, "columns": None},
    "verdict": {"helped": "yes"},
}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path / "state")
    yield opened
    opened.close()


def add(store: Store, name: str, minute: int, *, text: str = "", passive: str = "lab", **changes: Any) -> Record:
    job = parse(f"name: {name}\nparties: {{active: clinic, passive: {passive}}}\n{text}", Job, source="job")
    return store.update(store.add(job, submitter="clinic"), submitted=f"2026-03-01T10:{minute:02}:00+00:00", **changes)


def seal(store: Store, record: Record, report: dict[str, Any] = REPORT) -> Record:
    folder = store.job_folder(record)
    folder.artefacts.mkdir(exist_ok=True)
    (folder.artefacts / "report.json").write_text(json.dumps(report))
    folder.seal()
    return record


def found(store: Store, **said: Any) -> tuple[str, Selection]:
    """Names of the jobs on the page, by their initials, and what else was found."""
    wanted = Wanted(**said)
    chosen = select(store.lines(needed(wanted)), wanted)
    return "".join(record.name[0] for record in store.numbered([line.number for line in chosen.lines])), chosen


def test_jobs_are_chosen_by_state_and_words_and_put_in_order(store: Store) -> None:
    add(store, "ash", 1, state="done", finished="2026-03-01T10:09:00+00:00", figures='{"metric":{"name":"nll","value":0.7}}')
    add(store, "birch", 2, state="failed", finished="2026-03-01T10:02:05+00:00", code="E_PEER_LOST", passive="insurer")
    add(store, "cedar", 3, text="purpose: Does the Äsche help?\n")
    better = '{"metric":{"name":"nll","value":0.1}}'
    add(store, "dogwood", 4, state="done", finished="2026-03-01T10:05:00+00:00", figures=better)
    names, chosen = found(store)
    assert (names, chosen.total) == ("dcba", 4)
    assert {kind: number for kind, number in chosen.counts.items() if number} == {
        "": 4,
        "open": 1,
        "waiting": 1,
        "done": 2,
        "ended": 1,
        "failed": 1,
        "resumable": 1,
    }
    for sort, names in {"-age": "abcd", "name": "abcd", "-name": "dcba", "took": "bdac", "-metric": "dacb"}.items():
        assert found(store, sort=sort)[0] == names, sort
    assert found(store, sort="metric")[0] == "adcb"  # unknown last, either way
    assert found(store, sort="state")[0] == "dabc"
    for search, names in {
        "INSURER": "b",
        "äsche": "c",
        "peer_lost": "b",
        "lab help": "c",
        "lab": "dca",
        "clinic x": "",
    }.items():
        assert found(store, search=search)[0] == names, search
    assert found(store, state="resumable")[0] == found(store, state="ended")[0] == "b"
    assert found(store, search="dog")[1].counts["done"] == 1
    assert [found(store, page=page, size=3)[0] for page in (1, 2, 3)] == ["dcb", "a", ""]


def test_an_end_that_is_not_stored_yet_counts(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    record = add(store, "ash", 1, state="running")
    with monkeypatch.context() as patch:
        patch.setattr(store._index, "put", lambda *_, **__: (_ for _ in ()).throw(sqlite3.OperationalError("database is full")))
        store.end(replace(record, state="failed", code="E_DISK_FULL"))
        names, chosen = found(store, state="failed", sort="name")
        assert (names, chosen.counts["running"]) == ("a", 0)


def test_a_damaged_row_is_in_the_list_and_breaks_no_order(store: Store) -> None:
    add(store, "ash", 1, state="done", finished="2026-03-01T10:05:00+00:00")
    add(store, "birch", 2, state="done", finished="2026-03-01T10:05:00+00:00")
    store._index._db.execute("UPDATE jobs SET spec = x'ff7b', figures = '{', finished = 'x' WHERE name = 'birch'")
    for sort in ("age", "took", "metric", "name"):
        wanted = Wanted(sort=sort, search="" if sort == "took" else "lab")
        lines = select(store.lines(needed(wanted)), wanted).lines
        states = {record.damaged for record in store.numbered([line.number for line in lines])}
        assert states == ({True, False} if sort == "took" else {False}), sort


def test_the_figures_of_a_report_are_stored_once(store: Store) -> None:
    record = seal(store, add(store, "ash", 1, state="done", finished="2026-03-01T10:05:00+00:00"))
    (first,) = fill_in(store, [record])
    figures = json.loads(first.figures or "")
    metric = {"name": "auc", "value": 0.977, "low": 0.961, "high": 0.994, "alone": 0.903, "same_rows": True}
    assert (figures["metric"], figures["leaks"], figures["helped"]) == (metric, {"labels": "high", "membership": "some"}, "yes")
    assert (figures["seconds"], figures["metrics"]["alone"]) == (24.0, {"auc": 0.903})
    assert figures["leak_values"] == {"labels": 0.97, "membership": None}
    (store.outcome(record).artefacts / "report.json").unlink()
    (stored,) = store.records()
    assert fill_in(store, [stored]) == [stored] == [first]


def test_figures_found_late_do_not_undo_what_became_of_a_job(store: Store) -> None:
    record = seal(store, add(store, "ash", 1, state="unconfirmed"))
    changed = store.update(record, state="waiting")
    assert fill_in(store, [record])[0].figures is not None
    assert store.records() == [changed]


def test_models_that_met_other_rows_are_told_apart(store: Store) -> None:
    report = {"metrics": {"rmse": 3.0, "rows": 2}, "local_metrics": {"rmse": 4.0, "rows": 3}}
    record = attach_figures(store, seal(store, add(store, "ash", 1, state="done"), report))
    metric = json.loads(record.figures or "")["metric"]
    assert metric == {"name": "rmse", "value": 3.0, "low": None, "high": None, "alone": 4.0, "same_rows": False}


def test_a_damaged_report_is_no_obstacle(store: Store) -> None:
    record = seal(store, add(store, "ash", 1, state="done"))
    (store.outcome(record).artefacts / "report.json").write_text("[]")
    assert attach_figures(store, record) == fill_in(store, [record])[0] == record


def test_rows_of_an_earlier_release_stay_whole_and_a_damaged_one_damaged(tmp_path: Path) -> None:
    before = index.MIGRATIONS[:4]
    with closing(sqlite3.connect(tmp_path / "jobs.sqlite")) as old:
        old.create_function("digest", -1, lambda *values: index._digest(values).decode(), deterministic=True)
        for step in (step for steps in before[:1] for step in steps):
            old.execute(step)
        spec = parse("name: trial\nparties: {active: clinic, passive: lab}\n", Job, source="job").canonical()
        for name in ("whole", "torn"):
            row = (name, name, "clinic", spec, "done", 3, "2026-03-01T10:00:00+00:00", None, None, None, None)
            old.execute("INSERT INTO jobs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        old.text_factory = bytes
        for step in (step for steps in before[1:] for step in steps):
            old.execute(step)
        old.execute("UPDATE jobs SET state = 'failed' WHERE id = 'torn'")
        old.execute(f"PRAGMA user_version = {len(before)}")
        old.commit()
    store = Store(tmp_path)
    assert {record.id: (record.damaged, record.figures) for record in store.records()} == {
        "whole": (False, None),
        "torn": (True, None),
    }
    store.close()
