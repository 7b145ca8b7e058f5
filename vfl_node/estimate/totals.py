"""From counts to seconds and bytes: what alignment by each protocol costs, and training over its rows.

The elements are counted exactly, by each protocol (:meth:`vfl_node.alignment.plan.AlignmentPlan.counts`). Powers and finding
use every core. So do hashing and checking, if the kernel does them without Python's lock; else they come on top as if there
were one core. In each stage the slowest party counts. Computing, the wire and the disk overlap: the slowest of the three
gives the time. The wire is the active party's, over which everything goes. Reading the table is not counted. Of training the
trainer counts rows, batches and bytes (:meth:`vfl_node.job.costs.TrainingPlan.cost`), and the time is that on the wire. What
it computes is counted for rows outside of the alignment alone. See docs/guides/estimate-a-job.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from vfl_node.alignment import costs
from vfl_node.alignment.plan import AlignmentPlan, plan_of
from vfl_node.alignment.several.costs import PartyCounts
from vfl_node.alignment.several.stages import party_counts, sum_stages
from vfl_node.configuration.registry import load
from vfl_node.crypto.groups import group
from vfl_node.estimate.linkage import ENCODE_S, PLACE_BYTES, linkage_cost
from vfl_node.estimate.machine import Machine
from vfl_node.estimate.plan import (
    Plan,
    Records,
    announced_sizes,
    computing,
    cost_outside,
    data_role,
    taking_part,
    terms_of,
    training_cost,
)
from vfl_node.estimate.shared_linkage import PAIR_S as SHARED_PAIR_S
from vfl_node.estimate.shared_linkage import shared_cost
from vfl_node.job.alignment import ALIGNMENTS, Align, AlignmentSpec
from vfl_node.job.costs import Operations, Pace, TableShape
from vfl_node.job.names import AUTO
from vfl_node.models import NONE_DECLARED
from vfl_node.settings.node import Settings

TRANSPORT_S = 2e-9
"""CPU seconds that gRPC and TLS 1.3 take for a byte at one end (loopback, chunks of 512 KiB, Zen 4)."""

PROCESS_BYTES = 200 << 20
"""Memory of a node that has nothing to do (docs/guides/estimate-a-job.md); 65 MiB of it are files of libraries."""

TRAINING_BYTES = 320 << 20
"""What the libraries of a training take in addition, once a node has trained (100 rows were); 180 MiB of it are torch."""

LINKED_ROW_BYTES = 128
"""Memory for each record of a party in a linkage by similarity."""

START_S, CELL_S = 0.25, 0.1e-6
"""CPU seconds of a node for a job, whatever its size, and to read and check a cell of its table."""

USUAL_COLUMNS = 16
"""Columns of a table, where nobody says how many it has."""

_LINKAGE_TURNS = 8  # messages that wait for each other

_HASHED = 2  # times: a list and its phase on the wire, a file and its chunks on disk


@dataclass(frozen=True)
class AlignmentCost:
    """What one protocol costs.

    Attributes:
        wall_s: the longest of the next three.
        computing_s: that the parties compute, one waiting for the others.
        wire_s: that the lists are on the active party's wire.
        disk_s: that the busier disk writes.
        cpu_s: of this party, all cores together.
        sent_bytes: by this party.
        received_bytes: by this party.
        active_disk_bytes: lists of the active party, until both have the result, and what is divided to search them.
        passive_disk_bytes: those of the passive party; of several, of the one with the most.
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
``train_bytes`` and ``train_wire_s``, of all of it, both ways, and where the coordinator takes part in that
``dealt_bytes`` and ``coordinator_memory_bytes``. Where it learns from rows outside of the protocol's, also
``outside_rows``, and ``outside_active_s`` and ``outside_passive_s``, that each party computes for them in all.
"""


def estimate(plan: Plan, machine: Machine, pace: Pace | None = None) -> dict[str, Range]:
    """What each protocol would cost between parties with such a ``machine``: protocol → :data:`Range`.

    One of a package that cannot be loaded is left out, and so is one that does not run with as many parties.

    Args:
        plan: what is known.
        machine: of each party.
        pace: how fast it computes; None: what rows outside take has no figures.
    """
    return {
        name: _range(plan, machine, terms_of(plan.job.align, name), pace)
        for name, spec in ALIGNMENTS.usable()
        if shows(plan, spec)
    }


def pace_of(plan: Plan, table: TableShape, settings: Settings | None) -> Pace | None:
    """How fast this machine computes what rows outside need, measured when it is asked for; None where none is learnt from.

    Args:
        plan: whose job it is.
        table: of the party whose side is shown.
        settings: of its node.
    """
    spec = plan.job.align.spec
    cost = cost_outside(plan.job, spec, plan.records, 0) or computing(plan, spec, plan.records, 0)
    if cost is None:
        return None
    measure: Callable[..., Pace] = load(cost.pace, what="the measure of train.unaligned")
    models = settings.models if settings else NONE_DECLARED
    return measure(plan.job, {data_role(plan.job.parties, plan.party): table}, models)


def to_json(plan: Plan, machine: Machine, costs_of: dict[str, Range]) -> dict[str, Any]:
    """All of it for a program: seconds, bytes, and [least, most] for each figure."""
    apart = {"job", "party", "records", "obfuscation", "columns"}
    given = {name: value for name, value in asdict(plan).items() if name not in apart}
    head = {"job": plan.job.name, "protocol": plan.job.align.protocol, "role": plan.role}
    if plan.several:  # a role does not name a party
        who: dict[str, Any] = {"party": plan.party, "records": dict(plan.records)}
    else:
        who = {"records": {data_role(plan.job.parties, name): count for name, count in plan.records.items()}}
    return {**head, **who, **given, "machine": asdict(machine), "costs": costs_of}


def shows(plan: Plan, spec: AlignmentSpec) -> bool:
    """Whether the protocol has figures: it runs with as many passive parties, and a reader may want to compare it."""
    own = plan.job.align.spec
    asked_for = spec.allowed_by_default or plan.several or spec.name == own.name
    return asked_for and spec.by_similarity == own.by_similarity and len(plan.job.parties.passive) <= spec.several.most


def stages(protocol: AlignmentPlan, sizes: Sequence[int], m: int) -> list[tuple[PartyCounts, ...]]:
    """What each data party does in each stage, in the job's order; arguments as :meth:`AlignmentPlan.stages_of_several`."""
    n_a, n_p, *more = sizes
    return protocol.stages_of_several(sizes, m) if more else [party_counts(stage) for stage in protocol.stages(n_a, n_p, m)]


