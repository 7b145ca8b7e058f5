"""What alignment and training will cost, before a job is submitted or begins: ``vfl-node estimate``.

The elements are counted exactly (:mod:`vfl_node.alignment.costs`). What one of them costs is
measured on this machine, and the peer's is taken to be like it. Powers use every core; hashing,
checking and finding hold Python's lock, so they come on top as if there were one core. In each
stage the slower party counts. Computing, the wire and the disk overlap: the slowest of the three
gives the time. Reading the table is not counted. Of training the rows, batches and bytes are
counted (:mod:`vfl_node.training.split.costs`), and the time they are on the wire. See docs/estimate.md.
"""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from vfl_node.alignment import costs
from vfl_node.alignment.alignment import Alignment
from vfl_node.alignment.registry import ALIGNMENTS
from vfl_node.alignment.roles import DATA_ROLES
from vfl_node.alignment.sizes import announced
from vfl_node.alignment.spec import AlignmentSpec
from vfl_node.crypto.groups import Group, group
from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.rows import RowIndex, Rows
from vfl_node.data.identifiers import canonical
from vfl_node.data.text_columns import read_columns
from vfl_node.engines.threads import Threads
from vfl_node.errors import DataError, UsageError, VflError
from vfl_node.estimate.budget import Budget
from vfl_node.estimate.memory import Need, need
from vfl_node.job import Align, Job
from vfl_node.models import NONE_DECLARED
from vfl_node.settings import Limits, Obfuscation, Role, Settings, role_in
from vfl_node.trainers import TableShape
from vfl_node.training.split.config import Train
from vfl_node.training.split.costs import cost as training_cost

TRANSPORT_S = 2e-9
"""CPU seconds that gRPC and TLS 1.3 take for a byte at one end (loopback, chunks of 512 KiB, Zen 4)."""

PROCESS_BYTES = 180 << 20
"""Memory of a node that has nothing to do (docs/estimate.md)."""

_HASHED = 2  # times: a list and its phase on the wire, a file and its chunks on disk
_BLOCK = bytes(1 << 22)

Records = Mapping[Role, int]
"""Role → its records."""

Span = tuple[int, int]
"""The fewest and the most."""


@dataclass(frozen=True)
class Machine:
    """What this machine does.

    Attributes:
        cores: threads for group operations.
        hash_s: CPU seconds to hash an identifier into the group.
        power_s: CPU seconds of a group operation.
        decode_s: CPU seconds to check an element.
        find_s: CPU seconds to sort an element and find it again.
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
class Plan:
    """A job, and all that its cost depends on.

    Attributes:
        job: its alignment's options go for the other protocols too, where they have them.
        role: whose side is shown.
        records: of each party; the job's ``align.at_most`` may let fewer take part.
        shared: the fewest and the most of them that the two may share.
        machine: either party's.
        rate_mbit_s: of the wire.
        rtt_ms: of the wire, there and back.
        obfuscation: this owner's wishes.
        need: what the node whose side is shown sets aside for the job.
        refusal: why it would not run it; empty where it would.
    """

    job: Job
    role: Role
    records: Records
    shared: Span
    machine: Machine
    rate_mbit_s: float
    rtt_ms: float
    obfuscation: Obfuscation
    need: Need | None = None
    refusal: str = ""


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

Where the job trains a split network also ``epoch_rows`` and ``batches``, of an epoch, and ``train_bytes`` and
``train_wire_s``, of all of it, both ways.
"""


