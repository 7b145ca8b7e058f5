"""The node's end of a driver: it starts the child, admits workers to it, and sends and receives sealed blocks."""

from __future__ import annotations

import json
import os
import re
import secrets
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from multiprocessing.connection import Pipe
from queue import SimpleQueue
from typing import Any

from nacl.public import PublicKey, SealedBox

from vfl_node.engines.queued import BlockTask, RemoteTrace
from vfl_node.engines.ray.handshake import find_fault
from vfl_node.engines.ray.sealing import KEY_BYTES, Sealer, name_of
from vfl_node.errors import VflError
from vfl_node.settings.engine import EngineSettings

_PROGRAM = (
    "import json, sys; end, plan, *sys.path = sys.argv[1:]; from vfl_node.engines.ray.driver import DriverPlan, main; "
    "main(int(end), DriverPlan(**json.loads(plan)))"
)
_CONNECT_S, _SIGNS = 20.0, 3
"""A driver that has not found the cluster by then, or has named a cause so often, is given up. Ray itself goes on trying."""

_PROBE_S = 5.0
_HEAD_S = 15
"""A driver ends when the head of the cluster is away for so long."""

_END_S = 6.0
_TOLD = 50  # lines of the driver that are kept to say why it ended

_CAUSES = {
    "InvalidAuthToken|AuthenticationError": "it did not accept the token (engine.token_file)",
    "SSL_ERROR|certificate": "its certificates and this machine's do not fit (engine.ca, cert, key)",
    "Failed to connect to GCS": "nothing answers there (engine.address)",
    "[Vv]ersion mismatch": "it runs another version of Ray or Python",
}
"""What the driver wrote → why it did not connect."""


class _HeldKey:
    """The key of a job that is in the cluster while blocks with it are under way."""

    def __init__(self, key: Any) -> None:
        self.key, self.handle, self.users = key, secrets.token_bytes(16), 0


