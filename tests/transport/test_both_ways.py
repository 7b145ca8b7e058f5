"""Sending and receiving at the same time: no party waits for the other one to read, and an error ends both ways."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from vfl_node.errors import Cancelled, DataError, PeerError, PeerLost, ProtocolError
from vfl_node.transport.channel import Channel, run
from vfl_node.transport.generated.vfl.v1.alignment_pb2 import SetSize
from vfl_node.transport.generated.vfl.v1.session_pb2 import Abort, Beat, Chunk
from vfl_node.transport.memory import memory_channels, run_together, suspend
from vfl_node.transport.recorder import Recorder
from vfl_node.transport.streams import StreamPipe

CHUNK = bytes(1 << 19)
MANY = 40
"""So many chunks fill each queue on the way more than once, once it has room for one."""


def narrow(*channels: Channel) -> None:
    """Give each queue of a stream room for one message."""
    for channel in channels:
        if isinstance(channel._pipe, StreamPipe):
            channel._pipe._outgoing._limit_bytes = channel._pipe._inbox._limit_bytes = 1


async def send(channel: Channel, count: int = MANY, first: int = 0) -> None:
    for number in range(first, first + count):
        await channel.send(Chunk(offset=number, rows=CHUNK))


async def receive(channel: Channel, count: int = MANY) -> list[int]:
    return [(await channel.receive(Chunk)).offset for _ in range(count)]


async def exchange(channel: Channel, ours: int = MANY, theirs: int = MANY) -> list[int]:
    async with channel.phase("align"):
        return await channel.duplex(send(channel, ours), receive(channel, theirs))


@pytest.mark.parametrize(("ours", "theirs"), [(MANY, MANY), (MANY, 3), (0, MANY), (0, 0)])
def test_both_send_more_than_the_way_holds(world: Any, ours: int, theirs: int) -> None:
    """Each way is counted and digested as ever: the phase ends."""
    narrow(world.first, world.second)
    got = world.play(exchange(world.first, ours, theirs), exchange(world.second, theirs, ours))
    assert got == [list(range(theirs)), list(range(ours))]
    traffic = world.first.traffic["align"]
    assert (traffic.messages_sent, traffic.messages_received) == (ours + 1, theirs + 1)


def test_who_sends_first_and_then_receives_waits_for_ever(pipes: tuple[StreamPipe, StreamPipe]) -> None:
    """The control."""
    channels = [Channel(pipe, peer="x", job_id="job-1") for pipe in pipes]
    narrow(*channels)
    ended: list[Any] = []

    def play(channel: Channel) -> None:
        async def in_order() -> None:
            await send(channel, 400)  # 200 MB: gRPC itself takes some
            await receive(channel, 400)

        try:
            run(in_order())
        except Cancelled as error:
            ended.append(error)

    threads = [threading.Thread(target=play, args=(channel,), daemon=True) for channel in channels]
    for thread in threads:
        thread.start()
    for pipe in pipes:
        assert wait_for(lambda pipe=pipe: not pipe.can_put(Beat()) and not pipe._inbox.has_room((CHUNK,)))
    assert all(thread.is_alive() for thread in threads)
    for pipe in pipes:
        pipe.cancel(Cancelled("the test is over"))
    for thread in threads:
        thread.join(240)
    assert len(ended) == 2


def wait_for(condition: Any) -> bool:
    limit = time.monotonic() + 240
    while not condition() and time.monotonic() < limit:
        time.sleep(0.01)
    return bool(condition())


class Half:
    """A half that never ends by itself, and says whether it was closed."""

    def __init__(self) -> None:
        self.closed = False

    async def goes_on(self, step: Any) -> None:
        try:
            while True:
                await step()
        finally:
            self.closed = True


def test_an_error_of_one_half_ends_the_other(world: Any) -> None:
    half = Half()

    async def fail(channel: Channel) -> None:
        await send(channel, 1)
        raise DataError("a full disk")

    async def sends_badly(channel: Channel) -> None:
        await channel.duplex(fail(channel), half.goes_on(lambda: channel.receive(Chunk)))

    async def peer(channel: Channel) -> None:
        await channel.duplex(send(channel), receive(channel))

    error, of_peer = world.play(sends_badly(world.first), peer(world.second))
    assert isinstance(error, DataError)
    assert isinstance(of_peer, PeerLost)
    assert half.closed


def test_a_message_out_of_place_ends_what_is_sent(world: Any) -> None:
    half = Half()

    async def judge(channel: Channel) -> None:
        await channel.duplex(half.goes_on(lambda: channel.send(Beat())), receive(channel))

    async def peer(channel: Channel) -> None:
        await channel.send(SetSize(count=1))
        await receive(channel)

    error, _ = world.play(judge(world.first), peer(world.second))
    assert isinstance(error, ProtocolError)
    assert error.code == "E_ORDER"
    assert half.closed


@pytest.mark.parametrize("says_why", [True, False])
def test_who_loses_the_peer_takes_what_arrived_and_hears_why(world: Any, says_why: bool) -> None:
    """Otherwise a chunk that has come would be asked for again, and the peer's reason be lost."""
    taken: list[int] = []

    async def peer(channel: Channel) -> None:
        await send(channel, 3)
        if says_why:
            await channel.abort(DataError("canary"), resumable=True)

    async def victim(channel: Channel) -> None:
        async def take() -> None:
            for _ in range(MANY):
                taken.append((await channel.receive(Chunk)).offset)  # noqa: PERF401 - as far as it gets

        if world.name == "memory":
            await suspend()  # until the peer has gone
        else:
            assert wait_for(lambda: channel._pipe.ended)  # type: ignore[attr-defined]
        await channel.duplex(send(channel), take())

    error = world.play(victim(world.first), peer(world.second))[0]
    assert type(error) is PeerLost
    assert ("E_DATA" in error.message) is says_why
    assert taken == [0, 1, 2]


