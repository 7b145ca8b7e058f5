"""What the jobs of each party take of a node: CPU seconds of the last day, and how long jobs of a kind take.

CPU time is that of the process and its workers. Each second it is divided among the jobs that go on, by what their own threads
took: work in pools and in native code has threads that are no job's. What a job took is stored with it when it ends.
"""

from __future__ import annotations

import json
import statistics
import threading
import time
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from vfl_node.data.tables import Table
from vfl_node.errors import StateError, VflError
from vfl_node.estimate.memory import plan_training, shape_of
from vfl_node.job import Job
from vfl_node.node.pulse import process_cpu_s, threads_cpu_s
from vfl_node.node.record import Record
from vfl_node.node.store import Store
from vfl_node.process.machine import give_memory_back
from vfl_node.settings.node import Settings

DAY_H = 24
"""For how many hours CPU time counts."""

JOBS, FEWEST = 20, 3
"""By how many of the last jobs of a kind the next one is judged, and by how few at least."""

READ = 500
"""So many jobs, the newest, are looked through when a node starts."""

ROW_S, STEP_S, START_S = 2e-4, 5e-3, 1.0
"""What a record of the alignment, a step of training and the beginning of a job are taken to last, before any was measured."""

_DOCUMENT = "usage "
"""How the names begin of what is kept with a job, one for each attempt."""


def estimate_s(job: Job, table: Table | None) -> float | None:
    """How long a job takes by its size alone, in seconds that only jobs of one kind have in common; None without a table."""
    rows = shape_of(table).rows if table is not None else 0
    if not rows:
        return None
    try:
        plan = plan_training(job)
        steps = plan.steps(job.evaluate, rows) if plan else 0
    except VflError:  # a model that only the settings know
        return None
    return START_S + ROW_S * rows + STEP_S * steps


class Usage:
    """The same of one node. Safe to use from several threads; takes no lock but its own.

    Args:
        store: of its jobs.
        settings: of the node.
    """

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store, self._settings = store, settings
        self._lock = threading.Lock()
        self._hours: defaultdict[tuple[str, int], float] = defaultdict(float)  # (submitter, hour) → CPU seconds
        self._measured: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=JOBS))
        self._meters: list[JobMeter] = []
        self._cpu_s = process_cpu_s()

    def load(self) -> None:
        """Read what jobs took before the node was last stopped; what is damaged is passed over. Raises StateError."""
        for record in reversed(self._store.records()[:READ]):
            if record.damaged:
                continue
            with suppress(StateError, ValueError, KeyError, TypeError):
                for name, body in self._store.documents(record.id).items():
                    if name.startswith(_DOCUMENT):
                        self._add(record, json.loads(body))

    def spent_s(self, peer: str | None) -> float:
        """CPU seconds that jobs of a peer have taken in the last day; None: those of this node's owner."""
        who, hour = peer or self._settings.name, _hour(time.time())
        with self._lock:
            return sum(self._hours.get((who, hour - ago), 0.0) for ago in range(DAY_H))

    def places_of(self, peer: str) -> int:
        """How many jobs of a peer may run now: none once they have taken the CPU time of the day."""
        hours = self._settings.queue.share_of(peer).cpu_hours_per_day
        used_up = hours is not None and self.spent_s(peer) >= 3600 * hours
        return 0 if used_up else self._settings.running_of(peer)

    def meter(self, record: Record) -> JobMeter:
        """A meter of one job."""
        return JobMeter(self, record)

    def measure(self) -> None:
        """Divide what was computed since the last time among the jobs that go on."""
        with self._lock, suppress(OSError):  # no descriptor free to look with: the next time
            now, hour = process_cpu_s(), _hour(time.time())
            spent, self._cpu_s = max(0.0, now - self._cpu_s), now
            for old in [key for key in self._hours if key[1] <= hour - DAY_H]:
                del self._hours[old]
            threads = defaultdict(list)
            for thread in threading.enumerate():
                threads[thread.name].append(thread)
            moved = {meter: meter.move(threads_cpu_s(threads[meter.thread])) for meter in self._meters}
            total = sum(moved.values())
            for meter, own in moved.items():
                share = spent * (own / total if total else 1 / len(moved))
                meter.cpu_s += share
                self._hours[meter.submitter, hour] += share

    def left_s(self, kind: str, expected_s: float, taken_s: float) -> list[float] | None:
        """How long a job of a kind still takes: the least and the most by half of the last ones; None: too few are known."""
        with self._lock:
            ratios = list(self._measured[kind])
        if len(ratios) < FEWEST:
            return None
        low, _, high = statistics.quantiles(ratios, n=4, method="inclusive")
        left = [max(0.0, expected_s * ratio - taken_s) for ratio in (low, high)]
        return [round(seconds, 0 if seconds < 100 else -1) for seconds in left]

    def begin(self, meter: JobMeter) -> None:
        """The job goes on."""
        self.measure()
        with self._lock:
            self._meters.append(meter)

    def rest(self, meter: JobMeter) -> None:
        """It does not any more: the memory that it had goes back to the system."""
        self.measure()
        with self._lock:
            self._meters.remove(meter)
        give_memory_back()

    def keep(self, record: Record, taken: dict[str, Any]) -> None:
        """Store what a job took that has ended. Never raises: what cannot be stored is forgotten with this process."""
        with self._lock:
            self._learn(taken)
        with suppress(StateError):
            self._store.keep(record.id, {f"{_DOCUMENT}{record.attempt}": json.dumps(taken).encode()})

    def _add(self, record: Record, taken: dict[str, Any]) -> None:
        with self._lock:
            self._hours[record.submitter, _hour(float(taken["ended"]))] += float(taken["cpu_s"])
            self._learn(taken)

    def _learn(self, taken: dict[str, Any]) -> None:
        if taken.get("ratio"):
            self._measured[str(taken["kind"])].append(float(taken["ratio"]))


