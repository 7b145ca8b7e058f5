"""The stream of a job: computed once, resumed where a viewer was, and never waiting for one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.web.shown_node import AUTHORISED, View, a_job, browser
from vfl_node.errors import StateError
from vfl_node.web import events
from vfl_node.web.events import MOST_KEPT, MOST_VIEWERS, JobStream, JobStreams, compare

LIVE: dict[str, Any] = {
    "epoch": 1,
    "rate": 2.0,
    "curves": {"version": 0, "points": {"loss": [(1, 0.5)]}},
    "log": [{"number": 1, "at": "", "text": "train begins"}],
}


def grown(live: dict[str, Any], epoch: int, version: int = 0) -> dict[str, Any]:
    points = [*live["curves"]["points"]["loss"], (epoch, 1 / epoch)]
    line = {"number": epoch, "at": "", "text": f"epoch {epoch}"}
    return live | {"epoch": epoch, "curves": {"version": version, "points": {"loss": points}}, "log": [*live["log"], line]}


def read(event: bytes) -> tuple[str, str, Any]:
    """Id, name and data of one event."""
    lines = dict(line.split(": ", 1) for line in event.decode().strip().split("\n"))
    return lines["id"], lines["event"], json.loads(lines["data"])


def test_an_event_has_only_what_is_new() -> None:
    before = a_job("a", "running", done=1, live=LIVE)
    assert list(compare({}, before)) == list(compare(before, before)) == []
    now = a_job("a", "running", done=2, live=grown(LIVE, 2))
    assert list(compare(before, now)) == [
        ("job", {"done": 2, "live": {"epoch": 2}}),
        ("epochs", {"anew": False, "points": {"loss": [(2, 0.5)]}}),
        ("log", {"lines": [{"number": 2, "at": "", "text": "epoch 2"}]}),
    ]


def test_points_that_have_changed_are_sent_again_whole() -> None:
    before, now = a_job("a", "running", live=LIVE), a_job("a", "running", live=grown(LIVE, 2, version=1))
    (_, epochs, _) = compare(before, now)
    assert epochs == ("epochs", {"anew": True, "points": {"loss": [(1, 0.5), (2, 0.5)]}})
    assert ("epochs", {"anew": True, "points": {"loss": [(1, 0.5)]}}) in compare(a_job("a", "waiting"), before)


class Watched:
    """A job that moves on when it is told to, and how often it was looked at."""

    def __init__(self) -> None:
        self.job: dict[str, Any] | None = a_job("a", "running", live=LIVE)
        self.looks = 0

    def look(self) -> dict[str, Any] | None:
        self.looks += 1
        return self.job


def play(scene: Callable[[Watched, JobStream], Awaitable[None]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "LOOK_S", 0.005)

    async def run() -> None:
        watched = Watched()
        await asyncio.wait_for(scene(watched, JobStream(watched.look)), 60)

    asyncio.run(run())


async def advance(watched: Watched, stream: JobStream, epoch: int) -> None:
    """Let the job train an epoch, and the stream see it."""
    assert watched.job
    watched.job = watched.job | {"done": epoch, "live": grown(watched.job["live"], epoch)}
    number = stream._number
    while stream._number < number + 3:
        await asyncio.sleep(0.001)


def viewer(stream: JobStream, last: str = "") -> AsyncIterator[bytes]:
    return stream.follow(last, lambda: True)


def test_all_viewers_get_the_same_bytes_and_one_that_comes_back_what_it_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(watched: Watched, stream: JobStream) -> None:
        stream.viewers = 2
        first, second = viewer(stream), viewer(stream)
        whole = await anext(first)
        assert await anext(second) is whole
        assert read(whole)[1:] == ("whole", json.loads(json.dumps(watched.job)))
        await advance(watched, stream, 2)
        missed = await anext(first)
        assert await anext(second) == missed == await anext(viewer(stream, read(whole)[0]))
        each = [event + b"\n\n" for event in missed.split(b"\n\n")[:-1]]
        assert [read(event)[1] for event in each] == ["job", "epochs", "log"]
        assert await anext(viewer(stream, read(each[1])[0])) == each[2]
        for strange in ("", "1", "x-1", f"{stream._mark}-999", f"{stream._mark}-é", f"{stream._mark}-"):
            assert read(await anext(viewer(stream, strange)))[1] == "whole"

    play(scene, monkeypatch)


def test_a_viewer_that_falls_behind_is_dropped_and_nobody_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(watched: Watched, stream: JobStream) -> None:
        stream.viewers = 2
        slow, quick = viewer(stream), viewer(stream)
        last = read(await anext(slow))[0]
        await anext(quick)
        for epoch in range(2, 3 + MOST_KEPT // 3 + 1):
            await advance(watched, stream, epoch)
            await anext(quick)
        assert len(stream._kept) == MOST_KEPT
        with pytest.raises(StopAsyncIteration):
            await anext(slow)
        assert read(await anext(viewer(stream, last)))[1] == "whole"  # what it missed is not kept any more

    play(scene, monkeypatch)


def test_a_stream_ends_with_its_job(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(watched: Watched, stream: JobStream) -> None:
        stream.viewers = 1
        before = viewer(stream)
        await anext(before)
        watched.job = a_job("a", "failed", live=LIVE)
        rest = b"".join([event async for event in before])
        told = [read(event) for event in rest.split(b"\n\n")[:-1]]
        assert [name for _, name, _ in told] == ["job", "end"]
        assert told[-1][2] == {"state": "failed", "report": False}
        late = b"".join([event async for event in viewer(stream)])
        assert late.count(b"event: ") == 2
        assert late.endswith(b'data: {"state":"failed","report":false}\n\n')
        assert stream.over

    play(scene, monkeypatch)


def test_a_stream_goes_on_for_a_while_without_viewers_and_ends_if_its_job_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "LINGER_S", 0.02)

    async def scene(watched: Watched, stream: JobStream) -> None:
        await stream._task
        assert stream.over
        assert watched.looks > 1
        again = JobStream(watched.look)
        again.viewers = 1
        left = viewer(again)
        await anext(left)
        watched.job = None
        assert [event async for event in left] == []

    play(scene, monkeypatch)


@pytest.mark.parametrize(
    ("error", "line"),
    [(StateError("disk", code="E_STATE"), "the events of a job end"), (RuntimeError("defect"), "internal error")],
)
def test_a_job_that_cannot_be_read_ends_its_stream(monkeypatch: pytest.MonkeyPatch, error: Exception, line: str) -> None:
    async def scene(watched: Watched, stream: JobStream) -> None:
        def fail() -> None:
            raise error

        stream._look, stream.viewers = fail, 1
        assert all([event.startswith(b"id: ") async for event in viewer(stream)])  # until it ends

    with capture_logs() as logs:
        play(scene, monkeypatch)
    assert [entry["event"] for entry in logs] == [line]


def test_a_quiet_viewer_hears_that_the_node_is_here_until_it_may_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often the job is looked at meanwhile, with nothing found."""
    monkeypatch.setattr(events, "HEARTBEAT_S", 0.2)

    async def scene(watched: Watched, stream: JobStream) -> None:
        stream.viewers, allowed = 1, [True]
        quiet = stream.follow("", lambda: allowed[0])
        while (await anext(quiet)).startswith(b":"):  # the first look may take longer than a heartbeat
            pass
        looks = watched.looks
        while watched.looks == looks:
            assert await anext(quiet) == b": the node is here\n\n"
        allowed[0] = False
        assert [event async for event in quiet] == []

    play(scene, monkeypatch)


