"""Two parties in memory, with everything they send on record and open to interference."""

from __future__ import annotations

import bisect
import hashlib
import os
import tempfile
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from benchmarks.sessions import session
from vfl_node.alignment.alignment import OwnRecords
from vfl_node.alignment.lists.lists import Lists
from vfl_node.alignment.protocols import align
from vfl_node.crypto.groups import Curve25519, SafePrimeGroup, Scalar
from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.texts import strings_of
from vfl_node.data.identifiers import Identifiers
from vfl_node.engines.threads import Threads
from vfl_node.job import Align
from vfl_node.progress import Advanced, PhaseBegan, Silent
from vfl_node.session.memory import MemoryOfOneRun
from vfl_node.session.pins import MemoryPins
from vfl_node.settings.limits import Budgets, Limits, SizeLimits
from vfl_node.settings.node import DEFAULT_TABLE, Obfuscation
from vfl_node.transport.channel import Channel
from vfl_node.transport.generated.vfl.v1 import alignment_pb2
from vfl_node.transport.memory import memory_channels, run_together

SENT = {  # lists in the order each side sends them
    "psu": {
        "active": ["step 3", "step 8", "step 11 request", "step 12 reply"],
        "passive": ["step 5", "step 4", "step 9", "step 12 request", "step 11 reply"],
    },
    "psi": {"active": ["step 1", "step 4"], "passive": ["step 2", "step 3"]},
    "apsi": {"active": ["step 4", "step 8", "step 12"], "passive": ["step 3", "step 6", "step 10"]},
    "psi-pairs": {"active": ["step 1", "step 4", "positions"], "passive": ["step 2", "step 3"]},
    "upsi": {"active": ["query", "claim"], "passive": ["tags", "added", "answer"]},
}
ROLES = ("active", "passive")
NAMES = ("clinic", "lab")
ANY_SIZE = Limits.model_construct(
    min_own_rows=0, min_peer_rows=0, size=SizeLimits(rows=1_000_000), budgets=Budgets(alignments=20, changes=20)
)
NO_WISH = Obfuscation()
IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # syncing to a disk would take nine tenths of the time


class Spy(Channel):
    """A channel that records all it sends, and may send something else instead.

    ``change`` gives another list for a step, ``instead`` sends a step in its own way (a coroutine
    function of channel, rows and start), ``introduce`` gives another first message, ``greet`` another second one.
    """

    def watch(self, names, change=None, instead=None, greet=None, introduce=None):
        self.names, self.change, self.instead, self.greet = list(names), change or {}, instead or {}, greet
        self.introduce = introduce
        self.lists, self.starts, self.messages = {}, {}, []
        return self

    async def send(self, message):
        if isinstance(message, alignment_pb2.SetSize) and self.greet:
            message = self.greet(message)
        if isinstance(message, alignment_pb2.Remembered) and self.introduce:
            message = self.introduce(message)
        if isinstance(message, alignment_pb2.Obfuscation) and message.again:
            self.names = ["step 12"]
        self.messages.append(message)
        await super().send(message)

    async def receive(self, expected):
        message = await super().receive(expected)
        if isinstance(message, alignment_pb2.TagsWanted):
            sent = "added" if message.held else "" if message.cached else "tags"
            self.names = [name for name in self.names if name == sent or name not in ("tags", "added")]
        return message

    async def send_rows(self, rows, *, count, width, start=0):
        blocks = [rows] if isinstance(rows, np.ndarray) else list(rows)
        gathered = np.concatenate([np.empty((0, width), np.uint8), *blocks])
        assert len(gathered) == count
        name = self.names[len(self.lists)]
        if name in self.change:
            gathered = self.change[name](gathered)
        self.lists[name], self.starts[name] = gathered, start
        if name in self.instead:
            await self.instead[name](self, gathered, start)
        else:
            await super().send_rows(gathered, count=len(gathered), width=width, start=min(start, len(gathered)))


class Unshuffled(Randomness):
    """Randomness that leaves the order of the named steps as it is: a negative control."""

    def __init__(self, seed, steps, label=""):
        super().__init__(seed)
        self.steps, self.label = steps, label

    def derive(self, label):
        return Unshuffled(super().derive(label)._seed, self.steps, label)

    def permutation(self, count):
        return np.arange(count) if self.label in self.steps else super().permutation(count)


class Kept(Lists):
    """Lists whose secrets stay: those of the job, and those that last."""

    def __init__(self, secrets, *rest):
        self.secrets = secrets
        super().__init__(*rest)

    async def meet(self, **how):
        count = await super().meet(**how)
        self.secrets[self.role] = (self.secret, self.lasting)
        return count


class Counting(Silent):
    def __init__(self):
        self.done = self.total = 0

    def emit(self, event):
        match event:
            case PhaseBegan(phase, total, unit):
                assert (phase, unit) == ("align", "group operations")
                self.total = total
            case Advanced(steps):
                self.done += steps


