"""What peers may make a node keep for them."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from vfl_node.errors import PeerError, PeerLost
from vfl_node.execution.live import Stop
from vfl_node.node.peers import Peers
from vfl_node.settings.node import Peer, Settings
from vfl_node.transport.generated.vfl.v1.session_pb2 import Notice, Offer, OfferReply
from vfl_node.transport.streams import StreamPipe


class Link:
    """One that swallows what is sent over it."""

    def __init__(self) -> None:
        self.sent: list[Notice] = []

    def send(self, notice: Notice) -> None:
        self.sent.append(notice)


@pytest.fixture
def peers() -> Peers:
    settings = Settings(name="lab", role="passive", listen="127.0.0.1:0", insecure_loopback=True, peers={"clinic": Peer()})
    return Peers(settings, None, lambda *_: None, lambda _peer, job_id: job_id == "known")


def reply(job_id: str) -> Notice:
    return Notice(offer_reply=OfferReply(job_id=job_id, accepted=True))


def test_replies_that_nobody_asked_for_are_dropped(peers: Peers) -> None:
    for number in range(1000):
        peers._handle("clinic", Link(), reply(f"job-{number}"))  # type: ignore[arg-type]
    assert not peers._states["clinic"].replies


def test_a_reply_reaches_whoever_asked_and_none_is_kept(peers: Peers) -> None:
    link: Any = Link()
    peers._states["clinic"].link = link
    answers: list[Notice] = []

    def ask() -> None:
        offer = Notice(offer=Offer(job_id="asked"))
        answers.append(peers.ask("clinic", offer, key="asked", waiting=Stop(), deadline=time.monotonic() + 5))

    thread = threading.Thread(target=ask)
    thread.start()
    while not link.sent:
        time.sleep(0.001)
    peers._handle("clinic", link, reply("another"))
    peers._handle("clinic", link, reply("asked"))
    thread.join()
    assert answers == [reply("asked")]
    peers._handle("clinic", link, reply("asked"))  # once more
    assert not peers._states["clinic"].replies
    with pytest.raises(PeerLost):
        peers.ask("clinic", Notice(), key="later", waiting=Stop(), deadline=0)
    assert not peers._states["clinic"].asked


def test_a_link_that_greets_wrongly_leaves_a_good_one_alone(peers: Peers) -> None:
    good, bad = Link(), SimpleNamespace(send=lambda _: None, receive=lambda _: None, close=lambda: None)
    peers._states["clinic"].link = good  # type: ignore[assignment]
    peers._serve_link("clinic", bad)  # type: ignore[arg-type]
    assert peers.online("clinic")
    peers._states["clinic"].link = None
    peers._serve_link("clinic", bad)  # type: ignore[arg-type]
    assert "did not greet" in peers.describe("clinic")


def test_a_conversation_about_an_unknown_job_is_refused_at_once(peers: Peers) -> None:
    with pytest.raises(PeerError) as caught:
        peers._accept_conversation("clinic", "unknown", StreamPipe("clinic"))
    assert caught.value.code == "E_NOT_WAITING"


def test_a_relayed_peer_has_no_link_and_may_not_call() -> None:
    settings = Settings(
        name="lab",
        role="passive",
        listen="127.0.0.1:0",
        insecure_loopback=True,
        peers={"clinic": Peer(), "insurer": Peer(relayed=True)},
    )
    node = Peers(settings, None, lambda *_: None, lambda *_: True)
    assert {name: status["online"] for name, status in node.status().items()} == {"clinic": False, "insurer": None}
    assert node._server is not None
    assert set(node._server._peers) == {"clinic"}
