"""What a peer, and an outsider, can make a node take of memory: attacks on a real node, whose peak is read from the kernel.

A permitted peer gets no more than 128 MiB beyond what the job was estimated to need, an outsider no more than 32.
"""

from __future__ import annotations

import queue
import re
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest

from vfl_node.configuration.models import parse
from vfl_node.errors import VflError
from vfl_node.estimate.memory import need
from vfl_node.job import Job
from vfl_node.job.costs import TableShape
from vfl_node.node.partners import Partner
from vfl_node.session.preflight import preflight
from vfl_node.settings.reading import load_settings
from vfl_node.transport.authority import make_authority, make_key_and_request, sign
from vfl_node.transport.calls import SERVICE
from vfl_node.transport.channel import Channel, run
from vfl_node.transport.credentials import Credentials, load_credentials
from vfl_node.transport.dialer import Dialer
from vfl_node.transport.generated.vfl.v1.alignment_pb2 import Remembered, SetSize
from vfl_node.transport.generated.vfl.v1.session_pb2 import (
    Beat,
    Frame,
    Hello,
    Notice,
    Offer,
    OfferReply,
    PhaseEnd,
    Rows,
)
from vfl_node.version import PROTOCOL_VERSION

MIB = 1 << 20
PEER_BYTES, OUTSIDER_BYTES = 128 * MIB, 32 * MIB
JOB = "name: trial\nparties: {active: clinic, passive: lab}\nalign: {protocol: psi}\n"
HELLO = Notice(hello=Hello(party="lab", role="passive", protocol_version=PROTOCOL_VERSION))
MEGABYTE = bytes(MIB - 1024)


