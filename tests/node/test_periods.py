"""Budgets of a week and a year: what is new within them, when more fits, and what the clock may do."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vfl_node.cli.shared import limit_text
from vfl_node.configuration.models import parse
from vfl_node.errors import PolicyError
from vfl_node.node import counts
from vfl_node.node.partners import Partner
from vfl_node.process.files import write_checked
from vfl_node.session.counted import ANY_SET, Counted, aligned_sets, linked_sets, served_model, telling_training
from vfl_node.session.memory import join_memories
from vfl_node.settings.bounds import Bound, Limit
from vfl_node.settings.limits import Budgets
from vfl_node.trust import lanes
from vfl_node.web.overview import used_lines

TWO_A_WEEK: Limit = (Bound(most=2, per="week"), Bound(most=20))


class Clock:
    """The time at this node, which a test moves."""

    def __init__(self) -> None:
        self.now = datetime(2027, 1, 24, 9, tzinfo=timezone.utc)

    def move(self, **time: float) -> None:
        self.now += timedelta(**time)

    def __call__(self) -> str:
        return self.now.isoformat(timespec="seconds")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (lanes, counts):
        monkeypatch.setattr(module, "utc_now", clock)
    return clock


def training(job_id: str, limit: Limit = TWO_A_WEEK, of_set: bytes = b"set") -> Counted:
    return telling_training(of_set.hex(), of_set, job_id, limit)


def refusal(act: Callable[[], Any]) -> PolicyError:
    with pytest.raises(PolicyError) as caught:
        act()
    assert caught.value.code == "E_BUDGET"
    return caught.value


def test_a_week_has_as_many_new_ones_as_its_owner_allows(tmp_path: Path, clock: Clock) -> None:
    lab = Partner(tmp_path, "lab")
    lab.count(training("one"))
    clock.move(days=1)
    assert lab.count(training("two")) == 2
    clock.move(days=5, hours=23, minutes=59, seconds=59)
    error = refusal(lambda: lab.count(training("three")))
    assert error.message == "lab.budgets.trainings: 2 of 2 per week are used; the next is free on 2027-01-31"
    assert "budgets.trainings" in error.hint
    assert not any(word in error.for_peer for word in ("2", "week", "trainings"))
    assert "budget" in error.for_peer
    refusal(lambda: lab.check(training("three", of_set=b"another")))  # whatever set it is over
    refusal(lambda: Partner(tmp_path, "lab").reserve("three", [training("three")], []))
    assert [lab.count(training(job)) for job in ("one", "two")] == [1, 2]  # what was counted is free
    Partner(tmp_path, "shop").count(training("three"))  # each partner has a week of its own
    clock.move(seconds=1)
    assert lab.count(training("three")) == 3
    assert "2027-02-01" in refusal(lambda: lab.count(training("four"))).message


def test_a_year_and_a_week_and_the_total_all_hold(tmp_path: Path, clock: Clock) -> None:
    limit = (Bound(most=1, per="week"), Bound(most=2, per="year"), Bound(most=3))
    lab = Partner(tmp_path, "lab")
    lab.count(training("one", limit))
    assert "1 of 1 per week" in refusal(lambda: lab.count(training("two", limit))).message
    clock.move(days=7)
    lab.count(training("two", limit))
    assert (
        "2 of 2 per year are used; the next is free on 2028-01-24" in refusal(lambda: lab.count(training("x", limit))).message
    )
    clock.move(days=358)
    lab.count(training("three", limit))
    clock.move(days=800)
    assert "this node allows 3" in refusal(lambda: lab.count(training("four", limit))).message
    lab.count(training("four", (Bound(most=1, per="week"),)))  # without a total none holds


def test_the_next_is_free_only_when_a_lowered_limit_allows_it(tmp_path: Path, clock: Clock) -> None:
    lab = Partner(tmp_path, "lab")
    for job_id in ("one", "two", "three"):
        lab.count(training(job_id, None))
        clock.move(days=1)
    assert "3 of 2 per week are used; the next is free on 2027-02-01" in refusal(lambda: lab.count(training("x"))).message


def test_what_is_set_aside_counts_from_then_on_and_what_is_released_does_not(tmp_path: Path, clock: Clock) -> None:
    lab = Partner(tmp_path, "lab")
    for job_id in ("one", "two"):
        lab.reserve(job_id, [training(job_id)], [])
    refusal(lambda: lab.reserve("three", [training("three")], []))
    lab.release("two")
    lab.reserve("three", [training("three")], [])
    refusal(lambda: lab.reserve("two", [training("two")], []))  # it is new again
    clock.move(days=6)
    assert lab.count(training("one")) == 1
    clock.move(days=1)
    lab.reserve("two", [training("two")], [])
    lab.count(training("four"))  # one was counted yesterday, and counts from when it was set aside
    refusal(lambda: lab.count(training("five")))


@pytest.mark.parametrize("restart", [False, True])
def test_a_clock_that_goes_back_opens_no_week(tmp_path: Path, clock: Clock, restart: bool) -> None:
    lab = Partner(tmp_path, "lab")
    clock.move(days=30)
    lab.count(training("one"))
    clock.move(days=-30)
    lab.count(training("two"))  # by this clock before the first
    if restart:
        lab = Partner(tmp_path, "lab")
    for days in (0, 20, 10):
        clock.move(days=days)
        refusal(lambda: lab.count(training("three")))
    clock.move(days=7)
    lab.count(training("three"))


def test_a_clock_that_goes_on_does_open_it(tmp_path: Path, clock: Clock) -> None:
    """The other control."""
    lab = Partner(tmp_path, "lab")
    for job_id in ("one", "two"):
        lab.count(training(job_id))
    clock.move(days=30)
    lab.count(training("three"))


def test_what_an_earlier_version_counted_is_new_on_the_day_of_its_move(tmp_path: Path, clock: Clock) -> None:
    folder = Partner(tmp_path, "lab").folder
    write_checked(folder / "trainings", b"736574 one\n736574 two")
    lab = Partner(tmp_path, "lab")
    refusal(lambda: lab.count(training("three")))
    assert lab.count(training("two")) == 2
    clock.move(days=7)
    assert lab.count(training("three")) == 3


def test_every_budget_of_this_form_has_weeks(tmp_path: Path, clock: Clock) -> None:
    one: Limit = (Bound(most=1, per="week"),)
    lab = Partner(tmp_path, "lab")
    lab.count(aligned_sets(b"a", one))
    lab.count(served_model("table", "job", one))
    for budget, what in (("alignments", aligned_sets(b"b", one)), ("models_served", served_model("other", "second", one))):
        assert f"lab.budgets.{budget}: 1 of 1 per week" in refusal(lambda what=what: lab.count(what)).message  # type: ignore[misc]


def test_a_linkage_is_one_although_several_lines_count_it(tmp_path: Path, clock: Clock) -> None:
    lab = Partner(tmp_path, "lab")

    def link(linkage: bytes, terms: bytes) -> None:
        each = [linked_sets(records, linkage, TWO_A_WEEK) for records in (b"ours", b"theirs")]
        each.append(linked_sets(ANY_SET, terms, TWO_A_WEEK))
        for act in (lab.check, lab.count):
            for what in each:
                act(what)

    for _ in range(2):
        link(b"first", b"terms")
        link(b"second", b"other terms")
    assert "2 of 2 per week" in refusal(lambda: link(b"third", b"terms")).message
    clock.move(days=7)
    link(b"third", b"terms")


def test_a_week_used_up_with_one_partner_refuses_the_job_with_all(tmp_path: Path, clock: Clock) -> None:
    lab, shop = Partner(tmp_path, "lab"), Partner(tmp_path, "shop")
    for job_id in ("one", "two"):
        shop.count(training(job_id))
    both = join_memories([lab, shop])
    assert "shop.budgets.trainings" in refusal(lambda: both.reserve("three", [training("three")], [])).message
    assert lab.lane.entries == []


def test_what_refuses_next_is_shown(tmp_path: Path, clock: Clock) -> None:
    allowed = Budgets(trainings=(Bound(most=2, per="week"), Bound(most=3)), alignments=(Bound(most=9, per="year"),))
    lab = Partner(tmp_path, "lab")

    def shown(budget: str) -> dict[str, Any]:
        return lab.list_uses(allowed)[budget].describe()

    assert shown("trainings") == {"used": 0, "allowed": 2, "per": "week", "free": None}
    assert shown("alignments") == {"used": 0, "allowed": 9, "per": "year", "free": None}
    assert shown("linkages") == {"used": 0, "allowed": 5}
    assert shown("epsilon") == {"used": 0, "allowed": 4.0}
    for job_id in ("one", "two"):
        lab.count(training(job_id))
    assert shown("trainings") == {"used": 2, "allowed": 2, "per": "week", "free": "2027-01-31"}
    clock.move(days=7)
    assert shown("trainings") == {"used": 2, "allowed": 3}  # only one more, and then none
    lab.count(training("three"))
    assert shown("trainings") == {"used": 3, "allowed": 3}


@pytest.mark.parametrize(
    ("use", "text", "left"),
    [
        ({"used": 3, "allowed": None}, "no bound", "3 used, no bound"),
        ({"used": 3, "allowed": 2000}, "2,000", "1,997 of 2,000 left"),
        ({"used": 1, "allowed": 2, "per": "week", "free": "2027-01-31"}, "2 per week", "1 of 2 per week left"),
        (
            {"used": 2, "allowed": 2, "per": "week", "free": "2027-01-31"},
            "2 per week (the next is free on 2027-01-31)",
            "0 of 2 per week left, the next is free on 2027-01-31",
        ),
    ],
)
def test_people_read_when_the_next_is_free(use: dict[str, Any], text: str, left: str) -> None:
    assert limit_text(use) == text
    (line,) = used_lines({"trainings": use})
    assert line.left == left


def test_weeks_are_read_in_any_order(tmp_path: Path) -> None:
    def read(text: str) -> Any:
        return parse(f"trainings: {text}", Budgets, source="budgets").trainings

    assert read("[{most: 20}, {most: 2, per: week}]") == read("[{most: 2, per: week}, {most: 20}]") == TWO_A_WEEK
    assert read("[{most: 20}]") == 20
    assert read("null") is None


STEPS = st.lists(
    st.tuples(
        st.sampled_from(("count", "reserve", "release", "restart")),
        st.integers(0, 6),  # which job
        st.integers(-4, 9),  # days by which the clock moves before
    ),
    max_size=25,
)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_no_seven_days_have_more_new_ones_than_a_week_allows(clock: Clock, steps: list[tuple[str, int, int]]) -> None:
    """Beside a plain count of what is new, by the latest time that the clock has told at any entry."""
    with TemporaryDirectory() as folder:
        lab = Partner(Path(folder), "lab")
        since: dict[str, datetime] = {}
        counted: set[str] = set()
        latest = clock.now - timedelta(days=9999)  # no entry yet
        for act, number, days in steps:
            clock.move(days=days)
            job = f"job-{number}"
            now = max(clock.now, latest)
            fits = job in since or sum(at > now - timedelta(days=7) for at in since.values()) < 2
            before = len(lab.lane.entries)
            if act == "restart":
                lab = Partner(Path(folder), "lab")
            elif act == "release":
                lab.release(job)
                if job not in counted:
                    since.pop(job, None)
            elif fits:
                lab.count(training(job)) if act == "count" else lab.reserve(job, [training(job)], [])
                since.setdefault(job, now)
                counted.update([job] if act == "count" else [])
            else:
                refusal(partial(lab.check, training(job)))
            if len(lab.lane.entries) > before:
                latest = now
            used = lab.list_uses(Budgets(trainings=(Bound(most=2, per="week"),)))["trainings"].used
            assert used == sum(at > max(clock.now, latest) - timedelta(days=7) for at in since.values()) <= 2
