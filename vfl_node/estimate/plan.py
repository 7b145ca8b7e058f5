"""What an estimate begins from: the job, the records of all parties, the wire, and what this node's owner allows and wants."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from vfl_node.alignment.sizes import announced_count
from vfl_node.errors import UsageError, VflError
from vfl_node.estimate.budget import Budget
from vfl_node.estimate.memory import UNPROTECTED, Need, need
from vfl_node.job import Align, Job, Parties
from vfl_node.job.alignment import ALIGNMENTS, AlignmentSpec
from vfl_node.job.costs import Computing, OutsideCost, TableShape, TrainingCost
from vfl_node.models import NONE_DECLARED
from vfl_node.roles import DataRole, Role
from vfl_node.settings.node import Limits, Obfuscation, Settings, role_in
from vfl_node.settings.protection import Protection

Records = Mapping[str, int]
"""Name of a data party → its records."""

Span = tuple[int, int]
"""The fewest and the most."""

UNKNOWN = TableShape()
"""A table of which nothing is known."""


@dataclass(frozen=True)
class Plan:
    """A job, and what its cost depends on beside the machines.

    Attributes:
        job: its alignment's options go for the other protocols too, where they have them.
        party: whose side is shown.
        records: of each data party; the job's ``align.at_most`` may let fewer take part.
        shared: the fewest and the most of them that all may have.
        rate_mbit_s: of the wire of each party.
        rtt_ms: of the wire, there and back.
        obfuscation: this owner's wishes.
        need: what the node whose side is shown sets aside for the job.
        refusal: why it would not run it; empty where it would.
        columns: of each data party in the job's order, as encoded; 0 where it is not known.
    """

    job: Job
    party: str
    records: Records
    shared: Span
    rate_mbit_s: float
    rtt_ms: float
    obfuscation: Obfuscation
    need: Need | None = None
    refusal: str = ""
    columns: tuple[int, ...] = ()

    @property
    def role(self) -> Role:
        """Role of the party whose side is shown."""
        return data_role(self.job.parties, self.party)

    @property
    def whose(self) -> str:
        """Whose side is shown, in words: the role, or the name where several have it."""
        return self.party if self.several and self.role == "passive" else f"{self.role} party"

    @property
    def several(self) -> bool:
        """Whether there are several passive parties: then a role does not name one."""
        return len(self.job.parties.passive) > 1


def data_role(parties: Parties, name: str) -> DataRole:
    """The role of a party that has data."""
    return "active" if name == parties.active else "passive"


def shown_party(job: Job, settings: Settings | None) -> str:
    """Whose side is shown: that of the node with these settings, or without them the active party's.

    Raises:
        UsageError: the job gives this node no such role (``E_ROLE``).
    """
    if settings is None:
        return job.parties.active
    if role_in(job.parties, settings.name) != settings.role:
        names = [name for name in job.parties.all if role_in(job.parties, name) == settings.role]
        parties = f"{settings.role} party of this job is" if len(names) == 1 else f"{settings.role} parties of this job are"
        raise UsageError(
            f"the {parties} {' and '.join(names)}, and the configuration is {settings.name}'s",
            code="E_ROLE",
            hint="give the configuration of a party of the job",
        )
    return settings.name


def plan(
    job: Job,
    settings: Settings | None,
    records: Records,
    *,
    table: TableShape = UNKNOWN,
    columns: Mapping[str, int] = MappingProxyType({}),
    shared: int | None,
    rate_mbit_s: float,
    rtt_ms: float,
) -> Plan:
    """Put together what is known.

    Args:
        job: the job.
        settings: of this node; without them the active party's side is shown.
        records: of all data parties.
        table: this node's, its number of records aside, which ``records`` has.
        columns: data party → its encoded columns, where they are known.
        shared: records that all have; None: from none to all of the smallest set.
        rate_mbit_s: of the wire.
        rtt_ms: of the wire.

    Raises:
        UsageError: the records of a party are not known, or more is shared than a party has (``E_USAGE``); or as
            :func:`shown_party`.
    """
    party, several = shown_party(job, settings), len(job.parties.passive) > 1
    for name in job.parties.data:
        if name not in records:
            role = data_role(job.parties, name)
            whose, option = (f"{name}, a passive party", f"--records {name}=N")
            if role == "active" or not several:
                whose, option = f"{name}, the {role} party", f"--{role} N"
            count_them = ", or the --config of its node, to count them" if settings is None else ""
            raise UsageError(f"how many records has {whose}?", hint=f"{option}{count_them}")
    smallest = min(records.values())
    if shared is not None and shared > smallest:
        which = "smallest" if several else "smaller"
        raise UsageError(f"--shared {shared} is more than the {which} party's {smallest} records")
    shape, models = replace(table, rows=records[party]), settings.models if settings else NONE_DECLARED
    protection = settings.protection_under(settings.limits_for(job)) if settings else UNPROTECTED
    role = data_role(job.parties, party)
    return Plan(
        job=job,
        party=party,
        records=records,
        shared=(0, smallest) if shared is None else (shared, shared),
        rate_mbit_s=rate_mbit_s,
        rtt_ms=rtt_ms,
        obfuscation=settings.obfuscation if settings else Obfuscation(),
        need=need(job, role, shape, models=models, protection=protection),
        refusal=_refusal(job, role, shape, settings, models, protection),
        columns=tuple(columns.get(name, 0) for name in job.parties.data),
    )


def terms_of(align: Align, protocol: str) -> Align:
    """The job's terms if it had another protocol."""
    options = ALIGNMENTS[protocol].options
    dummies = align.dummies if "dummies" in options else 0
    obfuscation = (align.obfuscation or "private") if "obfuscation" in options else None
    return align.model_copy(update={"protocol": protocol, "dummies": dummies, "obfuscation": obfuscation})


