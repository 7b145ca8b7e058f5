"""The conversations of one attempt."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace
from typing import Any

from vfl_node.execution.live import LiveProgress, Stop
from vfl_node.node.meeting import Meeting
from vfl_node.transport.channel import Channel
from vfl_node.transport.streams import StreamPipe


def channel(pipe: Any, peer: str, job_id: str) -> Channel:
    """As a node's peers make it."""
    return Channel(pipe, peer=peer, job_id=job_id)


def test_a_conversation_that_has_ended_is_kept_by_nobody() -> None:
    """A job may have thousands of attempts."""
    stop, attempts = Stop(), []
    for _ in range(3):
        with Meeting("job", ["lab"], SimpleNamespace(channel=channel), stop, LiveProgress("job", stop)) as meeting:  # type: ignore[arg-type]
            pipe = StreamPipe("lab")
            pipe.finish()
            meeting.add("lab", pipe)
            attempts.append(weakref.ref(pipe))
    del meeting, pipe
    gc.collect()
    assert [attempt() for attempt in attempts] == [None, None, None]