def _range(plan: Plan, machine: Machine, terms: Align, pace: Pace | None) -> Range:
    records, shared = taking_part(terms, plan.records, plan.shared)
    sizes = announced_sizes(plan.job.parties, terms, records)
    cost = _linkage if terms.spec.by_similarity else _cost
    if plan.job.align.reuse not in (None, AUTO) and terms.protocol == plan.job.align.protocol:
        cost = _reused
    cases = [
        asdict(alignment := cost(plan, machine, terms, sizes, common, m))
        | _peak(plan, alignment.memory_bytes)
        | _training(plan, terms.protocol, m, common)
        | _node(plan)
        | _computed(plan, machine, terms.spec, records, m, pace)
        | _figures_outside(plan, terms.spec, records, m, pace)
        for common in shared
        for m in plan_of(terms.spec).lengths(terms, sizes, common, plan.obfuscation)
    ]
    unknown = {"extra_rows"} if terms.spec.by_similarity else set()  # there is no intersection to compare with
    names = cases[0].keys() - unknown
    return {name: (min(case[name] for case in cases), max(case[name] for case in cases)) for name in cases[0] if name in names}


def _training(plan: Plan, protocol: str, m: int, common: int) -> dict[str, float]:
    """What training over ``m`` shared rows takes; nothing where the job does not train, or its trainer does not count it."""
    several = len(plan.job.parties.passive) > 1
    among = None if several else plan.records.get(plan.job.parties.pair["passive"])
    cost = training_cost(plan.job, m, protocol, among, common, plan.columns)
    if cost is None:
        return {}
    longest = max(cost.bytes, cost.coordinator_bytes)
    wire_s = longest * 8 / (plan.rate_mbit_s * 1e6) + cost.steps * plan.rtt_ms / 1e3
    found = {"epoch_rows": cost.rows, "batches": cost.batches, "train_bytes": cost.bytes, "train_wire_s": wire_s}
    if cost.coordinator_bytes:
        found |= {"dealt_bytes": cost.coordinator_bytes, "coordinator_memory_bytes": cost.coordinator_memory}
    return found


