"""Conversations and links over gRPC: what bounds them, and how they end."""

from __future__ import annotations

import contextlib
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from tests.transport.over_grpc import get, put, raw_call
from vfl_node.errors import Cancelled, Paused, PeerLost, ProtocolError, VflError
from vfl_node.transport import bounds, streams
from vfl_node.transport.bounds import MAX_FRAME_BYTES
from vfl_node.transport.channel import Channel, run
from vfl_node.transport.dialer import Dialer
from vfl_node.transport.frames import PIECE_BYTES
from vfl_node.transport.generated.vfl.v1.alignment_pb2 import SetSize
from vfl_node.transport.generated.vfl.v1.session_pb2 import Beat, Cancel, Frame, Notice, Offer
from vfl_node.transport.streams import StreamPipe


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


def test_an_oversize_message_ends_only_its_own_conversation(node, lab, pipes) -> None:
    _call, hold, channel = raw_call(node, lab, bytes(PIECE_BYTES + 1))
    victim = node.pipes.get(timeout=240)
    with pytest.raises(PeerLost):
        get(victim)
    hold.set()
    channel.close()
    put(pipes[0], Frame(sequence=5))
    assert get(pipes[1]).sequence == 5


def test_a_frame_that_would_be_too_large_is_refused_by_its_first_piece(node, lab) -> None:
    frame = Frame(body=bytes(MAX_FRAME_BYTES)).SerializeToString()
    _call, hold, channel = raw_call(node, lab, frame[:PIECE_BYTES])
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
    dialling.send(Notice(offer=Offer(job_json="x" * bounds.bound(Notice).most_bytes)))
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
from vfl_node.settings.node import Tls
from vfl_node.transport.channel import run
from vfl_node.transport.credentials import load_credentials
from vfl_node.transport.dialer import Dialer
from vfl_node.transport.frames import PIECE_BYTES
from vfl_node.transport.generated.vfl.v1.session_pb2 import Frame
from vfl_node.transport.server import NodeServer

role, address, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
files = Tls(ca=folder / "ca.crt", certificate=folder / "node.crt", key=folder / "node.key")
name, peer = ("lab", "clinic") if role == "dial" else ("clinic", "lab")
common = {"own": name, "federation": "trial", "credentials": load_credentials(files, name=name, federation="trial")}
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
