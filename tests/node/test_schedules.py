"""Jobs by a clock: a fortnight with restarts at any moment, what is skipped, what pauses, and what an owner is told."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from random import Random
from typing import Any

import pytest

from vfl_node.errors import PolicyError, StateError, UsageError
from vfl_node.execution.inputs import read_input
from vfl_node.job import Job
from vfl_node.node import schedule_states
from vfl_node.node.endings import OWN_WISH
from vfl_node.node.health import Health
from vfl_node.node.record import SCHEDULE, Record
from vfl_node.node.schedule_states import ScheduleState, keep_marks
from vfl_node.node.schedule_words import describe_schedule
from vfl_node.node.schedules import LATE, Schedules
from vfl_node.node.store import Store
from vfl_node.session.memory import mark_secret
from vfl_node.settings.limits import Budgets
from vfl_node.settings.node import Settings
from vfl_node.settings.schedules import JobSchedule

BEGIN = datetime(2026, 11, 29, 12, tzinfo=timezone.utc)  # a Sunday

JOB = "name: nightly\nparties: {active: clinic, passive: lab}\nalign: {protocol: psi}\n"


class KilledHere(BaseException):
    """The process dies."""


class Site:
    """A node whose jobs are only written down, in an index that outlives it.

    Attributes:
        now: of its clock.
        submitted: ids, in their order.
        refuse: raised instead of a job.
        spares: the schedule whose jobs are not refused.
        dies_at: how often it is still written and submitted before the process dies; None: it does not.
    """

    def __init__(self, folder: Path, keys: dict[str, Any], *more: dict[str, Any]) -> None:
        (folder / "job.yaml").write_text(JOB)
        self.table(folder, 60)
        line = {"name": "nightly", "job": folder / "job.yaml", "at": "0 3 * * *"}
        self.settings = Settings(
            name="clinic",
            role="active",
            insecure_loopback=True,
            http=None,
            state_dir=folder / "state",
            data={"path": folder / "table.csv"},
            peers={"lab": {"address": "127.0.0.1:9"}},
            schedules=[line | keys, *(line | each for each in more)],
        )
        self.now, self.folder, self.store = BEGIN, folder, Store(folder / "state")
        self.submitted: list[str] = []
        self.refuse: Exception | None = None
        self.spares = ""
        self.dies_at: int | None = None
        self.start()

    @staticmethod
    def table(folder: Path, rows: int, first: int = 0) -> None:
        lines = (f"r{k},{k % 7},{k % 2}\n" for k in range(first, first + rows))
        (folder / "table.csv").write_text("id,x,label\n" + "".join(lines))

    def start(self) -> None:
        """The process begins anew: what it had in memory is lost."""
        self.schedules = Schedules(self.settings, self.store, self.submit, lambda: self.now)

    def submit(self, job: Job, *, job_id: str, person: str | None, schedule: str) -> Record:
        self.count_down()
        if self.refuse and schedule != self.spares:
            raise self.refuse
        if self.store.get(job_id):
            raise UsageError("there was a job of this id", code="E_JOB_ID")
        self.submitted.append(job_id)
        documents = {SCHEDULE: schedule.encode()}
        record = self.store.add(job, submitter="clinic", job_id=job_id, person=person, documents=documents)
        self.count_down()
        return record

    def count_down(self) -> None:
        if self.dies_at is not None:
            self.dies_at -= 1
            if self.dies_at < 0:
                raise KilledHere

    def look(self, **later: float) -> str:
        """Look at the clock, so much later; what became of the first schedule's last planned time."""
        self.now += timedelta(**later)
        self.schedules.look()
        return self.state.became

    @property
    def state(self) -> ScheduleState:
        return self.schedules.find_states()["nightly"]

    def end(self, state: Any = "done", **how: Any) -> None:
        """The last job ends so."""
        self.store.update(self.store.record(self.submitted[-1]), state=state, **how)

    def read(self) -> None:
        """The last job reads the table, as it does once all parties have met."""
        record = self.store.record(self.submitted[-1])
        secret = mark_secret(self.store.partner("lab"))
        keep_marks(self.settings, self.store, record.id, read_input(self.settings, record.job), secret)


