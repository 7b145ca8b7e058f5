"""The standing link between two nodes: one that falls silent is given up, and what was open with its peer with it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import vfl_node
from vfl_node.errors import PeerError, PeerLost
from vfl_node.node import peers as module
from vfl_node.node.peers import Peers
from vfl_node.settings.node import Settings
from vfl_node.transport.channel import run
from vfl_node.transport.dialer import Dialer
from vfl_node.transport.generated.vfl.v1.session_pb2 import Echo, Hello, Notice
from vfl_node.version import PROTOCOL_VERSION

PATIENT = SimpleNamespace(check=lambda: None, wait=time.sleep)
FOR_LONG = time.monotonic() + 3600
HELLO = Notice(
    hello=Hello(party="lab", role="passive", protocol_version=PROTOCOL_VERSION, software_version=vfl_node.__version__)
)


@pytest.fixture
def clinic(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The peers of a clinic that beats every 20 ms, and a lab's dialer to it."""
    monkeypatch.setattr(module, "BEAT_S", 0.02)
    settings = Settings(
        name="clinic",
        role="active",
        listen="127.0.0.1:0",
        peers={"lab": {}},  # type: ignore[dict-item]
        insecure_loopback=True,
    )
    peers = Peers(settings, None, lambda *_: None, lambda *_: True)
    address = peers.start()
    assert address
    dialer = Dialer(address, own="lab", peer="clinic", federation=settings.federation, credentials=None)
    yield SimpleNamespace(peers=peers, dialer=dialer)
    dialer.close()
    peers.stop()


def wait_until(condition: Any) -> None:
    limit = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < limit, "did not happen"
        time.sleep(0.01)


def test_how_long_a_notice_takes_there_and_back_is_known_while_the_link_is_up(clinic: Any) -> None:
    link = clinic.dialer.link()
    link.send(HELLO)
    wait_until(lambda: clinic.peers.online("lab"))
    assert clinic.peers.status()["lab"]["round_trip_ms"] is None
    for _ in range(1000):
        notice = link.receive(240)
        if notice and notice.WhichOneof("body") == "echo":
            link.send(Notice(echo=Echo(number=notice.echo.number, answer=True)))
        if clinic.peers.status()["lab"]["round_trip_ms"]:
            break
    assert 0 < clinic.peers.status()["lab"]["round_trip_ms"] < 240_000
    link.send(Notice(echo=Echo(number=77)))
    wait_until(lambda: (answer := link.receive(240)) and answer.echo == Echo(number=77, answer=True))
    link.close()
    wait_until(lambda: not clinic.peers.online("lab"))
    assert clinic.peers.status()["lab"]["round_trip_ms"] is None


def conversation(clinic: Any) -> Any:
    """The clinic's end, with a lab that has greeted."""
    clinic.dialer.link().send(HELLO)
    wait_until(lambda: clinic.peers.online("lab"))
    threading.Thread(target=clinic.dialer.converse, args=["job-1"], daemon=True).start()
    return clinic.peers.conversation("lab", "job-1", waiting=PATIENT, deadline=time.monotonic() + 240)


def test_another_version_is_named_with_both_numbers_at_once_and_no_job_waits_for_it(clinic: Any) -> None:
    """The lab hears the clinic's number, too, and says the same."""
    older = Notice(hello=Hello(party="lab", role="passive", protocol_version=3, software_version="0.3.0"))
    link = clinic.dialer.link()
    link.send(older)
    heard = link.receive(10)
    assert heard is not None
    assert heard.hello.protocol_version == PROTOCOL_VERSION  # so the other side can say the same
    wait_until(lambda: clinic.peers.status()["lab"]["cause"])

    def ask(peer: str) -> Notice:
        return clinic.peers.ask(peer, Notice(), key="job", waiting=PATIENT, deadline=FOR_LONG)

    for say in (clinic.peers.check_version, ask):
        with pytest.raises(PeerError) as caught:
            say("lab")
        numbers = f"lab speaks protocol version 3 (vfl-node 0.3.0), this node {PROTOCOL_VERSION} (vfl-node"
        assert (caught.value.code, numbers in caught.value.message) == ("E_VERSION", True)
        assert "install the same version on both nodes" in caught.value.hint
    assert clinic.peers.status()["lab"]["cause"].startswith("lab speaks protocol version 3")
    newer = Hello(party="lab", role="passive", protocol_version=PROTOCOL_VERSION + 1, software_version="9.9.9")
    newer.oldest_protocol_version = PROTOCOL_VERSION  # it was brought up to date, and still speaks this version, too
    clinic.dialer.link().send(Notice(hello=newer))
    wait_until(lambda: clinic.peers.online("lab"))
    clinic.peers.check_version("lab")


def test_a_peer_that_falls_silent_is_lost_with_its_conversations(clinic: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its machine acknowledges, its process answers pings, and no thread of it says anything."""
    assert module.SILENCE_S <= 15
    pipe = conversation(clinic)
    monkeypatch.setattr(module, "SILENCE_S", 0.2)
    with pytest.raises(PeerLost, match="not a word from lab"):
        run(pipe.get())
    wait_until(lambda: not clinic.peers.online("lab"))
    assert "not a word from lab" in clinic.peers.status()["lab"]["cause"]