class Target:
    """A node, and what its permitted peer ``lab`` can do to it."""

    def __init__(self, federation: Any) -> None:
        self.federation = federation
        own = load_settings(federation.folder / "lab" / "node.yaml")
        assert own.tls
        self.credentials = load_credentials(own.tls, name="lab", federation="trial")
        self.address = federation.running("clinic")["listen"]
        self.partner = Partner(federation.folder / "lab's memory", "clinic")
        self.process = Path(f"/proc/{federation.processes['clinic'].pid}")
        self.dialer = Dialer(self.address, own="lab", peer="clinic", federation="trial", credentials=self.credentials)

    def memory(self, what: str) -> int:
        found = re.search(rf"^{what}:\s+(\d+) kB", (self.process / "status").read_text(), re.MULTILINE)
        assert found
        return int(found[1]) * 1024

    def grown(self, attack: Callable[[Target], None]) -> int:
        """By how much the node's memory was more at its peak than before the attack."""
        before = self.memory("VmRSS")
        (self.process / "clear_refs").write_text("5")  # the peak begins anew
        attack(self)
        return self.memory("VmHWM") - before

    def stream(self, method: str, messages: Iterator[bytes], job: str = "unknown", **options: Any) -> Any:
        """A call that keeps to none of our limits, on a connection of its own: it, and what ends it."""
        held = self.credentials
        made = [("grpc.ssl_target_name_override", "clinic.trial.vfl"), ("grpc.max_send_message_length", -1)]
        made += [("grpc.use_local_subchannel_pool", 1), ("grpc.max_metadata_size", 1 << 26)]
        channel = grpc.secure_channel(
            self.address, grpc.ssl_channel_credentials(held.authority, held.key, held.certificate), made, **options
        )
        metadata = [("vfl-party", "lab"), ("vfl-job", job)]
        return channel.stream_stream(f"/{SERVICE}/{method}")(messages, metadata=metadata, timeout=5), channel

    def pour(self, method: str, *sources: Iterator[bytes], seconds: float = 1.0, **options: Any) -> None:
        """Send for some time, as much as is taken, over a stream for each source."""
        over = threading.Event()

        def until(messages: Iterator[bytes]) -> Iterator[bytes]:
            for message in messages:
                if over.is_set():
                    return
                yield message
            over.wait(seconds)

        streams = [self.stream(method, until(source), f"unknown-{n}", **options) for n, source in enumerate(sources)]
        time.sleep(seconds)
        over.set()
        for call, channel in streams:
            call.cancel()
            channel.close()

    def offer(self, text: str = JOB) -> tuple[str, OfferReply]:
        """Offer a job over a link that stays, and over which lab means to go on with whatever it is asked about."""
        job_id, replies = f"trial-{secrets.token_hex(4)}", queue.SimpleQueue[OfferReply]()
        link = self.dialer.link()

        def serve() -> None:
            with suppress(VflError):
                while True:
                    notice = link.receive(1)
                    kind = notice.WhichOneof("body") if notice else "beat"
                    if notice and kind == "offer_reply":
                        replies.put(notice.offer_reply)
                    elif notice and kind == "offer":
                        link.send(Notice(offer_reply=OfferReply(job_id=notice.offer.job_id, accepted=True)))
                    else:
                        link.send(Notice(beat=Beat()))

        link.send(HELLO)
        spec = parse(text, Job, source="job").canonical()
        link.send(Notice(offer=Offer(job_id=job_id, submitter="lab", job_json=spec)))
        threading.Thread(target=serve, daemon=True).start()
        return job_id, replies.get(timeout=30)

    def converse(self, text: str = JOB) -> Channel:
        """A conversation about an accepted job, before its first word."""
        job_id, reply = self.offer(text)
        assert reply.accepted, reply.reason
        for _ in range(100):
            with suppress(VflError):
                return Channel(self.dialer.converse(job_id), peer="clinic", job_id=job_id)
            time.sleep(0.05)
        raise AssertionError("nobody comes")

    def aligning(self) -> Channel:
        """One that has passed the preflight, and the first word of an alignment."""
        channel = self.converse()
        job = parse(JOB, Job, source="job")
        told = {"attempt": 1, "checkpoints": [], "input_digest": bytes(32), "salt": bytes(32), "inputs": _Anything()}
        run(preflight(channel, job, own="lab", heads=self.partner.heads(channel.job_id, {}), **told))
        channel._phase = "align"
        run(channel.send(Remembered(mark=bytes(32))))
        run(channel.receive(Remembered))
        return channel

    def end(self, job_id: str) -> dict[str, Any]:
        return list(self.federation.client("clinic").watch(job_id))[-1]


class _Anything:
    def check_input(self, owner: str, digest: bytes) -> None:
        """Whatever it is."""


@pytest.fixture(scope="module")
def target(federations: Any, tmp_path_factory: pytest.TempPathFactory) -> Target:
    federation = federations(tmp_path_factory.mktemp("memory"))
    federation.start("clinic", listen="127.0.0.1:0", peers={"lab": {}}, accepts=["lab"], peer_wait_s=20)
    made = Target(federation)
    made.aligning().close()  # what the first of everything takes is no attack
    return made


def forever(data: bytes) -> Iterator[bytes]:
    while True:
        yield data


def linked(*notices: Notice) -> Iterator[bytes]:
    yield HELLO.SerializeToString()
    while notices:
        for notice in notices:
            yield notice.SerializeToString()


def replies(size: int) -> Iterator[bytes]:
    """Each under a key of its own, which nobody asked for."""
    yield HELLO.SerializeToString()
    number = 0
    while True:
        number += 1
        yield Notice(offer_reply=OfferReply(job_id=f"{number}", reason="x" * size)).SerializeToString()


def body(channel: Channel, kind: str, data: bytes, sequence: int = 0, **changes: Any) -> Frame:
    fields = {"job_id": channel.job_id, "attempt": channel.attempt, "phase": channel.phase_name, "type": f"vfl.v1.{kind}"}
    return Frame(**(fields | changes), sequence=sequence + channel._sent, body=data)


