"""Limits for connections without a known caller: how many there may be, of one address and in all, and for how long.

gRPC accepts every connection, and a connection takes a descriptor before it shows a certificate. A flood of connections would
leave no descriptors for the jobs that run. So gRPC accepts only a number of connections that leaves half of the process's
descriptors free, and a thread checks the accepted ones. A connection over which no known caller has opened a stream is closed
when it is too old, or when there are too many of them; the oldest are closed first, so that a caller with a certificate can
always connect. A connection with a stream of a known caller is never closed.

The sockets belong to gRPC, which does not give access to them. They are found among the process's descriptors by their local
port, and are shut down; for gRPC this looks like a caller that has left.
"""

from __future__ import annotations

import os
import resource
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from urllib.parse import unquote

from vfl_node.errors import UsageError

UNPROVEN_IN_ALL = 64
UNPROVEN_OF_ADDRESS = 16
UNPROVEN_S = 10.0
"""Connections without a stream of a known caller: how many in all, how many of one address, and for how long."""

_DESCRIPTORS = "/proc/self/fd/"

LOOK_S = 0.1
"""How often they are checked; a check takes a tenth of a millisecond with a hundred open descriptors."""


def most_connections(streams: int) -> int:
    """How many connections a server of ``streams`` streams may accept: at most half of the process's descriptors."""
    return min(streams + UNPROVEN_IN_ALL, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)


def bind_error(address: str) -> UsageError:
    """Why an address cannot be bound; tries to bind it."""
    host, _, port = address.rpartition(":")
    try:
        family, _, _, _, place = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(place)
        reason = "the system refused it"
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
    return UsageError(
        f"cannot listen on port {port} of {host}: {reason}",
        code="E_PORT",
        hint="is another node or program using it? Choose another port in listen",
    )


@dataclass(frozen=True)
class _Connection:
    """A connection to the port. ``inode`` identifies its socket as long as it is open."""

    inode: int
    address: str
    port: int
    since: float


class Connections:
    """Watches the connections to one port.

    Args:
        port: the port bound by gRPC.
        most: number of connections that gRPC accepts.
    """

    def __init__(self, port: int, most: int) -> None:
        self._port = port
        self._in_all = min(UNPROVEN_IN_ALL, max(1, most // 2))
        self._proven: Counter[tuple[str, int]] = Counter()
        self._seen: dict[int, _Connection | None] = {}  # by inode; None: not to this port
        self._lock = threading.Lock()
        self._over = threading.Event()

    def start(self) -> None:
        """Start watching."""
        threading.Thread(target=self._watch, name="connections", daemon=True).start()

    def stop(self) -> None:
        """Stop watching."""
        self._over.set()

    @contextmanager
    def protect(self, peer: str) -> Iterator[None]:
        """Never close the connection of ``peer`` (as gRPC spells it): it has a stream of a known caller."""
        key = _place(peer)
        with self._lock:
            self._proven[key] += 1
        try:
            yield
        finally:
            with self._lock:
                self._proven[key] -= 1
                if not self._proven[key]:
                    del self._proven[key]

    def _watch(self) -> None:
        while not self._over.wait(LOOK_S):
            with suppress(OSError):  # no free descriptor to check others with: try the next time
                self.look()

    def look(self) -> None:
        """Close connections that have been without a stream for too long, or are too many."""
        connections = self._open_connections()
        with self._lock:
            unproven = [each for each in connections if (each.address, each.port) not in self._proven]
        unproven.sort(key=lambda each: each.since, reverse=True)  # newest first
        now, of_address = time.monotonic(), Counter[str]()
        for place, each in enumerate(unproven):
            of_address[each.address] += 1
            too_many = place >= self._in_all or of_address[each.address] > UNPROVEN_OF_ADDRESS
            if too_many or now - each.since > UNPROVEN_S:
                _shut_down(each.inode)

    def _open_connections(self) -> list[_Connection]:
        """Every open connection to the port."""
        seen, now = dict[int, _Connection | None](), time.monotonic()
        for inode, descriptor in _sockets():
            with suppress(OSError):  # no free descriptor to check it with, or it is closed already: try the next time
                seen[inode] = self._seen[inode] if inode in self._seen else self._connection(inode, descriptor, now)
        self._seen = seen
        return [each for each in seen.values() if each]

    def _connection(self, inode: int, descriptor: int, now: float) -> _Connection | None:
        """The connection of a socket; None if it is not to the port. Raises OSError if it cannot be checked."""
        with _hold(descriptor, inode) as held:
            if held.family in (socket.AF_INET, socket.AF_INET6) and held.getsockname()[1] == self._port:
                with suppress(OSError):  # a listening socket has no peer
                    address, port = held.getpeername()[:2]
                    return _Connection(inode, _plain(address), port, now)
        return None


def _sockets() -> Iterator[tuple[int, int]]:
    """Inode and descriptor of each socket of this process."""
    for name in os.listdir(_DESCRIPTORS):  # noqa: PTH208 - pathlib takes several times as long
        with suppress(OSError):
            target = os.readlink(_DESCRIPTORS + name)  # noqa: PTH115
            if target.startswith("socket:["):
                yield int(target[8:-1]), int(name)


@contextmanager
def _hold(descriptor: int, inode: int) -> Iterator[socket.socket]:
    """The socket, with a duplicated descriptor, because gRPC may close its own at any moment. Raises OSError if it has."""
    own = os.dup(descriptor)
    if os.fstat(own).st_ino != inode:
        os.close(own)
        raise OSError("the descriptor is another's by now")
    with socket.socket(fileno=own) as held:
        yield held


def _shut_down(inode: int) -> None:
    for candidate, descriptor in _sockets():
        if candidate == inode:
            with suppress(OSError), _hold(descriptor, inode) as held:
                held.shutdown(socket.SHUT_RDWR)
            return


def _place(peer: str) -> tuple[str, int]:
    """Address and port of gRPC's ``ipv4:host:port`` or ``ipv6:[host]:port``."""
    host, _, port = unquote(peer).partition(":")[2].rpartition(":")
    return _plain(host.strip("[]")), int(port) if port.isdecimal() else 0


def _plain(address: str) -> str:
    """An address in the form that both gRPC and the socket use."""
    return address.removeprefix("::ffff:").partition("%")[0]
