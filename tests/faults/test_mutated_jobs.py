"""What a peer sends is changed on its way: a hundred whole jobs, and every message by itself. All of it: ``make faults``."""

from __future__ import annotations

import random
from pathlib import Path

import mutated_jobs
import numpy as np
import pytest
import torch
from mutated_jobs import TYPES, Change, Mutated

from vfl_node.crypto.groups import Curve25519
from vfl_node.crypto.paillier.keys import PublicKey, check, verify
from vfl_node.errors import VflError
from vfl_node.execution import run
from vfl_node.job import parse_job
from vfl_node.training.glm import coordinator
from vfl_node.transport import codec
from vfl_node.transport.generated.vfl.v1 import session_pb2, training_pb2
from vfl_node.transport.memory import memory_channels, run_together

SEED = 1
JOBS = 50


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((coordinator, "keys"), (run, "Processes")):
        monkeypatch.setattr(module, name, getattr(module, name))


def test_whole_jobs_end_by_themselves(tmp_path: Path) -> None:
    """Seeded; another seed each time under `make faults`, which prints it."""
    mutated_jobs.quick()
    found = Mutated(tmp_path, SEED).many(JOBS)
    assert sum(found.values()) == JOBS
    assert len(found) > 5  # the changes are noticed in more than a few ways
    assert found["R"] < JOBS / 2


def test_the_oracle_sees_what_must_not_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A positive control: a decoder that lets an exception through."""
    mutated_jobs.quick()
    monkeypatch.setattr(codec, "decode", lambda *_, **__: [][0])
    jobs = Mutated(tmp_path, SEED)
    monkeypatch.setattr(mutated_jobs, "WEIGHTS", [float(kind == "split") for kind in mutated_jobs.KINDS])
    with pytest.raises(AssertionError, match="IndexError"):
        jobs.many(20)


@pytest.mark.parametrize("name", sorted(TYPES))
def test_every_message_is_read_or_refused(name: str) -> None:
    chance = random.Random(f"{SEED} {name}")
    for how in ("random", "flipped", "truncated", "oversize", "extreme"):
        for _ in range(20):
            frame = session_pb2.Frame(job_id="job", phase="preflight", type=name)
            frame.body = Change("extreme", 0, chance).apply(frame)[0].body
            (mutated,) = Change(how, 0, chance).apply(frame)
            _, receiver = memory_channels("clinic", "lab", job_id="job")
            receiver._pipe.inbox.append(mutated)  # type: ignore[attr-defined]
            (result,) = run_together((receiver.receive(TYPES[name]), receiver))
            assert isinstance(result, TYPES[name] | VflError), (how, result)


def test_every_decoder_gives_a_value_or_an_error_with_a_code() -> None:
    chance = random.Random(SEED)

    def tensor(data: bytes) -> object:
        return codec.decode(training_pb2.Tensor.FromString(data), dtype=torch.float32, shape=(2, 3))

    def key(data: bytes) -> object:
        public = PublicKey.from_bytes(data)
        check(public, 2048)
        return verify(public, data, b"job")

    def points(data: bytes) -> object:
        return Curve25519().decode(np.frombuffer(data.ljust(64, b"\1")[:64], np.uint8).reshape(2, 32))

    def job(data: bytes) -> object:
        return parse_job(data.decode("latin-1"), source="test")

    whole = codec.encode(torch.ones(2, 3)).SerializeToString()
    refused = 0
    for decoder, good in (
        (tensor, whole),
        (key, bytes(256)),
        (points, bytes(64)),
        (job, b"name: x\nparties: {active: a, passive: b}"),
    ):
        for _ in range(300):
            data = bytearray(good)
            for _ in range(chance.randrange(1, 4)):
                data[chance.randrange(len(data))] = chance.randrange(256)
            if chance.random() < 0.3:
                del data[chance.randrange(len(data)) :]
            try:
                decoder(bytes(data))
            except VflError as error:
                refused += error.code != "E_INTERNAL"
            except Exception as error:
                if "DecodeError" not in type(error).__name__:  # protobuf's own, which the channel turns into one of ours
                    raise
    assert refused > 300
