"""What a node tells the service manager that started it (systemd, ``Type=notify``), and its watchdog.

Without a service manager (``NOTIFY_SOCKET`` is not set) nothing is told.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress


def notify(*states: str) -> None:
    """Tell the service manager, for example ``READY=1``. Source: sd_notify(3)."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address[:1] not in ("/", "@"):
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as manager:
        manager.connect("\0" + address[1:] if address[0] == "@" else address)
        manager.sendall("\n".join(states).encode())


class Watchdog:
    """Tells the service manager that this process is alive, from a thread of its own, while somebody ticks.

    A main loop that hangs, native code that keeps Python's lock, and a process that was stopped all end the signs of life; the
    service manager then starts the process anew.

    Args:
        tell: called with each sign of life.
    """

    def __init__(self, tell: Callable[[str], None] = notify) -> None:
        self._tell = tell
        self._within_s = _watchdog_s()
        self._ticked = time.monotonic()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def start(self) -> None:
        """Begin, if the service manager waits for signs of life."""
        if self._within_s:
            self.tick()
            self._thread.start()

    def tick(self) -> None:
        """The main loop goes on."""
        self._ticked = time.monotonic()

    def look(self) -> bool:
        """Give a sign of life, unless the last tick is half the time ago after which the process is started anew."""
        alive = time.monotonic() - self._ticked < self._within_s / 2
        if alive:
            self._tell("WATCHDOG=1")
        return alive

    def stop(self) -> None:
        """End the thread."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(self._within_s / 4):
            self.look()


def _watchdog_s() -> float:
    """After how many seconds without a sign of life the service manager starts this process anew; 0: never."""
    if os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return 0.0
    given = os.environ.get("WATCHDOG_USEC", "")
    return int(given) / 1e6 if given.isdecimal() else 0.0