class Run:
    """What came of one run: results (or exceptions), and all lists by name."""

    def __init__(self, protocol, results, spies, progress, secrets, group, ids):
        self.active, self.passive = results
        self.protocol, self.spies, self.progress, self.secrets, self.group = protocol, spies, progress, secrets, group
        self.ids = dict(zip(ROLES, ids, strict=True))
        self.lists = {**spies[0].lists, **spies[1].lists}

    def scalar(self, role, name):
        """A party's secret scalar, as that party itself knows it."""
        job, lasting = self.secrets[role]
        return self.group.draw((job if name == "scalar 3" else lasting).derive(name))

    def canonical(self, role):
        """A party's identifiers in the order that does not depend on the table."""
        return self.ids[role].take(self.ids[role].canonical_order)

    def order(self, role, step):
        """A party's secret order of a step, as that party itself knows it: places in its table."""
        secret = self.secrets[role][1].derive(step.removesuffix(" request"))
        return self.ids[role].canonical_order[secret.permutation(len(self.lists[step]))]

    def power(self, rows, scalar):
        return self.group.power(rows, scalar, _workers)


class Vector(SafePrimeGroup):
    """The group of the vectors: p = 1283, h(x) = x² mod p, chosen exponents."""

    def __init__(self, *exponents):
        super().__init__("vector", 1283)
        self.exponents = list(exponents)

    def hash_texts(self, text, offsets, domain):
        ids = strings_of(text, offsets)
        return self._pack([self.p.__class__(int.from_bytes(item, "big")) ** 2 % self.p for item in ids])

    def draw(self, randomness):
        return Scalar(self.exponents.pop(0))


_workers = Threads(2)


@pytest.fixture(scope="session")
def vector_group():
    return Vector


def _rank(item):
    return hashlib.sha256(item).digest()[:16]


@pytest.fixture(scope="session")
def proven_absent():
    """What a list in canonical order would tell, since everybody can compute that order.

    ``proven_absent(places, count, candidates)``: of the candidates those that a list of ``count``
    elements has no room for, between the places (id → place) that are known.
    """

    def proven(places, count, candidates):
        known = sorted(places, key=_rank)
        ranks, bounds = [_rank(item) for item in known], [-1, *(places[item] for item in known), count]
        at = {item: bisect.bisect(ranks, _rank(item)) for item in candidates}
        return {item for item, i in at.items() if bounds[i + 1] - bounds[i] == 1}

    return proven


@pytest.fixture
def folders():
    """A folder for each party's lists, which outlives an attempt."""
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as scratch:
        yield [Path(scratch, role) for role in ROLES]


@pytest.fixture(scope="session")
def workers():
    return _workers


@pytest.fixture(scope="session")
def toy_group():
    """QR(p) for the largest 80-bit safe prime: as fast as it is unsafe. Lists come in several chunks."""
    group = SafePrimeGroup("toy", 2**80 - 5837)
    group.chunk_rows = 4
    return group


@pytest.fixture(scope="session")
def groups(toy_group):
    return {"toy": toy_group, "curve25519": Curve25519()}


@pytest.fixture(scope="session")
def run_alignment(toy_group):
    """Run both sides in memory: ``run_alignment(protocol, ids_a, ids_p, …) -> Run``.

    ``folders`` and ``pins`` of an earlier run make it a resumed attempt; ``memories`` a later job with the same peer.
    ``wish`` is the active owner's own for the obfuscated set. ``change``, ``instead`` and, by role, ``greet`` and
    ``introduce``: see :class:`Spy`.
    """

    def run(
        protocol,
        ids_a,
        ids_p,
        *,
        group=toy_group,
        seed=1,
        unshuffled=(),
        change=None,
        instead=None,
        greet=None,
        introduce=None,
        pins=None,
        groups=None,
        folders=None,
        memories=None,
        limits=ANY_SIZE,
        wish=NO_WISH,
        job_id="job",
        predict=None,
        table=DEFAULT_TABLE,
        machine=None,
        cached=None,
        **terms,
    ):
        if protocol == "apsi":
            terms.setdefault("obfuscation", {"fraction": 0.6})
        sent = SENT[protocol]
        if terms.get("server") == "active":
            sent = dict(zip(ROLES, reversed(sent.values()), strict=True))
        channels = memory_channels(*NAMES, job_id=job_id)
        spies = [
            Spy(channel._pipe, peer=channel.peer, job_id=channel.job_id).watch(
                sent[role], change, instead, (greet or {}).get(role), (introduce or {}).get(role)
            )
            for channel, role in zip(channels, ROLES, strict=True)
        ]
        randomness = {role: Unshuffled(bytes([seed, i]) * 16, unshuffled) for i, role in enumerate(ROLES)}
        progress = [Counting(), Counting()]
        ids = [Identifiers.from_items(ids_a), Identifiers.from_items(ids_p)]
        with tempfile.TemporaryDirectory(dir=IN_MEMORY) as scratch:
            sides = []
            for i, role in enumerate(ROLES):
                memory = memories[i] if memories else MemoryOfOneRun(Unshuffled(bytes([seed, i, 1, 1]) * 8, unshuffled))
                own = session(
                    NAMES[i],
                    {spies[i].peer: spies[i]},
                    randomness[role],
                    align=Align(protocol=protocol, **terms),
                    predict=predict,
                    folder=folders[i] if folders else Path(scratch, role),
                    memories={spies[i].peer: memory},
                    pins=pins[i] if pins else MemoryPins(),
                    progress=progress[i],
                    limits=limits,
                    obfuscation=wish,
                    cached=cached / role if cached else None,
                    **(machine or {"workers": _workers}),
                )
                sides.append((align(own, OwnRecords(ids[i], table=table), group=groups[i] if groups else group), spies[i]))
            secrets = {}
            with mock.patch("vfl_node.alignment.lists.side.Lists", partial(Kept, secrets)):
                results = run_together(*sides)
        return Run(protocol, results, spies, progress, secrets, group, ids)

    return run