def plan(
    job: Job,
    settings: Settings | None,
    *,
    active: int | None,
    passive: int | None,
    shared: int | None,
    rate_mbit_s: float,
    rtt_ms: float,
) -> Plan:
    """Find out what is not given: this node's number of records, and what this machine does.

    Args:
        job: the job.
        settings: of this node; without them the active party's side is shown.
        active: records of the active party.
        passive: records of the passive party.
        shared: records of both; None: from none to all of the smaller set.
        rate_mbit_s: of the wire.
        rtt_ms: of the wire.

    Raises:
        UsageError: a number is not known, or more is shared than a party has (``E_USAGE``); the
            job gives this node no such role (``E_ROLE``); nothing can be written where the lists
            would lie (``E_FILE``).
        DataError: the data file cannot be read.
    """
    names = _names(job)
    if settings and names[settings.role] != settings.name:
        raise UsageError(
            f"the {settings.role} party of this job is {names[settings.role]}, and the configuration is {settings.name}'s",
            code="E_ROLE",
            hint="give the configuration of a party of the job",
        )
    given: dict[Role, int | None] = {"active": active, "passive": passive}
    records, columns = {role: count for role, count in given.items() if count is not None}, 0
    if settings and settings.data and settings.role not in records:
        read = read_columns(settings.data.path, party=settings.name, format=settings.data.format)
        records[settings.role], columns = len(read), len(read.names)
    for role, name in names.items():
        if role not in records:
            count_them = ", or the --config of its node, to count them" if settings is None else ""
            raise UsageError(f"how many records has {name}, the {role} party?", hint=f"--{role} N{count_them}")
    smaller = min(records.values())
    if shared is not None and shared > smaller:
        raise UsageError(f"--shared {shared} is more than the smaller party's {smaller} records")
    own: Role = settings.role if settings else "active"
    shape, models = TableShape(records[own], 2 * columns), settings.models if settings else NONE_DECLARED
    return Plan(
        job=job,
        role=own,
        records=records,
        shared=(0, smaller) if shared is None else (shared, shared),
        machine=measure(
            group(job.align.group),
            settings.group_workers if settings else len(os.sched_getaffinity(0)),
            settings.state_dir if settings else Path(tempfile.gettempdir()),
        ),
        rate_mbit_s=rate_mbit_s,
        rtt_ms=rtt_ms,
        obfuscation=settings.obfuscation if settings else Obfuscation(),
        need=need(job, own, shape, models=models),
        refusal=_refusal(job, own, shape, settings.limits if settings else Limits(), models),
    )


def measure(group: Group, cores: int, folder: Path) -> Machine:
    """What this machine does; takes about a second.

    Args:
        group: the job's.
        cores: how many group operations would use.
        folder: where lists would lie; it need not be there yet.

    Raises:
        UsageError: nothing can be written there (``E_FILE``).
    """
    randomness, engine = Randomness(os.urandom(32)), Threads(1)
    scalar = group.draw(randomness.derive("scalar"))
    ids = [b"%d" % i for i in range(min(512, group.chunk_rows))]
    elements = group.hash_to_group(ids, b"estimate")
    data = randomness.bytes(group.width << 14)
    return Machine(
        cores=cores,
        hash_s=_cpu_s(lambda some: group.hash_to_group(some, b"estimate"), ids, 0.1),
        power_s=_cpu_s(lambda some: group.power(some, scalar, engine), elements, 0.25),
        decode_s=_cpu_s(group.decode, elements, 0.1),
        find_s=_cpu_s(_found, np.frombuffer(data, dtype=np.uint8).reshape(-1, group.width), 0.05),
        sha256_s=_cpu_s(sha256, data, 0.05),
        disk_bytes_per_s=_disk_bytes_per_s(folder),
    )


def estimate(plan: Plan) -> dict[str, Range]:
    """What each protocol would cost: protocol → :data:`Range`."""
    return {protocol: _range(plan, _terms(plan.job.align, protocol)) for protocol in ALIGNMENTS}


