"""What an estimate begins from: the job, the records of both parties, the wire, and what this node's owner allows and wants."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from vfl_node.alignment.registry import ALIGNMENTS
from vfl_node.errors import UsageError, VflError
from vfl_node.estimate.budget import Budget
from vfl_node.estimate.memory import Need, need
from vfl_node.job import Align, Job
from vfl_node.models import NONE_DECLARED
from vfl_node.settings import Limits, Obfuscation, Role, Settings, role_in
from vfl_node.trainers import TableShape

Records = Mapping[Role, int]
"""Role → its records."""

Span = tuple[int, int]
"""The fewest and the most."""


@dataclass(frozen=True)
class Plan:
    """A job, and what its cost depends on beside the machines.

    Attributes:
        job: its alignment's options go for the other protocols too, where they have them.
        role: whose side is shown.
        records: of each party; the job's ``align.at_most`` may let fewer take part.
        shared: the fewest and the most of them that the two may share.
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
    rate_mbit_s: float
    rtt_ms: float
    obfuscation: Obfuscation
    need: Need | None = None
    refusal: str = ""


def role_of(job: Job, settings: Settings | None) -> Role:
    """Whose side is shown: that of the node with these settings, or without them the active party's.

    Raises:
        UsageError: the job gives this node no such role (``E_ROLE``).
    """
    if settings is None:
        return "active"
    name = {role_in(job.parties, name): name for name in job.parties.all}.get(settings.role)
    if name != settings.name:
        raise UsageError(
            f"the {settings.role} party of this job is {name}, and the configuration is {settings.name}'s",
            code="E_ROLE",
            hint="give the configuration of a party of the job",
        )
    return settings.role


def plan(
    job: Job,
    settings: Settings | None,
    records: Records,
    *,
    columns: int = 0,
    shared: int | None,
    rate_mbit_s: float,
    rtt_ms: float,
) -> Plan:
    """Put together what is known.

    Args:
        job: the job.
        settings: of this node; without them the active party's side is shown.
        records: of both parties.
        columns: of this node's table as :attr:`~vfl_node.trainers.TableShape.numeric`; 0: not known.
        shared: records of both; None: from none to all of the smaller set.
        rate_mbit_s: of the wire.
        rtt_ms: of the wire.

    Raises:
        UsageError: the records of a party are not known, or more is shared than a party has (``E_USAGE``); or as
            :func:`role_of`.
    """
    role = role_of(job, settings)
    for each, name in job.parties.pair.items():
        if each not in records:
            count_them = ", or the --config of its node, to count them" if settings is None else ""
            raise UsageError(f"how many records has {name}, the {each} party?", hint=f"--{each} N{count_them}")
    smaller = min(records.values())
    if shared is not None and shared > smaller:
        raise UsageError(f"--shared {shared} is more than the smaller party's {smaller} records")
    shape, models = TableShape(records[role], columns), settings.models if settings else NONE_DECLARED
    return Plan(
        job=job,
        role=role,
        records=records,
        shared=(0, smaller) if shared is None else (shared, shared),
        rate_mbit_s=rate_mbit_s,
        rtt_ms=rtt_ms,
        obfuscation=settings.obfuscation if settings else Obfuscation(),
        need=need(job, role, shape, models=models),
        refusal=_refusal(job, role, shape, settings.limits if settings else Limits(), models),
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
    taken = {role: min(count, align.at_most) for role, count in records.items()}
    share = math.prod(taken[role] / count for role, count in records.items())
    return taken, (round(share * shared[0]), round(share * shared[1]))


def _refusal(job: Job, role: Role, table: TableShape, limits: Limits, models: Mapping[str, str]) -> str:
    """Why a node with these limits would not run the job, or could not now; empty where it would."""
    try:
        Budget(limits, models).fit(job, role, table)
    except VflError as error:
        return error.message
    return ""
