"""Bounds of messages: every type has them, what is sent keeps to them, and no bytes get past them."""

from __future__ import annotations

import random
import re
from importlib import import_module
from pathlib import Path

import pytest
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from vfl_node.errors import ProtocolError
from vfl_node.transport import bounds
from vfl_node.transport.generated.vfl.v1 import decryption_pb2, prediction_pb2
from vfl_node.transport.generated.vfl.v1.alignment_pb2 import Held, Remembered, SetSize
from vfl_node.transport.generated.vfl.v1.matched_pb2 import MaskedCounts
from vfl_node.transport.generated.vfl.v1.session_pb2 import Chunk, FieldDigest, Frame, Hello, Notice, Offer, Preflight
from vfl_node.transport.generated.vfl.v1.training_pb2 import Embedding, Tensor

PROTO = Path(__file__).parents[2] / "proto"
MODULES = [import_module(f"vfl_node.transport.generated.vfl.v1.{path.stem}_pb2") for path in sorted(PROTO.rglob("*.proto"))]
KINDS = [GetMessageClass(of) for module in MODULES for of in module.DESCRIPTOR.message_types_by_name.values()]


def refused(data: bytes, kind: type[Message]) -> str:
    with pytest.raises(ProtocolError) as caught:
        bounds.check(data, kind)
    return caught.value.code


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_message_type_has_bounds(kind: type[Message]) -> None:
    own = bounds.bound(kind)
    assert 0 < own.most_bytes <= bounds.MAX_FRAME_BYTES
    assert set(own.repeated) == {field.name for field in kind.DESCRIPTOR.fields if field.is_repeated}


def test_no_bounds_are_left_of_what_there_is_no_more() -> None:
    assert set(bounds.BOUNDS) == set(KINDS)


