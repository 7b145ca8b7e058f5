"""Which earlier job is named where others can tell much: one that is comparable, was measured, and is better."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vfl_node.job import Job
from vfl_node.node.jobs import Jobs
from vfl_node.node.listing import JobLine
from vfl_node.node.record import Record, damaged_record
from vfl_node.node.safer import MOST_COMPARED, find_safer
from vfl_node.node.store import Store
from vfl_node.node.works import Works
from vfl_node.settings.node import Settings
from vfl_node.web.wanted import WAITING, Wanted

PARTIES = {"active": "clinic", "passive": ["lab"]}


def a_record(job_id: str, *, labels: str = "low", value: float | None = 0.52, algorithm: str = "split", **said: Any) -> Record:
    """A job that is done, whose labels others can tell so well."""
    parties = PARTIES | ({"coordinator": "notary"} if algorithm == "hidden" else {})
    spec = {"name": "trial", "parties": parties, "train": {"algorithm": algorithm}, "align": {"protocol": "psi"}} | said
    job = Job.model_validate(spec)
    figures = {"leaks": {"labels": labels, "membership": "open"}, "leak_values": {"labels": value, "membership": None}}
    return Record(job_id, job.name, "clinic", job.canonical(), "done", figures=json.dumps(figures))


def named(*records: Record) -> dict[str, list[str]]:
    """Job → the earlier ones that are named beside it."""
    return {job: [line["job"] for line in lines] for job, lines in find_safer(records).items()}


def jobs_in(store: Store) -> Jobs:
    settings = Settings(name="clinic", role="active", listen="127.0.0.1:0", insecure_loopback=True)
    return Jobs(settings, store, Works(settings, store))


NOW = a_record("now", labels="high", value=0.97)


def test_an_earlier_job_that_told_less_is_named_with_its_figure() -> None:
    (line,) = find_safer([NOW, a_record("before", algorithm="hidden")])[
        "now"
    ]  # which has a coordinator, and the other has none
    assert line == {
        "job": "before",
        "name": "trial",
        "algorithm": "hidden",
        "leaks": {"labels": {"level": "low", "value": 0.52}},
    }
    assert named(a_record("now", labels="some"), a_record("before")) == {"now": ["before"]}


def test_one_purpose_is_enough_and_so_is_one_name() -> None:
    asked = {"purpose": "Does the lab help?"}
    now = a_record("now", labels="high", **asked)
    assert named(now, a_record("before", name="other", **asked)) == {"now": ["before"]}
    assert named(now, a_record("before", purpose="Is it fast?")) == {"now": ["before"]}
    assert named(now, a_record("before", name="other", purpose="Is it fast?")) == {}
    assert named(a_record("now", labels="high", name="it-helps"), a_record("before", purpose="it-helps")) == {}


@pytest.mark.parametrize(
    "before",
    [
        a_record("before", labels="high", value=0.81),  # of the same level, whatever the figure
        a_record("before", labels="not_measured", value=None),
        a_record("before", name="other"),
        a_record("before", parties=PARTIES | {"passive": ["bank"]}),
        a_record("before", parties=PARTIES | {"passive": ["lab", "bank"]}, train=None),
        a_record("before", parties=PARTIES | {"active": "lab", "passive": ["clinic"]}),
        a_record("before", tables={"clinic": "adults"}),
        Record("before", "trial", "clinic", NOW.spec, "done"),  # without a report
        Record("before", "trial", "clinic", NOW.spec, "done", figures='{"metric": null}'),
        damaged_record("before"),
    ],
    ids=("no better", "not measured", "name", "passive", "more", "roles", "table", "no report", "no leaks", "damaged"),
)
def test_no_job_is_named_that_is_not_comparable_not_measured_or_no_better(before: Record) -> None:
    assert named(NOW, before) == {}


def test_none_is_named_where_there_is_none_or_it_came_later() -> None:
    assert named() == named(NOW) == {}
    assert named(a_record("later"), NOW) == {}
    assert named(a_record("now", labels="not_measured", value=None), a_record("before")) == {}


def test_the_best_is_named_the_newest_of_equals_and_beside_the_newest_job_only() -> None:
    some, low, older = a_record("some", labels="some"), a_record("low"), a_record("older")
    assert named(NOW, a_record("high", labels="high"), some, low, older) == {"now": ["low"]}


def test_each_secret_has_its_job_and_one_job_is_named_once() -> None:
    both = replace(a_record("both"), figures='{"leaks": {"labels": "low", "membership": "low"}}')  # of a release without values
    (line,) = find_safer([NOW, both])["now"]
    assert line["leaks"] == {secret: {"level": "low", "value": None} for secret in ("labels", "membership")}
    members = replace(both, id="members", figures='{"leaks": {"membership": "some"}}')
    assert named(NOW, a_record("labels"), members) == {"now": ["labels", "members"]}


def test_a_page_of_a_list_has_the_earlier_jobs_of_its_own_jobs(tmp_path: Path) -> None:
    store = Store(tmp_path / "state")
    jobs = jobs_in(store)
    for hour, record in enumerate((a_record("before"), a_record("failed"), NOW)):
        state = "failed" if record.id == "failed" else "done"
        moment = f"2026-03-01T{hour:02}:00:00+00:00"
        added = store.add(record.job, submitter="clinic", job_id=record.id)
        store.update(added, state=state, submitted=moment, finished=moment, figures=record.figures)
    shown, waiting = jobs.find(Wanted(), WAITING)
    assert {job: [line["job"] for line in lines] for job, lines in shown["safer"].items()} == {"now": ["before"]}
    assert waiting["safer"] == jobs.find(Wanted(search="before"))[0]["safer"] == {}
    store.close()


def test_only_the_newest_jobs_are_looked_at(tmp_path: Path) -> None:
    """So a page takes as long with many jobs as with few."""
    asked: list[int] = []

    class Many(Store):
        def lines(self, needed: Collection[str]) -> list[JobLine]:
            return [JobLine(number, str(number), state="done") for number in range(5000)]

        def numbered(self, numbers: Sequence[int]) -> list[Record]:
            asked.append(len(numbers))
            return []

    store = Many(tmp_path / "state")
    jobs_in(store).find(Wanted(size=1))
    assert asked == [MOST_COMPARED, 1]
    store.close()
