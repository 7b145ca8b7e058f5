"""What alignment will cost, before a job is submitted: ``vfl-node estimate``.

The elements are counted exactly (:mod:`vfl_node.alignment.costs`). What one of them costs is
measured on this machine, and the peer's is taken to be like it. Powers use every core; hashing,
checking and finding hold Python's lock, so they come on top as if there were one core. In each
stage the slower party counts. Computing, the wire and the disk overlap: the slowest of the three
gives the time. Reading the table and training are not counted. See docs/estimate.md.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from vfl_node.alignment import costs
from vfl_node.alignment.apsi import obfuscated_size
from vfl_node.crypto.groups import Group
from vfl_node.crypto.groups import group as group_named
from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.rows import RowIndex
from vfl_node.crypto.workers import ThreadWorkers
from vfl_node.data.csv_file import read_columns
from vfl_node.errors import UsageError
from vfl_node.job import Align, Job
from vfl_node.settings import Obfuscation, Role, Settings

PROTOCOLS = ("psu", "psi", "apsi")

TRANSPORT_S = 2e-9
"""CPU seconds that gRPC and TLS 1.3 take for a byte at one end (loopback, chunks of 512 KiB, Zen 4)."""

PROCESS_BYTES = 300 << 20
"""Memory of a node at rest."""

ROW_BYTES = 64
"""Memory of an alignment for each element of either party's list (docs/estimate.md)."""

_HASHED = 2  # times: a list and its phase, a file and its chunks
_BLOCK = bytes(1 << 22)


@dataclass(frozen=True)
class Machine:
    """What this machine does.

    Attributes:
        cores: threads for group operations.
        hash_s: CPU seconds to hash an identifier into the group.
        power_s: CPU seconds of a group operation.
        decode_s: CPU seconds to check an element.
        find_s: CPU seconds to sort an element and find another one.
        sha256_s: CPU seconds to hash a byte.
        disk_bytes_per_s: written, and durable.
    """

    cores: int
    hash_s: float
    power_s: float
    decode_s: float
    find_s: float
    sha256_s: float
    disk_bytes_per_s: float


@dataclass(frozen=True)
class Wire:
    """What lies between the parties: Mbit/s, and milliseconds there and back."""

    rate_mbit_s: float
    rtt_ms: float


@dataclass(frozen=True)
class Sizes:
    """Records of each party, and the fewest and the most that they may share."""

    records: dict[Role, int]
    shared: tuple[int, int]


