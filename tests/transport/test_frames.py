"""Long messages travel as the same bytes as short ones, whichever way they were put together, and are checked as much."""

from __future__ import annotations

from copy import copy, deepcopy
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
import torch
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from vfl_node.errors import ProtocolError
from vfl_node.training.messages import decode_tensor, receive_tensor, send_tensor
from vfl_node.transport import codec, frames
from vfl_node.transport.channel import Channel
from vfl_node.transport.fields import append_head, last_field
from vfl_node.transport.frames import LONG_BYTES, PIECE_BYTES, LongFrame, body_pieces, cut, make_frame, parse_frame, pieces_of
from vfl_node.transport.generated.vfl.v1.session_pb2 import Frame
from vfl_node.transport.generated.vfl.v1.training_pb2 import Embedding, Gradient
from vfl_node.transport.memory import memory_channels, run_together
from vfl_node.transport.recorder import Recorder

HEAD = {"job_id": "job", "attempt": 3, "phase": "train", "sequence": 300, "type": "vfl.v1.Embedding"}
SHORT, LONG, OF_PIECES = (64, 16), (256, 128), (1023, 513)


def values(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.arange(torch.Size(shape).numel()).reshape(shape).to(dtype)


@pytest.mark.parametrize("size", [0, 1, LONG_BYTES - 1, LONG_BYTES, LONG_BYTES + 127, 1 << 21])
def test_a_frame_in_parts_is_the_same_frame(size: int) -> None:
    body = bytes(range(256)) * (size // 256) + bytes(size % 256)
    whole = Frame(**HEAD, body=body)
    made = make_frame(Frame(**HEAD), body[:10], memoryview(body)[10:])
    assert made.SerializeToString() == whole.SerializeToString()
    assert made.ByteSize() == whole.ByteSize()
    assert pieces_of(made) == pieces_of(whole)
    again = parse_frame(pieces_of(whole))
    assert isinstance(made, LongFrame) == (size >= LONG_BYTES)
    assert isinstance(again, LongFrame) == (len(whole.SerializeToString()) >= LONG_BYTES)
    for frame in (made, again, copy(made), deepcopy(again)):
        assert bytes(frame.body) == body
        assert {name: getattr(frame, name) for name in HEAD} == HEAD


@pytest.mark.parametrize("shape", [SHORT, LONG, OF_PIECES, (0, 8)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64])
def test_a_tensor_sent_apart_is_the_same_message(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    tensor = values(shape, dtype).T.contiguous().T  # as a view
    expected = Embedding(step=7)
    codec.encode(tensor, expected.tensor)
    first, second = memory_channels("a", "b")

    async def sends(channel: Channel) -> None:
        async with channel.phase("train"):
            await send_tensor(channel, Embedding(step=7), tensor)
            await channel.send(expected)

    async def receives(channel: Channel) -> list[Any]:
        async with channel.phase("train"):  # whose end compares digests
            whole = await channel.receive(Embedding)
            message, part = await receive_tensor(channel, Embedding)
            return [whole, message.step, decode_tensor(channel, part, shape, dtype=dtype)]

    nothing, found = run_together((sends(first), first), (receives(second), second))
    assert nothing is None
    whole, step, arrived = found
    assert whole == expected
    assert step == 7
    assert torch.equal(arrived, tensor)
    arrived += 1  # it is writable, and the party's own
    assert first.traffic["train"].bytes_sent == second.traffic["train"].bytes_received


def read(body: bytes, shape: tuple[int, ...] = LONG) -> Any:
    """What a party makes of a gradient in a peer's frame."""
    first, second = memory_channels("a", "b")

    async def sends(channel: Channel) -> None:
        await channel._send(Gradient.DESCRIPTOR.full_name, body)

    async def receives(channel: Channel) -> tuple[int, Tensor]:
        message, part = await receive_tensor(channel, Gradient)
        return message.step, decode_tensor(channel, part, shape)

    return run_together((sends(first), first), (receives(second), second))[1]


@pytest.mark.parametrize("lengths", [(), (0,), (1,), (8, 0), (9,), (3, 17, 4), (16, 16), (5, 3, 8, 1)])
def test_parts_are_cut_into_pieces_of_one_size(monkeypatch: pytest.MonkeyPatch, lengths: tuple[int, ...]) -> None:
    monkeypatch.setattr(frames, "PIECE_BYTES", 8)
    whole = bytes(range(sum(lengths)))
    ends = list(accumulate(lengths))
    pieces = cut(*(memoryview(whole)[end - length : end] for length, end in zip(lengths, ends, strict=True)))
    assert pieces == tuple(whole[at : at + 8] for at in range(0, len(whole), 8)) or pieces == (whole,) == (b"",)


def test_what_its_reader_makes_of_a_tensor_changes_no_digest() -> None:
    """The tensor is used where it arrived; the digest of the phase is of what arrived."""
    first, second = memory_channels("a", "b")

    async def sends(channel: Channel) -> None:
        async with channel.phase("train"):
            await send_tensor(channel, Embedding(step=1), tensor)
            tensor.zero_()

    async def receives(channel: Channel) -> tuple[bool, Tensor]:
        async with channel.phase("train"):
            part = (await receive_tensor(channel, Embedding))[1]
            arrived = decode_tensor(channel, part, OF_PIECES)
            in_place = np.shares_memory(arrived.numpy(), np.frombuffer(part.data, np.uint8))
            arrived += 1
        return in_place, arrived

    tensor = values(OF_PIECES)
    nothing, (in_place, arrived) = run_together((sends(first), first), (receives(second), second))
    assert nothing is None
    assert in_place
    assert torch.equal(arrived, values(OF_PIECES) + 1)


@pytest.mark.parametrize("size", range(PIECE_BYTES - 3, PIECE_BYTES + 200, 29))
def test_numbers_at_the_end_of_a_body_of_pieces_are_aligned(size: int) -> None:
    frame = make_frame(Frame(job_id="j" * (size % 7)), bytes(size))
    body = np.frombuffer(frame.body, np.uint8)
    assert len(frame.pieces) == 2
    assert (body.ctypes.data + size) % 64 == 0
    assert body.flags.writeable


def test_numbers_that_are_not_aligned_or_not_writable_are_copied() -> None:
    tensor = values(SHORT)
    data = bytearray(tensor.numpy().tobytes() + bytes(8))
    for begin in range(8):
        data[begin : begin + tensor.nbytes] = tensor.numpy().tobytes()
        part = memoryview(data)[begin : begin + tensor.nbytes]
        for view in (part, part.toreadonly()):
            found = codec.decode(codec.Described("float32", SHORT, view), dtype=torch.float32, shape=SHORT)
            assert torch.equal(found, tensor)
            assert found.data_ptr() % 4 == 0
            shared = np.shares_memory(found.numpy(), np.frombuffer(data, np.uint8))
            assert shared == (not view.readonly and np.frombuffer(part, np.float32).flags.aligned)


@pytest.mark.parametrize("shape", [LONG, OF_PIECES])
def test_fields_may_come_in_another_order(shape: tuple[int, ...]) -> None:
    tensor = codec.encode(values(shape))
    part = tensor.SerializeToString()
    begin = last_field(part, 3)
    assert begin
    turned = part[begin[0] :] + part[: begin[0]]  # data, then dtype and shape
    for inner in (part, turned):
        field = append_head(Gradient(), 2, len(inner)) + inner
        for body in (append_head(Gradient(step=5), 2, len(inner)) + inner, field + Gradient(step=5).SerializeToString()):
            step, found = read(body, shape)
            assert step == 5
            assert torch.equal(found, values(shape))


def test_what_is_wrong_in_a_long_message_is_refused() -> None:
    tensor = codec.encode(values(LONG))
    good = Gradient(step=1, tensor=tensor).SerializeToString()
    assert read(good)[0] == 1
    cases = {
        "E_SHAPE": (Gradient(tensor=codec.encode(values((128, 256)))).SerializeToString(), LONG),
        "E_SIZE": (good + good, LONG),
        "E_NAN": (Gradient(tensor=codec.encode(values(LONG) * float("inf"))).SerializeToString(), LONG),
    }
    for code, (body, shape) in cases.items():
        error = read(body, shape)
        assert isinstance(error, ProtocolError)
        assert error.code == code
    assert read(b"\x08\x00" * (1 << 20)).code == "E_SIZE"  # a million fields: refused at the second one
    several = tensor.SerializeToString() + append_head(type(tensor)(), 3, LONG_BYTES) + bytes(LONG_BYTES)  # two times data
    assert read(append_head(Gradient(), 2, len(several)) + several).code == "E_SIZE"
    badly = b"\x0a\x02\xff\xfe" + tensor.SerializeToString()[9:]  # a dtype that is no text
    for body in (good[:-1], good + b"\x12", b"\x12" + good, append_head(Gradient(), 2, len(badly)) + badly):
        assert isinstance(read(body), ProtocolError)


def test_a_recorder_may_change_a_long_message() -> None:
    first, second = memory_channels("a", "b")

    def edit(sender: str, receiver: str, message: Any) -> None:
        message.step += 1

    recorder = Recorder(edit)

    async def receives(channel: Channel) -> int:
        return int((await receive_tensor(channel, Embedding))[0].step)

    sends = send_tensor(recorder.wrap("a", first), Embedding(step=1), values(LONG))
    assert run_together((sends, first), (receives(second), second))[1] == 2
    (message,) = recorder.messages(Embedding)
    assert message.step == 2
    assert recorder.entries[0].message == message


def overlong(more: int) -> bytes:
    """The tag of a frame's body, in some bytes more than it needs."""
    (tag,) = Frame(body=b"x").SerializeToString()[:1]
    return bytes([tag | 0x80, *[0x80] * (more - 1), 0])


FIELDS = st.one_of(
    st.builds(lambda body: Frame(body=body).SerializeToString(), st.binary(max_size=80)),
    st.builds(lambda job_id: Frame(job_id=job_id).SerializeToString(), st.text(max_size=20)),
    st.builds(lambda number: Frame(sequence=number).SerializeToString(), st.integers(0, 1 << 40)),
    st.binary(min_size=1, max_size=60).map(lambda unknown: b"\x7a" + bytes([len(unknown)]) + unknown),  # of a later version
    st.sampled_from([b"\x7d\1\2\3\4", b"\x79" + bytes(8), b"\x78\x85\x02"]),
    st.builds(
        lambda more, body: overlong(more) + Frame(body=body).SerializeToString()[1:], st.integers(1, 9), st.binary(min_size=20)
    ),
)


@given(fields=st.lists(FIELDS, max_size=6), lost=st.integers(0, 3))
def test_a_frame_in_pieces_is_read_as_protobuf_reads_it(fields: list[bytes], lost: int) -> None:
    """Fields in any order and more than once, some of a later version, with the end or without; pieces of 16 bytes."""
    data = b"".join(fields)
    data = data[: len(data) - lost]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frames, "LONG_BYTES", 24)
        patch.setattr(frames, "PIECE_BYTES", 16)
        pieces = cut(data)
        try:
            expected = Frame.FromString(data)
        except DecodeError:
            with pytest.raises(DecodeError):
                parse_frame(pieces)
            return
        frame = parse_frame(pieces)
        assert bytes(frame.body) == b"".join(body_pieces(frame)) == expected.body
        assert {name: getattr(frame, name) for name in HEAD} == {name: getattr(expected, name) for name in HEAD}
        assert b"".join(pieces_of(frame)) == data or not isinstance(frame, LongFrame)
        assert frame.ByteSize() == len(data)  # as received, however it was written
