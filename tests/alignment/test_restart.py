"""An alignment cut off anywhere, once begun again, ends as one that never was, and does no work twice.

Both parties are stepped on one thread in a random order from a seed. A party dies before any
message it sends or takes, and in any step of storing a chunk; what it had begun in memory is
lost, and maybe its last messages with it, or, with the power, whatever was not synced.
"""

from __future__ import annotations

import functools
import random
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.sessions import BY_ROLE, session
from tests.alignment.conftest import ANY_SIZE
from tests.thorough import every, examples
from vfl_node.alignment.alignment import OwnRecords
from vfl_node.alignment.lists import columns
from vfl_node.alignment.lists.columns import Column
from vfl_node.alignment.lists.lists import Lists
from vfl_node.alignment.protocols import align
from vfl_node.crypto.groups import SafePrimeGroup
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.identifiers import Identifiers
from vfl_node.engines.contract import Inline
from vfl_node.errors import PeerLost, StateError, VflError
from vfl_node.job import Align
from vfl_node.progress import Advanced, PhaseBegan
from vfl_node.session.memory import MemoryOfOneRun
from vfl_node.session.pins import MemoryPins
from vfl_node.transport.generated.vfl.v1 import session_pb2
from vfl_node.transport.memory import memory_channels, suspend

ROLES = ("active", "passive")
RAM = "/dev/shm" if Path("/dev/shm").is_dir() else None  # a disk would take half of the time
OTHER = dict(zip(ROLES, reversed(ROLES), strict=True))
CHUNK_ROWS = 3
IN_FLIGHT = 2 * 3 * CHUNK_ROWS
"""Most elements a party has computed or begun to compute that are not stored yet: of the list that it sends and of the one that
arrives the chunk that is stored next, and two whose powers are begun while it is."""

TERMS = {
    "psu": Align(protocol="psu"),
    "psi": Align(protocol="psi"),
    "apsi": Align(protocol="apsi", obfuscation={"fraction": 0.7}),
    "upsi": Align(protocol="upsi"),
    "upsi, the active party serves": Align(protocol="upsi", server="active"),
}
COVERED = {
    "psu covered": Align(protocol="psu", dummies=2, padding=4),
    "psi covered": Align(protocol="psi", padding=4),
    "apsi covered": Align(protocol="apsi", obfuscation={"size": 1}, padding=4),
    "upsi covered": Align(protocol="upsi", padding=4),
}
ALL = TERMS | COVERED
IDS = {"active": [b"id%d" % i for i in range(7)], "passive": [b"id%d" % i for i in range(3, 11)]}


class Killed(BaseException):
    """kill -9: no handler of the product's own may catch it."""


class Group(SafePrimeGroup):
    """QR(p) for the largest 80-bit safe prime, in chunks of three; counts group operations."""

    def __init__(self):
        super().__init__("toy", 2**80 - 5837)
        self.chunk_rows, self.operations = CHUNK_ROWS, 0

    def powers(self, rows, scalar, engine, *, check=False):
        self.operations += len(rows)
        return super().powers(rows, scalar, engine, check=check)

    def blinded(self, ids, domain, scalar, engine):
        self.operations += len(ids)
        return super().blinded(ids, domain, scalar, engine)


class AtOnce(Inline):
    """Computes when ``map`` is called."""

    def map(self, operation, blocks, key, *, background=False):
        return iter(list(super().map(operation, blocks, key)))


class Done:
    """How much of the alignment its owner is told is done."""

    def __init__(self):
        self.done = self.total = 0

    def emit(self, event):
        match event:
            case PhaseBegan(total=total):
                self.total = total
            case Advanced(steps):
                self.done += steps


@dataclass
class Life:
    """One party during one attempt: what happened to it, and before which event it dies.

    Attributes:
        dies: number of the event that is not to be.
        events: (what, list or type of message).
        sending: the list sent last.
        sent: list → rows the peer was told to hold, and rows sent.
    """

    dies: int | None = None
    events: list[tuple[str, str]] = field(default_factory=list)
    sending: str = ""
    sent: dict[str, list[int]] = field(default_factory=dict)
    progress: Done = field(default_factory=Done)
    group: Group = field(default_factory=Group)

    def happens(self, what, name=""):
        if len(self.events) == self.dies:
            raise Killed
        self.events.append((what, name))