def test_the_stream_of_a_job_that_ended_is_an_answer_like_others(view: View) -> None:
    answer = browser(view).get("/api/jobs/failed-1/events", headers=AUTHORISED)
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["cache-control"] == "no-store"
    whole, end, _ = answer.text.split("\n\n")
    assert json.loads(whole.split("data: ")[1])["name"] == view.all[3]["name"]
    assert "event: end" in end
    assert browser(view).get("/api/jobs/none-such/events").status_code == 404


def test_a_node_has_so_many_viewers_and_no_more(view: View, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JobStreams, "full", True)
    answer = browser(view).get("/api/jobs/done-1/events")
    assert (answer.status_code, answer.json()["code"]) == (503, "E_BUSY")
    assert str(MOST_VIEWERS) in answer.json()["message"]


def test_viewers_of_all_jobs_are_counted_together() -> None:
    async def run() -> None:
        streams, watched = JobStreams(), Watched()
        some, other = streams.open("a", watched.look), streams.open("b", watched.look)
        assert streams.open("a", watched.look) is some
        some.viewers, other.viewers = MOST_VIEWERS - 1, 0
        assert not streams.full
        other.viewers = 1
        assert streams.full
        some.over = True
        assert streams.open("a", watched.look) is not some
        assert not streams.full

    asyncio.run(run())
