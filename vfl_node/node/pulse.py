"""What a node says with each beat of a link: whether the jobs with that peer have got on since the last one, and no more.

So a peer can tell long work, also without a message, from a thread that hangs.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from vfl_node.node.peer_state import PeerState
from vfl_node.transport.generated.vfl.v1.session_pb2 import Beat

BUSY = 0.2
"""A process computes if it uses at least so many cores; one that only waits and answers its owner uses 0.02."""

LOOK_S = 1.0

_THREADS = Path("/proc/self/task")


class Pulse:
    """Counts the intervals in which this node and its workers computed. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spells = 0
        self._looked, self._spent = time.monotonic(), process_cpu_s()

    def spells(self) -> int:
        """How many such intervals there were; only intervals between two calls of this method are seen."""
        with self._lock:
            now = time.monotonic()
            if now - self._looked >= LOOK_S:
                with suppress(OSError):  # no descriptor free to look with: the next time
                    spent = process_cpu_s()
                    self._spells += spent - self._spent > BUSY * (now - self._looked)
                    self._looked, self._spent = now, spent
            return self._spells


class Beats:
    """The beats of one node. Safe to use from several threads.

    Args:
        states: of its peers.
        lock: guards them.
        steps: gives, for each job under way in which a peer takes part, a number that changes whenever it makes progress here.
        relays: whether others wait for each other through this node, as through an active one.
    """

    def __init__(
        self,
        states: Mapping[str, PeerState],
        lock: threading.Condition,
        *,
        steps: Callable[[str], Mapping[str, int]],
        relays: bool,
    ) -> None:
        self._states, self._lock, self._steps, self._relays = states, lock, steps, relays
        self._pulse = Pulse()

    def make_beat(self, peer: str) -> Beat:
        """What to tell ``peer`` now. It is one bit, so a beat does not tell how much there is to do."""
        with self._lock:
            state, now = self._states[peer], self._position(peer)
            before, state.told = state.told, now
        return Beat(progressed=before not in (None, now))

    def _position(self, peer: str) -> object:
        """What changes while this node computes, makes progress with a job of ``peer``, sends or receives for one.

        An active node has others wait for each other that have no conversation, so there it changes, too, while another party
        of such a job makes progress.
        """
        steps = self._steps(peer)
        pieces = [pipe.pieces for state in self._states.values() for pipe, job in state.pipes.items() if job in steps]
        others = [state for name, state in self._states.items() if self._relays and name != peer]
        moves = [state.moves for state in others if not steps.keys().isdisjoint(state.pipes.values())]
        return bool(steps) and self._pulse.spells(), sum(steps.values()), sum(pieces), sum(moves)


def threads_cpu_s(threads: Iterable[threading.Thread]) -> float:
    """CPU seconds of those ``threads`` that live; of the whole process if the system does not count threads apart."""
    if not _THREADS.is_dir():
        return time.process_time()
    return sum(_ticks(_THREADS / str(thread.native_id)) for thread in threads) / os.sysconf("SC_CLK_TCK")


def process_cpu_s() -> float:
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
