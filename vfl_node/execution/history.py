"""Curves, spans of time, pace and log of one job: what its page shows besides its newest figures, each of bounded size."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from vfl_node.transport.trace import Trace

MOST_POINTS = 500
"""Points of a curve."""

MOST_SPANS = 64
"""Newest spans of time that are kept."""

MOST_LINES = 200
"""Newest lines of the log that are kept."""

MARKS, MARK_S = 30, 1.0
"""The pace is that of so many marks, which are so far apart at least."""

Point = tuple[int, float]


def utc_moment() -> str:
    """The time in UTC, ISO 8601, to the millisecond."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def thin(points: Sequence[Point], most: int) -> list[Point]:
    """At most ``most`` of the points: the first, the last, and of each bin between them the lowest and the highest."""
    first, *inner, last = points
    bins = most // 2 - 1
    edges = [number * len(inner) // bins for number in range(bins + 1)]
    parts = [inner[start:end] for start, end in pairwise(edges) if start < end]
    ends = [{min(part, key=_value), max(part, key=_value)} for part in parts]
    return [first, *(point for pair in ends for point in sorted(pair)), last]


def _value(point: Point) -> float:
    return point[1]


class Curves:
    """Figures by epoch.

    Attributes:
        epoch: number of the newest one, from 1; 0 before there is one.
        version: changes when points that were there before are gone or changed.
    """

    def __init__(self) -> None:
        self.epoch = self.version = 0
        self._points: dict[str, list[Point]] = {}

    def add(self, epoch: int, figures: Mapping[str, float | None]) -> None:
        """Add the figures of an epoch that are known; of an epoch that is repeated they take the place of the earlier ones."""
        self.epoch = epoch
        for name, value in figures.items():
            if value is None or not math.isfinite(value):
                continue
            points = self._points.setdefault(name, [])
            while points and points[-1][0] >= epoch:
                points.pop()
                self.version += 1
            points.append((epoch, value))
            if len(points) > MOST_POINTS:
                self._points[name] = thin(points, MOST_POINTS // 2)
                self.version += 1

    def copy(self) -> dict[str, Any]:
        """The version, and name → points."""
        return {"version": self.version, "points": {name: list(points) for name, points in self._points.items()}}


Kind = Literal["work", "alone", "wait"]


@dataclass
class Span:
    """A time in which a party did one thing.

    Attributes:
        kind: work: in a phase, with the others; alone: a model of its own; wait: for parties or for its turn.
        name: the phase, or who or what is waited for.
        began: when, ISO 8601.
        ended: likewise; None: not yet.
    """

    kind: Kind
    name: str
    began: str
    ended: str | None = None


class Spans:
    """The newest spans of time, without gaps."""

    def __init__(self) -> None:
        self._spans: deque[Span] = deque(maxlen=MOST_SPANS)
        self._phase = ""

    def begin(self, kind: Kind, name: str) -> None:
        """One thing begins, and what was done before ends; nothing happens if it is the same."""
        newest = self._spans[-1] if self._spans else None
        if newest and newest.ended is None and (newest.kind, newest.name) == (kind, name):
            return
        now = utc_moment()
        self._end(now)
        self._spans.append(Span(kind, name, now))
        if kind == "work":
            self._phase = name

    def go_on(self) -> None:
        """The phase that was under way goes on, if something else was done meanwhile."""
        if self._spans and self._spans[-1].kind != "work" and self._phase:
            self.begin("work", self._phase)

    def end(self) -> None:
        """Nothing is done any more."""
        self._end(utc_moment())

    def copy(self) -> list[dict[str, Any]]:
        """All of them, first the oldest."""
        return [asdict(span) for span in self._spans]

    def _end(self, now: str) -> None:
        if self._spans and self._spans[-1].ended is None:
            self._spans[-1].ended = now


class PaceMark(NamedTuple):
    """How far a phase was at a moment.

    Attributes:
        at: s.
        done: steps.
        waited: for messages so far, in ns.
        sending: how long it sent so far, in ns.
    """

    at: float
    done: int
    waited: int
    sending: int


class Pace:
    """How many steps a phase takes in a second, lately, and where their time goes.

    Args:
        trace: of the job.
        clock: seconds, of any origin.
    """

    def __init__(self, trace: Trace, clock: Callable[[], float] = time.monotonic) -> None:
        self._trace, self._clock = trace, clock
        self._marks: deque[PaceMark] = deque(maxlen=MARKS)

    def restart(self) -> None:
        """Steps of before are not of this pace."""
        self._marks.clear()

    def mark(self, done: int) -> None:
        """So many steps are done by now."""
        if not self._marks or self._clock() - self._marks[-1].at >= MARK_S:
            self._marks.append(self._now(done))

    def rate(self, done: int) -> float | None:
        """Steps a second, if so many are done by now; None where it is not known yet."""
        passed = self._passed(done)
        return passed.done / passed.at if passed else None

    def step(self, done: int) -> dict[str, float] | None:
        """Where the time of a step goes, in seconds: waiting for others, sending and own work; None likewise."""
        passed = self._passed(done)
        if not passed:
            return None
        waiting, sending = (each / 1e9 / passed.done for each in (passed.waited, passed.sending))
        return {"waiting": waiting, "sending": sending, "work": max(0.0, passed.at / passed.done - waiting - sending)}

    def _now(self, done: int) -> PaceMark:
        return PaceMark(self._clock(), done, self._trace.waited, self._trace.sending)

    def _passed(self, done: int) -> PaceMark | None:
        """What has passed since the oldest mark."""
        if not self._marks:
            return None
        before, now = self._marks[0], self._now(done)
        passed = PaceMark(now.at - before.at, now.done - before.done, now.waited - before.waited, now.sending - before.sending)
        return passed if passed.done > 0 and passed.at > 0 else None


class Lines:
    """The newest lines of the log of one job."""

    def __init__(self) -> None:
        self._lines: deque[dict[str, Any]] = deque(maxlen=MOST_LINES)
        self._number = 0

    def add(self, text: str) -> None:
        """Something has happened."""
        self._number += 1
        self._lines.append({"number": self._number, "at": utc_moment(), "text": text})

    def copy(self) -> list[dict[str, Any]]:
        """All of them, first the oldest; each has number, at and text."""
        return list(self._lines)
