"""An alignment with several passive parties that is cut off anywhere, once begun again, ends as one that never was.

As tests/alignment/test_restart.py, whose chunks and steps of storing these are: a party dies before any message that it sends,
and before any chunk that it stores.
"""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.alignment.conftest import IN_MEMORY
from tests.alignment.several.parties import NAMES, fresh_memories, run_several
from tests.alignment.test_costs import CountingGroup
from vfl_node.alignment.alignment import Alignment
from vfl_node.alignment.lists.columns import Column
from vfl_node.alignment.several.costs import counts_of_several
from vfl_node.errors import PeerLost
from vfl_node.session.pins import MemoryPins
from vfl_node.transport.channel import Channel

N = 3
IDS = [[b"%d" % i for i in range(7)], [b"%d" % i for i in range(3, 11)], [b"%d" % i for i in range(5, 9)]]
IN_FLIGHT = 3 * 4
"""Most elements that a party has computed, or begun to compute, and not stored: chunks of four."""


class Killed(Exception):
    """kill -9; an exception that no handler of the product's own knows."""


class Life:
    """The events of one party in one attempt: which were there, and before which it dies."""

    def __init__(self, dies=None):
        self.dies, self.events = dies, 0

    def happens(self):
        if self.events == self.dies:
            raise Killed
        self.events += 1


class Disks:
    """What all parties keep of one job."""

    def __init__(self, protocol, folder):
        self.protocol, self.operations = protocol, [0] * N
        self.folders = [Path(folder, name) for name in NAMES[:N]]
        self.kept = {"pins": [MemoryPins() for _ in IDS], "memories": fresh_memories(NAMES[:N]), "folders": self.folders}

    def attempt(self, dies=None):
        """Run until each party has ended; (results by name, lives by name)."""
        lives = {name: Life((dies or {}).get(name)) for name in NAMES[:N]}
        groups = [CountingGroup() for _ in IDS]
        transmit, append = Channel._transmit, Column.append

        async def counted(channel, frame):
            lives[channel.owner].happens()
            await transmit(channel, frame)

        def stored(column, rows):
            lives[column._path.parent.name].happens()
            append(column, rows)

        with mock.patch.object(Channel, "_transmit", counted), mock.patch.object(Column, "append", stored):
            run = run_several(self.protocol, IDS, groups=groups, **self.kept)
        self.operations = [before + group.powered for before, group in zip(self.operations, groups, strict=True)]
        return run, lives

    def stored(self):
        """The bytes of all lists at all parties."""
        return {f"{path.parent.name} {path.name}": path.read_bytes() for of in self.folders for path in of.glob("*.rows")}


@functools.cache
def clean(protocol):
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        disks = Disks(protocol, folder)
        run, lives = disks.attempt()
        return run, {name: life.events for name, life in lives.items()}, disks.stored()


def check_same(disks, run, deaths):
    """The job ended as the clean run did, with the same lists to the last byte, and hardly any element computed twice."""
    expected, _, stored = clean(disks.protocol)
    for name in run.names:
        assert isinstance(run[name], Alignment), run[name]
        assert np.array_equal(run[name].rows, expected[name].rows)
        assert (run[name].learnt, run[name].peers) == (expected[name].learnt, expected[name].peers)
    assert run.lists.keys() == expected.lists.keys()
    assert all(np.array_equal(rows, run.lists[name]) for name, rows in expected.lists.items())
    assert disks.stored() == stored
    once = counts_of_several([len(own) for own in IDS], len(expected["clinic"]))
    for counts, operations in zip(once, disks.operations, strict=True):
        assert counts.powers <= operations <= counts.powers + IN_FLIGHT * deaths


def killed_at(protocol, events):
    for name, event in events:
        with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
            disks = Disks(protocol, folder)
            run, _ = disks.attempt({name: event})
            assert isinstance(run[name], Killed)
            ended = [run[other] for other in run.names if other != name]
            assert all(isinstance(result, PeerLost | Alignment) for result in ended)
            held = sum(len(rows) for rows in disks.stored().values())
            again, _ = disks.attempt()
            check_same(disks, again, deaths=1)
            starts = sum(spy.starts[item] for spy in again.spies.values() for item in spy.lists)
            assert starts > 0 or held < 1000  # what is there is not sent again


def every(protocol, step=1):
    _, events, _ = clean(protocol)
    return [(name, event) for name in events for event in range(NAMES.index(name), events[name], step)]


@pytest.mark.parametrize("protocol", ["psu", "psi"])
def test_cut_off_here_and_there(protocol):
    killed_at(protocol, every(protocol, step=41))


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["psu", "psi"])
def test_cut_off_anywhere(protocol):
    """Before every message that a party sends, and every chunk that it stores."""
    killed_at(protocol, every(protocol))


@settings(max_examples=8, deadline=None, derandomize=True)
@given(
    protocol=st.sampled_from(["psu", "psi"]),
    deaths=st.lists(st.dictionaries(st.sampled_from(NAMES[:N]), st.integers(0, 200), min_size=1), min_size=1, max_size=3),
)
def test_cut_off_again_and_again(protocol, deaths):
    """Any parties, several times in a row."""
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        disks = Disks(protocol, folder)
        for dies in deaths:
            disks.attempt(dies)
        run, _ = disks.attempt()
        check_same(disks, run, deaths=sum(map(len, deaths)))