def taking_part(align: Align, records: Records, shared: Span) -> tuple[Records, Span]:
    """How many records take part, and how many of those are expected to be shared."""
    if align.at_most is None:
        return records, shared
    taken = {name: min(count, align.at_most) for name, count in records.items()}
    share = math.prod(taken[name] / count for name, count in records.items())
    return taken, (round(share * shared[0]), round(share * shared[1]))


def announced_sizes(parties: Parties, align: Align, records: Records) -> list[int]:
    """Elements that each data party announces, in the job's order, if so many records take part."""
    return [announced_count(records[name], align, data_role(parties, name)) for name in parties.data]


def training_cost(
    job: Job,
    rows: int,
    protocol: str,
    among: int | None = None,
    common: int | None = None,
    columns: tuple[int, ...] = (),
) -> TrainingCost | None:
    """What the job's training takes over so many shared ``rows`` of an alignment, or all trials of a sweep together, at most.

    None where nothing is known of it.

    Args:
        job: the job.
        rows: length of the shared order.
        protocol: of the alignment.
        among: how many records the candidates of rows are chosen from, where there are some; None: not known.
        common: how many of the rows all parties own; None: not known.
        columns: as :attr:`Plan.columns`.
    """
    if job.train is None:
        return None
    told = common if terms_of(job.align, protocol).tells_common else None
    beside = replace(job.beside, among=among, common=told, columns=columns)
    plans = [each.train.make_plan(len(job.parties.passive), beside) for each in job.trials if each.train]
    first, *others = (plan.cost(job.evaluate, rows, protocol) for plan in plans)
    if first is None or not others:
        return first
    summed = ("steps", "active_bytes", "passive_bytes", "coordinator_bytes")
    every: dict[str, Any] = {name: job.add_trials(getattr(each, name) for each in (first, *others) if each) for name in summed}
    return replace(first, **every)


def computing(plan: Plan, spec: AlignmentSpec, records: Records, rows: int) -> Computing | None:
    """What parties compute in training over so many shared ``rows``; None where that is not counted."""
    job = plan.job
    if job.train is None or training_cost(job, rows, spec.name) is None:
        return None
    beside = replace(job.beside, columns=plan.columns)
    counts = {data_role(job.parties, name): count for name, count in records.items()}
    return job.train.make_plan(len(job.parties.passive), beside).computing(job.evaluate, rows, spec.name, counts)


def cost_outside(job: Job, spec: AlignmentSpec, records: Records, rows: int) -> OutsideCost | None:
    """What learning from rows outside of so many shared ``rows`` takes; None where the job has none, or nobody knows which."""
    if job.train is None or len(job.parties.passive) > 1 or not spec.every_row_is_shared:
        return None
    counts = {data_role(job.parties, name): count for name, count in records.items()}
    return job.train.make_plan(1, job.beside).cost_outside(job.evaluate, rows, counts)


def _refusal(
    job: Job,
    role: Role,
    table: TableShape,
    settings: Settings | None,
    models: Mapping[str, str],
    protection: Protection,
) -> str:
    """Why a node with these settings would not run the job, or could not now; empty where it would."""
    memory_mib, limits = (settings.resources.memory_mib, settings.limits_for(job)) if settings else (None, Limits())
    try:
        Budget(memory_mib, models, protection).fit(job, role, table, limits)
    except VflError as error:
        return error.message
    return ""
