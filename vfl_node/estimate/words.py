"""An estimate in words: the table of ``vfl-node estimate``, the notes below it, and the sentences of a job that runs."""

from __future__ import annotations

from collections.abc import Callable

from vfl_node.alignment.alignment import Alignment
from vfl_node.alignment.plan import plan_of
from vfl_node.alignment.sizes import announced_count
from vfl_node.crypto.kernels import kernel
from vfl_node.estimate.linkage import linkage_cost, linkage_notes
from vfl_node.estimate.machine import Machine
from vfl_node.estimate.plan import (
    Plan,
    Records,
    Span,
    announced_sizes,
    cost_outside,
    data_role,
    taking_part,
    terms_of,
    training_cost,
)
from vfl_node.estimate.shared_linkage import shared_cost, shared_notes
from vfl_node.estimate.totals import Range, shows
from vfl_node.gdp import epsilon_of
from vfl_node.job import Align, Job, Parties
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.session.spent import epsilon_text
from vfl_node.settings.node import Obfuscation


def table(plan: Plan, costs: dict[str, Range]) -> list[tuple[str, ...]]:
    """The costs as text: a line for each figure, a column for each protocol; the first line names them."""
    chosen, unit = plan.job.align.protocol, plan.job.train.traits.unit if plan.job.train else ""
    lines: dict[str, tuple[str, Callable[[float], str]]] = {
        "wall_s": ("time", _duration),
        "computing_s": ("  to compute", _duration),
        "wire_s": (f"  to send at {plan.rate_mbit_s:g} Mbit/s", _duration),
        "disk_s": ("  to write", _duration),
        "cpu_s": (f"CPU time, {plan.whose}", _duration),
        "node_s": ("  more, to begin and read the table", _duration),
        "sent_bytes": ("  sent", _size),
        "received_bytes": ("  received", _size),
        "memory_bytes": ("  memory", _size),
        "peak_bytes": ("  of the whole node at most", _size),
        "active_disk_bytes": ("disk, active party", _size),
        "passive_disk_bytes": (f"disk, {'each ' * plan.several}passive party{' at most' * plan.several}", _size),
        "rows": ("shared rows", _count),
        "extra_rows": ("  more than with PSI", _count),
        "epoch_rows": (f"training, rows per {unit}", _count),
        "batches": ("  in batches", _count),
        "train_bytes": (f"  sent by {'all' if plan.several else 'both'}, in all", _size),
        "dealt_bytes": (f"  sent by {plan.job.parties.coordinator}, in all", _size),
        "train_wire_s": (f"  at {plan.rate_mbit_s:g} Mbit/s and {plan.rtt_ms:g} ms", _duration),
        "coordinator_memory_bytes": (f"  memory of {plan.job.parties.coordinator}", _size),
        "train_active_s": ("  CPU time, active party", _duration),
        "train_passive_s": (f"  CPU time, {'each ' * plan.several}passive party", _duration),
        "train_coordinator_s": (f"  CPU time, {plan.job.parties.coordinator}", _duration),
        "train_computing_s": ("  to compute, one waiting for the others", _duration),
        "outside_rows": ("unaligned rows, used in training", _count),
        "outside_active_s": ("  to compute, active party", _duration),
        "outside_passive_s": ("  to compute, passive party", _duration),
    }
    head = ("", *(name.upper() + " (this job)" * (name == chosen) for name in costs))
    counted = {name: line for name, line in lines.items() if any(name in cost for cost in costs.values())}
    return [
        head,
        *(
            (title, *(_format_range(*cost[name], text) if name in cost else "–" for cost in costs.values()))
            for name, (title, text) in counted.items()
        ),
    ]


