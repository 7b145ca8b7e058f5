"""Two parties in memory, with everything they send on record and open to interference."""

from __future__ import annotations

import numpy as np
import pytest

from vfl_node.alignment import psi, psu
from vfl_node.alignment.alignment import MemoryPins
from vfl_node.crypto.groups import Curve25519, SafePrimeGroup
from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.workers import ThreadWorkers
from vfl_node.progress import Silent
from vfl_node.transport.channel import Channel, memory_channels, run_together

SENT = {  # lists in the order each side sends them
    "psu": {
        "active": ["step 3", "step 8", "step 11 request", "step 12 reply"],
        "passive": ["step 5", "step 4", "step 9", "step 12 request", "step 11 reply"],
    },
    "psi": {"active": ["step 1", "step 4"], "passive": ["step 2", "step 3"]},
}
SIDES = {"psu": {"active": psu.active, "passive": psu.passive}, "psi": {"active": psi.active, "passive": psi.passive}}

TOY = 0xFC9DC1E26B7C4B47_0000  # replaced below by the prime itself


class Spy(Channel):
    """A channel that records each list it sends, and may send another one instead."""

    def watch(self, names, change=None):
        self.names, self.change, self.lists, self.messages = list(names), change or {}, {}, []
        return self

    async def send(self, message):
        self.messages.append(message)
        await super().send(message)

    async def send_rows(self, rows, *, count, width):
        blocks = [rows] if isinstance(rows, np.ndarray) else list(rows)
        gathered = np.concatenate([np.empty((0, width), np.uint8), *blocks])
        assert len(gathered) == count
        name = self.names[len(self.lists)]
        if name in self.change:
            gathered = self.change[name](gathered)
        self.lists[name] = gathered
        await super().send_rows(gathered, count=len(gathered), width=width)


class Unshuffled(Randomness):
    """Randomness that leaves the order of the named steps as it is: a negative control."""

    def __init__(self, seed, steps, label=""):
        super().__init__(seed)
        self.steps, self.label = steps, label

    def derive(self, label):
        return Unshuffled(super().derive(label)._seed, self.steps, label)

    def permutation(self, count):
        return np.arange(count) if self.label in self.steps else super().permutation(count)


class Counting(Silent):
    def __init__(self):
        self.done = self.total = 0

    def phase(self, name, total, unit):
        assert (name, unit) == ("align", "group operations")
        self.total = total

    def advance(self, steps):
        self.done += steps


class Run:
    """What came of one run: results (or exceptions), and all lists by name."""

    def __init__(self, protocol, results, spies, progress, randomness, group):
        self.active, self.passive = results
        self.protocol, self.spies, self.progress, self.randomness, self.group = protocol, spies, progress, randomness, group
        self.lists = {**spies[0].lists, **spies[1].lists}

    def scalar(self, role, name):
        """A party's secret scalar, as that party itself knows it."""
        return self.group.draw(self.randomness[role].derive(self.protocol).derive(name))

    def order(self, role, step):
        """A party's secret permutation of a step, as that party itself knows it."""
        return (
            self.randomness[role].derive(self.protocol).derive(step.removesuffix(" request")).permutation(len(self.lists[step]))
        )

    def power(self, rows, scalar):
        return self.group.power(rows, scalar, _workers)


_workers = ThreadWorkers(2)


@pytest.fixture(scope="session")
def workers():
    return _workers


@pytest.fixture(scope="session")
def toy_group():
    """QR(p) for the largest 80-bit safe prime: as fast as it is unsafe."""
    return SafePrimeGroup("toy", 2**80 - 5837)


@pytest.fixture(scope="session")
def groups(toy_group):
    return {"toy": toy_group, "curve25519": Curve25519()}


@pytest.fixture(scope="session")
def run_alignment(toy_group):
    """Run both sides in memory: ``run_alignment(protocol, ids_a, ids_p, …) -> Run``."""

    def run(protocol, ids_a, ids_p, *, group=toy_group, seed=1, unshuffled=(), change=None, pins=None, groups=None):
        channels = memory_channels("clinic", "lab")
        spies = [
            Spy(channel._pipe, peer=channel.peer, job_id=channel.job_id).watch(SENT[protocol][role], change)
            for channel, role in zip(channels, ("active", "passive"), strict=True)
        ]
        randomness = {role: Unshuffled(bytes([seed, i]) * 16, unshuffled) for i, role in enumerate(SIDES[protocol])}
        progress = [Counting(), Counting()]
        results = run_together(
            *(
                (
                    SIDES[protocol][role](
                        spies[i],
                        (ids_a, ids_p)[i],
                        group=groups[i] if groups else group,
                        randomness=randomness[role],
                        workers=_workers,
                        pins=pins[i] if pins else MemoryPins(),
                        progress=progress[i],
                    ),
                    spies[i],
                )
                for i, role in enumerate(("active", "passive"))
            )
        )
        return Run(protocol, results, spies, progress, randomness, group)

    return run
