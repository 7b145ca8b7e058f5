"""What jobs take of a node: CPU time by who submitted them, how long they take, and what follows for those that wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.node.test_jobs import ALIGN, Absent
from vfl_node.configuration.models import parse
from vfl_node.errors import GaveWay, PolicyError, StateError
from vfl_node.estimate.budget import MemoryShort
from vfl_node.job import Job
from vfl_node.node import usage as module
from vfl_node.node.draining import FILE, Draining
from vfl_node.node.job_start import JobStart
from vfl_node.node.reasons import asked_here, enter, explain_wait
from vfl_node.node.record import PRIORITY, Record
from vfl_node.node.store import Store
from vfl_node.node.turns import Turn, Turns
from vfl_node.node.usage import FEWEST, Usage
from vfl_node.process.machine import utc_now
from vfl_node.settings.node import Settings

JOB = parse(ALIGN, Job, source="job")
GIB = 2.0**30


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "state")
    yield store
    store.close()


def settings(tmp_path: Path, **changes: Any) -> Settings:
    peers: Any = {"lab": {"address": "127.0.0.1:1"}}
    state = tmp_path / "state"
    return Settings(name="clinic", role="active", peers=peers, insecure_loopback=True, state_dir=state, **changes)


@pytest.fixture
def cpu(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """CPU seconds of the process, and of the threads of each job."""
    spent: dict[str, float] = {"process": 0.0}
    monkeypatch.setattr(module, "process_cpu_s", lambda: spent["process"])
    monkeypatch.setattr(module, "threads_cpu_s", lambda threads: sum(spent.get(thread.name, 0.0) for thread in threads))
    return spent


def test_cpu_time_is_divided_by_what_the_threads_of_each_job_took(tmp_path: Path, store: Store, cpu: dict[str, float]) -> None:
    used = Usage(store, settings(tmp_path))
    own, theirs = store.add(JOB, submitter="clinic"), store.add(JOB, submitter="lab")
    done = threading.Event()
    threads = [threading.Thread(target=done.wait, name=f"job-{record.id}") for record in (own, theirs)]
    for thread in threads:
        thread.start()
    meters = [used.meter(record) for record in (own, theirs)]
    cpu["process"] = 5.0  # of no job
    with meters[0].counting(), meters[1].counting():
        cpu |= {"process": 17.0, f"job-{own.id}": 1.0, f"job-{theirs.id}": 3.0}
        used.measure()
        assert (used.spent_s(None), used.spent_s("lab")) == (3.0, 9.0)
        cpu["process"] = 19.0  # nobody's threads: in equal parts
    done.set()
    for thread in threads:
        thread.join()
    assert (used.spent_s(None), used.spent_s("lab")) == (4.0, 10.0)
    for meter, record in zip(meters, (own, theirs), strict=True):
        meter.finish(replace(record, state="done"))
    again = Usage(store, settings(tmp_path))
    again.load()
    assert (again.spent_s(None), again.spent_s("lab")) == (4.0, 10.0)


def test_what_was_taken_a_day_ago_counts_no_more(tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    record = store.add(JOB, submitter="lab")
    used = Usage(store, settings(tmp_path))
    used.keep(record, {"ended": time.time(), "cpu_s": 50.0, "kind": "psu ", "ratio": None})
    store.keep(record.id, {"usage 7": b"{damaged"})  # passed over
    again = Usage(store, settings(tmp_path))
    again.load()
    assert again.spent_s("lab") == 50.0
    now = time.time()
    monkeypatch.setattr(module, "time", SimpleNamespace(time=lambda: now + 25 * 3600, monotonic=time.monotonic))
    assert again.spent_s("lab") == 0.0


def test_a_peer_that_has_used_the_cpu_time_of_the_day_waits(tmp_path: Path, store: Store) -> None:
    limited = settings(tmp_path, queue={"partners": {"lab": {"cpu_hours_per_day": 0.5}}})
    used = Usage(store, limited)
    record = store.add(JOB, submitter="lab")
    turns = Turns(4, used.places_of)
    first = turns.enter(lambda: True, "lab")
    assert first.take(0)
    used._add(record, {"ended": time.time(), "cpu_s": 1799.0})
    second = turns.enter(lambda: True, "lab")
    assert second.take(0)
    used._add(record, {"ended": time.time(), "cpu_s": 2.0})
    third = turns.enter(lambda: True, "lab")
    assert not third.take(0)
    assert third.position.over == 2


def test_how_long_a_job_still_takes_is_known_from_the_last_ones_of_its_kind(tmp_path: Path, store: Store) -> None:
    used = Usage(store, settings(tmp_path))
    for ratio in (2.0, 3.0, 4.0)[: FEWEST - 1]:
        used._learn({"kind": "psu split", "ratio": ratio})
    assert used.left_s("psu split", 10.0, 5.0) is None
    used._learn({"kind": "psu split", "ratio": 4.0})
    assert used.left_s("psu split", 10.0, 5.0) == [20.0, 30.0]
    assert used.left_s("psu split", 10.0, 100.0) == [0.0, 0.0]
    assert used.left_s("psi split", 10.0, 5.0) is None


def test_a_resumed_job_tells_nothing_of_others(tmp_path: Path, store: Store) -> None:
    used = Usage(store, settings(tmp_path))
    record = replace(store.add(JOB, submitter="lab"), state="done")
    for whole in (False, True):
        meter = used.meter(record)
        meter.expected_s = 1e-9
        with meter.timing(whole=whole):
            assert meter.left_s is None
        meter.finish(replace(record, attempt=int(whole)))
    assert len(used._measured["psu "]) == 1


def test_a_node_drains_until_its_owner_ends_it_also_over_a_restart(tmp_path: Path) -> None:
    turns = Turns(1)
    draining = Draining(tmp_path, turns)
    draining.check()
    draining.set(on=True)
    draining.set(on=True)
    assert turns.draining
    assert (tmp_path / FILE).exists()
    again = Turns(1)
    assert Draining(tmp_path, again)
    with pytest.raises(PolicyError) as caught:
        Draining(tmp_path, again).check()
    assert caught.value.code == "E_BUSY"
    Draining(tmp_path, again).set(on=False)
    assert not Draining(tmp_path, Turns(1))
    with pytest.raises(StateError):
        Draining(tmp_path / "gone", turns).set(on=True)


class Waiting:
    """All that a reason is found from."""

    def __init__(self, tmp_path: Path, store: Store) -> None:
        self.store, self.settings = store, settings(tmp_path)
        self.record = store.add(JOB, submitter="lab", documents={PRIORITY: b"1"})
        self.turns = Turns(2)
        self.others: Any = SimpleNamespace(absent=[], asked=[], undecided=[], queueing={}, unable={}, able=True)
        self.start: Any = SimpleNamespace(closed=False, opens="", short=None)

    def say(self, turn: Turn, record: Record | None = None, own: str = "clinic") -> tuple[str, str]:
        peers: Any = Absent()
        found = explain_wait(record or self.record, own, turn, self.others, self.start, peers)
        return found["kind"], found["reason"]


def test_why_a_job_waits_is_said_in_stable_words(tmp_path: Path, store: Store) -> None:
    waits = Waiting(tmp_path, store)
    holder = waits.turns.enter(lambda: True)
    assert holder.take(0)
    turn = enter(waits.turns, lambda: True, waits.record, waits.settings, store)
    assert turn.priority == 0  # a peer's job has no higher one
    last = waits.turns.enter(lambda: True)
    assert waits.say(turn) == ("place", "place 1 of 2")
    waits.others.queueing = {"lab": False}
    assert waits.say(turn) == ("peer", "lab has no place")
    waits.others.queueing = {"lab": True}
    assert waits.say(turn) == ("peer", "lab is draining")
    assert turn.take(0)
    waits.others.queueing = {}
    assert waits.say(turn) == ("start", "it begins")
    assert waits.say(last) == ("place", "place 1 of 1")
    third = waits.turns.enter(lambda: True, "lab")
    assert waits.say(third) == ("quota", "quota of lab (1 running)")
    waits.others.able = False
    assert waits.say(last, own="lab") == ("place", "place 1 of 2")
    turn.leave()
    assert waits.say(last, own="lab") == ("peer", "clinic has no place")
    waits.start.short = (3.1 * GIB, 2.0 * GIB)
    assert waits.say(third) == ("memory", "memory 3.1 of 2.0 GiB")
    waits.others.undecided, waits.others.unable = ["lab"], {"lab": "E_DISK_FULL"}
    assert waits.say(third) == ("unable", "lab cannot take part now (E_DISK_FULL)")
    waits.others.undecided, waits.others.absent = [], ["lab"]
    kind, reason = waits.say(third)
    assert kind == "away"
    assert reason.startswith("lab away since 2026-03-01 ")
    waits.turns.draining = True
    assert waits.say(third) == ("drain", "this node is draining")
    waits.start.closed, waits.start.opens = True, "18:00"
    assert waits.say(third) == ("hours", "hours from 18:00")
    waits.others.asked = ["lab"]
    assert waits.say(third) == ("consent", "consent of lab")
    assert asked_here("clinic")["reason"] == "consent of clinic"


def test_a_job_that_has_waited_before_a_restart_has_not_waited_for_nothing(tmp_path: Path, store: Store) -> None:
    waits = Waiting(tmp_path, store)
    new = replace(waits.record, submitted=utc_now())
    old = replace(waits.record, submitted="2026-03-01T10:00:00+00:00")
    turns = [enter(waits.turns, lambda: True, record, waits.settings, store) for record in (new, old, replace(old, attempt=1))]
    assert [turn.place for turn in turns] == [2, 1, 3]


def test_a_job_waits_for_memory_that_others_have_and_fails_where_there_is_never_enough(tmp_path: Path, store: Store) -> None:
    waits, free = Waiting(tmp_path, store), SimpleNamespace(free_bytes=1.0)
    start = JobStart(waits.settings, store, waits.record, None, waits.others, free)  # type: ignore[arg-type]
    turn, short = waits.turns.enter(lambda: True), MemoryShort("too little")
    short.needed = 2.0
    start.wait_for_memory(short, turn)  # never enough
    short.passes = True
    start.wait_for_memory(short, None)  # a service waits for no turn
    assert start.short is None
    with pytest.raises(GaveWay):
        start.wait_for_memory(short, turn)
    assert start.short == (2.0, 1.0)
    free.free_bytes = 2.0
    assert start.short is None
