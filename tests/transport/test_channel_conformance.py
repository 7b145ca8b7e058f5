"""One suite for every transport: what a protocol may rely on, and what it never gets to see."""

from __future__ import annotations

import contextlib
import hashlib
from typing import Any

import numpy as np
import pytest

from vfl_node.errors import DataError, Paused, PeerError, PeerLost, ProtocolError, StateError, UsageError
from vfl_node.transport import memory
from vfl_node.transport.bounds import MAX_FRAME_BYTES
from vfl_node.transport.channel import Channel
from vfl_node.transport.generated.vfl.v1.alignment_pb2 import Held, SetSize
from vfl_node.transport.generated.vfl.v1.session_pb2 import Chunk, Frame, PhaseEnd, Rows, RowsEnd
from vfl_node.transport.generated.vfl.v1.training_pb2 import Embedding, Tensor
from vfl_node.transport.recorder import Recorder


def rows_of(count: int, width: int = 32) -> np.ndarray:
    return np.frombuffer(hashlib.shake_128(b"rows").digest(count * width), dtype=np.uint8).reshape(count, width)


def frame(message: Any, **changes: Any) -> Frame:
    fields = {"job_id": "job-1", "attempt": 0, "phase": "size", "sequence": 0, "type": message.DESCRIPTOR.full_name}
    return Frame(**(fields | changes), body=message.SerializeToString())


async def put(channel: Channel, *frames: Frame) -> None:
    """What a hostile peer does: frames of its own making."""
    for one in frames:
        await channel._pipe.put(one)
    with contextlib.suppress(PeerLost):
        while True:
            await channel._pipe.get()  # stay until the other has judged


async def receive_size(channel: Channel) -> int:
    channel._phase = "size"
    return int((await channel.receive(SetSize)).count)


async def swap(channel: Channel, value: int) -> int:
    async with channel.phase("size"):
        await channel.send(SetSize(count=value))
        return int((await channel.receive(SetSize)).count)


def test_messages_arrive_in_order_and_are_counted(world) -> None:
    async def ping(channel: Channel) -> list[int]:
        async with channel.phase("ping"):
            for value in range(50):
                await channel.send(SetSize(count=value))
            return [int((await channel.receive(SetSize)).count) for _ in range(50)]

    assert world.play(ping(world.first), ping(world.second)) == [list(range(50))] * 2
    ours, theirs = world.first.traffic["ping"], world.second.traffic["ping"]
    assert ours.messages_sent == theirs.messages_received == 51  # and the phase's end
    assert ours.bytes_sent == theirs.bytes_received > 0


@pytest.mark.parametrize("count", [0, 1, 16384, 16385, 50_000])
def test_columns(world, count: int) -> None:
    async def send(channel: Channel) -> None:
        async with channel.phase("column"):
            await channel.send_rows(rows_of(count), count=count, width=32)

    async def receive(channel: Channel) -> np.ndarray:
        async with channel.phase("column"):
            return await channel.receive_rows(width=32, count=count)

    _, received = world.play(send(world.first), receive(world.second))
    assert received.shape == (count, 32)
    assert np.array_equal(received, rows_of(count))


def test_columns_from_blocks(world) -> None:
    async def send(channel: Channel) -> None:
        async with channel.phase("column"):
            await channel.send_rows((rows_of(100)[i : i + 7] for i in range(0, 100, 7)), count=100, width=32)

    async def receive(channel: Channel) -> np.ndarray:
        async with channel.phase("column"):
            return await channel.receive_rows(width=32)

    assert np.array_equal(world.play(send(world.first), receive(world.second))[1], rows_of(100))


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"sequence": 1}, "E_ORDER"),  # lost or reordered
        ({"phase": "later"}, "E_ORDER"),
        ({"type": "vfl.v1.Rows"}, "E_ORDER"),
        ({"job_id": "job-2"}, "E_REPLAY"),
        ({"attempt": 1}, "E_REPLAY"),
        ({"attempt": 4_000_000_000}, "E_REPLAY"),
    ],
)
def test_a_message_out_of_place_is_refused(world, changes, code: str) -> None:
    _, error = world.play(put(world.first, frame(SetSize(count=3), **changes)), receive_size(world.second))
    assert isinstance(error, ProtocolError)
    assert error.code == code