class JobMeter:
    """What one job takes.

    Attributes:
        thread: the name of its threads.
        submitter: whose job it is.
        cpu_s: CPU seconds of it so far.
        expected_s: as :func:`estimate_s`.
    """

    def __init__(self, usage: Usage, record: Record) -> None:
        document = record.document
        self.thread, self.submitter = f"job-{record.id}", record.submitter
        self.cpu_s = 0.0
        self.expected_s: float | None = None
        training = document.get("train") or {}
        works = training.get("algorithm") or ("predictions" if record.predict else "")
        self._kind = f"{document.get('align', {}).get('protocol')} {works}"
        self._usage, self._own = usage, 0.0
        self._began: float | None = None
        self._took: float | None = None

    def move(self, own_s: float) -> float:
        """CPU seconds of its threads since the last time; ``own_s``: of those that live."""
        moved, self._own = max(0.0, own_s - self._own), own_s
        return moved

    @contextmanager
    def counting(self) -> Iterator[None]:
        """A context in which CPU time counts for the job."""
        self._usage.begin(self)
        try:
            yield
        finally:
            self._usage.rest(self)

    @contextmanager
    def timing(self, *, whole: bool) -> Iterator[None]:
        """A context in which the job runs. ``whole``: from its beginning; else it tells nothing of others."""
        self._began = time.monotonic() if whole else None
        try:
            yield
            self._took = time.monotonic() - self._began if self._began is not None else None
        finally:
            self._began = None

    @property
    def left_s(self) -> list[float] | None:
        """As :meth:`Usage.left_s`; None unless it runs, from its beginning."""
        began = self._began
        if began is None or self.expected_s is None:
            return None
        return self._usage.left_s(self._kind, self.expected_s, time.monotonic() - began)

    def finish(self, record: Record) -> None:
        """The job has ended as ``record`` says."""
        ratio = self._took / self.expected_s if record.state == "done" and self._took and self.expected_s else None
        if self.cpu_s or ratio:
            self._usage.keep(record, {"ended": time.time(), "cpu_s": round(self.cpu_s, 3), "kind": self._kind, "ratio": ratio})


def _hour(at: float) -> int:
    return int(at // 3600)