def notes(plan: Plan, machine: Machine) -> list[str]:
    """What the reader of the table should know, in plain words."""
    terms = plan.job.align
    have = ", ".join(f"{name} has {_count(plan.records[name])} records" for name in plan.job.parties.data)
    if terms.spec.by_similarity:
        taken, _ = taking_part(terms, plan.records, plan.shared)
        sizes, coordinator = announced_sizes(plan.job.parties, terms, taken), str(plan.job.parties.coordinator)
        if terms.comparison == "shares":
            said = [have, *shared_notes(shared_cost(terms, sizes), coordinator, plan.rtt_ms)]
        else:
            said = [have, *linkage_notes(linkage_cost(terms, sizes), machine.cores, coordinator)]
    else:
        said = _notes_on_ids(plan, machine, have)
    if terms.at_most is not None and terms.at_most < max(plan.records.values()):
        said.append(
            f"a party with more than {_count(terms.at_most)} records brings a fixed random part of so many (align.at_most); "
            "as many shared ones are counted as chance leaves of them"
        )
    if outside := cost_outside(plan.job, terms.spec, plan.records, 0):
        said.append(f"rows outside of the alignment are learnt from {outside.when}; to compute is on one core, in all")
    _, rows = _shared_rows(plan.job.parties, terms, plan.records, plan.shared) or (None, None)
    common = _common(plan.job, terms.protocol, plan.records, plan.shared)
    training = training_cost(plan.job, rows or min(plan.records.values()), terms.protocol, common=common, columns=plan.columns)
    said += training.said if training else ()
    if training and training.counted_with:
        said.append(f"training is counted with {training.counted_with} whose number is not given (--columns PARTY=N)")
    if plan.job.train:
        opens = plan.job.train.opens(plan.job.evaluate, plan.shared[1])
        said += [opens.warning] if opens.warning else []
        if opens.mu:
            said.append(f"it spends ε {epsilon_text(epsilon_of(opens.mu))} with each other data party (budgets.epsilon)")
    if plan.need:
        node = f"{plan.party}'s" if plan.whose == plan.party else f"the {plan.whose}'s"
        said.append(f"{node} node sets {_size(plan.need.bytes)} of memory aside for the job ({plan.need})")
    if plan.refusal:
        said.append(f"it would not run this job: {plan.refusal}")
    if terms.padding or terms.dummies:
        said.append("ids that the job makes up (padding, dummies) are counted in")
    for name, spec in ALIGNMENTS.usable():
        if shows(plan, spec):
            said += plan_of(spec).notes(terms, plan.obfuscation)
            if not spec.allowed_by_default:
                said.append(f"{name.upper()} runs only at nodes whose owners have named it in their policy (protocols)")
        elif spec.by_similarity == terms.spec.by_similarity and (len(plan.job.parties.passive) > (fewer := spec.several.most)):
            parties = "one passive party" if fewer == 1 else f"{fewer} passive parties"
            said.append(f"not available: {name.upper()} runs with {parties} at most, because {spec.several.why_not_more}")
    return said + [f"left out: {error.message}" for error in ALIGNMENTS.unusable()]


def _notes_on_ids(plan: Plan, machine: Machine, have: str) -> list[str]:
    """The first of :func:`notes`, of a protocol that compares identifiers."""
    terms, (least, most) = plan.job.align, plan.shared
    who, which = ("all parties", "which ones all of them do") if plan.several else ("both parties", "which ones both do")
    owned = "not all parties own" if plan.several else "only one party owns"
    known = f"{_count(least)} are shared{' by all' * plan.several}"
    said = [
        f"{have}; {known if least == most else f'shared may be any number, {_format_range(least, most, _count)}'}",
        f"measured on one core: {_micro(machine.hash_s)} a hash, {_micro(machine.power_s)} a power, "
        f"{_micro(machine.decode_s)} a check ({terms.group}, kernel {kernel().name}); the disk writes "
        f"{machine.disk_bytes_per_s / 1e6:,.0f} MB/s",
        f"computing, sending and writing overlap, so the longest is the time, if {who} have a machine like this "
        f"({machine.cores} {'core' if machine.cores == 1 else 'cores'}); reading the tables and training come on top",
        f"rows that {owned} hide {which}; training takes them all",
    ]
    if plan.several:
        said.append(
            f"passive parties have no connection to each other: all that is sent passes {plan.job.parties.active}'s wire"
        )
    return said


def describe_start(job: Job, records: Records, shared: Span | None = None) -> list[str]:
    """What training takes over the rows of this job, and over the union or the intersection instead: a sentence each.

    Args:
        job: the job; there are no sentences if it does not train, or its trainer does not count what that takes.
        records: of all data parties, or of one: then the sentences say at least and at most.
        shared: records that all have; None: any number.
    """
    own, sentences = job.align.protocol, []
    for protocol in (own, plan_of(job.align.spec).compared_with):
        rows = _shared_rows(job.parties, terms_of(job.align, protocol), records, shared)
        if rows is not None and (takes := _takes(job, protocol, *rows, common=_common(job, protocol, records, shared))):
            words = "this job trains on {}: {}" if protocol == own else "{} would take {}"
            beside = _describe_outside(job, protocol, records.get(job.parties.active), *rows)
            sentences.append(words.format(ALIGNMENTS[protocol].shared_rows, takes) + beside + _describe_counting(job, protocol))
    return sentences