def test_a_repeated_message_is_refused(world) -> None:
    async def receive_two(channel: Channel) -> None:
        await receive_size(channel)
        await receive_size(channel)

    one = frame(SetSize(count=3))
    _, error = world.play(put(world.first, one, one), receive_two(world.second))
    assert error.code == "E_ORDER"


def test_a_body_that_does_not_parse_is_refused(world) -> None:
    broken = frame(SetSize(count=3))
    broken.body = b"\x08"
    _, error = world.play(put(world.first, broken), receive_size(world.second))
    assert isinstance(error, ProtocolError)


def column(*messages: Any) -> list[Frame]:
    return [frame(message, sequence=index) for index, message in enumerate(messages)]


def test_a_message_larger_than_its_type_may_be_is_refused(world) -> None:
    bloated = frame(SetSize(count=5, held=[Held()] * 33))
    error = world.play(put(world.first, bloated), receive_size(world.second))[1]
    assert isinstance(error, ProtocolError)
    assert error.code == "E_SIZE"


def test_a_column_goes_on_where_an_earlier_attempt_stopped(world) -> None:
    rows = rows_of(100)

    async def send(channel: Channel) -> None:
        async with channel.phase("rows"):
            await channel.send_rows((rows[i : i + 7] for i in range(0, 100, 7)), count=100, width=32, start=40)

    async def receive(channel: Channel) -> Any:
        async with channel.phase("rows"):
            held = hashlib.sha256(rows[:40].tobytes())
            return [chunk async for chunk in channel.receive_chunks(width=32, count=100, start=40, digest=held)]

    arrived = world.play(send(world.first), receive(world.second))[1]
    assert np.array_equal(np.concatenate(arrived), rows[40:])


@pytest.mark.parametrize("start", [0, 40, 100])
@pytest.mark.parametrize("held", [(40, 0), (39, 0), (40, 1), (100, 1)])
def test_a_column_that_begins_otherwise_than_what_is_held_is_refused(world, start: int, held: tuple[int, int]) -> None:
    rows = rows_of(101)
    count, first = held

    async def send(channel: Channel) -> None:
        channel._phase = "size"
        await channel.send_rows(rows[:100], count=100, width=32, start=start)

    async def receive(channel: Channel) -> None:
        channel._phase = "size"
        digest = hashlib.sha256(rows[first : first + count].tobytes())
        async for _ in channel.receive_chunks(width=32, count=100, start=count, digest=digest):
            pass

    error = world.play(send(world.first), receive(world.second))[1]
    if (start, held) == (40, (40, 0)):
        assert error is None
    else:
        assert (type(error), error.code) == (StateError, "E_REPLAY")


GOOD = rows_of(4).tobytes()
END = RowsEnd(count=4, sha256=hashlib.sha256(GOOD).digest())


@pytest.mark.parametrize(
    ("messages", "code"),
    [
        ([Rows(count=4, width=33)], "E_COUNT"),
        ([Rows(count=5, width=32)], "E_COUNT"),
        ([Rows(count=1 << 60, width=32)], "E_COUNT"),
        ([Rows(count=4, width=32), Chunk(offset=1, rows=GOOD)], "E_CHUNK"),
        ([Rows(count=4, width=32), Chunk(offset=0, rows=GOOD + GOOD)], "E_CHUNK"),
        ([Rows(count=4, width=32), Chunk(offset=0, rows=GOOD[:-1])], "E_CHUNK"),
        ([Rows(count=4, width=32), Chunk(offset=0, rows=b"")], "E_CHUNK"),
        ([Rows(count=4, width=32), Chunk(offset=0, rows=GOOD[:64]), END], "E_ORDER"),  # truncated
        ([Rows(count=4, width=32), Chunk(offset=0, rows=GOOD[:-1] + b"?"), END], "E_TRUNCATED"),  # corrupted
        ([Rows(count=4, width=32), Chunk(offset=0, rows=GOOD), RowsEnd(count=3, sha256=END.sha256)], "E_TRUNCATED"),
    ],
)
def test_a_column_that_is_not_what_it_claims_is_refused(world, messages, code: str) -> None:
    async def receive(channel: Channel) -> np.ndarray:
        channel._phase = "size"
        return await channel.receive_rows(width=32, count=4)

    _, error = world.play(put(world.first, *column(*messages)), receive(world.second))
    assert isinstance(error, ProtocolError)
    assert error.code == code