@pytest.fixture
def site(ram: Path) -> Iterator[Callable[..., Site]]:
    made: list[Site] = []

    def make(*more: dict[str, Any], **keys: Any) -> Site:
        made.append(Site(ram, keys, *more))
        return made[-1]

    yield make
    for each in made:
        each.store.close()


def planned_ids(site: Site, end: datetime) -> list[list[str]]:
    """Of each schedule the ids of all times from the beginning on."""
    found = []
    for each in site.settings.schedules:
        moments = each.list_after(BEGIN)
        ids = []
        while (at := next(moments)) <= end:
            ids.append(each.job_id(at))
        found.append(ids)
    return found


@pytest.mark.parametrize("seed", range(6))
def test_a_fortnight_with_deaths_at_any_moment_loses_no_time_and_submits_none_twice(
    site: Callable[..., Site], monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = Random(seed)
    often = {"name": "often", "at": "20 */6 * * *", "jitter_s": 1800, "zone": "Europe/Zurich"}
    here = site(often, {"name": "weekly", "at": "0 3 * * mon"}, at="0 3 * * *")
    write = schedule_states.write_checked

    def write_or_die(path: Path, data: bytes) -> None:
        here.count_down()
        write(path, data)
        here.count_down()

    monkeypatch.setattr(schedule_states, "write_checked", write_or_die)
    here.look()
    end, deaths, died = BEGIN + timedelta(days=14), 0, False
    while here.now < end:
        here.dies_at = None if died else chance.choice((None, 0, 1, 2, 3, 4, 5))
        died = False
        try:
            here.look(minutes=chance.choice((1, 7, 30, 55)))
        except KilledHere:
            deaths, died = deaths + 1, True
            here.now += timedelta(minutes=chance.randrange(0, 240))  # until somebody starts it again; a time may pass
            here.start()
        here.dies_at = None
        for record in here.store.standing("waiting"):
            here.store.update(record, state="done")
    here.look(hours=1)
    here.look(minutes=2)
    assert deaths > 10
    assert len(set(here.submitted)) == len(here.submitted)
    expected = [job_id for ids in planned_ids(here, end) for job_id in ids]
    assert len(expected) == 14 + 56 + 2
    late = set(here.submitted) - set(expected)  # of the hour after the fortnight
    assert set(expected) == set(here.submitted) - late
    assert len(late) <= 1


@pytest.mark.parametrize(("catch_up", "expected"), [("one", ["nightly-20261204"]), ("none", [])])
def test_after_days_without_the_node_one_job_comes_for_the_last_time_or_none(
    site: Callable[..., Site], catch_up: str, expected: list[str]
) -> None:
    here = site(catch_up=catch_up)
    here.look()
    here.now += timedelta(days=5)
    here.start()
    became = here.look()
    assert here.submitted == expected
    assert became == (
        "nightly-20261204 was submitted" if expected else "missed: no job could be submitted until 2026-12-04 12:00 UTC"
    )
    if expected:
        here.end()
    here.look(hours=15)
    assert here.submitted == [*expected, "nightly-20261205"]


def test_within_minutes_a_restart_misses_nothing(site: Callable[..., Site]) -> None:
    here = site(catch_up="none")
    here.look()
    here.now = BEGIN.replace(day=30, hour=3) + LATE
    here.start()
    here.look()
    assert here.submitted == ["nightly-20261130"]


def test_a_new_schedule_begins_with_its_next_time_and_jitter_delays_it(site: Callable[..., Site]) -> None:
    here = site(at="0 13 * * *", jitter_s=3600)
    here.look()
    due = here.settings.schedules[0].draw_out(BEGIN.replace(hour=13), "clinic")
    assert due > BEGIN.replace(hour=13)
    here.now = due - timedelta(seconds=1)
    assert here.look() == "nothing yet"
    here.look(seconds=1)
    assert here.submitted == ["nightly-20261129"]
    here.look(minutes=5)
    assert len(here.submitted) == 1


def test_a_job_that_has_not_ended_is_waited_for_or_not(site: Callable[..., Site]) -> None:
    here = site({"name": "eager", "if_running": "submit"})
    here.look()
    for _ in range(2):
        here.look(days=1)
    assert here.state.became == "skipped: nightly-20261130 has not ended"
    assert here.submitted == ["nightly-20261130", "eager-20261130", "eager-20261201"]
    here.store.update(here.store.record("nightly-20261130"), state="failed", code="E_PEER_LOST")  # it may go on
    here.look(days=1)
    assert "nightly-20261202" in here.submitted


@pytest.mark.parametrize("code", ["E_REFUSED", "E_BUDGET", "E_CSV"])
def test_three_refusals_in_a_row_pause_it_until_its_owner_resumes_it(site: Callable[..., Site], code: str) -> None:
    here = site()
    here.look()
    for refusals in (1, 2):
        here.look(days=1)
        here.end("failed", code=code)
        here.look(seconds=5)
        assert (here.state.refusals, here.state.paused) == (refusals, "")
        here.start()
    here.look(days=1)
    here.end("done")
    here.look(days=1)
    assert here.state.refusals == 0
    for _ in range(3):
        here.end("failed", code=code)
        here.look(days=1)
    assert (here.state.refusals, here.state.paused) == (3, "refusals")
    before = list(here.submitted)
    here.start()
    here.look(days=3)
    assert here.submitted == before
    (shown,) = here.schedules.describe()
    assert (shown["next"], shown["paused"], shown["ended"]) == (None, "refusals", code)
    here.schedules.resume("nightly")
    here.look(hours=1)
    assert here.submitted == before  # what it missed while it was paused is not caught up with
    here.look(days=1)
    assert len(here.submitted) == len(before) + 1
    assert (here.state.refusals, here.state.paused) == (0, "")


def test_a_refusal_by_the_node_itself_counts_and_ends_that_go_on_or_were_wanted_do_not(site: Callable[..., Site]) -> None:
    here = site()
    here.look()
    here.refuse = PolicyError("too many", code="E_BUDGET")
    assert here.look(days=1) == "refused: E_BUDGET: too many"
    here.refuse = None
    (here.folder / "job.yaml").write_text("name: nightly\n")
    assert here.look(days=1).startswith("refused: E_CONFIG: ")
    assert here.state.refusals == 2
    (here.folder / "job.yaml").write_text(JOB)
    for how in ({"state": "failed", "code": "E_PEER_LOST"}, {"state": "cancelled", "code": "E_CANCELLED", "message": OWN_WISH}):
        here.look(days=1)
        here.end(**how)
        here.look(seconds=5)
        assert here.state.refusals == 2
    here.look(days=1)
    here.end("failed", code="E_PEER_LOST")
    here.look(minutes=1)
    here.end("done")  # it went on
    here.look(minutes=1)
    assert (here.state.refusals, here.state.ended) == (0, "done")
    (here.folder / "job.yaml").write_text(JOB + "predict: {model: a, rows: known, to: active}\n")
    here.look(days=1)
    assert "makes predictions" in here.state.became


def test_what_cannot_be_done_now_is_tried_again_and_is_no_refusal(site: Callable[..., Site]) -> None:
    here = site()
    here.look()
    here.now = BEGIN.replace(day=30, hour=3)
    for cause in (PolicyError("no room", code="E_BUSY"), StateError("full", code="E_DISK_FULL")):
        here.refuse = cause
        assert here.look(minutes=2) == "nothing yet"
        assert here.schedules.describe()[0]["waits"] == cause.args[0][:0] + cause.code
    here.refuse = None
    here.look(seconds=5)
    assert here.submitted == []  # a table may have to be read again for it: not at each look
    here.look(minutes=1)
    assert here.submitted == ["nightly-20261130"]
    assert here.state.refusals == 0


@pytest.mark.parametrize(
    ("cause", "code"),
    [
        (MemoryError(), "E_MEMORY"),
        (RuntimeError("can't start new thread"), "E_THREAD"),
        (sqlite3.OperationalError("disk I/O error"), "E_STATE"),
    ],
)
def test_a_schedule_that_cannot_do_its_work_does_not_stop_the_next_one(
    site: Callable[..., Site], cause: Exception, code: str
) -> None:
    here = site({"name": "second"})
    here.look()
    here.refuse, here.spares = cause, "second"
    here.look(days=1)
    assert here.submitted == ["second-20261130"]
    assert [each["waits"] for each in here.schedules.describe()] == [code, None]
    here.refuse = None
    here.look(minutes=1)
    assert here.submitted == ["second-20261130", "nightly-20261130"]
    assert (here.state.refusals, here.schedules.describe()[0]["waits"]) == (0, None)


def test_a_defect_within_one_schedule_does_not_stop_the_next_one(
    site: Callable[..., Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = site({"name": "second"})
    here.look()
    whole = here.schedules._count_end

    def fail(name: str) -> None:
        if name == "nightly":
            raise KeyError(name)
        whole(name)

    monkeypatch.setattr(here.schedules, "_count_end", fail)
    here.look(days=1)
    assert here.submitted == ["second-20261130"]
    assert here.schedules.describe()[0]["waits"] == "E_INTERNAL"


@pytest.mark.parametrize("keys", [{}, {"at": "59 23 * * *", "jitter_s": 43_200}])
def test_after_its_last_day_nothing_is_submitted(site: Callable[..., Site], keys: dict[str, Any]) -> None:
    here = site(until="2026-12-01", zone="Pacific/Auckland", **keys)  # there it is the 30th at 12:00
    here.look()
    here.refuse = PolicyError("no room", code="E_BUSY")
    assert here.look(hours=22) == "nothing yet"  # on 1 December at 23:00 its time has come, or will come next day
    here.refuse = None
    here.start()
    assert here.look(days=200) == "missed: its last day was 2026-12-01"
    assert here.submitted == []
    (shown,) = here.schedules.describe()
    assert (shown["next"], shown["refusals"]) == (None, 0)


def test_a_clock_that_is_set_back_submits_nothing_twice(site: Callable[..., Site]) -> None:
    here = site()
    here.look()
    here.look(days=30)
    assert here.submitted == ["nightly-20261229"]
    here.end()
    here.now = BEGIN
    here.look()
    for _ in range(31):
        here.look(days=1)
        here.end()
    assert len(set(here.submitted)) == len(here.submitted) == 31


def test_an_id_of_another_party_is_refused_and_a_pruned_job_does_not_come_again(site: Callable[..., Site]) -> None:
    here = site()
    here.look()
    job = here.store.add(here.settings.schedules[0].read_job(), submitter="lab", job_id="nightly-20261130")
    assert "E_JOB_ID" in here.look(days=1)
    assert (here.state.job, here.state.refusals) == ("", 1)
    here.store.update(job, state="done")
    here.look(days=1)
    here.end()
    here.store.remove(here.store.record("nightly-20261201"))
    (here.folder / "state/schedules/index.json").unlink()
    here.now -= timedelta(days=1)
    here.start()
    here.look()
    here.look(days=1)
    assert here.submitted == ["nightly-20261201"]
    assert here.state.became == "nightly-20261201 was submitted"


def test_no_job_while_the_table_is_as_the_last_one_read_it(site: Callable[..., Site]) -> None:
    here = site(skip_unchanged=True)
    here.look()
    here.look(days=1)  # the first knows of none before
    here.read()
    here.end()
    assert here.look(days=1) == "skipped: the own table is as the last job read it"
    here.table(here.folder, 61)
    here.look(days=1)
    here.read()
    here.end("failed", code="E_STOPPED")
    here.look(days=1)  # the table is the same, and the job was not done
    assert here.submitted == ["nightly-20261130", "nightly-20261202", "nightly-20261203"]
    here.end()
    (here.folder / "table.csv").unlink()
    assert here.look(days=1).startswith("refused: E_")
    assert here.state.refusals == 1


def test_no_job_until_so_many_records_were_added_since_the_last_one_read(site: Callable[..., Site]) -> None:
    here = site(least_new=5)
    here.look()
    here.look(days=1)
    here.read()
    here.end()
    here.table(here.folder, 62)
    assert here.look(days=1) == "skipped: 2 new records, and least_new is 5"
    here.table(here.folder, 60, first=4)  # four have gone and four have come
    assert here.look(days=1) == "skipped: 4 new records, and least_new is 5"
    here.start()
    here.table(here.folder, 60, first=5)
    here.look(days=1)
    here.read()
    here.end()
    assert here.look(days=1) == "skipped: 0 new records, and least_new is 5"
    assert here.submitted == ["nightly-20261130", "nightly-20261203"]


def test_an_owner_pauses_and_runs_it_by_hand(site: Callable[..., Site]) -> None:
    here = site(least_new=1000)
    here.schedules.pause("nightly")
    here.look(days=2)
    assert here.submitted == []
    assert here.schedules.run("nightly", "ann") == "nightly-20261201-1200"
    assert here.store.record("nightly-20261201-1200").person == "ann"
    here.start()
    assert (here.state.paused, here.state.job) == ("owner", "nightly-20261201-1200")
    here.schedules.resume("nightly")
    assert here.look(days=1) == "skipped: nightly-20261201-1200 has not ended"
    for act in (here.schedules.pause, here.schedules.resume, here.schedules.run):
        with pytest.raises(UsageError, match="no schedule 'weekly'") as caught:
            act("weekly")
        assert (caught.value.code, caught.value.hint) == ("E_SCHEDULE", "in this node's settings: nightly")


def test_what_was_kept_is_checked(site: Callable[..., Site]) -> None:
    here = site()
    here.look()
    path = here.folder / "state/schedules/index.json"
    path.write_bytes(path.read_bytes()[:-3] + b"!!!")
    here.start()
    here.schedules.look()
    assert here.submitted == []
    with pytest.raises(StateError) as caught:
        here.schedules.find_states()
    assert caught.value.code == "E_STATE_CORRUPT"
    assert here.schedules.outline() is None
    assert [cause.code for cause in causes(here)] == ["E_STATE_CORRUPT"]
    schedule_states.write_checked(path, json.dumps({"nightly": {"of": "another version"}}).encode())
    here.start()
    with pytest.raises(StateError) as caught:
        here.schedules.find_states()
    assert caught.value.code == "E_STATE_VERSION"


def causes(here: Site) -> list[Any]:
    """What health finds about schedules."""
    health = object.__new__(Health)
    health._schedules = here.schedules
    return list(health._find_about_schedules())


def test_health_names_what_refusals_have_paused_and_not_what_its_owner_has(site: Callable[..., Site]) -> None:
    here = site()
    here.look()
    here.schedules.pause("nightly")
    assert causes(here) == []
    here.schedules.resume("nightly")
    here.refuse = PolicyError("too many", code="E_BUDGET")
    for _ in range(3):
        here.look(days=1)
    (cause,) = causes(here)
    assert (cause.code, cause.about) == ("E_SCHEDULE", "schedule nightly")
    assert cause.text == "schedule nightly is paused after 3 refusals in a row; the last: refused: E_BUDGET: too many"
    assert "vfl-node schedule resume nightly" in cause.hint


def test_an_owner_reads_what_others_learn_and_when_a_budget_ends_it(site: Callable[..., Site]) -> None:
    here = site()
    (said,) = here.schedules.describe()
    assert "lab can tell which shared records are new since the one before" in said["tells"]
    daily, stops = said["warnings"]
    assert "least_new: 500" in daily
    assert stops.startswith(
        "nightly stops on day 21, 2026-12-20, if its table changes each time: budgets.alignments with lab: 0 of 20"
    )
    (here.folder / "job.yaml").write_text(JOB.replace("psi", "psu"))
    assert "lab can tell how many records are new" in here.schedules.describe()[0]["tells"]
    training = "train: {bottom: [4], active_bottom: [4], top: [4], epochs: 1}\n"
    for protocol, budgets in (("psi", ["alignments"]), ("psu", ["alignments", "trainings"])):
        (here.folder / "job.yaml").write_text(JOB.replace("psi", protocol) + training)
        stops = here.schedules.describe()[0]["warnings"][1:]
        assert [
            budget for line in stops for budget in ("alignments", "trainings") if f"budgets.{budget} with" in line
        ] == budgets
    (here.folder / "job.yaml").write_text(JOB)
    here.settings.in_force.policy = here.settings.rules.model_copy(
        update={"partners": {"lab": here.settings.rules.everyone.model_copy(update={"budgets": weekly(5, 400)})}}
    )
    (daily, more) = here.schedules.describe()[0]["warnings"]
    assert "more jobs than 5 per week" in more
    rare = JobSchedule(name="rare", job=here.folder / "job.yaml", at="0 3 1 * *")
    assert describe_schedule(here.settings, rare, BEGIN)["warnings"] == []
    (here.folder / "job.yaml").unlink()
    (said,) = here.schedules.describe()
    assert (said["tells"], said["warnings"][0][:35]) == ("", "its job cannot be submitted: E_FILE")


def weekly(most: int, ever: int) -> Budgets:
    return Budgets(alignments=({"most": most, "per": "week"}, {"most": ever}))  # type: ignore[arg-type]
