"""Conversations that are opened on demand."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from vfl_node.errors import PeerError, PeerLost, PolicyError
from vfl_node.execution.live import Stop
from vfl_node.node.calls import Calls
from vfl_node.transport.streams import StreamPipe


def calls(dialers: dict[str, Any] | None = None, *, check: Any = lambda peer, pipe: None) -> Calls:
    return Calls(
        dialers or {},
        check=check,
        expects=lambda peer, job_id: job_id == "job",
        describe=lambda peer: f"{peer} (absent)",
        stopping=threading.Event(),
    )


def soon() -> float:
    return time.monotonic() + 240


def test_a_call_of_a_peer_reaches_whoever_awaits_it() -> None:
    waiting, pipe, opened = calls(), StreamPipe("lab"), []
    thread = threading.Thread(target=lambda: opened.append(waiting.open("lab", "job", waiting=Stop(), deadline=soon())))
    thread.start()
    waiting.take("lab", "job", pipe)
    thread.join()
    assert opened == [pipe]


def test_a_call_that_nobody_awaits_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vfl_node.node.calls.CONNECT_S", 0.02)
    for job_id in ("unknown", "job"):
        with pytest.raises(PeerError) as caught:
            calls().take("lab", job_id, StreamPipe("lab"))
        assert caught.value.code == "E_NOT_WAITING"


def test_a_peer_that_does_not_come_is_absent_and_the_last_cause_is_said() -> None:
    def refuse(job_id: str, timeout_s: float, check: Any) -> Any:
        raise PeerLost("connection refused")

    with pytest.raises(PeerLost) as caught:
        calls().open("lab", "job", waiting=Stop(), deadline=0)
    assert (caught.value.code, caught.value.message) == ("E_PEER_ABSENT", "no conversation with lab (absent)")
    with pytest.raises(PeerLost, match=r"^no conversation with lab \(absent\): connection refused"):
        calls({"lab": SimpleNamespace(converse=refuse)}).open("lab", "job", waiting=Stop(), deadline=0)


def test_a_conversation_with_another_process_than_that_of_the_link_is_closed() -> None:
    closed: list[str] = []

    def refuse(peer: str, pipe: Any) -> None:
        raise PolicyError("a second node", code="E_FENCED")

    pipe = SimpleNamespace(close=lambda: closed.append("lab"))
    dialer = SimpleNamespace(converse=lambda job_id, timeout_s, check: pipe)
    with pytest.raises(PeerLost, match="a second node"):
        calls({"lab": dialer}, check=refuse).open("lab", "job", waiting=Stop(), deadline=0)
    assert closed == ["lab"]


def test_what_ends_the_wait_ends_a_call_that_is_not_answered_yet() -> None:
    """Such as the loss of another party, which is not what keeps this one from an answer."""

    class Waiting(Stop):
        left = False

        def check(self) -> None:
            if self.left:
                raise PeerLost("clinic has left")

    def unanswered(job_id: str, timeout_s: float, check: Any) -> Any:
        waiting.left = True
        check()

    waiting = Waiting()
    with pytest.raises(PeerLost, match=r"^clinic has left"):
        calls({"lab": SimpleNamespace(converse=unanswered)}).open("lab", "job", waiting=waiting, deadline=soon())


def test_a_caller_that_hangs_up_is_not_kept() -> None:
    pipe = StreamPipe("lab")
    pipe.end_by_transport()
    with pytest.raises(PeerError) as caught:
        calls().take("lab", "job", pipe)
    assert caught.value.code == "E_NOT_WAITING"