class Link:
    """One driver and its workers, for all engines of this process that have the same settings.

    It ends when the last of them is closed, when the driver ends, or when a worker runs another build. Any thread may
    call any method.

    Args:
        settings: of the cluster.
        build: describes this build; a function of this package, which workers call by its name.
    """

    def __init__(self, settings: EngineSettings, build: Callable[[], str]) -> None:
        self._settings, self._build = settings, build
        self._engine_key = secrets.token_bytes(KEY_BYTES)
        self._sealer = Sealer(self._engine_key)
        self._lock = threading.RLock()  # a finalizer may end an engine inside of any call of its own thread
        self._outbox: SimpleQueue[tuple[bytes, ...]] = SimpleQueue()  # nobody waits for a driver that does not read
        self._space = threading.Condition()
        self._sealing = False
        self._in_flight = self._number = 0
        self._held: dict[int, _HeldKey] = {}
        self._waiting: dict[bytes, tuple[object, Future[bytes]]] = {}
        self._seats: set[object] = set()
        self._why = ""
        self._told: deque[str] = deque(maxlen=_TOLD)
        self._connected = threading.Event()
        self.lost = False
        self.workers: list[int] = []
        self._connection, theirs = Pipe()
        with theirs:
            self.process = self._spawn(theirs.fileno())
        mains = (self._receive, self._listen, self._write)
        self._threads = [threading.Thread(target=main, name="cluster", daemon=True) for main in mains]
        for thread in (*self._threads, threading.Thread(target=self._probe, name="cluster", daemon=True)):
            thread.start()

    def sit(self, seat: object) -> bool:
        """Keep this link for an engine, until it leaves; False: the link is over."""
        with self._lock:
            self._seats.add(seat)
            return not self.lost

    def leave(self, seat: object) -> None:
        """Drop the blocks of an engine; end, if it was the last one. Safe in a finalizer."""
        with self._lock:
            self._seats.discard(seat)
            for owner, future in list(self._waiting.values()):
                if owner is seat:
                    _fail(future, _closed())
            if not self._seats:
                self._end()
        with self._space:
            self._space.notify_all()

    def join(self) -> None:
        """Wait until the driver is gone, if the last engine has left."""
        if self.lost:
            self._threads[0].join()

    def compute(self, task: BlockTask, seat: object) -> Any:
        """The result of a block, computed by any worker.

        Raises:
            VflError: the cluster did not compute it (``E_WORKER``).
            ValueError: the operation is not of this package.
            Exception: what the operation raised.
        """
        limit = min(_CONNECT_S, self._settings.start_s)
        if not self._connected.wait(limit) and not self.lost:
            self._refuse(f"the cluster did not answer within {limit:g} s" + self._find_cause(1))
        name = name_of(task.operation)
        with self._lock:
            if self.lost:
                raise self._gone()
            if seat not in self._seats:
                raise _closed()
            held = self._hold(task.key)
            self._number += 1
            number, future = self._number.to_bytes(8, "big"), Future[bytes]()
            self._waiting[number] = seat, future
        size = 0
        try:
            if sealed := self._seal_in_turn((name, task.block), b"block" + held.handle + number, future):
                size = len(sealed)
                self._outbox.put((b"B", held.handle, number, sealed))
            del sealed
            answer = future.result()
        finally:
            self._release(held, number, size)
        result, error, trace = self._sealer.open(answer, b"result" + held.handle + number)
        if error is not None:
            raise error from RemoteTrace(trace)
        return result

    def _hold(self, key: Any) -> _HeldKey:
        held = self._held.get(id(key))
        if held is None:
            held = _HeldKey(key)
            sealed = self._sealer.seal(key, b"key" + held.handle)
            self._outbox.put((b"K", held.handle, sealed))
            self._held[id(key)] = held
        held.users += 1
        return held

    def _release(self, held: _HeldKey, number: bytes, size: int) -> None:
        with self._lock:
            del self._waiting[number]
            held.users -= 1
            if not held.users:
                del self._held[id(held.key)]
                self._outbox.put((b"F", held.handle))
        with self._space:
            self._in_flight -= size
            self._space.notify_all()

    def _seal_in_turn(self, thing: Any, about: bytes, future: Future[bytes]) -> bytes:
        """Seal one block, and wait until it may be sent; others are sealed afterwards. Empty: its future ended meanwhile.

        A block that is larger than all that may be in the cluster goes alone.
        """
        most = self._settings.most_in_flight_mib << 20
        with self._space:
            self._space.wait_for(lambda: not self._sealing or future.done())
            if future.done():
                return b""
            self._sealing = True
        try:
            sealed = self._sealer.seal(thing, about)
            with self._space:
                self._space.wait_for(lambda: not self._in_flight or self._in_flight + len(sealed) <= most or future.done())
                self._in_flight += len(sealed)
            return sealed
        finally:
            with self._space:
                self._sealing = False
                self._space.notify_all()

    def _spawn(self, end: int) -> subprocess.Popen[bytes]:
        settings, own = self._settings, {name: text for name, text in os.environ.items() if not name.startswith("RAY_")}
        own |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(settings.token_file)}
        own |= {"RAY_gcs_rpc_server_reconnect_timeout_s": str(_HEAD_S)}
        own |= {"GRPC_VERBOSITY": "ERROR"}  # it names what TLS refuses
        if settings.encrypted:
            own |= {"RAY_USE_TLS": "1", "RAY_TLS_CA_CERT": str(settings.ca)}
            own |= {"RAY_TLS_SERVER_CERT": str(settings.cert), "RAY_TLS_SERVER_KEY": str(settings.key)}
        keys = ("address", "workers", "slots", "retries", "start_s")
        plan = {key: getattr(settings, key) for key in keys} | {"build": name_of(self._build)}
        return subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(end), json.dumps(plan), *(os.path.abspath(path) for path in sys.path)],  # noqa: PTH100
            pass_fds=[end],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=own,
            cwd="/",  # Ray adds this folder to what workers import from
            start_new_session=True,  # a terminal's Ctrl-C is for the node
        )

    def _write(self) -> None:
        """Send what is in the outbox, in its order, until the driver is gone, or memory is full."""
        try:
            with suppress(OSError, MemoryError):
                while parts := self._outbox.get():
                    self._connection.send_bytes(b"".join(parts))
                    del parts
        finally:
            with self._lock:
                self._end()

    def _receive(self) -> None:
        """Take what the driver says until it ends; then wait for its end, and tell whoever waits."""
        try:
            with suppress(EOFError, OSError):
                while True:
                    self._take(self._connection.recv_bytes())
        finally:
            self._finish()

    def _finish(self) -> None:
        with self._lock:
            self._end()
        try:
            status = self.process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        self._outbox.put(())
        for thread in self._threads[1:]:
            thread.join(_END_S)
        with self._lock:
            self._why = self._why or f"the driver of the cluster ended (exit status {status})" + self._find_cause(1)
            for _, future in list(self._waiting.values()):
                _fail(future, self._gone())
            self._connection.close()
        self._outbox = SimpleQueue()  # what nobody takes any more
        self._connected.set()
        with self._space:
            self._space.notify_all()

    def _take(self, message: bytes) -> None:
        kind, rest = message[:1], message[1:]
        if kind == b"S":
            self._connected.set()
        elif kind == b"H":
            self._admit(rest[:4], rest[4:36], int.from_bytes(rest[36:44], "big"), rest[44:].decode())
        elif waiting := self._waiting.get(rest[:8]):
            if kind == b"R":
                with suppress(InvalidStateError):  # its engine was closed
                    waiting[1].set_result(rest[8:])
            else:
                _fail(waiting[1], _error(f"the cluster did not compute a block: {rest[8:].decode()}"))

    def _admit(self, actor: bytes, public: bytes, process: int, build: str) -> None:
        if self.lost:
            return
        if build != self._build():
            self._refuse(f"a worker of the cluster runs another build of vfl-node: here {self._build()}; there {build}")
            return
        self.workers.append(process)
        self._outbox.put((b"A", actor, SealedBox(PublicKey(public)).encrypt(self._engine_key)))

    def _listen(self) -> None:
        """Keep the last lines that the driver writes; they are searched for a cause, and shown to nobody."""
        assert self.process.stderr
        with self.process.stderr as lines:
            for line in lines:
                self._told.append(line.decode(errors="replace"))
                if not self._connected.is_set() and (cause := self._find_cause(_SIGNS)):
                    self._refuse("this node cannot use the cluster" + cause)

    def _probe(self) -> None:
        """Ask the head itself, while the driver still loads Ray; nobody waits for this thread."""
        if (fault := find_fault(self._settings, _PROBE_S)) and not self._connected.is_set():
            self._refuse(f"this node cannot use the cluster: {fault}")

    def _find_cause(self, least: int) -> str:
        told = "".join(list(self._told))
        return next((f": {cause}" for pattern, cause in _CAUSES.items() if len(re.findall(pattern, told)) >= least), "")

    def _refuse(self, why: str) -> None:
        with self._lock:
            self._why = self._why or why
            self._end()

    def _end(self) -> None:
        """Have the driver end, which its threads wait for, or kill it. Idempotent, and safe in a finalizer."""
        if not self.lost:
            self.lost = True
            if not self._connected.is_set():
                self.process.kill()  # it listens only when it has found the cluster
            with suppress(OSError), socket.socket(fileno=os.dup(self._connection.fileno())) as end:
                end.shutdown(socket.SHUT_RDWR)

    def _gone(self) -> VflError:
        return _error(self._why or "the driver of the cluster ended")


def _error(message: str) -> VflError:
    hint = "look at the cluster's machines and at engine in node.yaml; then resume the job"
    return VflError(message, code="E_WORKER", hint=hint)


def _closed() -> VflError:
    return VflError("the engine was closed before a block was done", code="E_WORKER", hint="resume the job")


def _fail(future: Future[bytes], error: VflError) -> None:
    with suppress(InvalidStateError):
        future.set_exception(error)
