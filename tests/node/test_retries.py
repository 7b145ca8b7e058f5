"""When an attempt that broke off is repeated."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from vfl_node.errors import StateError
from vfl_node.node import retries
from vfl_node.node.retries import FIRST_PAUSE_S, MOST_FRUITLESS, MOST_PAUSE_S, STEADY_S, Retries

STEADY, LONG = 2 * STEADY_S, 2 * MOST_PAUSE_S


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Its one element is the time."""
    now = [1000.0]
    monkeypatch.setattr(retries, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def test_pauses_double_up_to_a_limit_and_begin_anew_after_a_long_attempt() -> None:
    series = Retries(wait_s=3600)
    pauses = [series.pause_s("lost lab", 0.0, progressed=False) for _ in range(12)]
    assert pauses[:3] == [2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S, 8 * FIRST_PAUSE_S]
    assert pauses[-1] == MOST_PAUSE_S
    assert series.pause_s("lost lab", LONG, progressed=True) == FIRST_PAUSE_S


def test_attempts_without_progress_end_after_their_number_and_the_wait(clock: list[float]) -> None:
    series = Retries(wait_s=60)
    for _ in range(MOST_FRUITLESS + 5):  # many, but within the wait
        series.pause_s("lost lab", STEADY, progressed=False)
    clock[0] += 61
    with pytest.raises(StateError, match=rf"^{MOST_FRUITLESS + 6} attempts .*; the last one: lost lab") as caught:
        series.pause_s("lost lab", STEADY, progressed=False)
    assert (caught.value.code, caught.value.for_peer) == ("E_NO_PROGRESS", "its attempts break off again and again")


@pytest.mark.parametrize(("lasted_s", "progressed"), [(STEADY, True), (0.0, False)], ids=["progress", "never begun"])
def test_attempts_with_progress_and_those_that_never_began_do_not_count(
    clock: list[float], lasted_s: float, progressed: bool
) -> None:
    series = Retries(wait_s=60)
    for _ in range(3 * MOST_FRUITLESS):
        clock[0] += 100
        series.pause_s("lost lab", lasted_s, progressed=progressed)
