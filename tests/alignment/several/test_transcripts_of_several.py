"""Transcripts of jobs with two passive parties, replayed: what each party sends is the same, byte for byte.

As tests/alignment/test_transcripts.py, which says when and how they are recorded anew.
"""

from __future__ import annotations

import base64
import json
import re
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks.sessions import limits_from, session
from tests.alignment.test_transcripts import encoded
from vfl_node.alignment.alignment import OwnRecords
from vfl_node.alignment.protocols import align
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.identifiers import Identifiers, canonical
from vfl_node.errors import VflError
from vfl_node.job import Align, Parties
from vfl_node.session.memory import MemoryOfOneRun
from vfl_node.transport.channel import Channel, run
from vfl_node.transport.generated.vfl.v1 import session_pb2
from vfl_node.transport.memory import memory_channels, run_together
from vfl_node.transport.recorder import Recorder

FOLDER = Path(__file__).with_name("transcripts")
IDS = {"clinic": ["ann", "bob", "eve"], "lab": ["zoe", "Bob", "eve", "max"], "insurer": ["EVE", "tom", "zoe"]}
PARTIES = Parties(active="clinic", passive=("lab", "insurer"))
CASES = {
    "psu": {"protocol": "psu"},
    "psi": {"protocol": "psi"},
    "psi-pairs": {"protocol": "psi-pairs"},
    "padded-psu": {"protocol": "psu", "padding": 1},
}
EVERY = pytest.mark.parametrize("name", CASES)


class Table:
    """The parties of a transcript, with what they keep from one job to the next."""

    def __init__(self, said, workers, folder):
        self.said, self.workers, self.folder = said, workers, folder
        self.memories = {
            name: {
                other: MemoryOfOneRun(Randomness(f"{said['secrets'][name]} of {other}".encode().ljust(32)[:32]))
                for other in PARTIES.others(name)
            }
            for name in IDS
        }

    def side(self, name, number, channels):
        job = self.said["jobs"][number]
        own = session(
            name,
            channels,
            Randomness(bytes.fromhex(job["seeds"][name])),
            parties=PARTIES,
            align=Align(**self.said["align"]),
            folder=self.folder / job["id"] / name,
            memories=self.memories[name],
            workers=self.workers,
            limits=limits_from(1),
        )
        ids = Identifiers.from_items(canonical(item, "nocase") for item in self.said["ids"][name])
        return align(own, OwnRecords(ids))


class Script:
    """A pipe that gives one peer's recorded frames and takes nothing but one's own to it."""

    def __init__(self, name, peer, frames):
        self.own = [(kind, frame) for sender, to, kind, frame in frames if (sender, to) == (name, peer)]
        self.peers = [frame for sender, to, _, frame in frames if (sender, to) == (peer, name)]

    async def put(self, frame):
        kind, expected = self.own.pop(0)
        assert frame.SerializeToString(deterministic=True) == base64.b64decode(expected), f"another {kind} is sent"

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


def record(name, workers, folder):
    """Run two jobs over the same sets in memory and write the transcript."""
    said = {
        "align": CASES[name] | {"group": "curve25519", "id_form": "nocase"},
        "ids": IDS,
        "secrets": {party: f"{party} remembers" for party in IDS},
        "jobs": [],
    }
    table = Table(said, workers, folder)
    for number, job_id in enumerate(("first", "second")):
        job = {"id": job_id, "seeds": {party: f"{party} {job_id}".encode().ljust(32).hex() for party in IDS}}
        said["jobs"].append(job)
        recorder, channels = Recorder(), {party: {} for party in IDS}
        for passive in PARTIES.passive:
            ends = memory_channels(PARTIES.active, passive, job_id=job_id)
            channels[PARTIES.active][passive], channels[passive][PARTIES.active] = map(
                recorder.wrap, (PARTIES.active, passive), ends
            )
        sides = ((table.side(party, number, mine), list(mine.values())) for party, mine in channels.items())
        job["rows"] = dict(zip(IDS, (result.rows.tolist() for result in run_together(*sides)), strict=True))
        job["frames"] = [[entry.sender, entry.receiver, entry.kind, encoded(entry.frame)] for entry in recorder.entries]
    text = re.sub(
        r'\[\s+("[^"]*"),\s+("[^"]*"),\s+("[^"]*"),\s+("[^"]*")\s+\]', r"[\1, \2, \3, \4]", json.dumps(said, indent=1)
    )
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.json").write_text(text + "\n")


def replay(said, name, workers, folder):
    """One party alone, against what the others are recorded to have sent."""
    table = Table(said, workers, folder)
    for number, job in enumerate(said["jobs"]):
        scripts = {peer: Script(name, peer, job["frames"]) for peer in PARTIES.peers_of(name)}
        channels = {peer: Channel(script, peer=peer, job_id=job["id"]) for peer, script in scripts.items()}
        assert run(table.side(name, number, channels)).rows.tolist() == job["rows"][name]
        assert not any(script.own or script.peers for script in scripts.values())


@pytest.fixture
def transcript(request, workers, tmp_path):
    def said(name):
        if request.config.getoption("--record-transcripts", default=False):
            record(name, workers, tmp_path / "recording")
        return json.loads((FOLDER / f"{name}.json").read_text())

    return said


@EVERY
def test_replayed_byte_by_byte(transcript, workers, tmp_path, name):
    said = transcript(name)
    assert said["align"] == CASES[name] | {"group": "curve25519", "id_form": "nocase"}
    for party in IDS:
        replay(said, party, workers, tmp_path)


@pytest.mark.parametrize("party", IDS)
def test_another_seed_input_or_answer_is_noticed(transcript, workers, tmp_path, party):
    """The negative control: a replay that differs in one bit of anything fails."""
    text = json.dumps(transcript("psu"))
    changes = [
        lambda said: said["jobs"][0]["seeds"].update({party: "00" * 32}),
        lambda said: said["secrets"].update({party: "another"}),
        lambda said: said["ids"][party].__setitem__(0, "ida"),
        lambda said: said["jobs"][0].update(id="another"),
    ]
    for number, change in enumerate(changes):
        change(said := json.loads(text))
        with pytest.raises((AssertionError, VflError)):
            replay(said, party, workers, tmp_path / f"{number}")


def test_passive_parties_never_send_each_other_anything(transcript):
    ways = {(sender, to) for job in transcript("psu")["jobs"] for sender, to, _, _ in job["frames"]}
    assert ways == {(a, b) for passive in PARTIES.passive for a, b in pairwise(("clinic", passive, "clinic"))}


def test_there_is_no_transcript_that_nothing_replays():
    assert {file.name for file in FOLDER.iterdir()} == {f"{name}.json" for name in CASES}
