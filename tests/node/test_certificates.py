"""Certificates that expire, or that the clock leaves, while links are up: both sides say so, and go on with new ones."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography import x509

from tests.transport.conftest import FEDERATION, Certificates
from vfl_node.errors import VflError
from vfl_node.node import certificates as module
from vfl_node.node.certificates import CertificateWatch
from vfl_node.node.peer_state import PeerState
from vfl_node.node.peers import Peers
from vfl_node.settings.node import Settings, Tls
from vfl_node.transport.authority import make_key_and_request, shorten, sign
from vfl_node.transport.credentials import Credentials, load_credentials
from vfl_node.transport.generated.vfl.v1.session_pb2 import Notice
from vfl_node.transport.link_stream import LinkStream

NOW = datetime(2030, 5, 1, 12, 0, tzinfo=timezone.utc)
DAY = timedelta(days=1)


def material(made: Certificates, name: str, until: datetime) -> tuple[bytes, bytes]:
    """A certificate that ends so, and its key."""
    key, request = make_key_and_request(name, FEDERATION)
    return sign(made.authority, made.authority_key, request, days=40, now=until - 40 * DAY), key


def loaded(made: Certificates, name: str, until: datetime, now: datetime) -> Credentials:
    certificate, key = material(made, name, until)
    return load_credentials(made.files(made.authority, certificate, key), name=name, federation=FEDERATION, now=now)


class Watched:
    """The watch of a lab over its link with a clinic, at a clock of its own."""

    def __init__(self, folder: Path, until: datetime) -> None:
        self.made, self.now = Certificates(folder), datetime.now(timezone.utc)
        self.own = loaded(self.made, "lab", until, self.now)
        self.state, self.link = PeerState("clinic", None), LinkStream("clinic")
        self.causes: list[tuple[str, str, str]] = []
        self.cuts: list[tuple[str, str]] = []
        self.link._close_s = 0.0  # nobody is there to read
        self.state.connect(self.link)
        self.watch = CertificateWatch(self.own, {}, {"clinic": self.state}, self.down, self.cut, lambda: self.now)

    def down(self, peer: str, cause: str, code: str) -> None:
        self.causes.append((peer, cause, code))
        self.state.disconnect(cause, code)

    def cut(self, peer: str, error: VflError) -> None:
        self.cuts.append((peer, error.code))

    def look(self, later: timedelta) -> None:
        self.now += later
        self.watch.look()


@pytest.fixture
def lab(tmp_path: Path) -> Watched:
    return Watched(tmp_path, datetime.now(timezone.utc) + 35 * DAY)


def test_an_early_expiry_is_told_of_once_a_day_from_thirty_days_on(lab: Watched, capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    lab.now = lab.now.replace(hour=12)  # an hour later is the same day
    for hours in (0, 4 * 24, 36, 1, 24, 24):  # whatever hour it is now
        lab.look(timedelta(hours=hours))
        out = capsys.readouterr()
        said.append((out.out + out.err).count("renew it"))
    assert said[:2] == [0, 0]
    assert sum(said) == 3
    lab.now = NOW
    assert lab.own.validity
    assert "in 29 days: renew it" in lab.own.validity.warning("node.crt", lab.own.validity.until - 29.5 * DAY)


def test_an_own_certificate_that_expires_ends_the_link_and_is_the_cause_until_it_is_renewed(lab: Watched) -> None:
    lab.look(timedelta())
    assert (lab.link.ended, lab.watch.fault) == (None, "")
    lab.look(36 * DAY)
    assert lab.link.ended is not None
    expired = f"this node's certificate {lab.own.files.certificate} expired on"
    assert (lab.link.ended.code, expired in lab.link.ended.message) == ("E_CERTIFICATE", True)
    (told,) = (Notice.FromString(b"".join(pieces)).parting for pieces in lab.link._outgoing)
    assert told.startswith("the certificate of lab expired on")
    assert str(lab.own.files.certificate) not in told
    lab.state.end_link(lab.link)
    for _ in range(2):  # what the log would have each minute otherwise
        lab.look(timedelta(minutes=5))
    assert lab.state.describe().count(expired) == 1
    assert len(set(lab.causes)) == 1
    certificate, key = material(lab.made, "lab", lab.now + 39 * DAY)
    lab.own.files.certificate.write_bytes(certificate)
    lab.own.files.key.write_bytes(key)
    lab.look(timedelta())
    assert (lab.watch.fault, lab.state.cause, lab.state.code) == ("", "", "")


@pytest.mark.parametrize(("since", "until", "said"), [(-2, -1, "expired on"), (1, 2, "is valid only from")])
def test_a_peers_certificate_that_the_clock_has_left_ends_the_link(lab: Watched, since: int, until: int, said: str) -> None:
    ends = {"not_valid_before_utc": lab.now + since * DAY, "not_valid_after_utc": lab.now + until * DAY}
    lab.link.shown = (SimpleNamespace(**ends),)  # type: ignore[assignment]
    lab.look(timedelta())
    assert lab.link.ended is not None
    assert f"clinic's certificate {said}" in lab.link.ended.message
    assert "this node's clock says" in lab.link.ended.message


def test_a_peer_whose_authority_has_ended_loses_its_link_alone(tmp_path: Path) -> None:
    """As where it has a new authority, and the link is older: who was at the other end was checked when it began."""
    lab = Watched(tmp_path, datetime.now(timezone.utc) + 35 * DAY)
    pin = tmp_path / "clinic-ca.crt"
    pin.write_bytes(shorten(lab.made.authority, lab.made.authority_key, lab.now + DAY))
    lab.watch._credentials = load_credentials(lab.own.files, name="lab", federation=FEDERATION, peers={"clinic": pin})
    certificate, _ = material(lab.made, "clinic", lab.now + 30 * DAY)
    lab.link.shown = (x509.load_pem_x509_certificate(certificate),)
    lab.look(timedelta())
    assert (lab.link.ended, lab.cuts) == (None, [])
    lab.look(2 * DAY)
    assert lab.link.ended is not None
    assert (lab.link.ended.code, lab.cuts) == ("E_IDENTITY", [])


def test_a_peer_whose_authority_is_replaced_loses_its_link_and_its_conversations(tmp_path: Path) -> None:
    lab, others = Watched(tmp_path, datetime.now(timezone.utc) + 35 * DAY), Certificates(tmp_path / "others")
    pin = tmp_path / "clinic-ca.crt"
    pin.write_bytes(lab.made.authority)
    lab.watch._credentials = load_credentials(lab.own.files, name="lab", federation=FEDERATION, peers={"clinic": pin})
    certificate, _ = material(lab.made, "clinic", lab.now + 30 * DAY)
    lab.link.shown = (x509.load_pem_x509_certificate(certificate),)
    lab.look(timedelta())
    assert (lab.link.ended, lab.cuts) == (None, [])
    pin.write_bytes(others.authority)
    lab.look(timedelta())
    assert lab.link.ended is not None
    assert (lab.link.ended.code, lab.cuts) == ("E_IDENTITY", [("clinic", "E_IDENTITY")])
    (told,) = (Notice.FromString(b"".join(pieces)).parting for pieces in lab.link._outgoing)
    assert told == "the certificate of clinic is not signed by the authority that lab has for clinic"


def wait_until(condition: Callable[[], Any]) -> None:
    limit = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < limit, "did not happen"
        time.sleep(0.02)


class Party:
    """A node's peers over TLS, whose certificate is valid for so many seconds."""

    def __init__(self, made: Certificates, name: str, peers: dict[str, Any], lasts_s: float) -> None:
        now = datetime.now(timezone.utc)
        credentials = loaded(made, name, now + timedelta(seconds=lasts_s), now)
        files: Tls = credentials.files
        self.files, self.made, self.name = files, made, name
        role: Any = "active" if name == "clinic" else "passive"
        listen = "127.0.0.1:0" if name == "clinic" else None
        settings = Settings(name=name, role=role, federation=FEDERATION, listen=listen, peers=peers, tls=files)
        self.peers = Peers(settings, credentials, lambda *_: None, lambda *_: False)
        self.bound = self.peers.start()

    def cause(self) -> str:
        (status,) = self.peers.status().values()
        return str(status["cause"])

    def renew(self) -> None:
        certificate, key = material(self.made, self.name, datetime.now(timezone.utc) + 30 * DAY)
        self.files.certificate.write_bytes(certificate)
        self.files.key.write_bytes(key)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.1)
    monkeypatch.setattr("vfl_node.node.peers.BEAT_S", 0.1)
    for where in ("dialling", "calls"):
        monkeypatch.setattr(f"vfl_node.node.{where}.RETRY_S", (0.05,))