def test_an_end_of_stream_is_never_an_end_of_phase(world) -> None:
    async def leave(channel: Channel) -> None:
        channel._phase = "size"
        await channel.send(SetSize(count=3))

    _, error = world.play(leave(world.first), swap(world.second, 4))
    assert isinstance(error, PeerLost)


def test_a_phase_ends_only_with_the_right_record(world) -> None:
    frames = column(SetSize(count=3), PhaseEnd(messages=1, sha256=b"\0" * 32))
    _, error = world.play(put(world.first, *frames), swap(world.second, 4))
    assert error.code == "E_TRUNCATED"


@pytest.mark.parametrize("resumable", [True, False])
def test_an_abort_tells_the_peer_what_it_may_know(world, resumable: bool) -> None:
    async def stop(channel: Channel) -> None:
        error = Paused("x", for_peer="it pauses") if resumable else DataError("/secret/file.csv: canary")
        await channel.abort(error, resumable=resumable)

    _, error = world.play(stop(world.first), swap(world.second, 4))
    assert isinstance(error, PeerError)
    assert isinstance(error, PeerLost) is resumable
    assert ("it pauses (E_PAUSED)" if resumable else "(E_DATA)") in error.message
    assert "canary" not in str(error)


@pytest.mark.parametrize(("code", "kept"), [("E_VERSION",) * 2, ("E_CANCELLED",) * 2, ("E_TOO_FEW", "E_PEER")])
def test_an_abort_that_means_the_same_for_all_parties_keeps_its_code(world, code: str, kept: str) -> None:
    """A third party goes on as well once two have the same version again."""
    _, error = world.play(world.first.abort(PeerError("it is another", code=code)), swap(world.second, 4))
    assert (type(error), error.code) == (PeerError, kept)


def test_the_reason_of_a_peer_that_left_reaches_one_that_only_sends(world) -> None:
    async def stop(channel: Channel) -> None:
        channel._phase = "size"
        await channel.receive(SetSize)
        await channel.abort(DataError("canary"))

    async def flood(channel: Channel) -> None:
        channel._phase = "size"
        await channel.send(SetSize(count=0))
        if world.name == "memory":
            await memory.suspend()
        while True:
            await channel.send(SetSize(count=0))

    _, error = world.play(stop(world.first), flood(world.second))
    assert isinstance(error, PeerError)
    assert "its data cannot be used for this job (E_DATA)" in error.message


def test_a_message_larger_than_allowed_is_not_sent(world) -> None:
    async def send(channel: Channel) -> None:
        await channel.send(Embedding(tensor=Tensor(data=bytes(MAX_FRAME_BYTES))))

    error, other = world.play(send(world.first), swap(world.second, 4))
    assert isinstance(error, UsageError)
    assert error.code == "E_SIZE"
    assert isinstance(other, PeerLost)


def test_the_largest_message_arrives(world) -> None:
    size = MAX_FRAME_BYTES - 200

    async def send(channel: Channel) -> None:
        async with channel.phase("size"):
            await channel.send(Embedding(tensor=Tensor(data=bytes(size))))

    async def receive(channel: Channel) -> int:
        async with channel.phase("size"):
            return len((await channel.receive(Embedding)).tensor.data)

    assert world.play(send(world.first), receive(world.second))[1] == size


def test_the_same_bytes_travel_over_every_transport(world) -> None:
    """Against fixed digests of the reference conversation, so that the worlds agree with each other and over time."""

    async def talk(channel: Channel, mine: int) -> None:
        async with channel.phase("size"):
            await channel.send(SetSize(count=mine))
            theirs = int((await channel.receive(SetSize)).count)
        async with channel.phase("column"):
            await channel.send_rows(rows_of(mine), count=mine, width=32)
            await channel.receive_rows(width=32, count=theirs)

    recorder = Recorder()
    first, second = (recorder.wrap(name, end) for name, end in (("first", world.first), ("second", world.second)))
    assert world.play(talk(first, 3), talk(second, 20_000)) == [None, None]
    digests = []
    for name in ("first", "second"):
        frames = [entry.frame.SerializeToString() for entry in recorder.entries if entry.sender == name]
        digests.append(hashlib.sha256(b"".join(frames)).hexdigest()[:16])
    assert digests == ["9fc23248f1f8c01b", "2b5fd068175361ee"]