def test_a_type_without_bounds_cannot_be_received(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(bounds.BOUNDS, Hello)
    with pytest.raises(TypeError, match=r"vfl\.v1\.Hello has no bounds"):
        bounds.bound(Hello)


def test_what_is_sent_passes() -> None:
    fields = [FieldDigest(field=f"train.{number}", sha256=bytes(32)) for number in range(100)]
    for message in (
        Frame(),
        Frame(job_id="job", attempt=2, phase="train", sequence=1 << 40, type="vfl.v1.Chunk", body=bytes(1 << 20)),
        Chunk(offset=1 << 50, rows=bytes(1 << 19)),
        Embedding(step=1 << 63, tensor=Tensor(dtype="float32", shape=[1 << 40, 1, 1 << 20], data=bytes(1 << 20))),
        Preflight(
            party="lab", protocol_version=7, fields=fields, attempt=3, checkpoints=["0-1", "0-2"], input_digest=bytes(32)
        ),
        Notice(offer=Offer(job_id="job", submitter="lab", job_json="x" * bounds.MOST_JOB_BYTES)),
        Remembered(mark=bytes(32), min_overlap=(1 << 64) - 1),
        SetSize(count=5, held=[Held(list=f"step {step}", rows=1 << 40) for step in range(20)]),
        MaskedCounts(values=[(1 << 64) - 1] * 400),
    ):
        bounds.check(message.SerializeToString(), type(message))


@pytest.mark.parametrize(
    ("kind", "element", "times"),
    [
        (Preflight, b"\x22\x00", 513),  # an empty FieldDigest takes 50 times its bytes
        (Preflight, b"\x32\x00", 65),
        (SetSize, b"\x1a\x00", 33),
        (Tensor, b"\x12\x05" + bytes(5), 2),  # packed: ten dimensions
        (Tensor, b"\x12\x09" + bytes(9), 1),
        (Tensor, b"\x12\x80\x80\x80\x10" + bytes(1 << 12), 1),  # announces 32 MiB of dimensions
        (Tensor, b"\x10\x00", 9),  # not packed, as other libraries may write them
        (Embedding, b"\x12\x00", 2),  # one message, merged from many
        (MaskedCounts, b"\x09" + bytes(8), 4097),
        (Hello, b"\x28\x00", 17),  # a field of a later version
        (Hello, bytes(1) * 0 + b"".join(bytes([0x80 | n << 3 & 0x78, 1 + n // 16, 0]) for n in range(17)), 1),  # many of them
    ],
)
def test_more_elements_than_a_field_may_have_are_refused(kind: type[Message], element: bytes, times: int) -> None:
    assert refused(element * times, kind) in ("E_SIZE", "E_PROTOCOL")


def test_a_message_that_is_too_large_is_refused_at_any_depth() -> None:
    assert refused(Hello(party="x" * 600).SerializeToString(), Hello) == "E_SIZE"
    assert refused(Notice(hello=Hello(party="x" * 600)).SerializeToString(), Notice) == "E_SIZE"
    assert refused(Preflight(fields=[FieldDigest(field="x" * 300)]).SerializeToString(), Preflight) == "E_SIZE"


def test_unknown_fields_are_stepped_over_within_limits() -> None:
    later = Hello(party="lab").SerializeToString() + b"\x2a\x03new" + b"\x30\x01" + b"\x3d" + bytes(4) + b"\x41" + bytes(8)
    bounds.check(later, Hello)
    assert Hello.FromString(later).party == "lab"


def test_groups_are_refused() -> None:
    assert refused(b"\x2b" * 100, Hello) == "E_PROTOCOL"  # nested without end


def test_only_the_outermost_message_may_be_cut_and_says_how_much_is_missing() -> None:
    whole = Frame(job_id="job", body=bytes(5000)).SerializeToString()
    assert bounds.missing(whole, Frame) == 0
    assert bounds.missing(whole[:1000], Frame) == len(whole) - 1000
    with pytest.raises(ProtocolError) as caught:
        bounds.missing(whole[:1000], Frame, 4000)
    assert caught.value.code == "E_SIZE"
    assert refused(whole[:1000], Frame) == "E_PROTOCOL"
    cut = Embedding(tensor=Tensor(data=bytes(100))).SerializeToString()
    assert refused(cut[:50], Embedding) == "E_PROTOCOL"


def test_mutated_bytes_are_refused_or_parsed_and_never_anything_else() -> None:
    """Whatever passes has no more elements than it may have; what the parser takes, and is within bounds, passes."""
    draw = random.Random(7)
    plan = [decryption_pb2.MaskedTensor(name="gradient", units=3, slots=1, slot_bits=90)] * 2
    seeds = [
        Preflight(party="lab", fields=[FieldDigest(field="a", sha256=bytes(8))] * 5, checkpoints=["x"] * 3),
        Embedding(step=7, tensor=Tensor(dtype="float32", shape=[2, 2], data=bytes(16))),
        decryption_pb2.DecryptionPlan(tensors=plan, first_step=300),
        prediction_pb2.PredictionAsk(batches=range(16)),
    ]
    for _ in range(4000):
        message = draw.choice(seeds)
        data = bytearray(message.SerializeToString())
        for _ in range(draw.randint(0, 4)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        passed, parsed = True, None
        try:
            bounds.check(bytes(data), type(message))
        except ProtocolError:
            passed = False
        try:
            parsed = type(message).FromString(bytes(data))
        except DecodeError:
            continue
        if passed:
            for name, most in bounds.bound(type(message)).repeated.items():
                assert len(getattr(parsed, name)) <= most


def test_the_documented_bounds_are_the_codes() -> None:
    text = (Path(__file__).parents[2] / "docs" / "reference" / "message-bounds.md").read_text()
    table = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", text, re.MULTILINE))
    for kind, own in bounds.BOUNDS.items():
        repeated = "".join(f"; {name}: {most}" for name, most in own.repeated.items())
        assert table.get(kind.__name__) == size(own.most_bytes) + repeated, kind.__name__


def size(count: int) -> str:
    unit, name = next((unit, name) for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B")) if count % unit == 0)
    return f"{count // unit} {name}"


if __name__ == "__main__":  # the table of docs/reference/message-bounds.md
    for kind, own in bounds.BOUNDS.items():
        print(f"| `{kind.__name__}` | {size(own.most_bytes)}{''.join(f'; {n}: {m}' for n, m in own.repeated.items())} |")
