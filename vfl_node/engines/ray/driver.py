"""The child of a node that talks to Ray. It passes on sealed bytes, which it cannot open.

Messages on the pipe begin with a letter. Handles have 16 bytes, numbers 8, actors 4.

====  ======================================  ====  ==============================================
node → driver                                 driver → node
============================================  ====================================================
A     actor, the engine's key sealed to it    S     the cluster is there
K     handle, key of a job                    H     actor, public key (32), process id (8), build
F     handle: forget it                       R     number, result
B     handle, number, block                   L     number, why its block is lost
====  ======================================  ====  ==============================================
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from queue import Empty, SimpleQueue
from typing import Any

import ray

from vfl_node.engines.ray.worker import MOST_KEYS, NO_WORKER, Worker

_ADMIT_S, _AGAIN_S, _END_S = 30.0, 1.0, 3.0
_FULL = (ray.exceptions.ObjectStoreFullError, ray.exceptions.OutOfDiskError)


@dataclass
class _Block:
    """A sealed block, since when it is here, how many workers were lost over it, and Ray's promise of its result."""

    handle: bytes
    number: bytes
    sealed: bytes
    since: float = field(default_factory=time.monotonic)
    losses: int = 0
    answer: Any = None


@dataclass(frozen=True)
class DriverPlan:
    """What the node's settings say of the cluster, and the name of the function that describes a build."""

    address: str
    workers: int
    slots: int
    retries: int
    start_s: float
    build: str


class Driver:
    """Keeps an actor for each worker at work, each on a thread of its own.

    Args:
        end: file descriptor of this end of the pipe.
        plan: what to do.
    """

    def __init__(self, end: int, plan: DriverPlan) -> None:
        self._plan, self._pipe = plan, Connection(end)
        self._sending = threading.Lock()
        lock = threading.RLock()  # guards what follows
        self._changed = threading.Condition(lock)  # actors without a block wait for it
        self._needed = threading.Condition(lock)  # threads without an actor wait for it
        self._waiting: deque[_Block] = deque()
        self._keys: dict[bytes, bytes] = {}
        self._holders: dict[bytes, dict[int, Any]] = {}  # handle of a key → the actors that have it
        self._actors: dict[int, Any] = {}  # those that are ready
        self._admitted: dict[int, SimpleQueue[bytes]] = {}
        self._started, self._there = 0, False
        self._why, self._without = "", time.monotonic()  # why the last start failed; since when there is no actor

    def serve(self) -> None:
        """Work until the node closes the pipe or is gone. Does not return."""
        threading.Thread(target=self._leave_early, daemon=True).start()
        try:
            ray.init(address=self._plan.address, namespace=f"vfl-{os.getpid()}-{time.time_ns()}", log_to_driver=False)
        except Exception as error:  # noqa: BLE001 - the node reads why
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
            sys.stderr.flush()
            os._exit(1)
        try:
            self._there = True
            self._class = ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0, scheduling_strategy="SPREAD")(Worker)
            self._send(b"S")
            for main in (self._watch, *[self._tend] * self._plan.workers):
                threading.Thread(target=main, daemon=True).start()
            while True:
                self._receive(self._pipe.recv_bytes())
        except (EOFError, OSError):
            pass
        finally:
            threading.Timer(_END_S, os._exit, (0,)).start()
            with suppress(Exception):
                ray.shutdown()  # its actors end with it
            os._exit(0)

    def _leave_early(self) -> None:
        """End at once, where the node does so before the cluster is there: until then it sends nothing."""
        with suppress(OSError):
            self._pipe.poll(None)
        if not self._there:
            os._exit(1)

    def _receive(self, message: bytes) -> None:
        kind = message[:1]
        with self._changed:
            if kind == b"A":
                if admitted := self._admitted.get(int.from_bytes(message[1:5], "big")):  # else it was too late
                    admitted.put(message[5:])
            elif kind == b"K":
                self._keys[message[1:17]] = message[17:]
            elif kind == b"F":
                self._keys.pop(message[1:17], None)
                for actor in self._holders.pop(message[1:17], {}).values():
                    with suppress(Exception):  # it is gone, and so is its key
                        actor.forget.remote(message[1:17])
            elif kind == b"B":
                self._waiting.append(_Block(message[1:17], message[17:25], message[25:]))
                self._changed.notify()
                self._needed.notify()

    def _send(self, *parts: bytes) -> None:
        with self._sending:
            self._pipe.send_bytes(b"".join(parts))

    def _tend(self) -> None:
        """Keep one actor at work; start another one when it is lost."""
        with suppress(OSError):  # the node is gone, so this process ends
            while True:
                with self._changed:
                    self._needed.wait_for(lambda: self._waiting)
                try:
                    actor = self._start()
                except Exception as error:  # noqa: BLE001 - Ray has many; whoever waits too long is told
                    self._why = f": {_reason(error)}"
                    time.sleep(_AGAIN_S)
                else:
                    _Hand(actor, self._plan.slots).work(self)

    def _start(self) -> tuple[int, Any]:
        """A new actor that has the engine's key, and its number. Raises what Ray does, also where there is no room in time."""
        with self._changed:
            self._started += 1
            number, admitted = self._started, SimpleQueue[bytes]()
            self._admitted[number] = admitted
        actor = None
        try:
            actor = self._class.remote()
            public, build, process = ray.get(actor.hello.remote(self._plan.build), timeout=self._plan.start_s)
            self._send(b"H", number.to_bytes(4, "big"), public, process.to_bytes(8, "big"), build.encode())
            ray.get(actor.admit.remote(admitted.get(timeout=_ADMIT_S)), timeout=_ADMIT_S)
        except BaseException:
            _kill(actor)
            raise
        finally:
            with self._changed:
                del self._admitted[number]
        with self._changed:
            self._actors[number] = actor
        return number, actor

    def _watch(self) -> None:
        """Tell of blocks that wait for too long while there is no actor, whoever is starting one."""
        with suppress(OSError):  # the node is gone, so this process ends
            while True:
                time.sleep(_AGAIN_S)
                for block in self._drop_late():
                    self._send(b"L", block.number, f"{NO_WORKER} within {self._plan.start_s:g} s{self._why}".encode())

    def _drop_late(self) -> list[_Block]:
        with self._changed:
            limit = time.monotonic() - self._plan.start_s
            if self._actors or self._without > limit:
                return []
            waiting, self._waiting = self._waiting, deque(block for block in self._waiting if block.since > limit)
            return [block for block in waiting if block.since <= limit]

    # What an actor's thread asks for.

    def take(self, *, wait: bool) -> tuple[_Block, bytes] | None:
        """The next block and the key for it; None: there is none now. Blocks that nobody wants any more are dropped."""
        with self._changed:
            while True:
                while self._waiting:
                    block = self._waiting.popleft()
                    if key := self._keys.get(block.handle):
                        return block, key
                if not wait:
                    return None
                self._changed.wait()

    def key_for(self, block: _Block) -> bytes | None:
        """The key for a block; None: the node has said to forget it, so that it does not wait for the block."""
        return self._keys.get(block.handle)

    def provision(self, number: int, actor: Any, handle: bytes, key: bytes) -> None:
        """Give an actor the key of a job, until the node says that it is to be forgotten."""
        with self._changed:
            if handle in self._keys:
                actor.provision.remote(handle, key)
                self._holders.setdefault(handle, {})[number] = actor

    def done(self, block: _Block, result: bytes) -> None:
        """Pass on a result."""
        self._send(b"R", block.number, result)

    def put_back(self, block: _Block) -> bool:
        """Have a block done later: a full object store is no fault of a worker. False: it has waited too long."""
        if block.since < time.monotonic() - self._plan.start_s:
            return False
        with self._changed:
            self._waiting.appendleft(block)
            self._changed.notify()
        return True

    def lose(self, number: int, blocks: Iterable[_Block], error: Exception) -> None:
        """An actor is gone, or of no use. The first of its blocks may be at fault; all are repeated, but not for ever."""
        first, *others = blocks
        first.losses += 1
        over = first.losses > self._plan.retries
        with self._changed:
            _kill(self._actors.pop(number))
            if not self._actors:
                self._without = time.monotonic()
            self._waiting.extendleft(reversed(others if over else [first, *others]))
            self._changed.notify_all()
            self._needed.notify_all()
        if over:
            self._send(b"L", first.number, f"{first.losses} workers were lost over it: {_reason(error)}".encode())


