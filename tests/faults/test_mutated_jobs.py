"""What a peer sends is changed on its way: a hundred whole jobs, and every message by itself. All of it: ``make faults``."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import kinds
import mutated_jobs
import mutations
import numpy as np
import pytest
import torch
from mutated_jobs import Mutated
from mutations import ON_ITS_WAY, TYPES, Change, Speaker
from players import Players

from tests.thorough import every, examples
from vfl_node.crypto.groups import Curve25519
from vfl_node.crypto.paillier.keys import PublicKey, check, verify
from vfl_node.errors import VflError
from vfl_node.execution import run
from vfl_node.job import parse_job
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.job.unaligned import METHODS
from vfl_node.training.glm import coordinator
from vfl_node.transport import codec
from vfl_node.transport.channel import Channel
from vfl_node.transport.generated.vfl.v1 import session_pb2, training_pb2
from vfl_node.transport.memory import memory_channels, run_together

ROOT = Path(__file__).parents[2]
SEED = 1
JOBS = examples(50, fewer=12)


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((coordinator, "keys"), (run, "Processes")):
        monkeypatch.setattr(module, name, getattr(module, name))


def only(monkeypatch: pytest.MonkeyPatch, *drawn: str) -> None:
    """Draw these kinds of jobs alone."""
    monkeypatch.setattr(kinds, "WEIGHTS", [float(kind in drawn) for kind in kinds.ALL])


def test_whole_jobs_end_by_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeded; another seed each time under `make faults`, which prints it, and draws every kind."""
    mutated_jobs.quick()
    only(
        monkeypatch,
        "psu",
        "psi",
        "apsi",
        "psi-pairs, several",
        "linkage",
        "split",
        "told",
        "hidden",
        "hidden, no coordinator",
        "service",
        "new records",
    )
    found = Mutated(tmp_path, SEED).many(JOBS)
    assert sum(found.values()) == JOBS
    assert len(found) > 5  # the changes are noticed in more than a few ways
    assert found["R"] < JOBS / 2


def test_the_oracle_sees_what_must_not_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A positive control: a decoder that lets an exception through."""
    mutated_jobs.quick()
    monkeypatch.setattr(codec, "decode", lambda *_, **__: [][0])
    jobs = Mutated(tmp_path, SEED)
    only(monkeypatch, "split")
    with pytest.raises(AssertionError, match="IndexError"):
        jobs.many(20)


def test_the_oracle_sees_another_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A positive control: phases end without digests of what was said in them."""
    mutated_jobs.quick()
    monkeypatch.setattr(Channel, "_send", Channel._put)
    monkeypatch.setattr(Channel, "_hash_received", lambda _: None)
    monkeypatch.setattr(mutated_jobs, "HOWS", ("flipped",))
    jobs = Mutated(tmp_path, SEED)
    only(monkeypatch, "split")
    with pytest.raises(AssertionError, match=r"ended well, with another .*model\.safetensors of (clinic|lab)"):
        jobs.many(40)


@pytest.mark.parametrize("how", every(3, list(ON_ITS_WAY)))
def test_what_a_party_says_as_it_fails_is_changed(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others end with an error, too: that of the party, or that what they heard is none of it."""
    mutated_jobs.quick()
    monkeypatch.setattr(mutations, "ON_ITS_WAY", (how,))
    jobs = Players(tmp_path)
    for at in every(3, range(4, 16)):
        failed, other = jobs.play("psu", Change("stopped", at, random.Random(at)), ("lab", "clinic")).ends[::-1]
        assert isinstance(failed, VflError)
        assert failed.code == "E_STOPPED"
        assert isinstance(other, VflError)
        assert other.code != "E_INTERNAL"


@pytest.mark.slow
def test_every_message_of_a_conversation_is_changed_in_some_kind_of_job(tmp_path: Path) -> None:
    """By its sender, before digests are made; and every kind of job goes well where nothing is changed."""
    mutated_jobs.quick()
    jobs, recorded = Mutated(tmp_path, SEED), json.loads((ROOT / "proto/recorded.json").read_text())
    travel = {message for seen in recorded.values() for phase, message, *_ in seen if phase not in ("link", "pair")}
    travel -= {"ProbeMessage", "KeptAlignments", "Reused"}  # of no job; and of jobs that go by an earlier one
    said = {name.rpartition(".")[2] for kind in kinds.ALL for types in jobs.unchanged(kind).said.values() for name in types}
    assert travel - {"Frame", "Abort"} == said  # the envelope is changed on its way, and what ends a job where one stops
    assert {f"unaligned, {name}" for name in METHODS.own} - {"unaligned, none"} <= set(kinds.KINDS)
    assert set(ALIGNMENTS.own) <= {kinds.job_of(kind).align.protocol for kind in kinds.ALL}


def test_what_a_sender_means_is_what_its_digests_are_made_of() -> None:
    """A column of elements whose sender changes one, and a phase around it, end well at a receiver that cannot know."""

    async def say(channel: Channel) -> None:
        async with channel.phase("align"):
            await channel.send_rows(np.arange(64, dtype=np.uint8).reshape(8, 8), count=8, width=8)

    async def hear(channel: Channel) -> Any:
        async with channel.phase("align"):
            return await channel.receive_rows(width=8)

    heard = set()
    for seed in range(40):
        sender, receiver = memory_channels("clinic", "lab", job_id="job")
        Speaker(sender, Change("meant", 1, random.Random(seed)))
        _, result = run_together((say(sender), sender), (hear(receiver), receiver))
        assert isinstance(result, np.ndarray | VflError)
        heard.add(result.tobytes() if isinstance(result, np.ndarray) else result.code)
    assert sum(isinstance(of, bytes) and len(of) == 64 for of in heard) > 3
    assert "E_TRUNCATED" not in heard


@pytest.mark.parametrize("name", sorted(TYPES))
def test_every_message_is_read_or_refused(name: str) -> None:
    chance = random.Random(f"{SEED} {name}")
    for how in ("random", "flipped", "truncated", "oversize", "extreme"):
        for _ in range(examples(20, fewer=3)):
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
