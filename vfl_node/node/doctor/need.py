"""What a job would take of this node, of which checks 10, 16 and 17 speak."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType

from vfl_node.crypto.groups import group
from vfl_node.errors import UsageError
from vfl_node.estimate.machine import Machine, measure_node
from vfl_node.estimate.plan import Plan, plan
from vfl_node.estimate.totals import PROCESS_BYTES, TRAINING_BYTES, Range, estimate
from vfl_node.execution.inputs import count_input
from vfl_node.job import Job, parse_job
from vfl_node.job.costs import TableShape
from vfl_node.settings.node import Settings, role_in

_NO_ROWS: Mapping[str, int] = MappingProxyType({})
_ANY_MACHINE = Machine(1, 1e-6, 1e-6, 1e-6, 1e-6, 1e-9, 1e8)


@dataclass(frozen=True)
class JobNeed:
    """A job, or none, and what it would take.

    Attributes:
        settings: of this node.
        job: the job; None: what a node takes with nothing to do.
        records: of each party with data.
        shape: of this node's table, where it was counted.
        words: which job it is, in words.
        process_bytes: memory of the node itself, where it does not run yet.
    """

    settings: Settings
    job: Job | None = None
    records: Mapping[str, int] = field(default_factory=lambda: _NO_ROWS)
    shape: TableShape = field(default_factory=TableShape)
    words: str = "a node with small jobs"
    process_bytes: int = PROCESS_BYTES

    def costs(self, rate_mbit_s: float, rtt_ms: float) -> Range | None:
        """What the job's alignment takes on such a line; None without a job. Raises UsageError."""
        if self.job is None:
            return None
        return self._costs(self._planned(rate_mbit_s, rtt_ms), measure_node(group(self.job.align.group), self.settings))

    def _planned(self, rate_mbit_s: float = 100, rtt_ms: float = 20) -> Plan:
        assert self.job
        known, rate, rtt = self.records, rate_mbit_s, rtt_ms
        return plan(self.job, self.settings, known, table=self.shape, shared=None, rate_mbit_s=rate, rtt_ms=rtt)

    def _costs(self, planned: Plan, machine: Machine) -> Range | None:
        return estimate(planned, machine).get(planned.job.align.protocol)

    @cached_property
    def _bytes(self) -> tuple[int, int]:
        """Disk and memory that the job takes, however quick the machine is."""
        if self.job is None:
            return 0, 0
        planned = self._planned()
        costs = self._costs(planned, replace(_ANY_MACHINE, cores=self.settings.group_workers)) or {}
        aligning = int(costs.get("memory_bytes", (0, PROCESS_BYTES))[1]) - PROCESS_BYTES
        training = planned.need.bytes if planned.need else 0
        return int(costs.get(f"{self.settings.role}_disk_bytes", (0, 0))[1]), max(training, aligning)

    @property
    def disk_bytes(self) -> int:
        """Bytes that the lists of the job's alignment take; 0 without a job."""
        return self._bytes[0]

    @property
    def memory_bytes(self) -> int:
        """Memory that the job takes, with the libraries of a training, and the node where it does not run yet."""
        trains = self.process_bytes > 0 if self.job is None else self.job.needs_torch
        return self.process_bytes + (TRAINING_BYTES if trains else 0) + self._bytes[1]


def need_of_job(settings: Settings, job: Job, process_bytes: int) -> JobNeed:
    """What a job takes. The other parties' tables are taken to have as many rows as this party's.

    Raises:
        UsageError: the job gives this node no role.
        VflError: this party's table cannot be read.
    """
    if role_in(job.parties, settings.name) != settings.role or settings.role == "coordinator":
        text = f"the job gives {settings.name} no part with data as {settings.role} party"
        raise UsageError(text, code="E_ROLE", hint="name a job of this node, or use --rows")
    shape = count_input(settings, job)
    records = dict.fromkeys(job.parties.data, shape.rows)
    return JobNeed(settings, job, records, shape, f"job {job.name} with {shape.rows:,} rows at each party", process_bytes)


def need_of_rows(settings: Settings, peer: str, own: int, theirs: int, process_bytes: int) -> JobNeed:
    """What an alignment of so many rows of this node and of ``peer`` takes, by PSU. Raises UsageError."""
    if settings.role == "coordinator":
        raise UsageError("a coordinator has no rows", code="E_ROLE", hint="leave --rows out")
    active, passive = (settings.name, peer) if settings.role == "active" else (peer, settings.name)
    spec = {"name": "doctor", "parties": {"active": active, "passive": [passive]}, "align": {"protocol": "psu"}}
    job = parse_job(json.dumps(spec), source="--rows")
    words = f"an alignment of {own:,} and {theirs:,} rows by psu"
    return JobNeed(settings, job, {settings.name: own, peer: theirs}, TableShape(rows=own), words, process_bytes)
