"""The probed side: what it answers, how often, how much, and for how long."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from vfl_node.crypto.kernels import kernel
from vfl_node.errors import PeerError, PeerLost, VflError
from vfl_node.node import probed
from vfl_node.node.probed import Probed
from vfl_node.settings.connection import Peer, Roster
from vfl_node.settings.node import Settings
from vfl_node.transport import probes
from vfl_node.transport.dialer import Dialer
from vfl_node.transport.generated.vfl.v1.session_pb2 import ProbeMessage
from vfl_node.transport.probes import ProbeStream
from vfl_node.transport.server import NodeServer
from vfl_node.version import VERSION

WAIT_S = 60.0


class Clinic:
    """A clinic that answers probes of a lab and a bank, in plaintext."""

    def __init__(self) -> None:
        self.now, self.reaches = 1000.0, dict[str, bool | None]()
        self.roster = Roster({"lab": Peer(), "bank": Peer()})
        settings = Settings(name="clinic", role="active", listen="127.0.0.1:0", peers=self.roster, insecure_loopback=True)
        self.settings = settings.model_copy(update={"peers": self.roster})
        self.probed = Probed(self.settings, self.reaches.get, lambda: self.now)
        self.server = NodeServer(
            "127.0.0.1:0",
            own="clinic",
            federation="trial",
            credentials=None,
            peers=self.settings.authorities,
            on_converse=lambda *_: None,
            on_link=lambda *_: None,
            on_probe=self.probed.answer,
        )
        self.address = self.server.start()

    def probe(self, own: str = "lab") -> ProbeStream:
        return Dialer(self.address, own=own, peer="clinic", federation="trial", credentials=None).probe(timeout_s=WAIT_S)

    def greeted(self, own: str = "lab") -> ProbeStream:
        stream = self.probe(own)
        assert stream.receive(WAIT_S)
        return stream


@pytest.fixture
def clinic() -> Iterator[Clinic]:
    started = Clinic()
    yield started
    started.server.stop(0)


def ask(stream: ProbeStream, **question: Any) -> ProbeMessage:
    stream.send(ProbeMessage(number=7, **question))
    answer = stream.receive(WAIT_S)
    assert answer is not None
    assert answer.number == 7
    return answer


def code(action: Callable[[], object]) -> str:
    with pytest.raises(VflError) as caught:
        action()
    return caught.value.code


def wait_until(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.01)


def test_it_greets_then_answers_with_clock_bytes_and_their_digest(clinic: Clinic) -> None:
    stream = clinic.probe()
    first = stream.receive(WAIT_S)
    assert first
    assert (first.hello.party, first.hello.software_version, first.kernel) == ("clinic", VERSION, kernel().name)
    before = time.time_ns() // 1000
    answer = ask(stream, random=b"here", wanted_bytes=3 << 20)
    assert before <= answer.heard_us <= answer.answered_us <= time.time_ns() // 1000
    assert len(answer.random) == 3 << 20
    assert answer.sha256 == hashlib.sha256(b"here" + answer.random).digest()
    assert ask(stream).sha256 == b""
    stream.close()


@pytest.mark.parametrize(("reaches", "said"), [(None, probes.NO_ADDRESS), (True, probes.REACHED), (False, probes.NOT_REACHED)])
def test_it_says_whether_it_reaches_who_asks(clinic: Clinic, reaches: bool | None, said: int) -> None:
    clinic.reaches["lab"] = reaches
    stream = clinic.greeted()
    assert ask(stream).dialled == 0
    assert ask(stream, dial_back=True).dialled == said
    clinic.reaches["lab"] = not reaches
    assert ask(stream, dial_back=True).dialled == said  # it dials once
    stream.close()


def test_a_peer_may_probe_once_a_minute(clinic: Clinic) -> None:
    clinic.greeted().close()
    wait_until(lambda: not clinic.probed._open)
    assert code(clinic.probe) == "E_BUSY"
    clinic.now += probes.PROBE_EVERY_S - 1
    assert code(clinic.probe) == "E_BUSY"
    clinic.now += 2
    clinic.greeted().close()


def test_one_probe_is_at_work_at_a_time_and_one_in_silence_keeps_others_from_nothing(clinic: Clinic) -> None:
    stream = clinic.greeted()
    assert code(lambda: clinic.probe("bank")) == "E_BUSY"
    stream.send(ProbeMessage(number=1, hold_s=300))
    wait_until(lambda: not clinic.probed._measuring)
    other = clinic.greeted("bank")
    other.close()
    clinic.now += probes.PROBE_EVERY_S + 1
    wait_until(lambda: not clinic.probed._measuring)
    assert code(clinic.probe) == "E_BUSY"  # its own is open still
    stream.close()


def test_a_refused_probe_does_not_count_as_one(clinic: Clinic) -> None:
    stream = clinic.greeted()
    assert code(lambda: clinic.probe("bank")) == "E_BUSY"
    stream.close()
    wait_until(lambda: not clinic.probed._open)
    clinic.greeted("bank").close()


@pytest.mark.parametrize("way", ["random", "wanted_bytes"])
def test_a_probe_carries_at_most_32_mib_each_way(clinic: Clinic, way: str) -> None:
    most = 16 << 20
    whole, one = (bytes(most), b"1") if way == "random" else (most, 1)
    stream = clinic.greeted()
    for _ in range(2):
        ask(stream, **{way: whole})  # both ways are counted apart
    with pytest.raises(PeerError):
        ask(stream, **{way: one})
    wait_until(lambda: not clinic.probed._open)


def test_more_than_a_message_may_have_is_not_drawn(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []
    monkeypatch.setattr(probed.os, "urandom", lambda count: drawn.append(count) or bytes(count))
    stream = clinic.greeted()
    with pytest.raises(PeerError):
        ask(stream, wanted_bytes=(16 << 20) + 1)
    assert drawn == []


def test_a_probe_ends_by_itself(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probed, "PROBE_S", 0.2)
    stream = clinic.greeted()
    with pytest.raises(PeerLost):
        stream.receive(WAIT_S)
    wait_until(lambda: not clinic.probed._open)


def test_silence_ends_with_an_answer_by_this_nodes_clock(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probed, "LOOK_S", 0.01)
    stream = clinic.greeted()
    stream.send(ProbeMessage(number=9, hold_s=10**6))
    wait_until(lambda: not clinic.probed._measuring)
    assert stream.receive(0.1) is None
    clinic.now += probes.HOLD_S + 1  # longer is never kept
    answer = stream.receive(WAIT_S)
    assert answer
    assert answer.number == 9
    stream.close()


def test_a_peer_that_is_revoked_is_held_no_longer(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probed, "LOOK_S", 0.01)
    stream = clinic.greeted()
    stream.send(ProbeMessage(number=1, hold_s=300))
    assert stream.receive(0.1) is None
    clinic.roster.dismiss("lab")
    with pytest.raises(PeerError):
        stream.receive(WAIT_S)
    assert code(clinic.probe) == "E_IDENTITY"
