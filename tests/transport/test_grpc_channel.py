"""Conversations over gRPC: who may call, what bounds them, and how they end."""

from __future__ import annotations

import contextlib
import queue
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import grpc
import pytest
from cryptography import x509

from vfl_node.errors import Cancelled, Paused, PeerError, PeerLost, PolicyError, ProtocolError, UsageError, VflError
from vfl_node.transport import grpc_channel, streams, tls
from vfl_node.transport.bounds import MAX_FRAME_BYTES
from vfl_node.transport.channel import Channel, run
from vfl_node.transport.diagnosis import diagnose
from vfl_node.transport.generated.vfl.v1.alignment_pb2 import SetSize
from vfl_node.transport.generated.vfl.v1.session_pb2 import Beat, Cancel, Frame, Notice, Offer
from vfl_node.transport.grpc_channel import Dialer, NodeServer, StreamPipe

NOW = datetime.now(timezone.utc)
METHOD = "/vfl.v1.Node/Converse"


def get(pipe: StreamPipe) -> Frame:
    return run(pipe.get())


def put(pipe: StreamPipe, frame: Frame) -> None:
    run(pipe.put(frame))


# Who may call.


def test_both_ends_know_each_other_by_certificate(node, lab) -> None:
    pipe = node.dialer(lab, own="bank").converse("job-1")  # what a caller says of itself does not count
    serving = node.pipes.get(timeout=240)
    assert serving.peer == "lab"
    put(pipe, Frame(sequence=7))
    assert get(serving).sequence == 7
    put(serving, Frame(sequence=8))
    assert get(pipe).sequence == 8
    pipe.close()


def test_a_link_carries_notices_both_ways(node, lab) -> None:
    link = node.dialer(lab).link()
    serving = node.links.get(timeout=240)
    link.send(Notice(beat=Beat()))
    assert serving.receive(5) == Notice(beat=Beat())
    serving.send(Notice(cancel=Cancel(job_id="job-1")))
    assert link.receive(5).cancel.job_id == "job-1"
    assert link.receive(0.01) is None
    link.close()
    with pytest.raises(PeerLost, match="lab"):
        serving.receive(5)


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
@pytest.mark.parametrize("method", ["converse", "link"])
def test_a_caller_of_another_identity_is_denied(node, certificates, uris: list[str], text: str, method: str) -> None:
    dialer = node.dialer(certificates.named("lab", uris))
    with pytest.raises(PeerError, match=text) as caught:
        dialer.converse("job-1") if method == "converse" else dialer.link()
    assert caught.value.code == "E_IDENTITY"
    assert node.pipes.empty()
    assert node.links.empty()


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


def test_a_renewed_certificate_is_used_for_the_next_call(node, certificates) -> None:
    held, renewed = certificates.dated("lab", signed=NOW - timedelta(9), days=5), certificates.good("lab")
    dialer = node.dialer(held)
    with pytest.raises(PeerLost, match="expired"):
        dialer.converse("job-1")
    held.files.certificate.write_bytes(renewed.certificate)
    held.files.key.write_bytes(renewed.key)
    dialer.converse("job-1").close()


# Plaintext.


def test_plaintext_on_loopback_goes_by_the_callers_word(serve) -> None:
    node = serve(None)
    pipe = node.dialer(None).converse("job-1")
    assert node.pipes.get(timeout=240).peer == "lab"
    pipe.close()
    with pytest.raises(PeerError, match="expected a peer of clinic, got spiffe://trial/party/eve"):
        node.dialer(None, own="eve").converse("job-1")
    with pytest.raises(PeerError, match=r"expected bank at .*, got 'clinic'"):
        node.dialer(None, peer="bank").converse("job-1")


def test_plaintext_and_tls_do_not_meet(serve, node, lab) -> None:
    with pytest.raises(PeerLost, match="does that node use TLS"):
        node.dialer(None).converse("job-1")
    with pytest.raises(PeerLost, match="does not speak TLS"):
        serve(None).dialer(lab).converse("job-1")


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
    assert grpc_channel._is_loopback_caller(peer) is local


