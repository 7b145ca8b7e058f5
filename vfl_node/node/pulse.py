"""Whether this node computes. Peers are told with every beat, so that they can tell long work from a thread that hangs."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

BUSY = 0.2
"""A process computes if it uses at least so many cores; one that only waits and answers its owner uses 0.02."""

LOOK_S = 1.0

_THREADS = Path("/proc/self/task")


class Pulse:
    """Counts the intervals in which this process and its workers computed. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spells = 0
        self._looked, self._spent = time.monotonic(), _cpu_s()

    def spells(self) -> int:
        """How many such intervals there were; only intervals between two calls of this method are seen."""
        with self._lock:
            now = time.monotonic()
            if now - self._looked >= LOOK_S:
                with suppress(OSError):  # no descriptor free to look with: the next time
                    spent = _cpu_s()
                    self._spells += spent - self._spent > BUSY * (now - self._looked)
                    self._looked, self._spent = now, spent
            return self._spells


def threads_cpu_s(threads: Iterable[threading.Thread]) -> float:
    """CPU seconds of those ``threads`` that live; of the whole process if the system does not count threads apart."""
    if not _THREADS.is_dir():
        return time.process_time()
    return sum(_ticks(_THREADS / str(thread.native_id)) for thread in threads) / os.sysconf("SC_CLK_TCK")


def _cpu_s() -> float:
    """CPU seconds of this process and of its living children."""
    ticks = 0
    for listed in _THREADS.glob("*/children"):
        with suppress(OSError):
            ticks += sum(_ticks(Path("/proc", child)) for child in listed.read_text().split())
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


def _ticks(task: Path) -> int:
    """CPU time of a process or thread, in ticks of the system's clock; 0 if it has ended."""
    with suppress(OSError, ValueError):
        return sum(map(int, (task / "stat").read_text().rpartition(")")[2].split()[11:13]))
    return 0
