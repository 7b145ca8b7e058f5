"""A TCP proxy on loopback that delays, throttles, swallows and breaks what passes: the network's faults without its tools."""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from contextlib import suppress


class Proxy:
    """Passes connections on to one address; what it does to them may be changed while it runs.

    Attributes:
        address: where it listens.
        delay_s: how long each piece is held up; with ``jitter_s``, up to that much more.
        jitter_s: see ``delay_s``.
        bytes_per_s: at most so many, each way; 0 for no limit.
        swallowed: directions in which nothing passes any more, though the connections live: ``to`` the address, ``from`` it.
    """

    def __init__(self, target: str, seed: int = 0) -> None:
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self.delay_s = self.jitter_s = 0.0
        self.bytes_per_s = 0
        self.swallowed: frozenset[str] = frozenset()
        self.refuses = False
        self._chance = random.Random(seed)
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def reset(self) -> int:
        """Break every connection with a TCP reset; how many there were."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for end in pair:
                with suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    end.shutdown(socket.SHUT_RD)
                    end.close()
        return len(pairs)

    def close(self) -> None:
        """Let nobody pass any more."""
        self._listener.close()
        self.reset()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if self.refuses or self.swallowed:
                near.close()
                continue
            try:
                far = socket.create_connection(self._target)
            except OSError:
                near.close()
                continue
            for end in (near, far):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
            with self._lock:
                self._pairs.append((near, far))
            threading.Thread(target=self._pass, args=(near, far, "to"), daemon=True).start()
            threading.Thread(target=self._pass, args=(far, near, "from"), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, way: str) -> None:
        try:
            while data := source.recv(4096):
                if way in self.swallowed:
                    continue
                if self.delay_s:
                    time.sleep(self.delay_s + self._chance.random() * self.jitter_s)
                if self.bytes_per_s:
                    time.sleep(len(data) / self.bytes_per_s)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            for end in (source, sink):
                with suppress(OSError):
                    end.close()
