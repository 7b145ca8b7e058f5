"""What a node measures of itself whenever somebody asks for ``/metrics``."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from datetime import datetime, timezone
from pathlib import Path

from vfl_node.crypto.kernels import kernel
from vfl_node.node.budgets import budgets
from vfl_node.node.health import Health, measure_backup_age
from vfl_node.node.jobs import Jobs
from vfl_node.node.ledgers import describe_heads, partners_met
from vfl_node.node.peers import Peers
from vfl_node.node.prometheus import NodeFigures, write_figures
from vfl_node.node.schedules import Schedules
from vfl_node.node.start_check import StartCheck
from vfl_node.node.store import Store
from vfl_node.node.works import Works
from vfl_node.process.machine import machine_state
from vfl_node.settings.node import DEFAULT_TABLE, Settings

SIZES_S = 300.0
"""How long the sizes of what is stored are used again: there may be thousands of files."""

STORED = {"index": ("jobs.sqlite", "jobs.sqlite-wal"), "jobs": ("jobs",), "partners": ("partners",)}
"""Kind of what is stored → where it lies in the state folder."""


class NodeMeter:
    """Writes the figures of one node. Safe to use from several threads.

    Args:
        settings: of the node.
        store: its jobs.
        jobs: the same as its owner sees them.
        works: those under way.
        peers: its links.
        tables: what is known of its tables.
        health: whether it is ready.
        schedules: its jobs by a clock.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        jobs: Jobs,
        works: Works,
        peers: Peers,
        tables: StartCheck,
        health: Health,
        schedules: Schedules,
    ) -> None:
        self._settings, self._store, self._jobs, self._works = settings, store, jobs, works
        self._peers, self._tables, self._health, self._schedules = peers, tables, health, schedules
        self._lock = threading.Lock()
        self._sized = -SIZES_S
        self._sizes: dict[str, int] = {}

    def write(self) -> bytes:
        """The figures of this moment, in Prometheus' text format. Raises StateError where the index cannot be read."""
        settings, watch = self._settings, self._peers.certificates
        found = self._tables.health() or {}
        memory = settings.resources.memory_mib
        figures = NodeFigures(
            role=settings.role,
            kernel=kernel().name,
            faults=self._health.list_faults(),
            states=self._jobs.states(),
            running=self._jobs.running(),
            waits=self._works.waits(),
            oldest_s=self._measure_oldest(),
            peers=self._peers.status(),
            ends=list(watch.list_ends()) if watch else (),
            crl_due=watch.find_crl_due() if watch else None,
            budgets=budgets(settings, self._store)["peers"],
            ledgers=describe_heads(settings, partners_met(settings)),
            tables=found.get("tables") or ({DEFAULT_TABLE: found} if found else {}),
            unusable=frozenset(name for name, _ in self._tables.list_errors()),
            backup_age_s=measure_backup_age(settings.state_dir),
            disk_free=machine_state(settings.state_dir)["disk_free"],
            state_bytes=self._measure_sizes(),
            reserved=self._works.budget.reserved_bytes,
            memory_limit=memory and memory << 20,
            schedules=Counter(each["paused"] or "on" for each in self._schedules.outline() or ()),
            columns=settings.metrics.columns,
        )
        return write_figures(figures)

    def _measure_oldest(self) -> float:
        """For how long the oldest waiting job has been here, in seconds; 0 without one."""
        waiting = [datetime.fromisoformat(record.submitted) for record in self._store.standing("waiting") if record.submitted]
        return max(0.0, (datetime.now(timezone.utc) - min(waiting)).total_seconds()) if waiting else 0.0

    def _measure_sizes(self) -> dict[str, int]:
        with self._lock:
            if time.monotonic() - self._sized >= SIZES_S:
                folder = self._settings.state_dir
                self._sizes = {kind: sum(_size(folder / place) for place in places) for kind, places in STORED.items()}
                self._sized = time.monotonic()
            return self._sizes


def _size(path: Path) -> int:
    """Bytes of a file, or of all files in a folder; those that go meanwhile count nothing."""
    total = 0
    for place in (path, *(Path(folder, name) for folder, _, names in os.walk(path) for name in names)):
        try:
            total += place.lstat().st_size if not place.is_dir() else 0
        except OSError:
            continue
    return total