class Wire:
    """A pipe on which each message is an event, and the other party may get its turn after it."""

    def __init__(self, pipe, life):
        self.pipe, self.life = pipe, life

    async def put(self, frame):
        kind = frame.type.rpartition(".")[2]
        self.life.happens("put", self.life.sending if kind in ("Rows", "Chunk", "RowsEnd") else kind)
        if kind == "Rows":
            self.life.sent[self.life.sending][0] = session_pb2.Rows.FromString(frame.body).start
        if kind == "Chunk":
            rows = session_pb2.Chunk.FromString(frame.body).rows
            self.life.sent[self.life.sending][1] += len(rows) // self.life.group.width
        await self.pipe.put(frame)
        await suspend()

    async def get(self):
        frame = await self.pipe.get()
        self.life.happens("get", frame.type.rpartition(".")[2])
        return frame

    def __getattr__(self, name):
        return getattr(self.pipe, name)


class Pins(MemoryPins):
    """Pins that outlive an attempt, and are events."""

    life: Life

    def check(self, name, digest):
        self.life.happens("pin", name.partition(" ")[2].replace(" ", "-"))
        super().check(name, digest)


class World:
    """What both parties keep of one job on their disks."""

    def __init__(self, folder, protocol, job_id="job", memories=None):
        self.folder, self.protocol, self.job_id, self.ids = Path(folder), protocol, job_id, dict(IDS)
        self.pins = {role: Pins() for role in ROLES}
        self.memories = memories or {role: MemoryOfOneRun(Randomness(role.encode().ljust(32))) for role in ROLES}
        self.operations = dict.fromkeys(ROLES, 0)
        self.synced = {role: set() for role in ROLES}
        self.lives = {}

    def lists(self, role):
        return self.folder / role

    def held(self, role):
        """List → rows that ``role`` finished of it."""
        names = [path.stem for path in self.lists(role).glob("*.rows")]
        found = {name: Column(self.lists(role) / name, Group().width, CHUNK_ROWS) for name in names}
        for column in found.values():
            column.close()
        return {name: len(column) for name, column in found.items()}

    def stored(self):
        """The bytes of all lists at both; without points and tags of upsi, which nobody needs once the list is kept."""
        found = ((role, path) for role in ROLES for path in self.lists(role).glob("*.rows"))
        return {f"{role} {path.name}": path.read_bytes() for role, path in found if path.stem not in ("points", "tags")}

    def attempt(self, dies=None, *, seed=0, together=False, lossy=False, power=False):
        """Run until each party has ended.

        Args:
            dies: role → number of the event before which it dies.
            seed: of the order of steps, and of what is lost.
            together: when one dies, so does the other.
            lossy: messages of the dead that did not arrive are lost.
            power: what the dead had not synced is lost.

        Returns:
            role → Alignment, the exception it ended with, or :class:`Killed`.
        """
        chance, results, pending = random.Random(seed), {}, {}
        self.lives = {role: Life((dies or {}).get(role)) for role in ROLES}
        lives = {self.lists(role): life for role, life in self.lives.items()}
        channels = dict(zip(ROLES, memory_channels(*ROLES, job_id=self.job_id), strict=True))
        with (
            mock.patch.multiple(Column, append=_append(lives), sync=_sync(lives)),
            mock.patch.object(Lists, "send", _send(lives)),
        ):
            for role in ROLES:
                pipe = channels[role]._pipe
                channels[role]._pipe = Wire(pipe, self.lives[role])
                pending[role] = self._side(role, channels[role])
            while pending:
                role = chance.choice(list(pending))
                try:
                    pending[role].send(None)
                    continue
                except StopIteration as stop:
                    results[role] = stop.value
                except VflError as error:
                    results[role] = error
                except Killed:
                    results[role] = Killed
                del pending[role]
                channels[role].close()
                dead = [role] if results[role] is Killed else []
                if dead and together and pending:
                    dead += [OTHER[role]]
                    pending.pop(OTHER[role]).close()
                    channels[OTHER[role]].close()
                    results[OTHER[role]] = Killed
                for one in dead:
                    inbox = channels[OTHER[one]]._pipe.pipe.inbox
                    if lossy:
                        del inbox[chance.randrange(len(inbox) + 1) :]
                    if power:
                        self._lose_power(one, chance)
        for role, life in self.lives.items():
            self.operations[role] += life.group.operations
        return results

    def _lose_power(self, role, chance):
        """Cut off, or fill with zeros, a part of each file that was never synced."""
        self.synced[role] |= {name for what, name in self.lives[role].events if what == "sync"}
        for path in self.lists(role).glob("*"):
            if path.stem not in self.synced[role]:
                data = path.read_bytes()
                left = chance.randrange(len(data) + 1)
                path.write_bytes(data[:left] + bytes(chance.choice([0, len(data) - left])))

    def _side(self, role, channel):
        life, self.pins[role].life = self.lives[role], self.lives[role]
        own = session(
            role,
            {channel.peer: channel},
            Randomness(f"{self.job_id} {role}".encode().rjust(32)),
            parties=BY_ROLE,
            align=ALL[self.protocol],
            folder=self.lists(role),
            cached=self.folder / f"{role}-cached",
            memories={channel.peer: self.memories[role]},
            pins=self.pins[role],
            progress=life.progress,
            workers=AtOnce(),
            limits=ANY_SIZE,
        )
        return align(own, OwnRecords(Identifiers.from_items(self.ids[role])), group=life.group)