def table(plan: Plan, found: dict[str, Range]) -> list[tuple[str, ...]]:
    """What was found as text: a line for each figure, a column for each protocol; the first line names them."""
    chosen = plan.job.align.protocol
    lines: dict[str, tuple[str, Callable[[float], str]]] = {
        "wall_s": ("time", _duration),
        "computing_s": ("  to compute", _duration),
        "wire_s": (f"  to send at {plan.rate_mbit_s:g} Mbit/s", _duration),
        "disk_s": ("  to write", _duration),
        "cpu_s": (f"CPU time, {plan.role} party", _duration),
        "sent_bytes": ("  sent", _size),
        "received_bytes": ("  received", _size),
        "memory_bytes": ("  memory", _size),
        "active_disk_bytes": ("disk, active party", _size),
        "passive_disk_bytes": ("disk, passive party", _size),
        "rows": ("shared rows", _count),
        "extra_rows": ("  more than with PSI", _count),
        "epoch_rows": ("training, rows an epoch", _count),
        "batches": ("  in batches", _count),
        "train_bytes": ("  sent by both, in all", _size),
        "train_wire_s": (f"  at {plan.rate_mbit_s:g} Mbit/s and {plan.rtt_ms:g} ms", _duration),
    }
    head = ("", *(name.upper() + " (this job)" * (name == chosen) for name in found))
    costs_of = list(found.values())
    known = {name: line for name, line in lines.items() if all(name in cost for cost in costs_of)}
    return [head, *((title, *(_between(*cost[name], text) for cost in costs_of)) for name, (title, text) in known.items())]


def notes(plan: Plan) -> list[str]:
    """What the reader of the table should know, in plain words."""
    machine, terms, names, (least, most) = plan.machine, plan.job.align, _names(plan.job), plan.shared
    have = ", ".join(f"{name} has {_count(plan.records[role])} records" for role, name in names.items())
    shared = f"{_count(least)} are shared" if least == most else f"shared may be any number, {_between(least, most, _count)}"
    said = [
        f"{have}; {shared}",
        f"measured on one core: {_micro(machine.hash_s)} a hash, {_micro(machine.power_s)} a power, "
        f"{_micro(machine.decode_s)} a check ({terms.group}); the disk writes {machine.disk_bytes_per_s / 1e6:,.0f} MB/s",
        "computing, sending and writing overlap, so the longest is the time, if both parties have a machine like this "
        f"({machine.cores} {'core' if machine.cores == 1 else 'cores'}); reading the tables and training come on top",
        "rows that only one party owns hide which ones both do; training takes them all",
    ]
    if terms.at_most is not None and terms.at_most < max(plan.records.values()):
        said.append(
            f"a party with more than {_count(terms.at_most)} records brings a fixed random part of so many (align.at_most); "
            "as many shared ones are counted as chance leaves of them"
        )
    if plan.need:
        said.append(f"the {plan.role} party's node sets {_size(plan.need.bytes)} of memory aside for the job ({plan.need})")
    if plan.refusal:
        said.append(f"it would not run this job: {plan.refusal}")
    if terms.padding or terms.dummies:
        said.append("ids that the job makes up (padding, dummies) are counted in")
    for protocol in ALIGNMENTS:
        said += ALIGNMENTS[protocol].estimate_notes(terms, plan.obfuscation)
    return said


def as_json(plan: Plan, found: dict[str, Range]) -> dict[str, Any]:
    """All of it for a program: seconds, bytes, and [least, most] for each figure."""
    given = {name: value for name, value in asdict(plan).items() if name not in ("job", "obfuscation")}
    return {"job": plan.job.name, "protocol": plan.job.align.protocol, **given, "costs": found}


def of_files(job: Job, files: Mapping[str, Path], id_column: str) -> list[str]:
    """:func:`before_start` for one owner of all tables, whose files are counted: both parties' and what they share.

    Empty where a file cannot be counted: whoever reads it to take part says why.
    """
    form, ids = job.align.id_form, {}
    if not isinstance(job.train, Train) or not isinstance(form, str):
        return []
    with suppress(DataError, KeyError):
        for role, name in _names(job).items():
            blocks = read_columns(files[name], party=name).blocks(id_column)
            ids[role] = {canonical(cell, form) for cells in blocks for cell in cells}
        common = len(ids["active"] & ids["passive"])
        return before_start(job, {role: len(some) for role, some in ids.items()}, (common, common))
    return []


