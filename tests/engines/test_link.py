"""The node's end of a driver, with programs in place of it: whatever the driver does, the node is told and can close."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest

from vfl_node.crypto.build import describe_build
from vfl_node.crypto.paillier.packing import join
from vfl_node.engines.queued import BlockTask
from vfl_node.engines.ray import cluster
from vfl_node.engines.ray import link as links
from vfl_node.engines.ray.cluster import Cluster
from vfl_node.engines.ray.link import Link
from vfl_node.errors import VflError
from vfl_node.settings.engine import EngineSettings

BEGIN = """
import os, sys, time
from multiprocessing.connection import Connection
node, build = Connection(int(sys.argv[1])), sys.argv[2].encode()
node.send_bytes(b"S")
def name(number, build):
    node.send_bytes(b"H" + number.to_bytes(4, "big") + bytes(range(1, 33)) + (7).to_bytes(8, "big") + build)
"""
TWO_BUILDS = """
name(1, b"other")
name(2, build)
node.recv_bytes()
"""
READS_ALL = """
while True:
    node.recv_bytes()
"""
READS_NOTHING = """
time.sleep(600)
"""


def settings(**more):
    given = {"kind": "ray", "address": "127.0.0.1:1", "token_file": "/token", "workers": 2, "allow_plain": True}
    return EngineSettings(**given | more)


@pytest.fixture
def start(monkeypatch):
    """Makes a link whose driver is a program, and the seat of an engine there."""
    made = []

    def make(program, build=describe_build, **more):
        def spawn(self, end):
            command = [sys.executable, "-c", BEGIN + program, str(end), describe_build()]
            return subprocess.Popen(command, pass_fds=[end], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)

        monkeypatch.setattr(Link, "_spawn", spawn)
        monkeypatch.setattr(links, "_END_S", 0.5)
        made.append(Link(settings(**more), build))
        made[-1].sit("seat")
        return made[-1]

    yield make
    for link in made:
        link.process.kill()


def compute(link, key, block, told):
    with pytest.raises(VflError) as caught:
        link.compute(BlockTask(join, key, block), "seat")
    told.append(caught.value.message)


def begin(link, blocks):
    """Each block on a thread of its own, with a key of its own; what the threads are told."""
    told = []
    threads = [
        threading.Thread(target=compute, args=(link, (n, 1), block, told), daemon=True) for n, block in enumerate(blocks)
    ]
    for thread in threads:
        thread.start()
    return threads, told


def ends(*threads):
    for thread in threads:
        thread.join(20)
    return not any(thread.is_alive() for thread in threads)


def closes(link):
    def close():
        link.leave("seat")
        link.join()

    closing = threading.Thread(target=close, daemon=True)
    closing.start()
    return ends(closing) and link.process.poll() is not None


def build_later():
    time.sleep(0.2)  # so that both workers have said theirs
    return describe_build()


def test_a_worker_that_is_named_after_one_of_another_build_leaves_nobody_waiting(start):
    link = start(TWO_BUILDS, build_later)
    threads, told = begin(link, [b"x"])
    assert ends(*threads)
    assert "another build" in told[0]
    assert closes(link)
    assert link.workers == []


def test_a_driver_that_does_not_read_can_be_closed(start):
    link = start(READS_NOTHING)
    threads, told = begin(link, [bytes(400_000)] * 3)
    assert link._connected.wait(20)
    time.sleep(0.3)  # the pipe is full now
    assert closes(link)
    assert ends(*threads)
    assert told == ["the engine was closed before a block was done"] * 3


def test_a_node_that_cannot_send_tells_who_waits(start):
    link = start(READS_ALL)
    sending = link._connection

    class Full:
        def __getattr__(self, name):
            return getattr(sending, name)

        def send_bytes(self, message):
            raise MemoryError

    link._connection = Full()
    threads, told = begin(link, [b"x"])
    assert ends(*threads)
    assert told[0].startswith("the driver of the cluster ended")
    assert closes(link)


def test_an_engine_that_is_forgotten_while_a_block_is_sent_stops_nobody(start):
    link = start(READS_ALL)
    link.sit("other")
    sending, begun, left = link._connection, threading.Event(), threading.Event()

    class Collecting:
        """Something is garbage-collected while it sends: an engine that nobody has any more."""

        def __getattr__(self, name):
            return getattr(sending, name)

        def send_bytes(self, message):
            if message[:1] == b"B":
                begun.set()
                time.sleep(0.3)  # another block begins meanwhile
                link.leave("other")
                left.set()
            sending.send_bytes(message)

    link._connection = Collecting()
    first, _ = begin(link, [b"x"])
    assert begun.wait(20)
    second, _ = begin(link, [b"x"])
    assert left.wait(2)
    assert closes(link)
    assert ends(*first, *second)


def test_blocks_that_have_no_room_yet_are_not_sealed_but_for_one(start):
    link, sealed, seal = start(READS_ALL, most_in_flight_mib=2), [], links.Sealer.seal

    class Counting:
        def seal(self, thing, about):
            sealed.append(about[:5])
            return seal(link_sealer, thing, about)

    link_sealer, link._sealer = link._sealer, Counting()
    threads, told = begin(link, [bytes(900_000)] * 10)
    assert link._connected.wait(20)
    time.sleep(0.3)
    assert sealed.count(b"block") == 3
    assert closes(link)
    assert ends(*threads)
    assert len(told) == 10


def test_the_build_is_that_of_the_moment_when_the_engine_is_made(monkeypatch):
    monkeypatch.setattr(cluster, "check_engine", lambda settings: None)
    asked = []
    Cluster(settings(), lambda: asked.append(1)).close()
    assert asked == [1]
