"""The server: who may call, and how calls are refused."""

from __future__ import annotations

import queue
import socket
import ssl
import threading
from datetime import datetime, timedelta, timezone
from typing import Any

import grpc
import pytest
from cryptography import x509

from tests.transport.conftest import METHODS, open_stream
from tests.transport.over_grpc import METHOD, get
from vfl_node.errors import PeerError, PeerLost, PolicyError, UsageError
from vfl_node.transport import server
from vfl_node.transport.dialer import Dialer
from vfl_node.transport.server import NodeServer

NOW = datetime.now(timezone.utc)


@pytest.mark.parametrize(
    ("uris", "text"),
    [
        ([], "0 URI names, expected exactly one, spiffe://trial/party/NAME"),
        (["spiffe://trial/party/lab", "spiffe://trial/party/bank"], "2 URI names"),
        (["spiffe://other/party/lab"], "'spiffe://other/party/lab', expected spiffe://trial/party/NAME"),
        (["spiffe://trial/party/eve"], "expected a peer of clinic, got spiffe://trial/party/eve"),
        (["spiffe://trial/party/clinic"], "expected a peer of clinic, got spiffe://trial/party/clinic"),
    ],
)
@pytest.mark.parametrize("method", METHODS)
def test_a_caller_of_another_identity_is_denied(node, certificates, uris: list[str], text: str, method: str) -> None:
    dialer = node.dialer(certificates.named("lab", uris))
    with pytest.raises(PeerError, match=text) as caught:
        open_stream(dialer, method)
    assert caught.value.code == "E_IDENTITY"
    assert node.reached == 0


@pytest.mark.parametrize("method", METHODS)
def test_a_peer_may_call_every_method(node, lab, method: str) -> None:
    """The control of the refusals."""
    open_stream(node.dialer(lab), method).close()
    assert node.reached == 1


def test_a_node_that_answers_no_probe_says_so() -> None:
    """As one of an earlier release does."""
    plain = NodeServer(
        "127.0.0.1:0",
        own="clinic",
        federation="trial",
        credentials=None,
        peers={"lab"},
        on_converse=lambda *_: None,
        on_link=lambda *_: None,
    )
    try:
        dialer = Dialer(plain.start(), own="lab", peer="clinic", federation="trial", credentials=None)
        with pytest.raises(PeerLost, match="unimplemented"):
            dialer.probe()
    finally:
        plain.stop(0)


def test_a_caller_whose_certificate_does_not_hold_learns_why(node, certificates) -> None:
    cases = {
        "does not accept this node's certificate: .* expired on": certificates.dated("lab", signed=NOW - timedelta(9), days=5),
        "does not accept this node's certificate: .* is valid only from": certificates.dated(
            "lab", signed=NOW + timedelta(9), days=5
        ),
        "does not accept this node's certificate: .* is not vouched for": certificates.rogue(
            "lab", trusts=certificates.authority
        ),
    }
    for text, credentials in cases.items():
        with pytest.raises(PeerLost, match=text) as caught:
            node.dialer(credentials).converse("job-1")
        assert caught.value.code == "E_UNREACHABLE"
    assert node.pipes.empty()


def test_a_caller_without_a_certificate_gets_nowhere(node, certificates) -> None:
    options = [("grpc.ssl_target_name_override", "clinic.trial.vfl")]
    with grpc.secure_channel(node.address, grpc.ssl_channel_credentials(certificates.authority), options) as channel:
        call = channel.stream_stream(METHOD)(iter([b""]), metadata=[("vfl-party", "lab"), ("vfl-job", "job-1")], timeout=240)
        with pytest.raises(grpc.RpcError):
            next(call)
    assert node.pipes.empty()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_tls_1_2_is_denied(node, lab, version: ssl.TLSVersion) -> None:
    """By hand, since gRPC's own client cannot be held to 1.2; with 1.3 the same bytes are accepted."""
    context = ssl.create_default_context(cadata=lab.authority.decode())
    context.load_cert_chain(lab.files.certificate, lab.files.key)
    context.minimum_version = context.maximum_version = version
    context.set_alpn_protocols(["h2"])
    fields = {
        ":method": "POST",
        ":scheme": "https",
        ":path": METHOD,
        ":authority": "clinic.trial.vfl",
        "content-type": "application/grpc",
        "te": "trailers",
        "vfl-job": "job-1",
    }
    block = b"".join(  # literal fields without indexing (RFC 7541, 6.2.2)
        b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode() for name, value in fields.items()
    )
    hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
    headers = len(block).to_bytes(3, "big") + bytes((1, 4, 0, 0, 0, 1)) + block
    host, _, port = node.address.rpartition(":")
    answer = b""
    with (
        socket.create_connection((host, int(port)), timeout=240) as plain,
        context.wrap_socket(plain, server_hostname="clinic.trial.vfl") as secure,
    ):
        secure.sendall(hello + headers)
        while b"TLSv1.2" not in answer and b"vfl-party" not in answer:
            data = secure.recv(4096)
            assert data, "the server hung up without a word"
            answer += data
    denied = version is ssl.TLSVersion.TLSv1_2
    assert (b"expected TLS version TLSv1.3, got TLSv1.2" in answer) is denied
    assert node.pipes.empty() is denied