def of_node(job: Job, settings: Settings) -> list[str]:
    """:func:`before_start` for a node, which can count its own table only; empty where it cannot, or has no part in the job."""
    if not isinstance(job.train, Train) or settings.data is None or role_in(job.parties, settings.name) != settings.role:
        return []
    with suppress(DataError):
        return before_start(
            job, {settings.role: len(read_columns(settings.data.path, party=settings.name, format=settings.data.format))}
        )
    return []


def before_start(job: Job, records: Records, shared: Span | None = None) -> list[str]:
    """What training takes over the rows of this job, and over the union or the intersection instead: a line each.

    Args:
        job: the job; there are no lines if it trains no split network.
        records: of both parties, or of one: then the lines say at least and at most.
        shared: of both; None: any number.
    """
    train, own = job.train, job.align.protocol
    if not isinstance(train, Train):
        return []
    lines = []
    for protocol in (own, job.align.spec.compared_with):
        rows = _shared_rows(_terms(job.align, protocol), records, shared)
        if rows is not None:
            words = "this job trains on {}: {}" if protocol == own else "{} would take {}"
            lines.append(words.format(ALIGNMENTS[protocol].shared_rows, _taken(job, protocol, *rows)))
    return lines


def after_alignment(job: Job, alignment: Alignment) -> str:
    """The same once the job's parties have aligned, in one line; empty if it trains no split network."""
    if not isinstance(job.train, Train):
        return ""
    spec = ALIGNMENTS[alignment.protocol]
    other = ALIGNMENTS[spec.compared_with]
    said = f"training on {spec.shared_rows}: {_taken(job, spec.name, len(alignment), len(alignment))}"
    rows = alignment.peer.intersection if other.every_row_is_shared else alignment.union
    if rows is None:
        return f"{said}; how many {other.shared_rows} would take is hidden"
    return f"{said}; {other.shared_rows} would take {_taken(job, other.name, rows, rows)}"


def _shared_rows(terms: Align, records: Records, shared: Span | None) -> tuple[int, int | None] | None:
    """The fewest and the most shared rows, as far as the ``records`` known tell; None where they tell nothing."""
    if len(records) == len(DATA_ROLES):
        taken, common = _taking_part(terms, records, shared or (0, min(records.values())))
        n_a, n_p = (announced(taken[role], terms, role) for role in DATA_ROLES)
        rows = [m for shared in common for m in terms.spec.lengths(terms, n_a, n_p, shared, Obfuscation())]
        return min(rows), max(rows)
    (role, count), *_ = records.items()
    own = announced(min(count, terms.at_most or count), terms, role)
    most = None if terms.at_most is None else own + announced(terms.at_most, terms, role)
    return terms.spec.lengths_of_one(own, most)


def _taken(job: Job, protocol: str, least: int, most: int | None) -> str:
    """Rows, batches and bytes of training over so many shared rows, in words."""
    assert isinstance(job.train, Train)
    low, high = (training_cost(job.train, job.evaluate, rows, protocol) for rows in (least, most or least))

    def between(name: str, text: Callable[[float], str]) -> str:
        fewest = getattr(low, name)
        return f"at least {text(fewest)}" if most is None else _between(fewest, getattr(high, name), text)

    batches = f"{between('batches', _count)} batch{'es' if high.batches > 1 else ''}"
    return f"{between('rows', _count)} rows an epoch, {batches}, {between('bytes', _size)} in all"


def _names(job: Job) -> dict[Role, str]:
    return {"active": job.parties.active, "passive": job.parties.passive[0]}


def _terms(terms: Align, protocol: str) -> Align:
    """The job's terms if it had another protocol."""
    options = ALIGNMENTS[protocol].options
    dummies = terms.dummies if "dummies" in options else 0
    obfuscation = (terms.obfuscation or "private") if "obfuscation" in options else None
    return terms.model_copy(update={"protocol": protocol, "dummies": dummies, "obfuscation": obfuscation})


def _refusal(job: Job, role: Role, table: TableShape, limits: Limits, models: Mapping[str, str]) -> str:
    """Why a node with these limits would not run the job, or could not now; empty where it would."""
    try:
        Budget(limits, models).fit(job, role, table)
    except VflError as error:
        return error.message
    return ""


