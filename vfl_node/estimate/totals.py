"""From counts to seconds and bytes: what alignment by each protocol costs, and training over its rows.

The elements are counted exactly, by each protocol (:meth:`vfl_node.alignment.spec.AlignmentSpec.counts`). Powers use every
core; hashing, checking and finding hold Python's lock, so they come on top as if there were one core. In each stage the
slower party counts. Computing, the wire and the disk overlap: the slowest of the three gives the time. Reading the table is
not counted. Of training the trainer counts rows, batches and bytes (:meth:`vfl_node.trainers.TrainerConfig.cost`), and the
time is that on the wire. See docs/estimate.md.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from vfl_node.alignment import costs
from vfl_node.alignment.registry import ALIGNMENTS
from vfl_node.alignment.roles import DATA_ROLES
from vfl_node.alignment.sizes import announced
from vfl_node.alignment.spec import AlignmentSpec
from vfl_node.crypto.groups import group
from vfl_node.estimate.machine import Machine
from vfl_node.estimate.plan import Plan, taking_part, terms_of
from vfl_node.job import Align
from vfl_node.settings import Role

TRANSPORT_S = 2e-9
"""CPU seconds that gRPC and TLS 1.3 take for a byte at one end (loopback, chunks of 512 KiB, Zen 4)."""

PROCESS_BYTES = 180 << 20
"""Memory of a node that has nothing to do (docs/estimate.md)."""

_HASHED = 2  # times: a list and its phase on the wire, a file and its chunks on disk


@dataclass(frozen=True)
class AlignmentCost:
    """What one protocol costs.

    Attributes:
        wall_s: the longest of the next three.
        computing_s: that the parties compute, one waiting for the other.
        wire_s: that the lists are on the wire.
        disk_s: that the busier disk writes.
        cpu_s: of this party, all cores together.
        sent_bytes: by this party.
        received_bytes: by this party.
        active_disk_bytes: lists of the active party, until both have the result.
        passive_disk_bytes: those of the passive party.
        memory_bytes: of this party, its features apart.
        rows: that training runs over.
        extra_rows: how many of them are not shared: more than with PSI.
    """

    wall_s: float
    computing_s: float
    wire_s: float
    disk_s: float
    cpu_s: float
    sent_bytes: int
    received_bytes: int
    active_disk_bytes: int
    passive_disk_bytes: int
    memory_bytes: int
    rows: int
    extra_rows: int


Range = dict[str, tuple[float, float]]
"""Field of :class:`AlignmentCost` → the least and the most; equal where nothing is left open.

Where the trainer counts what training over the protocol's rows takes, also ``epoch_rows`` and ``batches``, of an epoch, and
``train_bytes`` and ``train_wire_s``, of all of it, both ways.
"""


def estimate(plan: Plan, machine: Machine) -> dict[str, Range]:
    """What each protocol would cost between two parties with such a ``machine``: protocol → :data:`Range`.

    One of a package that cannot be loaded is left out.
    """
    return {protocol: _range(plan, machine, terms_of(plan.job.align, protocol)) for protocol, _ in ALIGNMENTS.usable()}


def as_json(plan: Plan, machine: Machine, costs_of: dict[str, Range]) -> dict[str, Any]:
    """All of it for a program: seconds, bytes, and [least, most] for each figure."""
    given = {name: value for name, value in asdict(plan).items() if name not in ("job", "obfuscation")}
    head = {"job": plan.job.name, "protocol": plan.job.align.protocol}
    return {**head, **given, "machine": asdict(machine), "costs": costs_of}


def _range(plan: Plan, machine: Machine, terms: Align) -> Range:
    records, shared = taking_part(terms, plan.records, plan.shared)
    n_a, n_p = (announced(records[role], terms, role) for role in DATA_ROLES)
    cases = [
        asdict(_cost(plan, machine, terms.spec, n_a, n_p, common, m)) | _training(plan, terms.protocol, m)
        for common in shared
        for m in terms.spec.lengths(terms, n_a, n_p, common, plan.obfuscation)
    ]
    return {name: (min(case[name] for case in cases), max(case[name] for case in cases)) for name in cases[0]}


def _training(plan: Plan, protocol: str, m: int) -> dict[str, float]:
    """What training over ``m`` shared rows takes; nothing where the job does not train, or its trainer does not count it."""
    cost = plan.job.train.cost(plan.job.evaluate, m, protocol) if plan.job.train else None
    if cost is None:
        return {}
    wire_s = cost.bytes * 8 / (plan.rate_mbit_s * 1e6) + cost.steps * plan.rtt_ms / 1e3
    return {"epoch_rows": cost.rows, "batches": cost.batches, "train_bytes": cost.bytes, "train_wire_s": wire_s}


def _cost(plan: Plan, machine: Machine, spec: AlignmentSpec, n_a: int, n_p: int, shared: int, m: int) -> AlignmentCost:
    role, width = plan.role, group(plan.job.align.group).width
    total, stages = spec.counts(n_a, n_p, m), spec.stages(n_a, n_p, m)
    sent, received = total.sent[role] * width, total.received[role] * width
    computing_s = sum(max(_seconds(machine, stage, each, width, machine.cores) for each in DATA_ROLES) for stage in stages)
    turns = len(stages) + 2  # sizes before, the phase's end after
    wire_s = (sent + received) * 8 / (plan.rate_mbit_s * 1e6) + turns * plan.rtt_ms / 1e3
    disk_s = max(total.spilled.values()) * width / machine.disk_bytes_per_s
    return AlignmentCost(
        wall_s=max(computing_s, wire_s, disk_s),
        computing_s=computing_s,
        wire_s=wire_s,
        disk_s=disk_s,
        cpu_s=_seconds(machine, total, role, width, 1),
        sent_bytes=sent,
        received_bytes=received,
        active_disk_bytes=total.spilled["active"] * width,
        passive_disk_bytes=total.spilled["passive"] * width,
        memory_bytes=PROCESS_BYTES + costs.ROW_BYTES * (n_a + n_p),
        rows=m,
        extra_rows=m - shared,
    )


def _seconds(machine: Machine, counts: costs.Counts, role: Role, width: int, cores: int) -> float:
    """Wall time that one party computes if it has so many cores."""
    sent_and_received = counts.sent[role] + counts.received[role]
    bytes_s = width * (
        sent_and_received * TRANSPORT_S + (sent_and_received + counts.spilled[role]) * _HASHED * machine.sha256_s
    )
    one_core_s = counts.hashes[role] * machine.hash_s + counts.received[role] * (machine.decode_s + machine.find_s) + bytes_s
    return one_core_s + counts.powers[role] * machine.power_s / cores