class _Hand:
    """One actor and the blocks that it has.

    Args:
        actor: its number, and Ray's handle of it.
        slots: blocks that it has at a time, so that one is there when another is done.
    """

    def __init__(self, actor: tuple[int, Any], slots: int) -> None:
        self._number, self._actor = actor
        self._slots = slots
        self._underway: deque[_Block] = deque()
        self._known: dict[bytes, None] = {}  # the newest keys that it was given

    def work(self, driver: Driver) -> None:
        """Give it blocks until it is lost. Raises OSError: the node is gone."""
        most = self._slots
        while True:
            try:
                result = self._finish_first(driver, most)
            except Exception as error:  # noqa: BLE001 - Ray has many
                if isinstance(error, _FULL) and self._put_back(driver):
                    most = 1  # until a result has made room
                    continue
                driver.lose(self._number, self._underway, error)
                return
            most = self._slots
            block = self._underway.popleft()
            if result is not None:
                driver.done(block, result)
            del block, result  # so that this waiting thread does not keep them alive

    def _put_back(self, driver: Driver) -> bool:
        """Do without the block that did not begin, or else the first, whose result had no place; False: it is too late."""
        place = -1 if self._underway[-1].answer is None else 0
        if not driver.put_back(self._underway[place]):
            return False
        del self._underway[place]
        if not self._underway:
            time.sleep(_AGAIN_S)
        return True

    def _finish_first(self, driver: Driver, most: int) -> bytes | None:
        """Begin blocks while there is room, and wait for the result of the first; None: the node does not want it any more."""
        while len(self._underway) < most and (taken := driver.take(wait=not self._underway)):
            self._underway.append(taken[0])  # before anything can fail
            self._begin(driver, *taken)
        first = self._underway[0]
        result: bytes | None = ray.get(first.answer)
        if result is None and (key := driver.key_for(first)):
            self._known.pop(first.handle, None)  # a worker without the key gets it again
            self._begin(driver, first, key)
            result = ray.get(first.answer)
            if result is None and driver.key_for(first):
                raise ValueError("a worker has no key")
        return result

    def _begin(self, driver: Driver, block: _Block, key: bytes) -> None:
        block.answer = None
        if block.handle not in self._known:
            driver.provision(self._number, self._actor, block.handle, key)
            self._known[block.handle] = None
            if len(self._known) > MOST_KEYS:
                del self._known[next(iter(self._known))]
        block.answer = self._actor.do.remote(block.handle, block.number, block.sealed)


def _kill(actor: Any) -> None:
    with suppress(Exception):
        ray.kill(actor)


def _reason(error: Exception) -> str:
    """In one word: texts of Ray are long."""
    return "the node did not admit it" if isinstance(error, Empty) else type(error).__name__


def main(end: int, plan: DriverPlan) -> None:
    """The main function of the child."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Driver(end, plan).serve()
