"""Jobs of any priorities at nodes that know them in any order: all end, in a bounded time, and none is overtaken for ever."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.thorough import examples
from vfl_node.node import turns as module
from vfl_node.node.others import INVITED_S
from vfl_node.node.turns import AGING_S, LEAST, MOST, PRIORITIES, REST_S, Turn, Turns

STEP_S = 5.0
"""How often each job looks, on the clock of these tests."""

ACTIVE, PASSIVE, DEALER = ("north", "south"), ("bank", "lab"), "notary"
NODES = (*ACTIVE, *PASSIVE, DEALER)
"""Each has one role in all its jobs, as a node has. Passive ones do not talk to each other."""

HOUR = 3600.0


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(module, "ABLE_S", -1.0)  # what can go on is asked each time
    return clock


@dataclass
class Job:
    """One job, as all its parties know it."""

    parties: tuple[str, ...]
    submitter: str
    priority: int
    comes: dict[str, int]  # party → the step in which it hears of the job
    steps: int
    turns: dict[str, Turn] = field(default_factory=dict)
    since: dict[str, float] = field(default_factory=dict)  # party → since when it has a place
    said: dict[str, float] = field(default_factory=dict)  # party → when it last had one
    left: int = -1

    def able(self, at: str, clock: Clock) -> bool:
        """As :attr:`vfl_node.node.others.Others.able`."""
        before = [] if at == self.parties[0] else [self.parties[0]]
        invited = not before or any(self.said.get(name, -INVITED_S) > clock.now - INVITED_S for name in before)
        return invited and len(self.turns) == len(self.parties)

    def met_by(self, at: str) -> list[str]:
        """The parties with which one talks."""
        return [name for name in self.parties if name != at and not {name, at} <= set(PASSIVE)]

    def look(self, at: str, clock: Clock, *, gives_way: bool, leaders: bool) -> None:
        """What the work on this job does at one party in one step."""
        turn = self.turns[at]
        if turn.place:
            if turn.take(0):
                self.since[at] = clock.now
        elif gives_way:
            queueing = any(self.turns[name].place for name in self.met_by(at) if name in self.turns)
            able, leads = self.able(at, clock), leaders and at == self.parties[0]
            if turn.must_yield(self.since[at], able=able, queueing=queueing, leads=leads):
                del self.since[at]
                turn.give_back(REST_S if able else 0.0)
        if at in self.since:
            self.said[at] = clock.now


def play(
    jobs: list[Job], places: dict[str, int], clock: Clock, steps: int, *, gives_way: bool = True, leaders: bool = True
) -> int:
    """Have nodes work on ``jobs`` for so many steps at most; how many jobs have not ended."""
    spent: dict[str, Counter[str | None]] = {name: Counter() for name in NODES}
    nodes = {name: Turns(places[name], spent=lambda peer, name=name: spent[name][peer]) for name in NODES}
    under_way = list(jobs)
    for step in range(steps):
        clock.now += STEP_S
        for job in under_way:
            for at in job.parties:
                if job.comes[at] == step:
                    peer = None if job.submitter == at else job.submitter
                    job.turns[at] = nodes[at].enter(
                        lambda job=job, at=at: job.able(at, clock), peer, priority=0 if peer else job.priority
                    )
        for at in NODES:
            for job in under_way:
                if at in job.turns and job.left < 0:
                    job.look(at, clock, gives_way=gives_way, leaders=leaders)
        for job in list(under_way):
            if len(job.since) == len(job.parties):  # all have met
                job.left = job.steps if job.left < 0 else job.left - 1
                for at in job.parties:
                    spent[at][None if job.submitter == at else job.submitter] += 1
            if job.left == 0:
                under_way.remove(job)
                for turn in job.turns.values():
                    turn.leave()
        if not under_way:
            break
    return len(under_way)


@st.composite
def a_job(draw: st.DrawFn) -> Job:
    passive = draw(st.permutations(PASSIVE))[: draw(st.integers(1, 2))]
    parties = (draw(st.sampled_from(ACTIVE)), *passive, *([DEALER] if draw(st.booleans()) else []))
    comes = {name: draw(st.integers(0, 12)) for name in parties}
    priority, steps = draw(st.integers(LEAST, MOST)), draw(st.integers(1, 8))
    return Job(parties, draw(st.sampled_from(parties)), priority, comes, steps)


SCHEDULES = settings(
    max_examples=examples(10_000, fewer=250),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)


@SCHEDULES
@given(
    jobs=st.lists(a_job(), min_size=2, max_size=9), places=st.fixed_dictionaries({name: st.integers(1, 3) for name in NODES})
)
def test_jobs_of_any_priorities_never_wait_in_a_circle(clock: Clock, jobs: list[Job], places: dict[str, int]) -> None:
    """Each job takes its own time, and at most 60 steps (300 s) of waiting for others to give way."""
    most = 13 + sum(job.steps for job in jobs) + 60 * len(jobs)
    assert play(jobs, places, clock, most) == 0


def test_without_giving_way_they_do(clock: Clock) -> None:
    """A control: each of two nodes has a place for the job that waits at the other one."""

    def jobs() -> list[Job]:
        pair = ("north", "bank")
        return [Job(pair, "north", 0, {"north": 0, "bank": 6}, 2), Job(pair, "bank", 0, {"north": 6, "bank": 0}, 2)]

    places = dict.fromkeys(NODES, 1)
    assert play(jobs(), places, clock, 500, gives_way=False) == 2
    assert play(jobs(), places, clock, 500) == 0


def test_two_passive_parties_that_never_talk_do_not_wait_for_each_other(clock: Clock) -> None:
    """A control of the first party's part: nobody wants its places, and each other one has a place for another job."""

    def jobs() -> list[Job]:
        parties = ("north", "bank", "lab")
        late = {"north": 0, "bank": 0, "lab": 1}
        return [Job(parties, "bank", 0, late, 2), Job(parties, "lab", 0, late | {"bank": 1, "lab": 0}, 2)]

    places = {"north": 3, "south": 1, "bank": 1, "lab": 1, "notary": 1}  # two of them for peers
    assert play(jobs(), places, clock, 500, leaders=False) == 2
    assert play(jobs(), places, clock, 500) == 0