# Reaching and refusing.


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
    monkeypatch.setattr(grpc_channel, "REFUSED_PAUSE_S", 0.01)
    monkeypatch.setattr(grpc_channel, "REFUSED_WITHIN_S", 1000.0)
    held: list[str] = []
    slow_down = node.server._stopping.wait
    monkeypatch.setattr(node.server._stopping, "wait", lambda seconds: held.append("held") or slow_down(seconds))
    node.refuse = [PolicyError("no", code="E_NOT_WAITING", for_peer="not now")]
    stranger = certificates.good("eve")
    for who, told in ((lab, grpc.StatusCode.FAILED_PRECONDITION), (stranger, grpc.StatusCode.PERMISSION_DENIED)):
        held.clear()
        channel = node.dialer(who)._channel(20)
        statuses = [refused_call(channel) for _ in range(2 * grpc_channel.REFUSED_FREELY)]
        # Some few meet the library before it is done with the last; none waits for a collection of garbage.
        assert set(statuses) <= {told, grpc.StatusCode.UNAVAILABLE}
        assert statuses.count(told) >= 1.5 * grpc_channel.REFUSED_FREELY, statuses
        assert len(held) >= statuses.count(told) - grpc_channel.REFUSED_FREELY
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


def test_a_port_in_use_is_named(serve, node, clinic) -> None:
    with pytest.raises(
        UsageError, match=f"port {node.address.rpartition(':')[2]} of 127.0.0.1: address already in use"
    ) as caught:
        serve(clinic, address=node.address)
    assert caught.value.code == "E_PORT"


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


# Bounds.


def test_put_waits_when_the_peer_does_not_read(monkeypatch, node, lab) -> None:
    """What is under way stays within the two queues and gRPC's own windows."""
    monkeypatch.setattr(streams, "QUEUE_BYTES", 4 << 20)
    pipe = node.dialer(lab).converse("job-1")
    serving = node.pipes.get(timeout=240)
    frame = Frame(body=bytes(1 << 20))
    sent = 0

    def flood() -> None:
        nonlocal sent
        try:
            while sent < 200:
                put(pipe, frame)
                sent += 1
        except VflError:
            pass

    thread = threading.Thread(target=flood, daemon=True)
    thread.start()
    seen = -1
    while seen != sent:  # until nothing moves any more
        seen = sent
        thread.join(0.5)
    assert thread.is_alive()
    assert 1 <= sent < 60
    for _ in range(100):
        assert len(get(serving).body) == 1 << 20
    assert sent > seen
    pipe.cancel(Cancelled("enough"))
    thread.join(240)
    assert not thread.is_alive()
    serving.close()
    pipe.close()


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


def raw_call(node: Any, credentials: tls.Credentials, data: bytes, **options: Any) -> Any:
    """A caller that keeps to none of our limits."""
    channel = grpc.secure_channel(
        node.address,
        grpc.ssl_channel_credentials(credentials.authority, credentials.key, credentials.certificate),
        [("grpc.ssl_target_name_override", "clinic.trial.vfl"), ("grpc.max_send_message_length", -1)],
        **options,
    )
    hold = threading.Event()

    def requests() -> Any:
        yield data
        hold.wait(10)

    call = channel.stream_stream(METHOD)(requests(), metadata=[("vfl-job", "job-9"), ("vfl-party", "lab")], timeout=240)
    return call, hold, channel


def test_an_oversize_message_ends_only_its_own_conversation(node, lab, pipes) -> None:
    _call, hold, channel = raw_call(node, lab, bytes(streams.PIECE_BYTES + 1))
    victim = node.pipes.get(timeout=240)
    with pytest.raises(PeerLost):
        get(victim)
    hold.set()
    channel.close()
    put(pipes[0], Frame(sequence=5))
    assert get(pipes[1]).sequence == 5


def test_a_frame_that_would_be_too_large_is_refused_by_its_first_piece(node, lab) -> None:
    frame = Frame(body=bytes(MAX_FRAME_BYTES)).SerializeToString()
    _call, hold, channel = raw_call(node, lab, frame[: streams.PIECE_BYTES])
    with pytest.raises(ProtocolError) as caught:
        get(node.pipes.get(timeout=240))
    assert caught.value.code == "E_SIZE"
    hold.set()
    channel.close()


def test_a_large_frame_arrives_in_pieces(pipes) -> None:
    dialling, serving = pipes
    body = bytes(range(256)) * (20 << 12)  # more than may wait at either end
    thread = threading.Thread(target=put, args=(dialling, Frame(body=body, sequence=3)))
    thread.start()
    arrived = get(serving)
    thread.join()
    assert (arrived.sequence, arrived.body) == (3, body)
    put(dialling, Frame(sequence=4))
    assert get(serving).sequence == 4


