"""Which of a party's tables a job uses: the job says a name, and only the owner's settings say where that table lies."""

from __future__ import annotations

from vfl_node.errors import DataError
from vfl_node.job import Job
from vfl_node.settings.limits import allows
from vfl_node.settings.node import DEFAULT_TABLE, Data, Settings


def data_of(settings: Settings, job: Job | None) -> Data:
    """The table of this party that a job uses: the one that it names, or else the only or the default one.

    A peer that names tables gets the answer of a table that cannot be used, whatever is wrong.

    Args:
        settings: of this party.
        job: the job; in predictions the one that trained the model. None: a job that names no table.

    Raises:
        DataError: this party has no table at all (``E_CONFIG``), or none that this job may use (``E_TABLE``).
    """
    tables, own = settings.tables, settings.name
    if not tables:
        raise DataError("this node has no data", code="E_CONFIG", hint="set data.path in its configuration")
    wanted, name = job.tables.get(own) if job else None, table_name(settings, job)
    table = tables.get(name)
    if table is None:
        said = f"{wanted!r} is not among its data" if wanted else "it has several, and the job names none"
        raise DataError(
            f"{own}: no table for this job: {said}",
            code="E_TABLE",
            hint=f"name one in the job, tables: {{{own}: NAME}}; names in this node's data: {', '.join(tables)}",
        )
    barred = barred_from(settings, job, name) if job else []
    if barred:
        raise DataError(
            f"{own}: no table for this job: {name!r} is not for jobs with {', '.join(barred)}",
            code="E_TABLE",
            hint=f"if this node's owner allows it, in the policy: partners: {{{barred[0]}: {{tables: [{name}]}}}}",
        )
    return table


def barred_from(settings: Settings, job: Job, name: str) -> list[str]:
    """The other parties of a job, also a coordinator, with which the policy allows no job over the table ``name``."""
    return [other for other in job.parties.all if other != settings.name and not _is_for(settings, name, other)]


def _is_for(settings: Settings, name: str, partner: str) -> bool:
    """Whether a job with ``partner`` may use the table; the word default stands for that of a job that names none."""
    tables = settings.rules.limits_of(partner).tables
    return allows(tables, name) or (name == table_name(settings, None) and allows(tables, DEFAULT_TABLE))


def table_name(settings: Settings, job: Job | None) -> str:
    """What the owner's settings call that table; :data:`DEFAULT_TABLE` where the only one has no name."""
    wanted = job.tables.get(settings.name) if job else None
    return wanted or (next(iter(settings.tables)) if len(settings.tables) == 1 else DEFAULT_TABLE)


def needs_order(settings: Settings, job: Job | None) -> bool:
    """Whether this party says by its column ``data.order`` which records a job holds out."""
    return job is not None and job.evaluate.hold_out is not None and settings.role == "active"
