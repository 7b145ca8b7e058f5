"""The conversations of one attempt."""

from __future__ import annotations

import gc
import time
import weakref
from types import SimpleNamespace
from typing import Any

import pytest

from vfl_node.engines.contract import Inline
from vfl_node.errors import PeerError, PeerLost, PolicyError, VflError
from vfl_node.execution.live import LiveProgress, Stop
from vfl_node.node import meeting as module
from vfl_node.node.meeting import Meeting
from vfl_node.transport.channel import Channel
from vfl_node.transport.generated.vfl.v1.session_pb2 import Beat
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


def test_the_party_that_is_away_is_named_through_the_one_that_waits_for_it() -> None:
    """This party has no link with it. What a party said while its own link was up says nothing once it is away itself."""
    online = {"clinic"}
    peers = SimpleNamespace(describe=lambda peer: f"{peer} (there)", online=online.__contains__)
    stop = Stop()
    meeting = Meeting("job", ["clinic"], peers, stop, LiveProgress("job", stop))  # type: ignore[arg-type]
    absent = PeerLost("no conversation with clinic", code="E_PEER_ABSENT", hint="is that node running?")
    assert meeting.absence("clinic", absent) is absent
    meeting.hears("clinic", ("insurer", "bank"))
    named = meeting.absence("clinic", absent)
    assert (named.code, named.message) == (
        "E_PEER_ABSENT",
        "no conversation with clinic (there), which waits for insurer and bank",
    )
    assert named.hint.startswith("ask the owner of insurer and bank")
    online.clear()
    assert meeting.absence("clinic", absent) is absent
    meeting.check()
    assert meeting._progress.snapshot()["note"].endswith("clinic (there)")  # type: ignore[attr-defined]


@pytest.mark.parametrize("how", ["it was lost", "it was silent", "it hung"])
def test_another_party_is_told_who_was_lost(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """However the loss shows, at once, though this party listens to the other one: that one may have no link with it."""
    monkeypatch.setattr(module, "NOTICE_S", 0.01)
    peers = SimpleNamespace(channel=channel, last_progress=lambda _: 0.0)
    lab, insurer = StreamPipe("lab"), StreamPipe("insurer")
    told: list[str] = []
    stop = Stop()
    meeting = Meeting("job", ["lab", "insurer"], peers, stop, LiveProgress("job", stop), stall_s=60)  # type: ignore[arg-type]
    meeting.add("lab", lab)
    meeting.add("insurer", insurer)

    async def abort(error: VflError, *, resumable: bool) -> None:
        told.append(error.for_peer)
        for pipe in (lab, insurer):
            pipe.finish()  # else it is waited for until a transport has sent what was put

    monkeypatch.setattr(meeting.channels["insurer"], "abort", abort)
    if how == "it was lost":
        lab.end(PeerLost("the connection with lab was lost"))
    elif how == "it was silent":
        lab.cancel(PeerLost("not a word from lab for 15 s"))
    else:
        lab.waiting_since = lab.moved = insurer.moved = time.monotonic() - 90

    async def work() -> None:
        await meeting.channels["insurer"].receive(Beat)

    with pytest.raises(PeerLost), meeting:
        meeting.play([work()], Inline())
    assert told == ["it lost lab"]


def test_the_third_party_hears_of_another_version_in_the_words_of_the_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have no link with the node that differs, and its owner must know which software to install."""
    monkeypatch.setattr(module, "NOTICE_S", 0.01)
    peers = SimpleNamespace(channel=channel, last_progress=lambda _: 0.0)
    clinic, lab = StreamPipe("clinic"), StreamPipe("lab")
    stop = Stop()
    meeting = Meeting("job", ["clinic", "lab"], peers, stop, LiveProgress("job", stop))  # type: ignore[arg-type]
    meeting.add("clinic", clinic)
    meeting.add("lab", lab)
    told: list[str] = []

    async def abort(error: VflError, *, resumable: bool) -> None:
        told.append(error.for_peer)
        for pipe in (clinic, lab):
            pipe.finish()  # else it is waited for until a transport has sent what was put

    for of in meeting.channels.values():
        monkeypatch.setattr(of, "abort", abort)

    async def hears() -> None:  # as a channel makes an error of what a peer said
        said = "clinic stopped in phase 'preflight': notary speaks another protocol version (E_VERSION)"
        raise PeerError(said, code="E_VERSION")

    with pytest.raises(PeerError), meeting:
        meeting.play([hears()], Inline())
    assert told == ["clinic stopped in phase 'preflight': notary speaks another protocol version (E_VERSION)"] * 2


def test_what_this_party_refuses_itself_is_not_hidden_by_a_peer_that_left_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    """One conversation ends, and so the other one is ended, while this party still computes what it decides by."""
    monkeypatch.setattr(module, "NOTICE_S", 0.01)
    peers = SimpleNamespace(channel=channel, last_progress=lambda _: 0.0)
    lab, notary = StreamPipe("lab"), StreamPipe("notary")
    stop = Stop()
    meeting = Meeting("job", ["lab", "notary"], peers, stop, LiveProgress("job", stop), stall_s=60)  # type: ignore[arg-type]
    meeting.add("lab", lab)
    meeting.add("notary", notary)

    async def abort(error: VflError, *, resumable: bool) -> None:
        for pipe in (lab, notary):
            pipe.finish()  # else it is waited for until a transport has sent what was put

    for of in meeting.channels.values():
        monkeypatch.setattr(of, "abort", abort)
    notary.end(PeerLost("notary has left"))

    async def hears() -> None:
        await meeting.channels["notary"].receive(Beat)

    async def decides() -> None:
        while not lab.broken:
            time.sleep(0.01)
        raise PolicyError("too few records are shared", code="E_TOO_FEW_SHARED")

    with pytest.raises(PolicyError, match="too few"), meeting:
        meeting.play([decides(), hears()], Inline())