@pytest.fixture
def parties(tmp_path: Path, short: None) -> Iterator[Callable[[str], list[Party]]]:
    made, started = Certificates(tmp_path), list[Party]()

    def start(expires: str) -> list[Party]:
        lasts = {"clinic": 1e6, "lab": 3e6} | {expires: 2.0}
        started.append(Party(made, "clinic", {"lab": {}}, lasts["clinic"]))
        started.append(Party(made, "lab", {"clinic": {"address": started[0].bound}}, lasts["lab"]))
        return started

    yield start
    threads = [threading.Thread(target=party.peers.stop) for party in started]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("expires", ["clinic", "lab"])
def test_both_sides_name_a_certificate_that_expires_while_their_link_is_up(parties: Any, expires: str) -> None:
    clinic, lab = parties(expires)
    wait_until(lambda: clinic.peers.online("lab") and lab.peers.online("clinic"))
    mine, theirs = (clinic, lab) if expires == "clinic" else (lab, clinic)
    wait_until(lambda: "this node's certificate" in mine.cause() and "expired on" in mine.cause())
    wait_until(lambda: "certificate" in theirs.cause() and "expired on" in theirs.cause())
    assert not mine.peers.online(theirs.name)
    mine.renew()
    wait_until(lambda: clinic.peers.online("lab") and lab.peers.online("clinic"))


def test_a_party_whose_clock_is_wrong_tells_the_other_one_why_the_link_ends(parties: Any, monkeypatch: Any) -> None:
    """The other one sees no fault itself, and is not called any more."""
    clinic, lab = parties("nobody")
    wait_until(lambda: clinic.peers.online("lab") and lab.peers.online("clinic"))
    monkeypatch.setattr("vfl_node.node.dialling.RETRY_S", (60.0,))
    lab.peers.certificates._clock = lambda: datetime.now(timezone.utc) + 20 * DAY
    wait_until(lambda: "lab ended the link: the certificate of clinic expired on" in clinic.cause())
    assert "its clock says" in clinic.cause()
    wait_until(lambda: "clinic's certificate expired on" in lab.cause())


def test_the_dialer_learns_when_the_listeners_certificate_is_valid(parties: Any) -> None:
    """Its clock may be the only one that has left it."""
    _, lab = parties("nobody")
    wait_until(lambda: lab.peers.online("clinic"))
    wait_until(lambda: (link := lab.peers._states["clinic"].link) and link.validity)
    (shown,) = lab.peers._dialers["clinic"].shown()
    assert shown.not_valid_after_utc > datetime.now(timezone.utc)
