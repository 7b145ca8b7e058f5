"""Recorded conversations, replayed byte by byte: each side is fed the peer's frames and must send exactly its own.

They hold the wire format, the hashing and the use of randomness in place: two versions of the software
can work together, and a job can be resumed by another version, only if nothing here changes. After a change that
is meant to be seen on the wire (say so in the changelog), record them anew and look at what differs::

    pytest tests/alignment/test_transcripts.py --record-transcripts

A transcript names all inputs. A second job has the same sets and memories: an asymmetric intersection uses
its obfuscated set again.
"""

from __future__ import annotations

import base64
import copy
import json
import re
from pathlib import Path

import pytest

from benchmarks.sessions import limits_from, session
from vfl_node.alignment.alignment import OwnRecords
from vfl_node.alignment.protocols import align
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.identifiers import Identifiers, canonical
from vfl_node.errors import ProtocolError
from vfl_node.job import Align
from vfl_node.session.memory import MemoryOfOneRun
from vfl_node.transport.channel import Channel, run
from vfl_node.transport.generated.vfl.v1 import session_pb2
from vfl_node.transport.memory import memory_channels, run_together
from vfl_node.transport.recorder import Recorder

FOLDER = Path(__file__).with_name("transcripts")
NAMES = {"active": "clinic", "passive": "lab"}
OTHER = {"active": "passive", "passive": "active"}
IDS = {"active": ["ann", "bob", "eve"], "passive": ["zoe", "Bob", "eve", "max"]}
TERMS = {
    "psu": {"protocol": "psu"},
    "psi": {"protocol": "psi"},
    "apsi": {"protocol": "apsi", "obfuscation": {"size": 3}},
    "psi-pairs": {"protocol": "psi-pairs"},
    "upsi": {"protocol": "upsi"},
    "covered-psu": {"protocol": "psu", "padding": 4, "dummies": 1},
    "covered-apsi": {"protocol": "apsi", "obfuscation": {"fraction": 0.5}, "padding": 1},
}
CASES = [(name, group) for name in ("psu", "psi", "apsi") for group in ("curve25519", "modp3072", "modp2048")]
CASES += [("covered-psu", "curve25519"), ("covered-apsi", "curve25519"), ("psi-pairs", "curve25519"), ("upsi", "curve25519")]
EVERY = pytest.mark.parametrize(("name", "group"), CASES)


class Sides:
    """Both parties of a transcript, with what they keep from one job to the next."""

    def __init__(self, said, workers, folder):
        self.said, self.workers, self.folder = said, workers, folder
        self.memories = {role: MemoryOfOneRun(Randomness(bytes.fromhex(said["secrets"][role]))) for role in NAMES}

    def side(self, role, number, channel):
        job = self.said["jobs"][number]
        own = session(
            NAMES[role],
            {channel.peer: channel},
            Randomness(bytes.fromhex(job["seeds"][role])),
            align=Align(**self.said["align"]),
            folder=self.folder / job["id"] / role,
            memories={channel.peer: self.memories[role]},
            workers=self.workers,
            limits=limits_from(1),
        )
        ids = Identifiers.from_items(canonical(item, "nocase") for item in self.said["ids"][role])
        return align(own, OwnRecords(ids))


class Script:
    """A pipe that gives the peer's recorded frames and takes nothing but one's own."""

    def __init__(self, role, frames):
        self.own = [(kind, encoded) for sender, kind, encoded in frames if sender == role]
        self.peers = [encoded for sender, _, encoded in frames if sender != role]

    async def put(self, frame):
        kind, encoded = self.own.pop(0)
        assert frame.SerializeToString(deterministic=True) == base64.b64decode(encoded), f"another {kind} is sent"

    async def get(self):
        return session_pb2.Frame.FromString(base64.b64decode(self.peers.pop(0)))

    def can_put(self, frame):
        return True

    def can_get(self):
        return True

    async def wait(self, ready):
        pass

    def close(self):
        pass


