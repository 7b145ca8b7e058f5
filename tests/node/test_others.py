"""An active party that waits for the other parties of a job."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vfl_node.configuration.models import parse
from vfl_node.errors import PeerError, PeerLost
from vfl_node.execution.live import Stop
from vfl_node.execution.outcome import JobOutcome
from vfl_node.job import Job
from vfl_node.node import others as module
from vfl_node.node.consents import JobConsents
from vfl_node.node.ending import Ending
from vfl_node.node.others import Others
from vfl_node.node.store import Store
from vfl_node.transport.generated.vfl.v1.session_pb2 import Notice, OfferReply

JOB = parse("name: t\nparties: {active: clinic, passive: [lab, insurer, bank]}\nalign: {protocol: psi}", Job, source="job")


class Peers:
    """Peers of which some are connected; all but those that refuse accept the job."""

    def __init__(self) -> None:
        self.connected, self.refusing, self.of_another_version = {"lab"}, set[str](), set[str]()
        self.asked: list[str] = []

    def online(self, name: str) -> bool:
        return name in self.connected

    def check_version(self, name: str) -> None:
        if name in self.of_another_version:
            raise PeerError(f"{name} speaks protocol version 3", code="E_VERSION")

    def ask(self, name: str, offer: Notice, *, deadline: float, **_: Any) -> Notice:
        self.asked.append(name)
        if name not in self.connected:
            raise PeerLost(f"no word from {name}", code="E_PEER_ABSENT")
        accepted = name not in self.refusing
        return Notice(offer_reply=OfferReply(job_id=offer.offer.job_id, accepted=accepted, code="E_POLICY", reason="no"))


@pytest.fixture
def peers() -> Peers:
    return Peers()


@pytest.fixture
def waiting(tmp_path: Path, peers: Peers, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Waits as the clinic; what happens in each look is given."""
    store = Store(tmp_path / "state")
    record = store.add(JOB, submitter="clinic")
    ending = Ending("clinic", "clinic", store.job_folder(record), Stop())
    consents = JobConsents(SimpleNamespace(), store, record.id)  # type: ignore[arg-type]
    others = Others("clinic", record, peers, lambda: True, ending, consents)  # type: ignore[arg-type]
    monkeypatch.setattr(module, "ASK_AGAIN_S", 60)

    def wait(*events: Any, most_s: float = 60) -> float:
        left = iter(events)
        meeting = SimpleNamespace(check=lambda: None, hears=lambda *_: None, wait=lambda _: next(left, lambda: None)())
        return others.await_links(meeting, time.monotonic() + most_s)  # type: ignore[arg-type]

    yield wait
    store.close()


def test_one_that_comes_hears_of_the_job_though_another_is_still_away(waiting: Any, peers: Peers) -> None:
    heard: list[list[str]] = []

    def bank_comes() -> None:
        peers.connected.add("bank")

    def insurer_comes() -> None:
        heard.append(list(peers.asked))
        peers.connected.add("insurer")

    deadline = waiting(bank_comes, lambda: None, insurer_comes)
    assert heard == [["lab", "lab", "bank"]]  # once when it is connected, and not in every look
    assert deadline > time.monotonic() + 50


def test_one_that_comes_and_refuses_ends_the_wait_for_the_others(waiting: Any, peers: Peers) -> None:
    peers.refusing = {"bank"}
    with pytest.raises(PeerError, match="bank refused the job: no"):
        waiting(lambda: peers.connected.add("bank"))


def test_one_that_stays_away_is_named(waiting: Any, peers: Peers) -> None:
    with pytest.raises(PeerLost, match="no word from insurer") as caught:
        waiting(most_s=0)
    assert caught.value.code == "E_PEER_ABSENT"


def test_one_of_another_version_ends_the_wait_for_the_others(waiting: Any, peers: Peers) -> None:
    with pytest.raises(PeerError, match="insurer speaks protocol version 3"):
        waiting(lambda: peers.of_another_version.add("insurer"))


def refusal(tmp_path: Path, own: str, name: str, code: str, *, sealed: bool = False) -> tuple[PeerError, Stop]:
    """What ``own`` makes of a refusal by ``name``."""
    store, stop, outcome = Store(tmp_path / "state"), Stop(), JobOutcome(tmp_path / "job")
    outcome.artefacts.mkdir(parents=True)
    if sealed:
        outcome.seal()
    record = store.add(JOB, submitter="clinic")
    consents = JobConsents(SimpleNamespace(), store, record.id)  # type: ignore[arg-type]
    others = Others(own, record, Peers(), lambda: True, Ending("clinic", own, outcome, stop), consents)  # type: ignore[arg-type]
    with pytest.raises(PeerError) as caught:
        others._raise_refusal(name, OfferReply(accepted=False, code=code, reason="why"))
    store.close()
    return caught.value, stop


@pytest.mark.parametrize(("own", "name", "error"), [("clinic", "lab", PeerLost), ("lab", "clinic", PeerError)])
def test_only_the_active_party_can_say_that_a_job_of_several_is_done(
    tmp_path: Path, own: str, name: str, error: type[PeerError]
) -> None:
    assert type(refusal(tmp_path, own, name, "E_JOB_DONE")[0]) is error


@pytest.mark.parametrize("code", ["E_JOB_DONE", "E_JOB_ENDED", "E_CANCELLED"])
def test_a_party_that_has_stored_its_part_believes_only_the_active_one_that_a_job_has_ended(tmp_path: Path, code: str) -> None:
    error, stop = refusal(tmp_path / "1", "lab", "bank", code, sealed=True)
    assert (type(error), stop.wish) == (PeerLost, None)
    error, stop = refusal(tmp_path / "2", "lab", "clinic", code, sealed=True)
    assert (type(error), error.code, stop.wish) == (PeerError, code, error)


@pytest.mark.parametrize("code", ["E_STATE_CORRUPT", "E_POLICY", "E_INTERNAL"])
def test_a_party_that_has_stored_its_part_waits_whatever_the_active_one_cannot_do(tmp_path: Path, code: str) -> None:
    error, _ = refusal(tmp_path, "lab", "clinic", code, sealed=True)
    assert type(error) is PeerLost
    assert code in error.message