def _peak(plan: Plan, aligning: float) -> dict[str, float]:
    """Memory of this party's node at its peak, if the alignment takes so much of it."""
    if plan.need is None:
        return {}
    libraries = TRAINING_BYTES if plan.job.train else 0
    return {"peak_bytes": PROCESS_BYTES + libraries + max(plan.need.bytes, aligning - PROCESS_BYTES)}


def _node(plan: Plan) -> dict[str, float]:
    """What this party's node computes beside alignment and training."""
    columns = dict(zip(plan.job.parties.data, plan.columns, strict=False)).get(plan.party) or USUAL_COLUMNS
    return {"node_s": START_S + CELL_S * plan.records[plan.party] * columns}


def _computed(
    plan: Plan, machine: Machine, spec: AlignmentSpec, records: Records, m: int, pace: Pace | None
) -> dict[str, float]:
    """What training over ``m`` shared rows computes; nothing where its trainer does not count it, or nothing is measured."""
    cost = computing(plan, spec, records, m)
    if cost is None or pace is None:
        return {}
    taken_s = [(work, pace(work)) for work in cost.work]
    spread = sum(seconds / (machine.cores if isinstance(work, Operations) and work.shared else 1) for work, seconds in taken_s)
    roles = sorted({work.at for work in cost.work})
    each = {f"train_{role}_s": sum(seconds for work, seconds in taken_s if work.at == role) for role in roles}
    return {**each, "train_computing_s": spread}


def _figures_outside(plan: Plan, spec: AlignmentSpec, records: Records, m: int, pace: Pace | None) -> dict[str, float]:
    """What learning from rows outside of ``m`` shared ones takes; nothing where none is learnt from."""
    cost = cost_outside(plan.job, spec, records, m)
    if cost is None:
        return {}
    if pace is None:
        return {"outside_rows": cost.rows}
    taken_s = {
        role: sum(pace(work) for work in cost.work if work.at == role) for role in sorted({work.at for work in cost.work})
    }
    return {"outside_rows": cost.rows, **{f"outside_{role}_s": seconds for role, seconds in taken_s.items()}}


def _linkage(plan: Plan, machine: Machine, terms: Align, sizes: Sequence[int], shared: int, m: int) -> AlignmentCost:
    """As :func:`_cost`; the wire is the coordinator's."""
    if terms.comparison == "shares":
        return _shared_linkage(plan, machine, terms, sizes, m)
    cost = linkage_cost(terms, sizes)
    sent_a, sent_p = cost.sent
    is_active = plan.party == plan.job.parties.active
    own = sent_a if is_active else sent_p
    computing_s = cost.encode_s + cost.search_s / machine.cores + cost.draw_s
    wire_s = cost.coordinator_bytes * 8 / (plan.rate_mbit_s * 1e6) + _LINKAGE_TURNS * plan.rtt_ms / 1e3
    disk_s = cost.coordinator_disk_bytes / machine.disk_bytes_per_s
    return AlignmentCost(
        wall_s=max(computing_s, wire_s, disk_s),
        computing_s=computing_s,
        wire_s=wire_s,
        disk_s=disk_s,
        cpu_s=(own * 8) * ENCODE_S,
        sent_bytes=own,
        received_bytes=cost.received,
        active_disk_bytes=sent_a + cost.received,
        passive_disk_bytes=sent_p + cost.received,
        memory_bytes=PROCESS_BYTES + LINKED_ROW_BYTES * sizes[0 if is_active else 1] + 2 * cost.received,
        rows=m,
        extra_rows=0,
    )


