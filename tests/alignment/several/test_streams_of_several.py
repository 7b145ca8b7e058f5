"""With several passive parties over streams that block and hold one message only: no deadlock, and all compute at once."""

from __future__ import annotations

import queue
import threading

import numpy as np
import pytest

from benchmarks.sessions import session
from tests.alignment.several.parties import NAMES
from tests.alignment.test_blocking_streams import Narrow
from vfl_node.alignment.alignment import OwnRecords
from vfl_node.alignment.lists.lists import Lists
from vfl_node.alignment.protocols import align
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.identifiers import Identifiers
from vfl_node.job import Align, Parties
from vfl_node.session.memory import MemoryOfOneRun
from vfl_node.transport.channel import Channel, run
from vfl_node.transport.memory import memory_channels, run_together
from vfl_node.transport.recorder import Recorder

N = 4
PARTIES = Parties(active=NAMES[0], passive=NAMES[1:N])
IDS = [[b"%d" % i for i in range(40 * party, 40 * party + 150)] for party in range(N)]


def side(name, channels, protocol, folder):
    seed = Randomness(name.encode().ljust(32))
    own = session(
        name,
        channels,
        seed,
        parties=PARTIES,
        align=Align(protocol=protocol),
        folder=folder / name,
        memories={other: MemoryOfOneRun(seed.derive(other)) for other in PARTIES.others(name)},
    )
    return align(own, OwnRecords(Identifiers.from_items(IDS[NAMES.index(name)])))


def over_streams(protocol, folder, recorder):
    """Results by name; each party is a thread, and each stream has room for one frame each way."""
    channels = {name: {} for name in PARTIES.data}
    for passive in PARTIES.passive:
        there, back = queue.Queue(1), queue.Queue(1)
        for me, other, ways in ((PARTIES.active, passive, (back, there)), (passive, PARTIES.active, (there, back))):
            channels[me][other] = recorder.wrap(me, Channel(Narrow(*ways), peer=other, job_id="j"))
    results = {}

    def work(name):
        results[name] = run(side(name, channels[name], protocol, folder))

    threads = [threading.Thread(target=work, args=(name,)) for name in PARTIES.data]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@pytest.mark.parametrize("protocol", ["psu", "psi"])
def test_blocking_equals_in_memory(monkeypatch, tmp_path, protocol):
    monkeypatch.setattr("vfl_node.transport.channel.CHUNK_BYTES", 1024)  # several messages a list, as for millions of rows
    in_memory, streams = Recorder(), Recorder()
    channels = {name: {} for name in PARTIES.data}
    for passive in PARTIES.passive:
        ends = memory_channels(PARTIES.active, passive, job_id="j")
        for me, other, end in zip((PARTIES.active, passive), (passive, PARTIES.active), ends, strict=True):
            channels[me][other] = in_memory.wrap(me, end)
    expected = run_together(
        *((side(name, mine, protocol, tmp_path / "memory"), list(mine.values())) for name, mine in channels.items())
    )
    results = over_streams(protocol, tmp_path / "streams", streams)
    for name, result in zip(PARTIES.data, expected, strict=True):
        np.testing.assert_array_equal(results[name].rows, result.rows)
        for other in PARTIES.peers_of(name):
            sent, again = (
                [entry.frame for entry in of.entries if (entry.sender, entry.receiver) == (name, other)]
                for of in (in_memory, streams)
            )
            assert sent == again


@pytest.mark.parametrize("rounds", [1, 3])
def test_all_passive_parties_compute_at_the_same_time(monkeypatch, tmp_path, rounds):
    """In the first step each waits in its computation for the others to be in theirs."""
    all_there, original = threading.Barrier(N - 1), Lists.powers
    due = {f"round {rounds} list {of} hop 0 powers" for of in range(1, N)}

    def powers(self, name, source, scalar):
        if name in due:
            all_there.wait(timeout=60)
        return original(self, name, source, scalar)

    monkeypatch.setattr(Lists, "powers", powers)
    results = over_streams("psi", tmp_path, Recorder())
    assert {len(result) for result in results.values()} == {30}