def test_nothing_is_read_before_a_conversation_is_wanted(serve, clinic, lab) -> None:
    """What a caller sends waits in the windows of its connection, not in this node's memory."""
    node = serve(clinic)
    wanted, asked = threading.Event(), threading.Event()

    waiting: list[StreamPipe] = []

    def hold(_party: str, _job: str, pipe: StreamPipe) -> None:
        waiting.append(pipe)
        asked.set()
        assert wanted.wait(10)
        node.pipes.put(pipe)

    node.server._on_converse = hold
    _call, end, channel = raw_call(node, lab, Frame(body=bytes(1 << 10)).SerializeToString())
    assert asked.wait(5)
    time.sleep(0.05)
    assert not waiting[0]._inbox
    wanted.set()
    assert len(get(node.pipes.get(timeout=240)).body) == 1 << 10
    end.set()
    channel.close()


def test_a_notice_larger_than_any_ends_the_link(node, lab) -> None:
    link = node.dialer(lab).link
    opened: queue.Queue[Any] = queue.Queue()
    threading.Thread(target=lambda: opened.put(link()), daemon=True).start()
    served = node.links.get(timeout=240)
    served.send(Notice(beat=Beat()))
    dialling = opened.get(timeout=240)
    dialling.send(Notice(offer=Offer(job_json="x" * (2 << 16))))
    with pytest.raises(ProtocolError) as caught:
        served.receive(5)
    assert caught.value.code == "E_SIZE"
    dialling.close()
    served.close()


def test_a_compressed_message_is_not_unpacked(node, lab) -> None:
    bomb = Frame(body=bytes(32 << 20)).SerializeToString()
    call, hold, channel = raw_call(node, lab, bomb, compression=grpc.Compression.Gzip)
    with pytest.raises(grpc.RpcError):
        next(call)
    if not node.pipes.empty():
        with pytest.raises(PeerLost):
            get(node.pipes.get())
    hold.set()
    channel.close()


def test_bytes_that_are_no_frame_are_refused(node, lab) -> None:
    _, hold, channel = raw_call(node, lab, b"\xff\xff")
    with pytest.raises(VflError) as caught:
        get(node.pipes.get(timeout=240))
    assert caught.value.code == "E_PROTOCOL"
    hold.set()
    channel.close()


# How conversations end.


@pytest.fixture
def long_close(monkeypatch) -> None:
    """A close that waited for its time limit would run into the test's."""
    monkeypatch.setattr(streams, "CLOSE_S", 60)


@pytest.mark.parametrize("closing", [0, 1])
def test_close_lets_the_last_message_arrive(long_close, pipes, closing: int) -> None:
    ending, reading = pipes[closing], pipes[1 - closing]
    frames = [Frame(sequence=sequence, body=bytes(1 << 20)) for sequence in range(24)]  # the queues of both ends hold them
    assert sum(frame.ByteSize() + 64 for frame in frames) < 2 * streams.QUEUE_BYTES
    for frame in frames:
        put(ending, frame)
    thread = threading.Thread(target=ending.close)
    thread.start()
    assert [get(reading).sequence for _ in frames] == [frame.sequence for frame in frames]
    with pytest.raises(PeerLost, match=reading.peer):
        get(reading)
    with pytest.raises(PeerLost):
        put(reading, Frame())
    thread.join(240)
    assert not thread.is_alive()
    reading.close()


def test_both_may_close_at_once(long_close, pipes) -> None:
    for pipe in pipes:
        put(pipe, Frame(body=bytes(1 << 20)))
    threads = [threading.Thread(target=pipe.close) for pipe in pipes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
        assert not thread.is_alive()


@pytest.mark.parametrize("cancelled", [0, 1])
def test_a_cancelled_party_wakes_and_can_still_tell_its_peer(pipes, cancelled: int) -> None:
    stopping, other = (Channel(pipe, peer=pipe.peer, job_id="job-1") for pipe in (pipes[cancelled], pipes[1 - cancelled]))

    async def wait(channel: Channel) -> None:
        async with channel.phase("size"):
            await channel.receive(SetSize)

    woken: list[VflError] = []

    def work() -> None:
        try:
            run(wait(stopping))
        except VflError as error:
            woken.append(error)
            run(stopping.abort(error, resumable=True))
        stopping.close()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(0.1)
    assert thread.is_alive()
    pipes[cancelled].cancel(Paused("stopping", for_peer="its node is stopping and will come back"))
    with pytest.raises(PeerLost, match="its node is stopping and will come back"):
        run(wait(other))
    thread.join(240)
    assert isinstance(woken[0], Paused)


def test_nothing_is_left_running(node, lab) -> None:
    """A service opens and ends conversations for months."""
    dialer = node.dialer(lab)
    for _ in range(20):
        pipe = dialer.converse("job-1")
        serving = node.pipes.get(timeout=240)
        put(pipe, Frame(sequence=1))
        get(serving)
        pipe.close()
        serving.close()
    names = ("read-", "serve-")
    for thread in threading.enumerate():
        if thread.name.startswith(names):
            thread.join(240)
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith(names)]