def record(name, group, workers, folder):
    """Run the jobs in memory and write the transcript."""
    said = {
        "align": TERMS[name] | {"group": group, "id_form": "nocase"},
        "ids": IDS,
        "secrets": {role: f"{role} remembers".encode().ljust(32).hex() for role in NAMES},
        "jobs": [],
    }
    sides = Sides(said, workers, folder)
    slow = group != "curve25519" and name != "apsi"
    for number, job_id in enumerate(("first",) if slow else ("first", "second")):
        job = {"id": job_id, "seeds": {role: f"{role} {job_id}".encode().ljust(32).hex() for role in NAMES}}
        said["jobs"].append(job)
        recorder = Recorder()
        channels = list(map(recorder.wrap, NAMES, memory_channels(*NAMES.values(), job_id=job_id)))
        results = run_together(*((sides.side(role, number, c), c) for role, c in zip(NAMES, channels, strict=True)))
        job["rows"] = {role: result.rows.tolist() for role, result in zip(NAMES, results, strict=True)}
        job["frames"] = [[entry.sender, entry.kind, encoded(entry.frame)] for entry in recorder.entries]
    text = json.dumps(said, indent=1)
    text = re.sub(r'\[\s+("[^"]*"),\s+("[^"]*"),\s+("[^"]*")\s+\]', r"[\1, \2, \3]", text)  # a frame a line
    FOLDER.mkdir(exist_ok=True)
    path(name, group).write_text(text + "\n")


def encoded(frame):
    return base64.b64encode(frame.SerializeToString(deterministic=True)).decode()


def path(name, group):
    return FOLDER / f"{name}-{group}.json"


def replay(said, role, workers, folder):
    """One side alone, against what the other one is recorded to have sent."""
    sides = Sides(said, workers, folder)
    for number, job in enumerate(said["jobs"]):
        script = Script(role, job["frames"])
        result = run(sides.side(role, number, Channel(script, peer=NAMES[OTHER[role]], job_id=job["id"])))
        assert result.rows.tolist() == job["rows"][role]
        assert not script.own
        assert not script.peers


@pytest.fixture
def transcript(request, workers, tmp_path):
    def said(name, group):
        if request.config.getoption("--record-transcripts", default=False):
            record(name, group, workers, tmp_path / "recording")
        return json.loads(path(name, group).read_text())

    return said


@EVERY
def test_replayed_byte_by_byte(transcript, workers, tmp_path, name, group):
    said = transcript(name, group)
    assert said["align"] == TERMS[name] | {"group": group, "id_form": "nocase"}
    for role in NAMES:
        replay(said, role, workers, tmp_path)


@pytest.mark.parametrize("role", NAMES)
def test_another_seed_input_or_answer_is_noticed(transcript, workers, tmp_path, role):
    """The negative control: a replay that differs in one bit of anything fails."""
    said = transcript("psu", "curve25519")

    def changed(change):
        other = copy.deepcopy(said)
        change(other)
        return other

    def another_answer(other):
        frame, later = ([f for f in job["frames"] if f[:2] == [OTHER[role], "RowsEnd"]][-1] for job in other["jobs"])
        frame[2] = later[2]  # the reply, under a scalar of its job alone

    for number, change in enumerate(
        (
            lambda other: other["jobs"][0]["seeds"].update({role: "00" * 32}),
            lambda other: other["secrets"].update({role: "00" * 32}),
            lambda other: other["ids"][role].__setitem__(0, "ida"),
            lambda other: other["jobs"][0].update(id="another"),
            another_answer,
        )
    ):
        with pytest.raises((AssertionError, ProtocolError)):
            replay(changed(change), role, workers, tmp_path / f"{number}")


def test_there_is_no_transcript_that_nothing_replays():
    assert {file.name for file in FOLDER.iterdir()} == {path(name, group).name for name, group in CASES}