def test_a_peer_that_stops_after_its_last_word_is_heard_though_all_was_received(world: Any) -> None:
    async def peer(channel: Channel) -> None:
        await send(channel, 1)
        await channel.abort(DataError("canary"))

    async def victim(channel: Channel) -> None:
        await channel.duplex(send(channel, 10_000), receive(channel, 1))

    narrow(world.first, world.second)
    error = world.play(victim(world.first), peer(world.second))[0]
    assert isinstance(error, PeerError)
    assert error.message.count("E_DATA") == 1


def test_a_cancellation_wakes_who_waits_both_ways() -> None:
    """Also a stall: the owner of the stream sees since when it waits for the peer."""
    pipe = StreamPipe("lab")
    channel, half = Channel(pipe, peer="lab", job_id="job-1"), Half()
    narrow(channel)
    errors: list[Exception] = []

    def play() -> None:
        try:
            run(channel.duplex(send(channel), half.goes_on(lambda: channel.receive(Chunk))))
        except Cancelled as error:
            errors.append(error)

    thread = threading.Thread(target=play, daemon=True)
    thread.start()
    assert wait_for(lambda: pipe.waiting_since is not None and not pipe.can_put(Beat()))
    assert thread.is_alive()
    pipe.cancel(Cancelled("the owner's wish"))
    thread.join(240)
    assert [error.message for error in errors] == ["the owner's wish"]
    assert half.closed
    run(channel.abort(errors[0]))  # type: ignore[arg-type]
    assert Abort.DESCRIPTOR.full_name.encode() in next(pipe.outgoing())


def test_in_memory_the_same_messages_pass_in_the_same_order_every_time() -> None:
    def order() -> list[tuple[str, int]]:
        recorder = Recorder()
        ends = map(recorder.wrap, ("clinic", "lab"), memory_channels("clinic", "lab"))
        clinic, lab = ends
        assert run_together((exchange(clinic), clinic), (exchange(lab), lab)) == [list(range(MANY))] * 2
        return [(entry.sender, entry.frame.sequence) for entry in recorder.entries]

    first = order()
    assert first == order()
    assert first[:6] == [("clinic", 0), ("lab", 0), ("clinic", 1), ("lab", 1), ("clinic", 2), ("lab", 2)]


def test_a_deadlock_is_still_noticed_in_memory() -> None:
    clinic, lab = memory_channels("clinic", "lab")
    with pytest.raises(RuntimeError, match="every party waits"):
        run_together((exchange(clinic, 2, 3), clinic), (exchange(lab, 2, 3), lab))


def test_while_the_other_half_computes_nobody_waits_for_the_peer() -> None:
    clinic, lab = memory_channels("clinic", "lab")
    now = 0

    def clock() -> int:
        return now

    clinic.trace.clock = clock

    async def compute() -> None:
        nonlocal now
        for _ in range(5):
            now += 1000
            await clinic.send(Beat())

    async def idle() -> None:
        nonlocal now
        for _ in range(3):
            now += 10  # while clinic waits
            await lab.send(Beat())
        for _ in range(5):
            await lab.receive(Beat)

    async def take() -> None:
        for _ in range(3):
            await clinic.receive(Beat)

    assert run_together((clinic.duplex(compute(), take()), clinic), (idle(), lab)) == [None, None]
    assert now == 5030
    assert clinic.trace.waited <= 30