def _shared_linkage(plan: Plan, machine: Machine, terms: Align, sizes: Sequence[int], m: int) -> AlignmentCost:
    """As :func:`_cost`, of a linkage in shares; the wire is the busiest one."""
    cost = shared_cost(terms, sizes)
    place = 0 if plan.party == plan.job.parties.active else 1
    bits, slots = cost.plan.bits, PLACE_BYTES * sizes[0] * terms.candidates
    filters = [count * bits // 8 for count in sizes]
    computing_s = max(sizes) * bits * ENCODE_S + cost.pairs * SHARED_PAIR_S * (2 if machine.cores < 2 else 1)
    wire_s = cost.wire_bytes * 8 / (plan.rate_mbit_s * 1e6) + (cost.rounds / 2 + _LINKAGE_TURNS) * plan.rtt_ms / 1e3
    disk_s = max(filters) / machine.disk_bytes_per_s
    return AlignmentCost(
        wall_s=max(computing_s, wire_s, disk_s),
        computing_s=computing_s,
        wire_s=wire_s,
        disk_s=disk_s,
        cpu_s=sizes[place] * bits * ENCODE_S + cost.pairs * SHARED_PAIR_S,
        sent_bytes=cost.sent[place],
        received_bytes=cost.sent[1 - place] + cost.dealt // 2,
        active_disk_bytes=filters[0],
        passive_disk_bytes=filters[1],
        memory_bytes=PROCESS_BYTES + LINKED_ROW_BYTES * sizes[place] + 2 * slots + cost.plan.memory_bytes,
        rows=m,
        extra_rows=0,
    )


def _reused(plan: Plan, machine: Machine, terms: Align, sizes: Sequence[int], shared: int, m: int) -> AlignmentCost:
    """As :func:`_cost`, of an alignment that an earlier job has made: nothing of it is computed or sent."""
    found = _cost(plan, machine, terms, sizes, shared, m)
    kept = {"rows": found.rows, "extra_rows": found.extra_rows, "memory_bytes": PROCESS_BYTES}
    return AlignmentCost(**{**dict.fromkeys(asdict(found), 0), **kept})


def _cost(plan: Plan, machine: Machine, terms: Align, sizes: Sequence[int], shared: int, m: int) -> AlignmentCost:
    protocol = plan_of(terms.spec)
    parties, width = plan.job.parties, group(plan.job.align.group).width
    in_stages = stages(protocol, sizes, m)
    total = dict(zip(parties.data, sum_stages(in_stages), strict=True))
    own, active = total[plan.party], total[parties.active]
    divided = costs.divided_bytes(sum(sizes), width)
    own_size = sizes[parties.data.index(plan.party)]
    told = protocol.bytes_a_row * m  # by the active party to each other one
    told_by, told_to = (told * len(parties.passive), 0) if plan.party == parties.active else (0, told)
    beside = protocol.bytes_beside(*sizes) if len(sizes) == 2 else {}
    own_beside = beside.get(data_role(parties, plan.party), 0)
    told_by, told_to = told_by + own_beside, told_to + sum(beside.values()) - own_beside
    of_stage = max if protocol.is_duplex(len(sizes)) else sum
    elements = sum(of_stage((stage[0].sent, stage[0].received)) for stage in in_stages)  # the active party's
    on_wire = elements * width + told * len(parties.passive) + sum(beside.values())
    computing_s = sum(max(_seconds(machine, each, width, machine.cores) for each in stage) for stage in in_stages)
    turns = len(in_stages) + 2  # sizes before, the phase's end after
    wire_s = on_wire * 8 / (plan.rate_mbit_s * 1e6) + turns * plan.rtt_ms / 1e3
    disk_s = max(each.spilled for each in total.values()) * width / machine.disk_bytes_per_s
    return AlignmentCost(
        wall_s=max(computing_s, wire_s, disk_s),
        computing_s=computing_s,
        wire_s=wire_s,
        disk_s=disk_s,
        cpu_s=_seconds(machine, own, width, 1),
        sent_bytes=own.sent * width + told_by,
        received_bytes=own.received * width + told_to,
        active_disk_bytes=active.spilled * width + divided,
        passive_disk_bytes=max(total[name].spilled for name in parties.passive) * width + divided,
        memory_bytes=PROCESS_BYTES + costs.ID_BYTES * own_size + costs.memory_bytes(own_size, sum(sizes), width, machine.cores),
        rows=m,
        extra_rows=m - shared,
    )


def _seconds(machine: Machine, counts: PartyCounts, width: int, cores: int) -> float:
    """Wall time that one party computes if it has so many cores."""
    sent_and_received = counts.sent + counts.received
    bytes_s = width * (sent_and_received * TRANSPORT_S + (sent_and_received + counts.spilled) * _HASHED * machine.sha256_s)
    hashed_s = counts.hashes * machine.hash_s + counts.received * machine.decode_s
    found_s = counts.received * machine.find_s
    return bytes_s + hashed_s / (cores if machine.hashes_beside else 1) + (counts.powers * machine.power_s + found_s) / cores