CHILD = """
import sys, time
from pathlib import Path
from vfl_node.settings import Tls
from vfl_node.transport import tls
from vfl_node.transport.channel import run
from vfl_node.transport.generated.vfl.v1.session_pb2 import Frame
from vfl_node.transport.grpc_channel import Dialer, NodeServer

role, address, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
files = Tls(ca=folder / "ca.crt", certificate=folder / "node.crt", key=folder / "node.key")
name, peer = ("lab", "clinic") if role == "dial" else ("clinic", "lab")
common = {"own": name, "federation": "trial", "credentials": tls.load(files, name=name, federation="trial")}
def talk(pipe):
    for sequence in range(3):
        run(pipe.put(Frame(sequence=sequence)))
if role == "dial":
    pipe = Dialer(address, peer=peer, **common).converse("job-1")
    talk(pipe)
    print("up", flush=True)
else:
    server = NodeServer(address, peers=frozenset({peer}), on_link=lambda party, link: None,
                        on_converse=lambda party, job, pipe: talk(pipe), **common)
    print(server.start(), flush=True)
time.sleep(60)
"""


@pytest.fixture(params=["dial", "serve"])
def child(request, node, clinic, lab) -> Iterator[tuple[subprocess.Popen[str], StreamPipe]]:
    """A peer in a process of its own, and this side's end of a conversation with it."""
    dials = request.param == "dial"
    command = [sys.executable, "-c", CHILD, request.param, node.address if dials else "127.0.0.1:0"]
    folder = (lab if dials else clinic).files.key.parent
    with subprocess.Popen([*command, str(folder)], stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline().strip() if process.stdout else ""
            dialer = Dialer(line, own="lab", peer="clinic", federation="trial", credentials=lab)
            pipe = node.pipes.get(timeout=240) if dials else dialer.converse("job-1")
            assert [get(pipe).sequence for _ in range(3)] == [0, 1, 2]
            yield process, pipe
        finally:
            process.kill()
    pipe.close()


def test_a_killed_peer_is_noticed(child) -> None:
    process, pipe = child
    process.kill()
    with pytest.raises(PeerLost, match=pipe.peer) as caught:
        get(pipe)
    assert caught.value.code == "E_PEER_LOST"


@pytest.mark.slow
def test_a_frozen_peer_is_noticed_by_its_silence(clinic, lab) -> None:
    """No reset, no end of stream: only pings that nobody answers tell (10 s, then LOST_S)."""
    command = [sys.executable, "-c", CHILD, "serve", "127.0.0.1:0", str(clinic.files.key.parent)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            address = process.stdout.readline().strip() if process.stdout else ""
            link = Dialer(address, own="lab", peer="clinic", federation="trial", credentials=lab).link()
            process.send_signal(signal.SIGSTOP)
            with pytest.raises(PeerLost, match="clinic"):
                link.receive(60)
        finally:
            process.kill()
    link.close()


@pytest.mark.slow
def test_a_slow_line_breaks_nothing_off(node, lab) -> None:
    """20 kB/s for 20 s: pings wait behind the bulk far longer than an idle peer may be silent."""

    def throttle(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(2048):
                sink.sendall(data)
                time.sleep(len(data) / 20_000)

    with socket.create_server(("127.0.0.1", 0)) as proxy:

        def forward() -> None:
            near, _ = proxy.accept()
            host, _, port = node.address.rpartition(":")
            far = socket.create_connection((host, int(port)))
            for pair in ((near, far), (far, near)):
                threading.Thread(target=throttle, args=pair, daemon=True).start()

        threading.Thread(target=forward, daemon=True).start()
        address = f"127.0.0.1:{proxy.getsockname()[1]}"
        pipe = Dialer(address, own="lab", peer="clinic", federation="trial", credentials=lab).converse("job-1")
        for sequence in range(6):
            put(pipe, Frame(sequence=sequence, body=bytes(1 << 16)))
        serving = node.pipes.get(timeout=240)
        assert [get(serving).sequence for _ in range(6)] == list(range(6))
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