def said(channel: Channel, *frames: Frame) -> None:
    """Send, and stay until the node has judged, or waits for more."""
    with suppress(VflError):
        for frame in frames:
            run(channel._pipe.put(frame))
        while channel._pipe._get(1.0):  # type: ignore[attr-defined]
            pass
    channel.close()


def unknown_conversations(target: Target) -> None:
    frame = Frame(job_id="unknown", body=MEGABYTE).SerializeToString()
    target.pour("Converse", *(forever(frame) for _ in range(12)))


def large_frames(target: Target) -> None:
    """What is announced is 64 MiB at a time; what the job's messages may be is far less."""
    channel = target.converse()
    said(channel, *[body(channel, "Preflight", bytes(60 * MIB), number) for number in range(4)])


def flood(target: Target) -> None:
    """As many frames as it takes, one after the other."""
    channel = target.aligning()
    limit = time.monotonic() + 2
    with suppress(VflError):
        while time.monotonic() < limit:
            run(channel._pipe.put(body(channel, "SetSize", MEGABYTE)))
    channel.close()


def of_body(kind: str, data: bytes, *, aligning: bool = True) -> Callable[[Target], None]:
    def attack(target: Target) -> None:
        channel = target.aligning() if aligning else target.converse()
        said(channel, body(channel, kind, data))

    return attack


def rows_without_end(target: Target) -> None:
    channel = target.aligning()
    size = SetSize(count=160).SerializeToString()
    rows = Rows(count=(1 << 31) - 1, width=32).SerializeToString()
    said(channel, body(channel, "SetSize", size), body(channel, "Rows", rows, 1))


def many_sizes(target: Target) -> None:
    """It announces a hundred million records."""
    channel = target.aligning()
    said(channel, body(channel, "SetSize", SetSize(count=100_000_000).SerializeToString()))


def too_large_a_model(target: Target) -> None:
    _, reply = target.offer(JOB.replace("psi", "psu") + "train: {bottom: [24000, 24000], active_bottom: [24000, 24000]}\n")
    assert not reply.accepted
    assert reply.reason == "its policy does not allow the job (size)"


def compressed(target: Target) -> None:
    frame = Frame(body=bytes(200 * MIB)).SerializeToString()
    target.pour("Converse", iter([frame]), compression=grpc.Compression.Gzip)


def headers(target: Target) -> None:
    for _ in range(20):
        with suppress(grpc.RpcError):
            call, channel = target.stream("Converse", iter([b""]), job="x" * MIB)
            next(call)
        channel.close()


def many_streams(target: Target) -> None:
    target.pour("Link", *(linked() for _ in range(12)))


def offers_whose_replies_nobody_reads(target: Target) -> None:
    spec = parse(JOB.replace("clinic", "nobody"), Job, source="job").canonical()
    target.pour("Link", linked(Notice(offer=Offer(job_id="refused", submitter="lab", job_json=spec + " " * 60_000))))