def test_a_renewed_certificate_is_shown_without_a_restart(serve, certificates, lab) -> None:
    held, renewed = certificates.good("clinic"), certificates.good("clinic")
    node = serve(held)

    def serial() -> int:
        context = ssl.create_default_context(cadata=lab.authority.decode())
        context.load_cert_chain(lab.files.certificate, lab.files.key)
        host, _, port = node.address.rpartition(":")
        with (
            socket.create_connection((host, int(port)), timeout=240) as plain,
            context.wrap_socket(plain, server_hostname="clinic.trial.vfl") as secure,
        ):
            return x509.load_der_x509_certificate(secure.getpeercert(binary_form=True) or b"").serial_number

    first = serial()
    held.files.certificate.write_bytes(renewed.certificate)
    held.files.key.write_bytes(renewed.key)
    assert first == x509.load_pem_x509_certificate(held.certificate).serial_number
    assert serial() == x509.load_pem_x509_certificate(renewed.certificate).serial_number
    node.dialer(lab).converse("job-1").close()


def test_plaintext_on_loopback_goes_by_the_callers_word(serve) -> None:
    node = serve(None)
    pipe = node.dialer(None).converse("job-1")
    assert node.pipes.get(timeout=240).peer == "lab"
    pipe.close()
    with pytest.raises(PeerError, match="expected a peer of clinic, got spiffe://trial/party/eve"):
        node.dialer(None, own="eve").converse("job-1")
    with pytest.raises(PeerError, match=r"expected bank at .*, got 'clinic'"):
        node.dialer(None, peer="bank").converse("job-1")


@pytest.mark.parametrize("address", ["0.0.0.0:0", "10.0.0.7:7443", "[::]:0", "lab.example:7443", "127.evil.example:1"])
def test_plaintext_off_loopback_is_refused(serve, address: str) -> None:
    for start in (
        lambda: serve(None, address=address),
        lambda: Dialer(address, own="lab", peer="clinic", federation="trial", credentials=None),
    ):
        with pytest.raises(UsageError) as caught:
            start()
        assert caught.value.code == "E_PLAINTEXT"


@pytest.mark.parametrize(
    ("peer", "local"),
    [
        ("ipv4:127.0.0.1:51234", True),
        ("ipv6:[::1]:51234", True),
        ("ipv6:%5B::1%5D:51234", True),
        ("ipv6:%5B::ffff:127.0.0.1%5D:51234", True),
        ("ipv4:10.0.0.7:51234", False),
        ("ipv6:%5B::ffff:10.0.0.7%5D:51234", False),
        ("ipv6:%5B2001:db8::1%5D:51234", False),
        ("unix:/tmp/socket", False),
        ("", False),
    ],
)
def test_a_plaintext_caller_must_be_on_this_machine(peer: str, local: bool) -> None:
    assert server._is_loopback_caller(peer) is local


def test_a_refusal_carries_its_code_and_only_the_text_for_peers(node, lab) -> None:
    node.refuse = [PolicyError("canary", code="E_CALL_BACK", for_peer="it dials this peer itself — später")]
    for dial in (lambda: node.dialer(lab).converse("job-1"), lambda: node.dialer(lab).link()):
        with pytest.raises(PeerError, match="it dials this peer itself — später") as caught:
            dial()
        assert caught.value.code == "E_CALL_BACK"
        assert "canary" not in str(caught.value)


