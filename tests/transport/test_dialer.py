"""Dialling: which servers are spoken to, and why a peer cannot be reached."""

from __future__ import annotations

import socket
from datetime import datetime, timedelta, timezone

import pytest

from tests.transport.over_grpc import get
from vfl_node.errors import PeerLost
from vfl_node.transport.diagnosis import diagnose
from vfl_node.transport.dialer import Dialer

NOW = datetime.now(timezone.utc)


def test_a_server_whose_certificate_does_not_hold_is_not_spoken_to(serve, certificates, lab) -> None:
    cases = {
        "its certificate has expired on": certificates.dated("clinic", signed=NOW - timedelta(9), days=5),
        "its certificate is not valid before": certificates.dated("clinic", signed=NOW + timedelta(9), days=5),
        "not signed by an authority that this node trusts": certificates.rogue("clinic", trusts=certificates.authority),
        "expected spiffe://trial/party/clinic, got spiffe://trial/party/bank": certificates.good("bank"),
    }
    for text, credentials in cases.items():
        node = serve(credentials)
        with pytest.raises(PeerLost, match=text):
            node.dialer(lab).converse("job-1")
        assert node.pipes.empty()


def test_a_renewed_certificate_is_used_for_the_next_call(node, certificates) -> None:
    held, renewed = certificates.dated("lab", signed=NOW - timedelta(9), days=5), certificates.good("lab")
    dialer = node.dialer(held)
    with pytest.raises(PeerLost, match="expired"):
        dialer.converse("job-1")
    held.files.certificate.write_bytes(renewed.certificate)
    held.files.key.write_bytes(renewed.key)
    dialer.converse("job-1").close()


def test_plaintext_and_tls_do_not_meet(serve, node, lab) -> None:
    with pytest.raises(PeerLost, match="does that node use TLS"):
        node.dialer(None).converse("job-1")
    with pytest.raises(PeerLost, match="does not speak TLS"):
        serve(None).dialer(lab).converse("job-1")


def test_an_absent_peer_is_named_with_the_cause(lab) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        dialer = Dialer(address, own="lab", peer="clinic", federation="trial", credentials=lab)
        with pytest.raises(PeerLost, match=f"clinic cannot be reached at {address}: connection refused") as caught:
            dialer.converse("job-1")
        assert caught.value.code == "E_UNREACHABLE"


def test_a_peer_that_accepts_and_says_nothing_is_given_up(lab) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        dialer = Dialer(address, own="lab", peer="clinic", federation="trial", credentials=lab)
        with pytest.raises(PeerLost, match="no answer within"):
            dialer.converse("job-1", timeout_s=0.3)
        cause = diagnose(address, peer="clinic", federation="trial", credentials=lab, timeout_s=0.3)
        assert "it accepts the connection but says nothing" in cause


def test_a_restarted_peer_is_reached_at_once(serve, clinic, lab) -> None:
    node = serve(clinic)
    dialer = node.dialer(lab)
    pipe = dialer.converse("job-1")
    node.server.stop(0)
    with pytest.raises(PeerLost):
        get(pipe)
    with pytest.raises(PeerLost, match="connection refused"):
        dialer.converse("job-1")
    again = serve(clinic, address=node.address)
    dialer.converse("job-1").close()
    assert again.pipes.get(timeout=240).peer == "lab"


def test_a_call_that_is_not_wanted_any_more_ends_before_its_answer(lab) -> None:
    def check() -> None:
        raise PeerLost("not wanted")

    with socket.create_server(("127.0.0.1", 0)) as silent:
        dialer = Dialer(f"127.0.0.1:{silent.getsockname()[1]}", own="lab", peer="clinic", federation="trial", credentials=lab)
        with pytest.raises(PeerLost, match="not wanted"):
            dialer.converse("job-1", timeout_s=3600, check=check)
