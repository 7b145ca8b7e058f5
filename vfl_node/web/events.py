"""What happens in a job, as server-sent events. Each event is computed once for all viewers, and a slow viewer delays nobody.

A stream looks at its job four times a second and keeps the newest events as bytes. Each viewer reads them at its own speed, on
the event loop of the HTTP port. If a viewer is so slow that its next event is no longer kept, it is disconnected. Its browser
then connects again. A viewer that names the last event that it received gets the events after it. Every other viewer first gets
the event ``whole``: the job as ``/api/jobs/JOB`` has it.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

import structlog
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from vfl_node.errors import VflError

log = structlog.get_logger()

LOOK_S = 0.25
"""How often a stream looks at its job."""

HEARTBEAT_S = 15.0
"""The longest time without a byte for a viewer, so that proxies on the way keep the connection."""

LINGER_S = 30.0
"""How long a stream goes on without viewers, so that a browser that connects again gets what it missed."""

MOST_KEPT = 64
"""How many of the newest events are kept, for viewers that are behind."""

MOST_VIEWERS = 48
"""The most viewers of all jobs together. An IP address may have 64 connections; the rest is left for other requests."""

OPEN = ("waiting", "running", "paused")
"""States of a job in which something may still happen."""

GROWING = ("curves", "log")
"""Keys of ``live`` that only grow. Their events carry only what is new."""

Look = Callable[[], dict[str, Any] | None]


class JobStreams:
    """The event streams of one HTTP port."""

    def __init__(self) -> None:
        self._streams: dict[str, JobStream] = {}

    @property
    def full(self) -> bool:
        """Whether no further viewer is allowed."""
        return sum(stream.viewers for stream in self._streams.values()) >= MOST_VIEWERS

    def open(self, job_id: str, look: Look) -> JobStream:
        """The stream of a job. If there is none, it begins one. ``look`` returns the job as it is now."""
        stream = self._streams.get(job_id)
        if stream is None or stream.over:
            self._streams = {name: other for name, other in self._streams.items() if not other.over}
            stream = self._streams[job_id] = JobStream(look)
        return stream


class JobStream:
    """The events of one job.

    Args:
        look: returns the job as it is now, or None if it no longer exists.

    Attributes:
        viewers: the number of viewers.
        over: whether the stream has ended.
    """

    def __init__(self, look: Look) -> None:
        self.viewers, self.over = 0, False
        self._look = look
        self._mark = secrets.token_hex(4)  # ids of a different stream, such as one before a restart, are not taken for its own
        self._number = 0
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=MOST_KEPT)
        self._job: dict[str, Any] = {}
        self._whole: tuple[int, bytes] = (-1, b"")
        self._news = asyncio.Event()
        self._task = asyncio.ensure_future(self._run())

    async def follow(self, last: str, allowed: Callable[[], bool]) -> AsyncIterator[bytes]:
        """The events for one viewer. They end when the job ends, the viewer is too far behind, or it may no longer read.

        Args:
            last: id of the last event that the viewer received; empty if it received none.
            allowed: returns whether the viewer may still read.
        """
        place, said = self._find(last), time.monotonic()
        while allowed():
            news = self._news
            if self._job and place is None:
                place, said = self._number, time.monotonic()
                yield self._describe()
            if self._kept and place is not None and place < self._kept[0][0] - 1:
                return
            if missed := [event for number, event in self._kept if place is not None and number > place]:
                place, said = self._number, time.monotonic()
                yield b"".join(missed)
            if self.over and place in (None, self._number):
                return
            try:
                await asyncio.wait_for(news.wait(), said + HEARTBEAT_S - time.monotonic())  # every look wakes, with news or not
            except asyncio.TimeoutError:  # before Python 3.11 it is not the builtin TimeoutError
                said = time.monotonic()
                yield b": the node is here\n\n"

    async def _run(self) -> None:
        """Look at the job until it has ended, or until there was no viewer for :data:`LINGER_S`."""
        idle_s = 0.0
        try:
            while not self.over and idle_s < LINGER_S:
                job = await run_in_threadpool(self._look)
                self._take(job)
                self._wake()
                idle_s = 0.0 if self.viewers else idle_s + LOOK_S
                await asyncio.sleep(LOOK_S)
        except VflError as error:  # such as a disk that fails; viewers connect again
            log.warning("the events of a job end", code=error.code, reason=error.message)
        except Exception:
            log.exception("internal error")
        finally:
            self.over = True
            self._wake()

    def _take(self, job: dict[str, Any] | None) -> None:
        if job is None:
            self.over = True
            return
        for name, data in compare(self._job, job):
            self._keep(name, data)
        self._job = job
        if job["state"] not in OPEN:
            self._keep("end", {"state": job["state"], "report": job["report"]})
            self.over = True

    def _keep(self, name: str, data: Any) -> None:
        self._number += 1
        self._kept.append((self._number, self._event(name, data)))

    def _event(self, name: str, data: Any) -> bytes:
        text = json.dumps(data, separators=(",", ":"), allow_nan=False)  # one line
        return f"id: {self._mark}-{self._number}\nevent: {name}\ndata: {text}\n\n".encode()

    def _describe(self) -> bytes:
        """The event ``whole`` with the job as it is after the newest event. It is made when a viewer first needs it."""
        if self._whole[0] != self._number:
            self._whole = (self._number, self._event("whole", self._job))
        return self._whole[1] + (self._kept[-1][1] if self._job["state"] not in OPEN else b"")

    def _find(self, last: str) -> int | None:
        """The number of the event with id ``last``; None if it is not of this stream, or later events are no longer kept."""
        mark, _, number = last.partition("-")
        if mark != self._mark or not number.isdecimal() or len(number) > 9:
            return None
        first = self._kept[0][0] if self._kept else self._number + 1
        return int(number) if first - 1 <= int(number) <= self._number else None

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()


class EventStream(StreamingResponse):
    """An HTTP response that sends the events of a stream to one viewer."""

    def __init__(self, stream: JobStream, last: str, allowed: Callable[[], bool]) -> None:
        super().__init__(stream.follow(last, allowed), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events, and count the viewer meanwhile."""
        self._stream.viewers += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._stream.viewers -= 1


def compare(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and data of the events that turn the job ``before`` into the job ``now``; none if ``before`` is empty."""
    if not before:
        return
    old, new = before.get("live") or {}, now.get("live") or {}
    live = {key: value for key, value in new.items() if key not in GROWING and value != old.get(key)}
    changed = {key: value for key, value in now.items() if key not in ("live", "spec") and value != before.get(key)}
    if live or changed:
        yield "job", changed | ({"live": live} if live else {})
    if new:
        yield from _find_new(old, new)


def _find_new(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Events with the points of curves and the lines of the log that are in ``new`` and not in ``old``."""
    curves, earlier = new["curves"], old.get("curves") or {"version": None, "points": {}}
    anew = curves["version"] != earlier["version"]
    known = {} if anew else earlier["points"]
    points = {
        name: [point for point in all_points if name not in known or point[0] > known[name][-1][0]]
        for name, all_points in curves["points"].items()
    }
    points = {name: some for name, some in points.items() if some}
    if points or anew:
        yield "epochs", {"anew": anew, "points": points}
    last = old["log"][-1]["number"] if old.get("log") else 0
    if lines := [line for line in new["log"] if line["number"] > last]:
        yield "log", {"lines": lines}
