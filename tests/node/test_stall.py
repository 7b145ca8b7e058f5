"""A party whose thread hangs while its link lives is noticed; one that works for long is not taken for one that hangs."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.node.nodes import accepting
from tests.node.test_full_disk import JOB, NAMES, Pair
from vfl_node.engines.contract import Inline
from vfl_node.errors import PeerLost, VflError
from vfl_node.execution import train
from vfl_node.execution.live import LiveProgress, Stop
from vfl_node.node import meeting, retries
from vfl_node.node.meeting import Meeting
from vfl_node.node.pulse import Pulse, threads_cpu_s
from vfl_node.node.turns import Turns
from vfl_node.settings.policy import Policy
from vfl_node.transport.channel import Channel
from vfl_node.transport.streams import StreamPipe


def channel(pipe: Any, peer: str, job_id: str) -> Channel:
    """As a node's peers make it."""
    return Channel(pipe, peer=peer, job_id=job_id)


@pytest.fixture
def pair(ram: Path, trial: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    for module in ("dialling", "calls"):
        monkeypatch.setattr(f"vfl_node.node.{module}.RETRY_S", (0.02,))
    monkeypatch.setattr("vfl_node.node.peers.BEAT_S", 0.05)
    made = Pair(ram, trial)
    yield made
    made.stop()


@pytest.fixture
def hangs(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """The lab's thread does nothing in its first training, until this is set."""
    goes_on, trained, once = threading.Event(), train._train, iter([True])

    async def hang(part: Any, *rest: Any) -> Any:
        if part.session.name == "lab" and next(once, False):
            goes_on.wait(60)
        return await trained(part, *rest)

    monkeypatch.setattr(train, "_train", hang)
    yield goes_on
    goes_on.set()


def of_the_clinic(monkeypatch: pytest.MonkeyPatch, pair: Pair, stall_s: float) -> None:
    node = pair.nodes["clinic"]
    node._works._settings = node._works._settings.model_copy(update={"stall_s": stall_s})


def test_a_thread_that_hangs_is_noticed_and_the_job_ends_well_once_it_goes_on(
    pair: Pair, hangs: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pulse, "spells", lambda _: 0)  # both nodes are one process here
    of_the_clinic(monkeypatch, pair, 0.5)
    job_id = pair.submit()
    pair.wait(lambda: "has not got on in phase" in pair.view("clinic", job_id)["note"])
    assert pair.nodes["clinic"].peers.online("lab")
    of_the_clinic(monkeypatch, pair, 60)
    hangs.set()
    pair.wait(lambda: all(pair.ended(name, job_id) for name in NAMES))
    assert [pair.view(name, job_id)["state"] for name in NAMES] == ["done", "done"]


def test_an_own_job_takes_the_only_place_of_a_peers_job_that_says_that_it_works_and_sends_nothing(
    pair: Pair, hangs: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the lab hangs, which submitted the job; its beats say that it computes."""
    spells = count()
    monkeypatch.setattr(Pulse, "spells", lambda _: next(spells))
    monkeypatch.setattr(meeting, "WORD_COUNTS", 1000)
    clinic = pair.nodes["clinic"]
    of_the_clinic(monkeypatch, pair, 0.3)
    clinic._works._turns = Turns(1, lambda peer: 1)
    clinic.settings.in_force.policy = Policy(approve=accepting("lab"))
    theirs = pair.nodes["lab"].submit(pair.trial.job(JOB).canonical())["id"]
    pair.wait(lambda: pair.view("clinic", theirs).get("remark", "").startswith("training on"))
    time.sleep(0.6)  # twice as long as it may be silent without a word
    assert pair.view("clinic", theirs)["attempt"] == 1
    own = pair.submit()
    pair.wait(lambda: pair.ended("clinic", own))
    assert pair.view("clinic", own)["state"] == "done"
    assert not pair.ended("clinic", theirs)
    of_the_clinic(monkeypatch, pair, 60)
    hangs.set()
    pair.wait(lambda: all(pair.ended(name, theirs) for name in NAMES))
    assert [pair.view(name, theirs)["state"] for name in NAMES] == ["done", "done"]


def test_a_party_that_works_for_long_or_on_a_slow_line_is_waited_for() -> None:
    """While one of the others computes, or a piece of a message has come, nobody hangs."""
    beats = {"lab": 0.0, "notary": 0.0}
    met = Meeting(
        "j",
        [*beats],
        SimpleNamespace(last_progress=beats.__getitem__, channel=channel),
        Stop(),
        LiveProgress("j", Stop()),
        stall_s=60,
    )  # type: ignore[arg-type]
    now = time.monotonic()
    for peer in beats:
        met.add(peer, StreamPipe(peer))
        beats[peer] = met._pipes[peer].moved = now - 100
    lab, notary = met._pipes.values()
    assert met._find_stalled() is None  # nobody is waited for
    lab.waiting_since = now - 90
    stalled = met._find_stalled()
    assert stalled is not None
    assert (stalled.code, "lab has not got on in phase 'preflight' for 60 s" in stalled.message) == ("E_STALLED", True)
    for peer in beats:  # it computes, or the one for which it waits does
        beats[peer] = now - 5
        assert met._find_stalled() is None
        beats[peer] = now - 100
    notary.moved = now - 5
    assert met._find_stalled() is None
    notary.moved = now - 100
    lab.waiting_since = now - 5
    assert met._find_stalled() is None


@pytest.mark.parametrize(("owed", "patience_s"), [(False, 720), (True, 60)])
def test_a_peers_word_is_believed_for_so_long_and_not_while_the_owner_waits_for_the_place(owed: bool, patience_s: int) -> None:
    """A peer whose jobs say that they work, and send nothing, would keep places for ever."""
    said = SimpleNamespace(last_progress=lambda _: time.monotonic(), channel=channel)
    met = Meeting("j", ["lab"], said, Stop(), LiveProgress("j", Stop()), stall_s=60, owed=lambda: owed)  # type: ignore[arg-type]
    pipe = StreamPipe("lab")
    met.add("lab", pipe)
    pipe.waiting_since = time.monotonic() - 10_000
    for silent_s, stalls in ((patience_s - 5, False), (patience_s + 5, True)):
        pipe.moved = time.monotonic() - silent_s
        stalled = met._find_stalled()
        assert (stalled is not None) is stalls
    assert stalled is not None
    assert (stalled.code, f"for {patience_s} s, though it is connected and says" in stalled.message) == ("E_STALLED", True)


def test_work_is_told_from_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vfl_node.node.pulse.LOOK_S", 0.05)
    pulse = Pulse()
    until = time.process_time() + 60  # on a machine that does much else its share is small for a while
    while pulse.spells() == 0:
        assert time.process_time() < until
    spent = iter([7.0, 7.005])  # a tenth of a core
    monkeypatch.setattr("vfl_node.node.pulse.process_cpu_s", lambda: next(spent))
    waiting = Pulse()
    time.sleep(0.06)
    assert waiting.spells() == 0


def test_a_link_outlives_that_there_is_no_descriptor_to_look_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """The spell is told of with a later beat."""
    monkeypatch.setattr("vfl_node.node.pulse.LOOK_S", 0.0)
    looks = iter([0.0, OSError(errno.EMFILE, "Too many open files"), 1e9])

    def look() -> float:
        found = next(looks)
        if isinstance(found, OSError):
            raise found
        return found

    monkeypatch.setattr("vfl_node.node.pulse.process_cpu_s", look)
    pulse = Pulse()
    assert [pulse.spells(), pulse.spells()] == [0, 1]


@pytest.mark.parametrize(("computes", "code"), [(True, "E_PEER_LOST"), (False, "E_STALLED")])
def test_own_work_that_computes_is_waited_for_when_a_peer_is_lost(
    monkeypatch: pytest.MonkeyPatch, computes: bool, code: str
) -> None:
    """Its thread hears of the loss at its next message only; one that computes until then does not hang."""
    monkeypatch.setattr(meeting, "NOTICE_S", 0.01)
    looks, goes_on = count(), threading.Event()

    def spent(_: Any) -> float:
        look = next(looks)
        if computes and look == 20:
            goes_on.set()
        return look if computes else 0

    monkeypatch.setattr(meeting, "threads_cpu_s", spent)
    met = Meeting(
        "j",
        ["lab"],
        SimpleNamespace(last_progress=lambda _: 0.0, channel=channel),
        Stop(),
        LiveProgress("j", Stop()),
        stall_s=0.1,
    )  # type: ignore[arg-type]
    pipe = StreamPipe("lab")
    met.add("lab", pipe)

    async def work() -> None:
        pipe.end(PeerLost("lab has left"))
        goes_on.wait(60)

    with pytest.raises(VflError) as caught:
        met.play([work()], Inline())
    goes_on.set()
    assert caught.value.code == code


def test_the_cpu_time_of_threads() -> None:
    end = threading.Event()

    def compute() -> None:
        while not end.is_set():
            pass

    busy, idle = threading.Thread(target=compute), threading.Thread(target=end.wait)
    for thread in (busy, idle):
        thread.start()
    while threads_cpu_s([busy, idle]) < 0.2:
        time.sleep(0.01)
    assert threads_cpu_s([idle]) < 0.1
    end.set()
    for thread in (busy, idle):
        thread.join()


@pytest.mark.parametrize("keeps", [False, True])
def test_a_job_that_breaks_off_at_one_place_for_ever_waits_for_its_owner(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, keeps: bool
) -> None:
    """Both nodes live and meet, and yet it gets no further; where each attempt keeps something it goes on."""
    for name, value in (("STEADY_S", 0), ("MOST_FRUITLESS", 2), ("MOST_PAUSE_S", 0.05)):
        monkeypatch.setattr(retries, name, value)
    clinic, patient = pair.nodes["clinic"], retries.Retries
    clinic._works._settings = clinic._works._settings.model_copy(update={"peer_wait_s": 61})
    # It is soon enough of attempts that break off, and waits for the lab however late that comes back to the next one.
    monkeypatch.setattr(retries, "Retries", lambda wait_s: patient(0.3 if wait_s == 61 else wait_s))
    trained, attempts, mended = train._train, count(1), threading.Event()

    async def lost(part: Any, *rest: Any) -> Any:
        if part.session.name == "clinic" and not mended.is_set():
            attempt = next(attempts)
            mended.set() if keeps and attempt == 8 else time.sleep(0.15)
            if keeps:
                (part.folder.checkpoints / f"z{attempt}.checkpoint").touch()
            raise PeerLost("the connection with lab was lost")
        for path in part.folder.checkpoints.glob("z*"):
            path.unlink()
        return await trained(part, *rest)

    monkeypatch.setattr(train, "_train", lost)
    job_id = pair.submit()
    pair.wait(lambda: pair.ended("clinic", job_id))
    view = pair.view("clinic", job_id)
    if not keeps:
        assert (view["state"], view["error"]["code"], view["resumable"]) == ("failed", "E_NO_PROGRESS", True)
        pair.wait(lambda: "it waits for its owner" in pair.view("lab", job_id)["note"])
        mended.set()
        clinic.resume(job_id)
    pair.wait(lambda: all(pair.ended(name, job_id) for name in NAMES))
    assert [pair.view(name, job_id)["state"] for name in NAMES] == ["done", "done"]