ATTACKS: dict[str, Callable[[Target], None]] = {
    "replies that nobody asked for": lambda target: target.pour("Link", replies(4000)),
    "small replies that nobody asked for": lambda target: target.pour("Link", replies(1)),
    "a greeting of a megabyte": lambda target: target.pour("Link", forever(Hello(party="x" * MIB).SerializeToString())),
    "an offer of a megabyte": lambda target: target.pour("Link", linked(Notice(offer=Offer(job_json="x" * (MIB - 99))))),
    "notices with what a later version may say": lambda target: target.pour("Link", linked(Notice.FromString(b"\x4a\x00"))),
    "offers whose replies nobody reads": offers_whose_replies_nobody_reads,
    "conversations about unknown jobs": unknown_conversations,
    "many streams": many_streams,
    "headers of a megabyte": headers,
    "a compressed frame": compressed,
    "frames of 60 MiB": large_frames,
    "a flood of frames": flood,
    "a million empty fields of the job": of_body("Preflight", b"\x22\x00" * MIB, aligning=False),
    "a million empty names of checkpoints": of_body("Preflight", b"\x32\x00" * MIB, aligning=False),
    "a million lists held": of_body("SetSize", b"\x1a\x00" * MIB),
    "two million fields of a later version": of_body("SetSize", b"\x78\x01" * MIB),
    "groups in groups": of_body("SetSize", b"\x7b" * MIB),
    "an oversize end of a phase": of_body("PhaseEnd", PhaseEnd(sha256=bytes(2 * MIB - 4096)).SerializeToString()),
    "an oversize word at the end": of_body("Abort", b"\x12" + b"\xff\xff\x7f" + b"x" * (2 * MIB - 4096)),
    "rows without end": rows_without_end,
    "a hundred million records": many_sizes,
    "too large a model": too_large_a_model,
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_permitted_peer_gets_little_of_a_nodes_memory(target: Target, attack: str) -> None:
    grown = target.grown(ATTACKS[attack])
    print(f"{attack}: {grown / MIB:.0f} MiB")
    assert grown < PEER_BYTES
    assert target.federation.processes["clinic"].poll() is None
    assert target.federation.client("clinic").health()["status"] == "ok"


def garbage(target: Target, data: bytes, count: int = 200) -> None:
    """Connections that send ``data`` and stay."""
    host, _, port = target.address.rpartition(":")
    held = []
    for _ in range(count):
        with suppress(OSError):
            held.append(socket.create_connection((host, int(port)), 1))
            held[-1].settimeout(0.2)
            held[-1].sendall(data)
    for one in held:
        one.close()


def without_a_certificate(target: Target) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    host, _, port = target.address.rpartition(":")
    for _ in range(60):
        with suppress(OSError), socket.create_connection((host, int(port)), 1) as plain:
            plain.settimeout(0.3)
            with context.wrap_socket(plain) as secure:
                for _ in range(20):
                    secure.sendall(MEGABYTE)


def of_another_authority(target: Target) -> None:
    authority, key = make_authority("trial")
    own, request = make_key_and_request("lab", "trial")
    credentials = Credentials(
        target.credentials.authority, sign(authority, key, request), own, target.credentials.files, "lab", "trial"
    )
    for _ in range(20):
        with suppress(VflError):
            Dialer(target.address, own="lab", peer="clinic", federation="trial", credentials=credentials).link(timeout_s=2)


OUTSIDERS: dict[str, Callable[[Target], None]] = {
    "connections that say nothing": lambda target: garbage(target, b""),
    "megabytes that are no handshake": lambda target: garbage(target, MEGABYTE, 60),
    "a record that announces the most": lambda target: garbage(target, b"\x16\x03\x01\xff\xff" + MEGABYTE, 60),
    "half a handshake": lambda target: garbage(target, bytes.fromhex("16030100c8010000c40303") + bytes(100)),
    "no certificate": without_a_certificate,
    "a certificate of another authority": of_another_authority,
}


@pytest.mark.parametrize("attack", OUTSIDERS)
def test_an_outsider_gets_next_to_nothing(target: Target, attack: str) -> None:
    grown = target.grown(OUTSIDERS[attack])
    print(f"{attack}: {grown / MIB:.0f} MiB")
    assert grown < OUTSIDER_BYTES
    assert target.federation.processes["clinic"].poll() is None


def test_the_attacks_reach_the_node(target: Target) -> None:
    """The control: what the node is told in words shows that it has read what it was sent."""
    channel = target.aligning()
    said(channel, body(channel, "SetSize", b"\x1a\x00" * 40))
    view = target.end(channel.job_id)
    assert (view["state"], view["error"]["code"]) == ("failed", "E_SIZE"), view["error"]
    assert "held 33 times, at most 32" in view["error"]["message"]


def test_a_job_takes_no_more_than_was_estimated(target: Target) -> None:
    job = parse(JOB, Job, source="job")
    assert need(job, "active", TableShape(rows=160, numeric=8)).bytes < PEER_BYTES