def _append(lives):
    """Storing a chunk, in four steps of which each may be the last."""
    write_all = columns.write_all

    def append(self, rows):
        life, name = lives[self._path.parent], self._path.stem

        def write(descriptor, data):
            half = len(data) // 2
            life.happens("write", name)
            write_all(descriptor, data[:half])
            life.happens("write", name)
            write_all(descriptor, data[half:])

        with mock.patch.object(columns, "write_all", write):
            original(self, rows)
        life.happens("append", name)

    original = Column.append
    return append


def _sync(lives):
    def sync(self):
        lives[self._path.parent].happens("sync", self._path.stem)  # fsync itself takes time and shows nothing here

    return sync


def _send(lives):
    async def send(self, name, source):
        life = lives[self.session.attempt.folder]
        life.sending = name.replace(" ", "-")
        life.sent[life.sending] = [0, 0]
        await original(self, name, source)

    original = Lists.send
    return send


@functools.cache
def clean(protocol):
    """A run that nothing disturbs: results, lists, operations, rows sent and events."""
    with tempfile.TemporaryDirectory(dir=RAM) as folder:
        world = World(folder, protocol)
        results = world.attempt()
        return results, world.stored(), world.operations, world.lives


def check_same(world, results):
    """The job ended as the clean run did: the same shared rows, and every list the same to its last byte."""
    expected, stored, _, _ = clean(world.protocol)
    for role in ROLES:
        assert isinstance(results[role], type(expected[role])), results[role]
        assert np.array_equal(results[role].rows, expected[role].rows)
        assert (results[role].learnt, results[role].peer.learnt) == (expected[role].learnt, expected[role].peer.learnt)
        assert world.lives[role].progress.done == world.lives[role].progress.total > 0
    assert world.stored() == stored


def check_sent(world, held):
    """In the last attempt each list was sent from the first row on that its receiver did not hold."""
    for role in ROLES:
        lengths = clean(world.protocol)[3][role].sent
        assert world.lives[role].sent.keys() in (lengths.keys(), lengths.keys() - {"tags"})  # those may be cached
        for name, (start, rows) in world.lives[role].sent.items():
            assert start == held[OTHER[role]].get(name, 0)
            assert rows == lengths[name][1] - start


@pytest.mark.parametrize("protocol", TERMS)
def test_the_clean_run_is_whole(protocol):
    results, _, _, lives = clean(protocol)
    shared = set(IDS["active"]) & set(IDS["passive"])
    own = {role: [IDS[role][row] for row in results[role].rows if row >= 0] for role in ROLES}
    assert set(own["active"]) == (set(IDS["active"]) if protocol == "psu" else shared)
    assert set(own["passive"]) >= shared
    for role in ROLES:
        assert all(start == 0 and rows > CHUNK_ROWS for start, rows in lives[role].sent.values())


@pytest.mark.parametrize(
    ("protocol", "role"),
    [
        *(("psu", "active"), ("psi", "passive"), ("apsi", "passive")),
        *(pytest.param(*of, marks=pytest.mark.slow) for of in (("psu", "passive"), ("psi", "active"), ("apsi", "active"))),
    ],
)
def test_cut_off_anywhere(protocol, role):
    """Before every message a party sends or takes, and at every step of storing every chunk.

    In `make test` before each ninth of them; a chunk is stored in four steps, so that each comes in turn.
    """
    _, _, once, lives = clean(protocol)
    saved = 0
    for event in every(9, range(len(lives[role].events))):
        with tempfile.TemporaryDirectory(dir=RAM) as folder:
            world = World(folder, protocol)
            results = world.attempt({role: event}, seed=event, lossy=event % 2 == 1)
            assert results[role] is Killed
            assert isinstance(results[OTHER[role]], PeerLost) or event >= len(lives[role].events) - 2
            held = {one: world.held(one) for one in ROLES}
            before = dict(world.operations)
            check_same(world, world.attempt(seed=event))
            check_sent(world, held)
        for one in ROLES:
            assert once[one] <= world.operations[one] <= once[one] + IN_FLIGHT, event
            saved += before[one] - (world.operations[one] - once[one])
    assert saved > 0  # negative control: without stored lists every attempt would compute all of them


