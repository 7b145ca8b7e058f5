"""The driver without a cluster: a small module in place of Ray, with as many cores as a test says."""

from __future__ import annotations

import importlib
import os
import socket
import sys
import threading
import time
from multiprocessing.connection import Pipe
from types import ModuleType, SimpleNamespace

import pytest
from nacl.public import PublicKey, SealedBox

from vfl_node.engines.ray.sealing import Sealer
from vfl_node.engines.ray.worker import MOST_KEYS, Worker

HANDLE = b"h" * 16
DRIVER = "vfl_node.engines.ray.driver"


class Answer:
    """What a call of an actor promises."""

    def __init__(self):
        self.there, self.value = threading.Event(), None


class Full(Exception):
    """The object store has no room for a block, or for a result."""


class FakeRay(ModuleType):
    """``cores`` actors answer, others never do. ``fault``: raised by whatever the named method is asked for."""

    def __init__(self, cores):
        super().__init__("ray")
        self.cores, self.fault, self.lock, self.actors, self.lacking = cores, "", threading.Lock(), [], 0
        self.exceptions = SimpleNamespace(ObjectStoreFullError=Full, OutOfDiskError=Full)
        self.full = dict.fromkeys(("put", "get"), 0)
        self.exits, self.found = [], threading.Event()
        self.found.set()

    def init(self, **_):
        self.found.wait()

    def remote(self, **_):
        return lambda worker: SimpleNamespace(remote=self.start)

    def start(self):
        if self.fault == "start":
            raise RuntimeError(self.fault)
        with self.lock:
            self.cores -= 1
            self.actors.append(FakeActor(self, self.cores >= 0))
        return self.actors[-1]

    def get(self, answer, timeout=None):
        if not answer.there.wait(timeout):
            raise TimeoutError
        if answer.value == b"result":
            self.make_room("get")
        return answer.value

    def make_room(self, why):
        """Raises Full, as often as a test says."""
        with self.lock:
            self.full[why] -= 1
            if self.full[why] >= 0:
                raise Full

    def kill(self, actor):
        with self.lock:
            self.cores += 1

    def shutdown(self):
        pass


class FakeActor:
    """Does nothing but say what it was asked for."""

    def __init__(self, ray, works):
        self.ray, self.works, self.given = ray, works, 0

    def __getattr__(self, name):
        return SimpleNamespace(remote=lambda *given: self.answer(name))

    def answer(self, name):
        if self.ray.fault == name:
            raise RuntimeError(name)
        if name == "do":
            self.ray.make_room("put")
        answer = Answer()
        if self.works:
            self.given += name == "provision"
            lacks = name == "do" and self.given <= self.ray.lacking
            answer.value = None if lacks else {"hello": (b"p" * 32, "build", 1), "do": b"result"}.get(name)
            answer.there.set()
        return answer


class Node:
    """Talks to a driver, and admits each of its workers."""

    def __init__(self, driver, ray, **plan):
        self.pipe, theirs = Pipe()
        self.told, self.heard, self.begun, self.number = {}, threading.Condition(), threading.Event(), 0
        given = {"address": "", "workers": 1, "slots": 1, "retries": 3, "start_s": 0.5, "build": ""} | plan
        self.driver = driver.Driver(os.dup(theirs.fileno()), driver.DriverPlan(**given))
        self.threads = [threading.Thread(target=main, daemon=True) for main in (self.driver.serve, self.listen)]
        for thread in self.threads:
            thread.start()

    def listen(self):
        while True:
            try:
                message = self.pipe.recv_bytes()
            except (EOFError, OSError):
                return
            if message == b"S":  # a node sends nothing before
                self.pipe.send_bytes(b"K" + HANDLE + b"key")
                self.begun.set()
            if message[:1] == b"H":
                self.pipe.send_bytes(b"A" + message[1:5] + b"key")
            elif message[:1] in b"RL":
                with self.heard:
                    self.told[int.from_bytes(message[1:9], "big")] = message[:1] + message[9:]
                    self.heard.notify_all()

    def give(self):
        assert self.begun.wait(20)
        self.number += 1
        self.pipe.send_bytes(b"B" + HANDLE + self.number.to_bytes(8, "big") + b"block")
        return self.number

    def hears(self, number, seconds=20):
        with self.heard:
            self.heard.wait_for(lambda: number in self.told, seconds)
            return self.told.get(number)

    def go(self):
        """End as a process does: both ends hear of it."""
        with socket.socket(fileno=os.dup(self.pipe.fileno())) as end:
            end.shutdown(socket.SHUT_RDWR)

    def close(self):
        """End, with both threads: one that is about to read would otherwise read the pipe that gets this one's number next."""
        self.go()
        for thread in self.threads:
            thread.join(20)
            assert not thread.is_alive()
        self.pipe.close()


