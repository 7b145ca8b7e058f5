"""The protocols over streams that block and hold one message only: they end, with the same bytes."""

from __future__ import annotations

import queue
import threading
import time

import numpy as np
import pytest

from benchmarks.sessions import BY_ROLE, session
from vfl_node.alignment.alignment import OwnRecords
from vfl_node.alignment.protocols import align
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.identifiers import Identifiers
from vfl_node.engines.threads import Threads
from vfl_node.job import Align
from vfl_node.session.memory import MemoryOfOneRun
from vfl_node.transport.channel import Channel, run
from vfl_node.transport.generated.vfl.v1 import session_pb2
from vfl_node.transport.memory import memory_channels, run_together
from vfl_node.transport.recorder import Recorder

ROLES = ("active", "passive")
IDS = {"active": [b"%d" % i for i in range(900)], "passive": [b"%d" % i for i in range(300, 1700)]}


class Narrow:
    """One end of a pair of queues with room for one frame each."""

    def __init__(self, inbox, outbox):
        self.inbox, self.outbox = inbox, outbox

    async def put(self, frame):
        data = frame.SerializeToString(deterministic=True)
        self.outbox.put(data, timeout=240)  # an exchange that blocks both ends with queue.Full

    async def get(self):
        return session_pb2.Frame.FromString(self.inbox.get(timeout=240))

    def can_put(self, frame):
        return not self.outbox.full()

    def can_get(self):
        return not self.inbox.empty()

    async def wait(self, ready):
        limit = time.monotonic() + 240
        while not ready():
            assert time.monotonic() < limit, "both ends wait"
            time.sleep(1e-4)

    def close(self):
        pass


TERMS = {
    "psu": Align(protocol="psu", dummies=50),
    "psi": Align(protocol="psi", padding=2),
    "apsi": Align(protocol="apsi", obfuscation={"fraction": 0.6}),
}


def side(role, protocol, channel, threads, folder):
    seed = Randomness(role.encode().ljust(32))
    own = session(
        role,
        {channel.peer: channel},
        seed,
        parties=BY_ROLE,
        align=TERMS[protocol],
        folder=folder / role,
        memories={channel.peer: MemoryOfOneRun(seed.derive("memory"))},
        workers=Threads(threads),
    )
    return align(own, OwnRecords(Identifiers.from_items(IDS[role])))


@pytest.mark.parametrize("protocol", TERMS)
def test_blocking_equals_in_memory(monkeypatch, tmp_path, protocol):
    monkeypatch.setattr("vfl_node.transport.channel.CHUNK_BYTES", 1024)  # many messages a list, as for millions of rows
    first, second = tmp_path / "in memory", tmp_path / "blocking"

    in_memory, over_streams = Recorder(), Recorder()
    channels = list(map(in_memory.wrap, ROLES, memory_channels(*ROLES, job_id="j")))
    expected = run_together(*((side(role, protocol, c, 1, first), c) for role, c in zip(ROLES, channels, strict=True)))

    there, back = queue.Queue(1), queue.Queue(1)
    narrow = [Narrow(back, there), Narrow(there, back)]
    results = {}

    def work(index, role):
        channel = over_streams.wrap(role, Channel(narrow[index], peer=ROLES[1 - index], job_id="j"))
        results[role] = run(side(role, protocol, channel, 1 + index, second))

    threads = [threading.Thread(target=work, args=item) for item in enumerate(ROLES)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    for index, role in enumerate(ROLES):
        np.testing.assert_array_equal(results[role].rows, expected[index].rows)
        sent, again = ([entry.frame for entry in of.entries if entry.sender == role] for of in (in_memory, over_streams))
        assert sent == again