def test_without_its_lists_a_party_computes_them_again(tmp_path):
    """A negative control of the bound: it can be exceeded."""
    world, (_, _, once, lives) = World(tmp_path, "psu"), clean("psu")
    world.attempt({"passive": len(lives["passive"].events) - 1})
    for path in world.lists("passive").iterdir():
        path.unlink()
    check_same(world, world.attempt())
    assert world.operations["passive"] == 2 * once["passive"]
    assert world.operations["active"] == once["active"]


DEATHS = st.lists(st.dictionaries(st.sampled_from(ROLES), st.integers(0, 250), min_size=1), min_size=1, max_size=4)


@settings(max_examples=examples(150, fewer=25), deadline=None)
@given(
    protocol=st.sampled_from(list(ALL)),
    deaths=DEATHS,
    seed=st.integers(0, 1 << 32),
    together=st.booleans(),
    lossy=st.booleans(),
)
def test_cut_off_again_and_again(protocol, deaths, seed, together, lossy):
    """Either party or both at once, several times in a row."""
    once = clean(protocol)[2]
    with tempfile.TemporaryDirectory(dir=RAM) as folder:
        world = World(folder, protocol)
        for number, dies in enumerate(deaths):
            world.attempt(dies, seed=seed + number, together=together, lossy=lossy)
        held = {one: world.held(one) for one in ROLES}
        check_same(world, world.attempt(seed=seed))
        check_sent(world, held)
        for role in ROLES:
            assert once[role] <= world.operations[role] <= once[role] + IN_FLIGHT * len(deaths)


@settings(max_examples=examples(100, fewer=20), deadline=None)
@given(protocol=st.sampled_from(list(ALL)), deaths=DEATHS, seed=st.integers(0, 1 << 32), together=st.booleans())
def test_loss_of_power(protocol, deaths, seed, together):
    """What was not synced is lost: more is computed again, and nothing differs."""
    with tempfile.TemporaryDirectory(dir=RAM) as folder:
        world = World(folder, protocol)
        for number, dies in enumerate(deaths):
            world.attempt(dies, seed=seed + number, together=together, lossy=True, power=True)
        held = {one: world.held(one) for one in ROLES}
        check_same(world, world.attempt(seed=seed))
        check_sent(world, held)


@pytest.fixture
def drawn(tmp_path):
    """What both parties remember after a job that drew an obfuscated set, and that job's shared rows."""
    first = World(tmp_path / "first", "apsi", "first")
    results = first.attempt()
    return first.memories, {role: results[role].rows for role in ROLES}


@pytest.mark.parametrize("role", ROLES)
def test_a_later_job_is_cut_off_anywhere(drawn, role, tmp_path):
    """One that uses the obfuscated set of an earlier job again."""
    memories, shared = drawn
    later = World(tmp_path / "later", "apsi", "later", memories)
    later.attempt()
    for event in every(6, range(len(later.lives[role].events))):
        world = World(tmp_path / str(event), "apsi", "later", memories)
        assert world.attempt({role: event}, seed=event)[role] is Killed
        results = world.attempt(seed=event)
        assert all(np.array_equal(results[one].rows, shared[one]) for one in ROLES)
        assert world.stored() == later.stored()
        for one in ROLES:
            assert later.operations[one] <= world.operations[one] <= later.operations[one] + IN_FLIGHT


@pytest.mark.parametrize("role", ROLES)
def test_another_job_draws_while_this_one_is_cut_off(role, tmp_path):
    """Two draws would tell the passive party more about the intersection than one; the first to end counts for both."""
    lengths = clean("apsi")[3]
    for event in every(3, range(0, len(lengths[role].events), 7)):
        world = World(tmp_path / f"this-{event}", "apsi", "this")
        world.attempt({role: event}, seed=event)
        other = World(tmp_path / f"other-{event}", "apsi", "other", world.memories)
        expected, results = other.attempt(), world.attempt(seed=event)
        assert all(np.array_equal(results[one].rows, expected[one].rows) for one in ROLES)
        for one in ROLES:
            assert world.lives[one].progress.done == world.lives[one].progress.total