def _range(plan: Plan, terms: Align) -> Range:
    records, shared = _taking_part(terms, plan.records, plan.shared)
    n_a, n_p = (announced(records[role], terms, role) for role in DATA_ROLES)
    cases = [
        asdict(_cost(plan, terms.spec, n_a, n_p, common, m)) | _training(plan, terms.protocol, m)
        for common in shared
        for m in terms.spec.lengths(terms, n_a, n_p, common, plan.obfuscation)
    ]
    return {name: (min(case[name] for case in cases), max(case[name] for case in cases)) for name in cases[0]}


def _taking_part(terms: Align, records: Records, shared: Span) -> tuple[Records, Span]:
    """How many records take part, and how many of those are shared where chance does as expected."""
    if terms.at_most is None:
        return records, shared
    taken = {role: min(count, terms.at_most) for role, count in records.items()}
    share = math.prod(taken[role] / count for role, count in records.items())
    return taken, (round(share * shared[0]), round(share * shared[1]))


def _training(plan: Plan, protocol: str, m: int) -> dict[str, float]:
    """What training over ``m`` shared rows takes; nothing where the job trains no split network."""
    if not isinstance(plan.job.train, Train):
        return {}
    cost = training_cost(plan.job.train, plan.job.evaluate, m, protocol)
    wire_s = cost.bytes * 8 / (plan.rate_mbit_s * 1e6) + cost.steps * plan.rtt_ms / 1e3
    return {"epoch_rows": cost.rows, "batches": cost.batches, "train_bytes": cost.bytes, "train_wire_s": wire_s}


def _cost(plan: Plan, spec: AlignmentSpec, n_a: int, n_p: int, shared: int, m: int) -> AlignmentCost:
    machine, role, width = plan.machine, plan.role, group(plan.job.align.group).width
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


def _cpu_s(operation: Callable[[Any], object], items: Sequence[Any] | Rows, budget_s: float) -> float:
    """CPU seconds an item, over ever more items until the budget is spent."""
    done, some, began = 0, 1, time.process_time()
    while (spent := time.process_time() - began) < budget_s:
        operation(items[:some])
        done, some = done + some, min(2 * some, len(items))
    return spent / done


def _found(rows: Rows) -> object:
    return RowIndex(rows).find(rows)


def _disk_bytes_per_s(folder: Path) -> float:
    there = next(path for path in (folder.resolve(), *folder.resolve().parents) if path.is_dir())
    written, began = 0, time.monotonic()
    try:
        with tempfile.TemporaryFile(dir=there) as file:
            while (spent := time.monotonic() - began) < 0.2:
                file.write(_BLOCK)
                file.flush()
                os.fsync(file.fileno())
                written += len(_BLOCK)
    except OSError as error:
        raise UsageError(
            f"cannot write in {there} ({error.strerror})", code="E_FILE", hint="set state_dir to where this user can write"
        ) from None
    return written / spent


def _between(least: float, most: float, text: Callable[[float], str]) -> str:
    low, high = text(least), text(most)
    unit = low[len(low.split(" ")[0]) :]
    return low if low == high else f"{low.removesuffix(unit) if high.endswith(unit) else low} – {high}"


def _duration(seconds: float) -> str:
    for unit, size, largest in (("s", 1, 120), ("min", 60, 120), ("h", 3600, 72)):
        if seconds < largest * size:
            return f"{seconds / size:.1f} {unit}" if seconds >= 0.1 else "0.1 s"
    return f"{seconds / 86400:.1f} days"


def _size(count: float) -> str:
    for unit, size in (("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)):
        if count < 1000 * size:
            return f"{count / size:.1f} {unit}"
    return f"{count / (1 << 40):.1f} TiB"


def _count(count: float) -> str:
    return f"{count:,.0f}"


def _micro(seconds: float) -> str:
    return f"{seconds * 1e6:,.1f} µs"