arrivals = st.lists(
    st.tuples(st.floats(0, 12), st.integers(LEAST, MOST), st.sampled_from([None, "bank", "lab"]), st.floats(0.01, 3)),
    min_size=2,
    max_size=14,
)


@settings(SCHEDULES, max_examples=examples(10_000, fewer=200))
@given(
    arrivals=arrivals, places=st.integers(1, 3), spent=st.fixed_dictionaries(dict.fromkeys(("bank", "lab"), st.floats(0, 9)))
)
def test_no_job_is_overtaken_by_one_that_comes_hours_later(clock: Clock, arrivals: Any, places: int, spent: Any) -> None:
    """Of two that have room, the one that came as many hours earlier as there are priorities goes first."""
    turns, began = Turns(places, spent=lambda peer: spent.get(peer, 4.0)), clock.now
    waiting: dict[Turn, tuple[float, float]] = {}  # came, takes
    running: dict[Turn, float] = {}
    coming = sorted(arrivals, key=lambda arrival: arrival[0])
    while coming or waiting or running:
        nexts = [began + HOUR * coming[0][0]] if coming else []
        clock.now = max(clock.now, min([*nexts, *running.values()]))
        for turn in [turn for turn, until in running.items() if until <= clock.now]:
            turn.leave()
            del running[turn]
        while coming and began + HOUR * coming[0][0] <= clock.now:
            came, priority, peer, takes = coming.pop(0)
            waiting[turns.enter(lambda: True, peer, priority=priority)] = (came, takes)
        moved = True
        while moved:
            moved = False
            for turn, (came, takes) in list(waiting.items()):
                fitting = [other for other in waiting if other.position.fits]
                if turn.take(0):
                    assert min(waiting[other][0] for other in fitting) > came - PRIORITIES * AGING_S / HOUR
                    running[turn], moved = clock.now + HOUR * takes, True
                    del waiting[turn]
        assert len(running) <= places


def test_the_lowest_priority_waits_for_hours_and_not_for_ever(clock: Clock) -> None:
    """The only place is taken for ten minutes by one job after another of the highest priority."""
    turns = Turns(1)
    low, began = turns.enter(lambda: True, priority=LEAST), clock.now
    while True:
        high = turns.enter(lambda: True, priority=MOST)
        if not high.take(0):
            break
        assert clock.now - began < PRIORITIES * AGING_S
        clock.now += 600
        high.leave()
    assert low.take(0)
    assert clock.now - began >= (MOST - LEAST) * AGING_S