ANSWERS = {  # to each list that the next one is computed from; to the others nothing but the end
    "psu": {
        "step-3": "step-4",
        "step-5": "step-8",
        "step-4": "step-8",
        "step-8": "step-9",
        "step-11-request": "step-11-reply",
        "step-12-request": "step-12-reply",
    },
    "psi": {"step-1": "step-3", "step-2": "step-4"},
    "apsi": {"step-3": "step-8", "step-4": "step-6", "step-6": "step-8", "step-8": "step-10", "step-10": "step-12"},
    "upsi": {"query": "answer", "answer": "claim"},
}
ANSWERS["upsi, the active party serves"] = ANSWERS["upsi"]


@pytest.mark.parametrize("protocol", TERMS)
def test_a_list_is_durable_and_pinned_before_anything_is_answered(protocol):
    _, _, _, lives = clean(protocol)
    for role in ROLES:
        events, received = lives[role].events, lives[OTHER[role]].sent
        assert received
        for name in received:
            last = max(i for i, event in enumerate(events) if event == ("append", name))
            synced, pinned = events.index(("sync", name)), events.index(("pin", name))
            answer = ANSWERS[protocol].get(name)
            assert last < synced < pinned
            assert answer is None or pinned < events.index(("put", answer))


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(("protocol", "lists"), [("psi", ["step-1", "step-2"]), ("psu", ["step-3", "step-5"])])
def test_a_party_receives_while_it_sends(protocol, lists, role):
    events = clean(protocol)[3][role].events
    ours, theirs = lists if role == "active" else reversed(lists)
    sent = [i for i, event in enumerate(events) if event == ("put", ours)]
    stored = [i for i, event in enumerate(events) if event == ("append", theirs)]
    assert sent[0] < stored[0] < sent[-1]


@pytest.mark.parametrize("changed", ROLES)
@pytest.mark.parametrize("protocol", TERMS)
def test_another_list_is_refused(protocol, changed, tmp_path):
    """A party that comes back with other identifiers is refused by one that holds a single chunk of its list."""
    honest, lives = OTHER[changed], clean(protocol)[3]
    first = next(iter(lives[changed].sent))
    refused = 0
    for event in every(3, range(0, len(lives[honest].events), 5)):
        world = World(tmp_path / str(event), protocol)
        world.attempt({honest: event}, seed=event)
        held = world.held(honest).get(first, 0)
        world.ids[changed] = [b"other%d" % i for i in range(len(IDS[changed]))]
        world.pins[changed] = Pins()
        for path in world.lists(changed).glob("*"):
            path.unlink()
        result = world.attempt(seed=event)[honest]
        if held:
            assert isinstance(result, StateError)
            assert result.code in ("E_REPLAY", "E_STATE_LOST", "E_EPOCH")  # a mark of its own changes what we send, too
            refused += 1
    assert refused > examples(5, fewer=2)


@pytest.mark.parametrize("changed", ROLES)
def test_another_number_of_identifiers_is_refused(changed, tmp_path):
    world = World(tmp_path, "psu")
    world.attempt({changed: 3})
    world.ids[changed] = IDS[changed][:-1]
    result = world.attempt()[OTHER[changed]]
    assert isinstance(result, StateError)
    assert result.code == "E_REPLAY"


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("protocol", ALL)
def test_stored_lists_are_of_the_same_identifiers(protocol, role, tmp_path):
    """What lies on disk is not taken for a list of other identifiers; those of no record come from what a node remembers."""
    world = World(tmp_path / "changed", protocol)
    world.attempt({role: 60})
    world.ids[role] = [b"other%d" % i for i in range(len(IDS[role]))]
    assert world.attempt()[role].code == "E_STATE_LOST"
    if ALL[protocol].dummies:
        world = World(tmp_path / "forgotten", protocol)
        world.attempt({role: 60})
        world.memories[role] = MemoryOfOneRun(Randomness(bytes(32)))
        codes = {getattr(result, "code", "") for result in world.attempt().values()}
        assert codes & {"E_STATE_LOST"}


def test_a_peer_that_claims_to_hold_what_is_not_there_is_refused(tmp_path):
    world = World(tmp_path, "psi")
    world.attempt({"active": 0})
    column = Column(world.lists("active") / "step-2", Group().width, CHUNK_ROWS)
    column.append(np.zeros((len(IDS["passive"]) + 1, Group().width), dtype=np.uint8))
    column.close()
    assert world.attempt()["passive"].code == "E_COUNT"