@pytest.fixture
def start(monkeypatch):
    """Makes a node with its driver; the keys say how many cores there are, and the plan."""
    made = []

    def make(cores, found=True, **plan):
        ray = FakeRay(cores)
        if not found:
            ray.found.clear()
        monkeypatch.setitem(sys.modules, "ray", ray)
        driver = importlib.import_module(DRIVER)
        driver.os = SimpleNamespace(getpid=os.getpid, _exit=ray.exits.append)
        driver._AGAIN_S, driver._END_S = 0.2, 0.0
        made.append(Node(driver, ray, **plan))
        return ray, made[-1]

    monkeypatch.delitem(sys.modules, DRIVER, raising=False)
    yield make
    for node in made:
        node.close()
    sys.modules.pop(DRIVER, None)


def until(condition):
    end = time.monotonic() + 20
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


def test_an_idle_worker_gets_every_block_though_there_are_more_workers_than_cores(start):
    _, node = start(1, workers=3, start_s=1.0)
    for number in [node.give() for _ in range(3)]:
        assert node.hears(number) == b"Rresult"
    time.sleep(1.5)  # those who start a worker without a core have given up, and wait as the idle worker does
    for _ in range(3):
        number = node.give()
        assert node.hears(number, 0.9) == b"Rresult"  # while others would still start
        time.sleep(0.1)  # the worker waits again, behind the others


def test_each_block_is_told_that_no_worker_starts_whoever_else_is_starting_one(start):
    _, node = start(0, workers=4, start_s=0.6)
    numbers = []
    for _ in range(12):  # there is always one that has just begun to start
        numbers.append(node.give())
        time.sleep(0.15)
    assert numbers[0] in node.told
    for number in numbers:
        assert node.hears(number).startswith(b"Lno worker started within 0.6 s")


def test_a_start_that_fails_at_once_is_told_too(start):
    ray, node = start(1)
    ray.fault = "start"
    assert node.hears(node.give()) == b"Lno worker started within 0.5 s: RuntimeError"
    ray.fault = ""
    assert node.hears(node.give()) == b"Rresult"


@pytest.mark.parametrize("fault", ["do", "provision"])
def test_a_block_that_cannot_be_handed_to_a_worker_is_repeated_or_told(start, fault):
    ray, node = start(1, retries=1)
    ray.fault = fault
    assert node.hears(node.give()) == b"L2 workers were lost over it: RuntimeError"
    ray.fault = ""
    assert node.hears(node.give()) == b"Rresult"
    assert len(ray.actors) == 3


def test_a_driver_ends_with_its_node_while_it_looks_for_the_cluster(start):
    ray, node = start(1, found=False)
    node.go()
    assert until(lambda: ray.exits)
    ray.found.set()


@pytest.mark.parametrize("why", ["put", "get"])
def test_a_full_object_store_costs_neither_workers_nor_retries(start, why):
    ray, node = start(1, retries=0, slots=3, start_s=60.0)
    ray.full[why] = 8
    numbers = [node.give() for _ in range(4)]
    for number in numbers:
        assert node.hears(number) == b"Rresult"
    assert (len(ray.actors), ray.full[why] < 0) == (1, True)


@pytest.mark.parametrize("why", ["put", "get"])
def test_an_object_store_that_stays_full_is_told(start, why):
    ray, node = start(1, retries=0, start_s=0.5)
    ray.full[why] = 1000
    assert node.hears(node.give()) == b"L1 workers were lost over it: Full"


def test_a_worker_that_lacks_a_key_gets_it_again_but_not_for_ever(start):
    ray, node = start(1, retries=0)
    ray.lacking = 1
    assert node.hears(node.give()) == b"Rresult"
    assert len(ray.actors) == 1
    ray.lacking = 1000
    assert node.hears(node.give()) == b"L1 workers were lost over it: ValueError"


def test_a_worker_that_gets_a_key_again_drops_no_other():
    worker, sealer = Worker(), Sealer(bytes(32))
    worker.admit(SealedBox(PublicKey(worker.hello("")[0])).encrypt(bytes(32)))
    handles = [bytes([number]) * 16 for number in range(MOST_KEYS)]
    for handle in [*handles, handles[-1]]:
        worker.provision(handle, sealer.seal(1, b"key" + handle))
    assert [worker.do(handle, b"n" * 8, b"") is not None for handle in handles] == [True] * MOST_KEYS