def test_a_defect_of_the_owner_is_told_without_its_text(monkeypatch, node, lab) -> None:
    shown = queue.Queue()
    monkeypatch.setattr(threading, "excepthook", shown.put)
    node.refuse = [RuntimeError("canary")]  # type: ignore[list-item]
    with pytest.raises(PeerError) as caught:
        node.dialer(lab).converse("job-1")
    assert caught.value.code == "E_INTERNAL"
    assert "canary" not in str(caught.value)
    assert shown.get(timeout=240).exc_type is RuntimeError  # this side sees it


def test_refused_calls_on_one_connection_wedge_nothing_and_become_slow(monkeypatch, node, lab, certificates) -> None:
    """A peer's and a stranger's: none hangs, each holds a place of its own party only, and others are answered at once."""
    monkeypatch.setattr(server, "REFUSED_PAUSE_S", 0.01)
    monkeypatch.setattr(server, "REFUSED_WITHIN_S", 1000.0)
    held: list[str] = []
    slow_down = node.server._stopping.wait
    monkeypatch.setattr(node.server._stopping, "wait", lambda seconds: held.append("held") or slow_down(seconds))
    node.refuse = [PolicyError("no", code="E_NOT_WAITING", for_peer="not now")]
    stranger = certificates.good("eve")
    for who, told in ((lab, grpc.StatusCode.FAILED_PRECONDITION), (stranger, grpc.StatusCode.PERMISSION_DENIED)):
        held.clear()
        channel = node.dialer(who)._channel(20)
        statuses = [refused_call(channel) for _ in range(2 * server.REFUSED_FREELY)]
        # Some few meet the library before it is done with the last; none waits for a collection of garbage.
        assert set(statuses) <= {told, grpc.StatusCode.UNAVAILABLE}
        assert statuses.count(told) >= 1.5 * server.REFUSED_FREELY, statuses
        assert len(held) >= statuses.count(told) - server.REFUSED_FREELY
        channel.close()
    node.refuse = []
    for own in ("lab", "bank"):
        node.dialer(certificates.good(own)).converse("job-1").close()
    assert all(count == 0 for party, count in node.server._streams.items() if party not in ("lab", "bank"))


def refused_call(channel: Any) -> Any:
    """The status of a call whose caller says nothing and never hangs up by itself."""
    never = threading.Event()
    call = channel.stream_stream(METHOD)(iter(lambda: never.wait() and b"", b"x"), metadata=[("vfl-job", "job-1")], timeout=240)
    with pytest.raises(grpc.RpcError) as caught:
        next(call)
    never.set()
    return caught.value.code()  # type: ignore[attr-defined]


@pytest.mark.parametrize("job_id", ["", "../x", "/etc/passwd", "C:x", "JOB", "a" * 64])
def test_an_unusable_job_id_is_refused(node, lab, job_id: str) -> None:
    with pytest.raises(PeerError) as caught:
        node.dialer(lab).converse(job_id)
    assert caught.value.code == "E_JOB_ID"
    assert node.pipes.empty()


def test_a_port_in_use_is_named(serve, node, clinic) -> None:
    with pytest.raises(
        UsageError, match=f"port {node.address.rpartition(':')[2]} of 127.0.0.1: address already in use"
    ) as caught:
        serve(clinic, address=node.address)
    assert caught.value.code == "E_PORT"


def test_one_party_cannot_take_every_stream(monkeypatch, node, certificates, lab) -> None:
    monkeypatch.setattr(node.server, "_streams_per_party", 2)
    dialer = node.dialer(lab)
    pipes = [dialer.converse("job-1"), dialer.converse("job-2")]
    with pytest.raises(PeerError, match="2 streams") as caught:
        dialer.converse("job-3")
    assert caught.value.code == "E_BUSY"
    other = node.dialer(certificates.good("bank"), own="bank").converse("job-4")
    pipes.pop().close()
    pipes.append(dialer.converse("job-3"))
    for pipe in (*pipes, other):
        pipe.close()


def test_a_server_that_stops_ends_what_is_open(node, lab) -> None:
    pipe = node.dialer(lab).converse("job-1")
    serving = node.pipes.get(timeout=240)
    node.server.stop(0.1)
    for end in (pipe, serving):
        with pytest.raises(PeerLost):
            get(end)


def test_a_server_that_was_never_started_stops() -> None:
    NodeServer(
        "127.0.0.1:0",
        own="clinic",
        federation="trial",
        credentials=None,
        peers=frozenset(),
        on_converse=lambda *_: None,
        on_link=lambda *_: None,
    ).stop()
