"""Curves, spans of time, pace and log of a job, however long it is."""

from __future__ import annotations

import math

import pytest

from vfl_node.execution.history import MARK_S, MARKS, MOST_LINES, MOST_POINTS, MOST_SPANS, Curves, Lines, Pace, Spans, thin
from vfl_node.transport.generated.vfl.v1.session_pb2 import Frame
from vfl_node.transport.trace import Trace


def test_thin_points_keep_both_ends_and_the_extremes_of_each_bin() -> None:
    points = [(number, math.sin(number)) for number in range(1, 1001)]
    points[400], points[600] = (401, 9.0), (601, -9.0)
    kept = thin(points, 50)
    assert len(kept) <= 50
    assert kept == sorted(kept)
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    assert {(401, 9.0), (601, -9.0)} <= set(kept) <= set(points)


def test_a_curve_of_any_length_is_bounded_and_keeps_its_extremes() -> None:
    curves = Curves()
    for epoch in range(1, 20 * MOST_POINTS):
        curves.add(epoch, {"loss": 100.0 if epoch == 3000 else -100.0 if epoch == 7001 else 1 / epoch})
        assert len(curves.copy()["points"]["loss"]) <= MOST_POINTS
    points = curves.copy()["points"]["loss"]
    assert {(1, 1.0), (3000, 100.0), (7001, -100.0), (20 * MOST_POINTS - 1, 1 / (20 * MOST_POINTS - 1))} <= set(points)
    assert curves.version > 0


def test_a_short_curve_is_whole_and_knows_only_what_was_measured() -> None:
    curves = Curves()
    curves.add(1, {"loss": 0.5, "auc": None})
    curves.add(2, {"loss": math.nan, "auc": 0.7})
    assert curves.copy() == {"version": 0, "points": {"loss": [(1, 0.5)], "auc": [(2, 0.7)]}}
    assert curves.epoch == 2


def test_epochs_that_are_repeated_take_the_place_of_the_earlier_ones() -> None:
    curves = Curves()
    for epoch in (1, 2, 3):
        curves.add(epoch, {"loss": epoch})
    curves.add(2, {"loss": 20.0})
    made = curves.copy()
    assert made["points"]["loss"] == [(1, 1), (2, 20.0)]
    assert made["version"] > 0
    curves.add(3, {"loss": 30.0})
    assert made["points"]["loss"] == [(1, 1), (2, 20.0)]  # what was copied stays


def test_spans_follow_on_each_other_and_a_phase_goes_on_after_a_wait() -> None:
    spans = Spans()
    spans.go_on()
    assert spans.copy() == []
    spans.begin("wait", "lab")
    spans.begin("wait", "lab")
    spans.begin("work", "train")
    spans.begin("alone", "own model alone")
    spans.go_on()
    spans.go_on()
    made = spans.copy()
    assert [(span["kind"], span["name"]) for span in made] == [
        ("wait", "lab"),
        ("work", "train"),
        ("alone", "own model alone"),
        ("work", "train"),
    ]
    assert [span["ended"] for span in made] == [*(span["began"] for span in made[1:]), None]
    assert made[0]["began"].endswith("+00:00")
    spans.end()
    assert spans.copy()[-1]["ended"]


def test_spans_and_lines_are_bounded() -> None:
    spans, lines = Spans(), Lines()
    for number in range(2 * MOST_LINES):
        spans.begin("work", str(number))
        lines.add(str(number))
    assert len(spans.copy()) == MOST_SPANS
    assert [line["number"] for line in lines.copy()] == list(range(MOST_LINES + 1, 2 * MOST_LINES + 1))
    assert lines.copy()[-1]["text"] == str(2 * MOST_LINES - 1)


FRAME = Frame(phase="train", sequence=1, type="vfl.v1.Embedding")


def test_the_pace_is_that_of_the_last_marks() -> None:
    now = [0.0]
    pace = Pace(Trace(), lambda: now[0])
    assert pace.rate(0) is None
    pace.mark(1000)  # done before, in another attempt
    assert pace.rate(1000) is None
    for step in range(1, 11):
        now[0] = step / 2
        pace.mark(1000 + 2 * step)
    assert pace.rate(1020) == pytest.approx(4.0)
    for second in range(100, 100 + 2 * MARKS):
        now[0] = second * MARK_S
        pace.mark(10 * second)
    assert pace.rate(10 * (99 + 2 * MARKS)) == pytest.approx(10.0)
    pace.restart()
    assert pace.rate(5000) is None


def test_the_time_of_a_step_is_own_work_waiting_and_sending() -> None:
    """Waiting for two parties at once is waiting once, and what passed before the oldest mark is of another pace."""
    now = [0.0]
    trace = Trace(lambda: int(now[0] * 1e9))
    pace = Pace(trace, lambda: now[0])

    def pass_message(peer: str, since: float, until: float, *, sent: bool) -> None:
        now[0] = until
        trace.add(peer, 1, FRAME, trace.now() - int((until - since) * 1e9), sent=sent)

    pass_message("lab", 0, 7, sent=False)
    pace.mark(10)
    assert pace.step(10) is None
    pass_message("lab", 8, 10, sent=False)
    pass_message("insurer", 8, 11, sent=False)
    pass_message("lab", 13, 14, sent=True)
    now[0] = 17
    assert pace.step(15) == pytest.approx({"waiting": 3 / 5, "sending": 1 / 5, "work": 6 / 5}, abs=1e-6)
