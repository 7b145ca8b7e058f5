"""Jobs have their turn in order, and a place is never kept by one that cannot go on."""

from __future__ import annotations

import math
import threading
from typing import Any

import pytest

from vfl_node.node import turns as module
from vfl_node.node.turns import Turn, Turns


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ABLE_S", -1.0)  # what can go on is asked each time
    monkeypatch.setattr(module, "LOOK_S", 0.01)


def yes() -> bool:
    return True


def no() -> bool:
    return False


def test_places_are_taken_in_order_and_the_rest_know_theirs() -> None:
    turns = Turns(2)
    first, second, third, fourth = (turns.enter(yes) for _ in range(4))
    assert not second.take(0)  # though there is room for two: the first one is before it
    assert [turn.take(0) for turn in (first, second, third, fourth)] == [True, True, False, False]
    assert [turn.place for turn in (first, second, third, fourth)] == [0, 0, 1, 2]
    first.leave()
    assert [fourth.take(0), third.take(0)] == [False, True]
    assert fourth.place == 1


def test_as_many_jobs_begin_as_the_machine_has_room_for_at_the_time() -> None:
    room = math.inf
    turns = Turns(4, fitting=lambda: room)
    jobs = [turns.enter(yes) for _ in range(7)]
    assert [turn.take(0) for turn in jobs] == [True] * 4 + [False] * 3
    assert turns.usage() == {"busy": 4, "most": 4, "queued": 3}
    room = 1.9  # they have turned out to be large: those that run go on, and no other begins
    jobs[0].leave()
    jobs[1].leave()
    assert not jobs[4].take(0)
    assert turns.usage() == {"busy": 2, "most": 1, "queued": 3}
    jobs[2].leave()
    assert not jobs[4].take(0)
    jobs[3].leave()
    assert [turn.take(0) for turn in jobs[4:]] == [True, False, False]
    room = 3.2
    assert [turn.take(0) for turn in jobs[5:]] == [True, True]


def test_where_more_run_than_may_begin_now_one_that_cannot_go_on_still_gives_its_place_back() -> None:
    room = math.inf
    turns = Turns(3, fitting=lambda: room)
    jobs = [turns.enter(no) for _ in range(3)]
    assert all(turn.take(0) for turn in jobs)
    waiting = turns.enter(yes)
    room = 1.0
    assert all(turn.must_yield(0.0, able=False, queueing=False, leads=False) for turn in jobs)
    for turn in jobs:
        turn.give_back()
    assert waiting.take(0)


def test_the_last_place_is_the_owners_however_many_there_are_now() -> None:
    room = 3.0
    turns = Turns(4, fitting=lambda: room)
    own, others = turns.enter(yes), [turns.enter(yes, "lab") for _ in range(3)]
    assert [turn.take(0) for turn in (own, *others)] == [True, True, True, False]
    own.leave()
    room = 2.0
    others[0].leave()
    assert not others[2].take(0)
    assert turns.enter(yes).take(0)


def test_a_job_that_cannot_go_on_is_passed_over_and_keeps_its_number() -> None:
    turns = Turns(1)
    can = False
    stuck, other = turns.enter(lambda: can), turns.enter(yes)
    assert not stuck.take(0)
    assert other.take(0)
    assert stuck.place == 1
    later = turns.enter(yes)
    can = True
    other.leave()
    assert not later.take(0)
    assert stuck.take(0)


def test_where_none_can_go_on_the_first_has_the_place_and_gives_it_to_one_that_can() -> None:
    turns = Turns(1)
    can = False
    holder, other = turns.enter(no), turns.enter(lambda: can)
    assert holder.take(0)
    assert not holder.contested
    can = True
    assert holder.contested
    holder.give_back(rest_s=1000)
    assert other.take(0)
    third = turns.enter(no)
    other.leave()
    assert not holder.take(0)  # it rests while another one waits
    assert holder.place == 1
    third.leave()
    assert holder.take(0)


def test_who_waits_is_woken_when_a_place_is_left() -> None:
    turns = Turns(1)
    holder, other = turns.enter(yes), turns.enter(yes)
    assert holder.take(0)
    took: list[bool] = []
    waits = threading.Thread(target=lambda: took.append(other.take(30)))
    waits.start()
    holder.leave()
    holder.leave()
    waits.join(10)
    assert took == [True]
    other.leave()
    assert other.place == 0


def test_a_peer_has_its_share_and_the_last_place_is_the_owners() -> None:
    turns = Turns(4, lambda peer: 2)
    bank = [turns.enter(yes, "bank") for _ in range(3)]
    lab = [turns.enter(yes, "lab") for _ in range(3)]
    assert [turn.take(0) for turn in bank] == [True, True, False]
    assert [turn.take(0) for turn in lab] == [True, False, False]
    own = turns.enter(yes)
    assert own.take(0)
    assert not turns.enter(yes).take(0)  # there are four places in all
    assert bank[0].contested  # by the bank's third
    assert not bank[0].owed
    bank[0].leave()
    assert [turn.take(0) for turn in (lab[1], bank[2])] == [False, True]
    own.leave()
    assert not lab[1].take(0)


def test_where_there_is_one_place_the_owners_job_is_first_and_has_a_right_to_it() -> None:
    turns = Turns(1)
    can = False
    holder, queued = turns.enter(yes, "bank"), turns.enter(yes, "bank")
    assert holder.take(0)
    own = turns.enter(lambda: can)
    assert (own.place, queued.place) == (1, 2)
    assert (holder.contested, holder.owed) == (True, False)
    can = True
    assert holder.owed
    holder.give_back(0)
    assert not queued.take(0)
    assert own.take(0)
    assert not own.contested or not own.owed
    assert (holder.place, queued.place) == (1, 2)  # it keeps its number


class Node:
    """One party's places, and the jobs it knows, in an order of its own."""

    def __init__(self, places: int) -> None:
        self.turns = Turns(places)
        self.entered: dict[int, Turn] = {}
        self.ready: set[int] = set()


@pytest.mark.parametrize("places", [(1, 1), (3, 3), (5, 2), (1, 4)])
def test_forty_jobs_in_opposite_orders_all_end(places: Any) -> None:
    """The passive one takes what the active one has a place for; without that each would wait for the other for ever."""
    active, passive = map(Node, places)
    for job in range(40):
        active.entered[job] = active.turns.enter(yes)
    for job in reversed(range(40)):
        passive.entered[job] = passive.turns.enter(lambda job=job: job in active.ready)
    ended: set[int] = set()
    for _ in range(200):
        for node in (active, passive):
            for job, turn in node.entered.items():
                if turn.place and turn.take(0):
                    node.ready.add(job)
                elif job in node.ready and node is passive and job not in active.ready and turn.contested:
                    node.ready.discard(job)
                    turn.give_back(0)
        for job in active.ready & passive.ready - ended:
            ended.add(job)
            for node in (active, passive):
                node.ready.discard(job)
                node.entered[job].leave()
    assert len(ended) == 40