def test_a_peers_job_is_of_no_high_priority_and_its_turn_follows_what_its_jobs_have_taken(clock: Clock) -> None:
    taken = {"bank": 9.0, "lab": 1.0, None: 0.0}
    turns = Turns(2, spent=lambda peer: taken[peer])
    bank, lab = turns.enter(lambda: True, "bank", priority=MOST), turns.enter(lambda: True, "lab")
    own, urgent = turns.enter(lambda: True), turns.enter(lambda: True, priority=1)
    assert [turn.place for turn in (urgent, own, lab, bank)] == [1, 2, 3, 4]
    assert bank.priority == 0
    taken["lab"] = 10.0
    assert [turn.place for turn in (urgent, own, bank, lab)] == [1, 2, 3, 4]
    older = turns.enter(lambda: True, "bank", waited_s=AGING_S)
    assert older.place == 1 or urgent.place == 1
    assert older.place < own.place


def test_a_node_that_drains_begins_nothing_new_and_what_has_begun_goes_on(clock: Clock) -> None:
    turns = Turns(2)
    holder = turns.enter(lambda: True)
    assert holder.take(0)
    turns.draining = True
    new, begun = turns.enter(lambda: True), turns.enter(lambda: True, begun=True)
    assert not new.take(0)
    assert begun.take(0)
    assert new.position.drained
    assert not begun.contested  # nobody else goes on in its place
    turns.draining = False
    begun.leave()
    assert new.take(0)


def test_a_job_without_memory_has_those_give_way_that_have_not_met(clock: Clock) -> None:
    turns = Turns(2)
    holder, short = turns.enter(lambda: True), turns.enter(lambda: True)
    assert holder.take(0)
    assert not holder.contested
    with short.held_back(short=True):
        assert holder.contested
        assert not short.take(0)
    assert not holder.contested
    away = turns.enter(lambda: False)
    with away.held_back(short=True):
        assert not holder.contested  # it could not go on with the memory


def test_where_a_job_stands_is_said_in_figures(clock: Clock) -> None:
    turns = Turns(3, lambda peer: 1)
    bank, more, lab = turns.enter(lambda: True, "bank"), turns.enter(lambda: True, "bank"), turns.enter(lambda: True, "lab")
    assert bank.take(0)
    assert bank.position[:2] == (0, 2)
    assert (more.position.over, more.position.fits) == (1, False)
    assert lab.position == (2, 2, True, None, False)


def jain(shares: Sequence[float]) -> float:
    """Jain's index of fairness: 1 where all have the same, 1/n where one has all."""
    return sum(shares) ** 2 / (len(shares) * sum(share**2 for share in shares))


@pytest.mark.parametrize("fair", [True, False])
def test_three_partners_that_want_more_than_there_is_get_the_same(clock: Clock, fair: bool) -> None:
    """60 jobs of three partners at three nodes; those of one partner come first, and take longer.

    While all three have jobs that wait, the next place is for the one that has taken the least. So before each start the taken
    differ by what jobs take that have begun since: at most one longest job L for each place p, p·L in all. Three shares with a
    mean m within p·L have a variance of at most 2/9·(p·L)². So Jain's index is at least 1 / (1 + 2/9·(p·L/m)²), which is .9
    from m = 1.42·p·L on. The control takes them in the order in which they come.
    """
    draw, partners, places, longest = random.Random(20261128), ("bank", "lab", "south"), 2, 6
    taken: Counter[str] = Counter()
    spent = (lambda peer: taken[peer]) if fair else (lambda peer: 0.0)
    nodes = [Turns(places + 1, spent=spent) for _ in range(3)]  # one more place is the owner's
    jobs = [(name, draw.randint(1, longest // (1 + (name != "bank")))) for name in partners for _ in range(20)]
    waiting = [([node.enter(lambda: True, name) for node in nodes], name, takes) for name, takes in jobs]
    running: list[list[Any]] = []
    lowest = 1.0
    while waiting:
        clock.now += STEP_S
        for job in list(waiting):
            turns, name, takes = job
            have = [turn.place == 0 or turn.take(0) for turn in turns]
            if all(have):
                waiting.remove(job)
                running.append([turns, name, takes])
        for job in list(running):
            taken[job[1]] += 1
            job[2] -= 1
            if not job[2]:
                running.remove(job)
                for turn in job[0]:
                    turn.leave()
        mean = sum(taken.values()) / 3
        if {name for _, name, _ in waiting} == set(partners) and mean >= 1.42 * places * longest:
            lowest = min(lowest, jain([taken[name] for name in partners]))
    assert (lowest >= 0.9) is fair, lowest
    assert lowest < 1  # there was such a time