def describe_alignment(job: Job, alignment: Alignment) -> str:
    """The same once the job's parties have aligned, in one line; empty as :func:`describe_start`."""
    spec = alignment.spec
    takes = _takes(job, spec.name, len(alignment), len(alignment), alignment.among, alignment.common)
    if not takes:
        return ""
    active = alignment.peers.get(job.parties.active)
    records = alignment.ours if active is None else None if active.padded else active.records
    takes += _describe_outside(job, spec.name, records, len(alignment), len(alignment)) + _describe_counting(job, spec.name)
    said, other = f"training on {spec.shared_rows}: {takes}", ALIGNMENTS[plan_of(spec).compared_with]
    rows = alignment.common if other.every_row_is_shared else alignment.union
    if rows is None:
        return f"{said}; how many {other.shared_rows} would take is hidden" if _takes(job, other.name, 0, None) else said
    instead = _takes(job, other.name, rows, rows, common=alignment.common)
    return f"{said}; {other.shared_rows} would take {instead}" if instead else said


def _shared_rows(parties: Parties, terms: Align, records: Records, shared: Span | None) -> tuple[int, int | None] | None:
    """The fewest and the most shared rows, as far as the ``records`` known tell; None where they tell nothing."""
    if len(records) == len(parties.data):
        taken, common = taking_part(terms, records, shared or (0, min(records.values())))
        sizes = announced_sizes(parties, terms, taken)
        rows = [m for shared in common for m in plan_of(terms.spec).lengths(terms, sizes, shared, Obfuscation())]
        return min(rows), max(rows)
    (name, count), *_ = records.items()
    role = data_role(parties, name)
    own = announced_count(min(count, terms.at_most or count), terms, role)
    others = len(parties.passive)
    most = None if terms.at_most is None else own + others * announced_count(terms.at_most, terms, role)
    return plan_of(terms.spec).lengths_of_one(own, most)


def _common(job: Job, protocol: str, records: Records, shared: Span | None) -> int | None:
    """How many of those that take part all parties have, where that is known."""
    if shared is None or len(records) < len(job.parties.data):
        return None
    _, (least, most) = taking_part(terms_of(job.align, protocol), records, shared)
    return least if least == most else None


def _takes(job: Job, protocol: str, least: int, most: int | None, among: int | None = None, common: int | None = None) -> str:
    """Rows, batches and bytes of training over so many shared rows; empty where the trainer does not count them."""
    low, high = (training_cost(job, rows, protocol, among, common) for rows in (least, most or least))
    if job.train is None or low is None or high is None:
        return ""

    def format_span(fewest: int, largest: int, text: Callable[[float], str]) -> str:
        return f"at least {text(fewest)}" if most is None else _format_range(fewest, largest, text)

    rows, sent = format_span(low.rows, high.rows, _count), format_span(low.bytes, high.bytes, _size)
    batches = f"{format_span(low.batches, high.batches, _count)} batch{'es' if high.batches > 1 else ''}"
    stops = "at most " if job.evaluate.validation_fraction and most is not None else ""  # training may stop early
    dealt = format_span(low.coordinator_bytes, high.coordinator_bytes, _size)
    beside = f", and {dealt} from {job.parties.coordinator}" if high.coordinator_bytes else ""
    return f"{rows} rows per {job.train.traits.unit}, {batches}, {stops}{sent} in all{beside}"


def _describe_counting(job: Job, protocol: str) -> str:
    """What this job's own training was counted with; empty where nothing is taken for granted."""
    cost = training_cost(job, 1, protocol) if protocol == job.align.protocol else None
    return f" (counted with {cost.counted_with})" if cost and cost.counted_with else ""


def _describe_outside(job: Job, protocol: str, active: int | None, least: int, most: int | None) -> str:
    """What the active party learns from beside so many shared rows; empty where that is nothing, or its records are hidden."""
    if active is None or most is None:
        return ""
    spec, records = ALIGNMENTS[protocol], {job.parties.active: active}
    fewest, largest = (cost_outside(job, spec, records, rows) for rows in (most, least))
    if fewest is None or largest is None:
        return ""
    rows = _format_range(fewest.rows, largest.rows, _count)
    return f", and beside them {rows} rows of {job.parties.active} alone, {largest.when}"


def _format_range(least: float, most: float, text: Callable[[float], str]) -> str:
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