@dataclass(frozen=True)
class Cost:
    """What one protocol costs, as one party sees it.

    Attributes:
        wall_s: the longest of the next three.
        computing_s: wall time that the parties compute.
        wire_s: time on the wire.
        disk_s: time of the busier disk.
        cpu_s: CPU time of this party.
        sent_bytes: by this party.
        received_bytes: by this party.
        active_disk_bytes: lists of the active party, until the job has ended.
        passive_disk_bytes: those of the passive party.
        memory_bytes: of this party, its table apart.
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
"""Field of :class:`Cost` → the least and the most; equal where nothing is left open."""


@dataclass(frozen=True)
class Estimate:
    """What each protocol would cost.

    Attributes:
        job: the job.
        role: whose side is shown.
        sizes: of the sets.
        machine: both parties'.
        wire: between them.
        costs: protocol → what it costs.
    """

    job: Job
    role: Role
    sizes: Sizes
    machine: Machine
    wire: Wire
    costs: dict[str, Range]

    def json(self) -> dict[str, Any]:
        """All figures, in seconds and bytes, for a program."""
        return {
            "job": self.job.name,
            "protocol": self.job.align.protocol,
            "role": self.role,
            "records": self.sizes.records,
            "shared": self.sizes.shared,
            "machine": asdict(self.machine),
            "wire": asdict(self.wire),
            "costs": self.costs,
        }


def known_sizes(job: Job, settings: Settings | None, given: dict[Role, int | None], shared: int | None) -> Sizes:
    """As given, or as many records as this node's data file has rows; anything may be shared if nothing is said.

    Raises:
        UsageError: a size is not known, or more is shared than a party has (``E_USAGE``); the job
            gives the node another role, or none (``E_ROLE``).
        DataError: the data file cannot be read.
    """
    names: dict[Role, str] = {"active": job.parties.active, "passive": job.parties.passive[0]}
    if settings and names[settings.role] != settings.name:
        raise UsageError(
            f"the job's {settings.role} party is {names[settings.role]}, and the configuration is that of {settings.name}",
            code="E_ROLE",
            hint="give the configuration of a party of the job",
        )
    records = {role: count for role, count in given.items() if count is not None}
    if settings and settings.data and settings.role not in records:
        records[settings.role] = len(read_columns(settings.data.path, party=settings.name))
    for role, name in names.items():
        if role not in records:
            counted = ", or --config FILE of its node, to count them" if settings is None else ""
            raise UsageError(f"how many records has {name}, the {role} party?", hint=f"--{role} N{counted}")
    smaller = min(records.values())
    if shared is not None and shared > smaller:
        raise UsageError(f"--shared {shared} is more than the {smaller} records of the smaller party")
    return Sizes(records, (0, smaller) if shared is None else (shared, shared))


def measure(group: Group, cores: int, folder: Path) -> Machine:
    """What this machine does; takes about a second.

    Args:
        group: the job's.
        cores: how many group operations would use.
        folder: where lists would lie, or would if it existed.

    Raises:
        UsageError: nothing can be written there (``E_FILE``).
    """
    randomness, workers = Randomness(os.urandom(32)), ThreadWorkers(1)
    scalar = group.draw(randomness.derive("scalar"))
    ids = [b"%d" % i for i in range(min(512, group.chunk_rows))]
    elements = group.hash_to_group(ids, b"estimate")
    data = randomness.bytes(1 << 20)
    rows = np.frombuffer(data, dtype=np.uint8)[: len(data) // group.width * group.width].reshape(-1, group.width)
    return Machine(
        cores=cores,
        hash_s=_cpu_s(lambda some: group.hash_to_group(some, b"estimate"), ids, 0.1),
        power_s=_cpu_s(lambda some: group.power(some, scalar, workers), elements, 0.25),
        decode_s=_cpu_s(group.decode, elements, 0.1),
        find_s=_cpu_s(lambda some: RowIndex(some).find(some), rows, 0.05),
        sha256_s=_cpu_s(sha256, data, 0.05),
        disk_bytes_per_s=_disk_bytes_per_s(folder),
    )


def estimate(job: Job, role: Role, sizes: Sizes, machine: Machine, wire: Wire, wish: Obfuscation) -> Estimate:
    """What each of the three protocols would cost under the terms of ``job``.

    Args:
        job: its own protocol's options go for the others too, where they have them.
        role: whose side is shown.
        sizes: of the sets.
        machine: both parties'.
        wire: between them.
        wish: this owner's for an obfuscated set.
    """
    group = group_named(job.align.group)
    found = {}
    for protocol in PROTOCOLS:
        terms = job.align.model_copy(
            update={
                "protocol": protocol,
                "dummies": job.align.dummies if protocol == "psu" else 0,
                "obfuscation": job.align.obfuscation or "private",
            }
        )
        cases = [asdict(_cost(terms, role, sizes, *case, machine, wire, group.width)) for case in _cases(terms, sizes, wish)]
        found[protocol] = {name: (min(c[name] for c in cases), max(c[name] for c in cases)) for name in cases[0]}
    return Estimate(job, role, sizes, machine, wire, found)


def _cases(terms: Align, sizes: Sizes, wish: Obfuscation) -> Iterator[tuple[int, int]]:
    """How many records are shared, and the length of the shared order: all extremes of the two."""
    n_a, n_p = (costs.announced(sizes.records[role], terms, role) for role in ("active", "passive"))
    for shared in sizes.shared:
        if terms.protocol == "psu":
            yield shared, n_a + n_p - shared
            yield shared, n_a + n_p - shared - 2 * terms.dummies
        elif terms.protocol == "psi":
            yield shared, shared
        elif terms.obfuscation == "private" and wish.security_number is None:
            yield shared, max(1, shared)
            yield shared, n_p
        else:
            yield shared, obfuscated_size(shared, n_p, terms, wish)


def _cost(terms: Align, role: Role, sizes: Sizes, shared: int, m: int, machine: Machine, wire: Wire, width: int) -> Cost:
    n_a, n_p = (costs.announced(sizes.records[each], terms, each) for each in ("active", "passive"))
    total = costs.counts(terms.protocol, n_a, n_p, m)
    stages = costs.stages(terms.protocol, n_a, n_p, m)
    both: tuple[Role, Role] = ("active", "passive")
    sent, received = total.sent[role] * width, total.received[role] * width
    computing_s = sum(max(sum(_seconds(stage, each, machine, width, machine.cores)) for each in both) for stage in stages)
    wire_s = (sent + received) * 8 / (wire.rate_mbit_s * 1e6) + (len(stages) + 2) * wire.rtt_ms / 1e3
    disk_s = max(total.spilled.values()) * width / machine.disk_bytes_per_s
    return Cost(
        wall_s=max(computing_s, wire_s, disk_s),
        computing_s=computing_s,
        wire_s=wire_s,
        disk_s=disk_s,
        cpu_s=sum(_seconds(total, role, machine, width, 1)),
        sent_bytes=sent,
        received_bytes=received,
        active_disk_bytes=total.spilled["active"] * width,
        passive_disk_bytes=total.spilled["passive"] * width,
        memory_bytes=PROCESS_BYTES + ROW_BYTES * (n_a + n_p),
        rows=m,
        extra_rows=m - shared,
    )
