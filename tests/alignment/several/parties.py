"""Three to nine parties in memory, with everything they send on record and open to interference."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np

from benchmarks.sessions import session
from tests.alignment.conftest import ANY_SIZE, IN_MEMORY, Counting, Spy
from vfl_node.alignment.alignment import OwnRecords
from vfl_node.alignment.lists.lists import Lists
from vfl_node.alignment.protocols import align
from vfl_node.alignment.several.route import Route, list_name
from vfl_node.crypto.groups import SafePrimeGroup
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.identifiers import Identifiers
from vfl_node.engines.threads import Threads
from vfl_node.job import Align, Parties
from vfl_node.session.memory import MemoryOfOneRun
from vfl_node.session.pins import MemoryPins
from vfl_node.transport.memory import memory_channels, run_together

NAMES = ("clinic", "lab", "insurer", "shop", "bank", "gym", "school", "council", "museum")
TOY = SafePrimeGroup("toy", 2**80 - 5837)
TOY.chunk_rows = 4
WORKERS = Threads(2)


class Ordered(Randomness):
    """Randomness that leaves the orders with some labels as they are, or takes one label for another: a negative control."""

    def __init__(self, seed, untouched=(), same=None, label=""):
        super().__init__(seed)
        self.untouched, self.same, self.label = untouched, same or {}, label

    def derive(self, label):
        label = self.same.get(label, label)
        return Ordered(super().derive(label)._seed, self.untouched, self.same, label)

    def permutation(self, count):
        return np.arange(count) if self.label in self.untouched else super().permutation(count)


class Watched(Lists):
    """Lists whose secrets stay, those of the job and those that last, and whose orders are open to interference."""

    def __init__(self, kept, tampered, *rest):
        self.kept, self.tampered = kept, tampered
        super().__init__(*rest)

    async def meet_all(self, receives):
        theirs = await super().meet_all(receives)
        name = self.session.name
        untouched, same = self.tampered.get(name, ((), {}))
        self.secret, self.lasting = (Ordered(secret._seed, untouched, same) for secret in (self.secret, self.lasting))
        self.kept[name] = (self.secret, self.lasting)
        return theirs


class Several:
    """What came of one run: results (or exceptions) by name, and every list by its name."""

    def __init__(self, names, ids, results, spies, secrets, progress, group):
        self.names, self.ids, self.group = names, ids, group
        self.results = dict(zip(names, results, strict=True))
        self.spies, self.secrets, self.progress = spies, secrets, progress
        self.sent = {way: dict(spy.lists) for way, spy in spies.items()}
        self.lists = {name: rows for lists in self.sent.values() for name, rows in lists.items()}

    def __getitem__(self, name):
        return self.results[name]

    def scalar(self, name, number):
        """A party's secret scalar, as that party itself knows it."""
        secret, lasting = self.secrets[name]
        return self.group.draw((secret if number == 3 else lasting).derive(f"scalar {number}"))

    def order(self, name, rounds):
        """A party's secret order of its list in a round: places in its table."""
        ids = self.ids[self.names.index(name)]
        return ids.canonical_order[self.secrets[name][1].derive(f"round {rounds}").permutation(len(ids))]

    def mix(self, name, goes, count):
        """The order in which a passive party sends a list of round 1 on."""
        return self.secrets[name][1].derive(goes).permutation(count)

    def power(self, rows, *scalars):
        return self.group.power(rows, self.group.product(*scalars), WORKERS)

    def received(self, name):
        """Every list that a party received."""
        return {key: rows for (_, to), lists in self.sent.items() if to == name for key, rows in lists.items()}

    def under_all(self, of):
        """A party's list at the end of round 1, under the first scalars of all: as the active party has it."""
        last = len(self.names) - 1
        if of == 0:
            return self.lists[list_name(1, 0, last)]
        return self.power(self.lists[list_name(1, of, last - 1)], self.scalar(self.names[0], 1))


def run_several(
    protocol,
    ids,
    *,
    group=TOY,
    groups=None,
    seed=1,
    tampered=None,
    change=None,
    instead=None,
    greet=None,
    introduce=None,
    relay=None,
    pins=None,
    folders=None,
    memories=None,
    limits=ANY_SIZE,
    limits_of=None,
    job_id="job",
    **terms,
):
    """Run all sides in memory.

    ``tampered``: party → (labels of orders to leave out, label → label to take instead). ``change`` and ``instead``: (sender,
    list) → as in :class:`Spy`; ``greet`` and ``introduce``: sender → as there; ``relay``: what the active party does to the
    messages by which it relays.
    """
    names = NAMES[: len(ids)]
    parties = Parties(active=names[0], passive=names[1:])
    route, ids = Route(parties.passive), [Identifiers.from_items(each) for each in ids]
    spies = {}
    for number, name in route.numbered:
        ends = memory_channels(names[0], name, job_id=job_id)
        for (me, other), end, lists in zip(
            ((names[0], name), (name, names[0])), ends, (route.from_active(number), route.from_passive(number)), strict=True
        ):
            own = {
                key: {item: act for (who, item), act in (given or {}).items() if who == me}
                for key, given in (("change", change), ("instead", instead))
            }
            spy = Relaying(end._pipe, peer=other, job_id=job_id)
            spies[me, other] = spy.watch(lists, **own, greet=(greet or {}).get(me), introduce=(introduce or {}).get(me))
            spy.relay, spy.owner = relay, me
    secrets, progress, sides = {}, [Counting() for _ in names], []
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as scratch:
        for i, name in enumerate(names):
            peers = {other: spies[name, other] for other in parties.peers_of(name)}
            own = session(
                name,
                peers,
                Randomness(bytes([seed, i]) * 16),
                parties=parties,
                align=Align(protocol=protocol, **terms),
                folder=folders[i] if folders else Path(scratch, name),
                memories=memories[i] if memories else fresh_memories(names, seed)[i],
                pins=pins[i] if pins else MemoryPins(),
                progress=progress[i],
                workers=WORKERS,
                limits=(limits_of or {}).get(name, limits),
            )
            sides.append((align(own, OwnRecords(ids[i]), group=groups[i] if groups else group), list(peers.values())))
        with mock.patch("vfl_node.alignment.lists.side.Lists", partial(Watched, secrets, tampered or {})):
            results = run_together(*sides)
    return Several(names, ids, results, spies, secrets, progress, group)


def fresh_memories(names, seed=1):
    """What each party remembers of each other one: nothing yet."""
    return [
        {other: MemoryOfOneRun(Randomness(bytes([seed, i, j, 9]) * 8)) for j, other in enumerate(names) if other != name}
        for i, name in enumerate(names)
    ]


class Relaying(Spy):
    """A spy that may relay other marks or sizes."""

    async def send(self, message):
        if self.relay and type(message).__name__ in self.relay:
            message = self.relay[type(message).__name__](message)
        await super().send(message)
