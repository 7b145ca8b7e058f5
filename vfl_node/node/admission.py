"""Which jobs a node accepts: those that its settings allow, and only so many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vfl_node.errors import PolicyError, UsageError
from vfl_node.estimate.memory import check_limits
from vfl_node.job import Job
from vfl_node.settings import MOST_SERVICES, Settings, role_in

if TYPE_CHECKING:
    from vfl_node.node.work import Work

MOST_QUEUED = 256
"""So many jobs may wait for their turn; a peer that may submit jobs must not be able to exhaust the node."""

MOST_QUEUED_OF_PEER = 64
"""So many jobs of one peer may be under way or wait."""

WAIT = "wait or cancel one"


def check_allowed(settings: Settings, job: Job, *, loading: bool = True) -> None:
    """Raise UsageError or PolicyError if this node does not take part in ``job``, or its settings do not allow the job.

    Args:
        settings: this node's.
        job: the job.
        loading: whether to load what its trainer needs, torch too, to see whether it is there (``E_EXTENSION``).
    """
    own, role = settings.name, settings.role
    if role_in(job.parties, own) != role:
        raise UsageError(
            f"job {job.name!r} does not name {own!r} as {role}",
            code="E_ROLE",
            hint="its parties are " + ", ".join(f"{role_in(job.parties, name)}: {name}" for name in job.parties.all),
            for_peer=f"the job does not name it as {role}",
        )
    if job.align.protocol not in settings.limits.protocols:
        raise PolicyError(
            f"job {job.name!r} aligns by {job.align.protocol}, which this node's settings do not allow",
            hint="see limits.protocols",
            for_peer=f"its settings do not allow alignment by {job.align.protocol} (limits.protocols)",
        )
    if job.evaluate.matched and role != "coordinator" and not settings.limits.allow_matched:
        raise PolicyError(
            f"job {job.name!r} measures on the rows that both own, which this node's settings do not allow",
            hint="see limits.allow_matched; or leave out evaluate.matched",
            for_peer="its settings do not allow evaluate.matched",
        )
    if job.train and role != "coordinator" and loading:
        job.train.check_here(settings.models)
    check_limits(job, role, settings.limits, models=settings.models)
    if unknown := sorted(set(job.parties.all) - {own} - set(settings.peers)):
        raise UsageError(
            f"job {job.name!r} names {unknown[0]!r}, which is not among this node's peers",
            code="E_UNKNOWN_PEER",
            hint=f"add it under peers (known: {', '.join(sorted(settings.peers)) or 'none'})",
            for_peer="the job names a party that it does not know",
        )


def check_room(settings: Settings, works: Sequence[Work], stored: int, waiting: int, submitter: str, *, serves: bool) -> None:
    """Raise PolicyError (``E_BUSY``) if this node, or the submitter of the job, has too many jobs already.

    Args:
        settings: this node's.
        works: jobs under way.
        stored: jobs of ``submitter`` in the index, without this one.
        waiting: how many wait for their turn.
        submitter: of the job.
        serves: whether it is a service of predictions, which needs no place.
    """
    peer = submitter != settings.name
    services = sum(work.turn is None for work in works)
    theirs = sum(work.record.submitter == submitter and work.turn is not None for work in works)
    of = f"jobs of {submitter}"
    for concerns, many, most, what, hint in (
        (peer, stored, settings.limits.jobs_per_peer, of, "vfl-node prune, or raise limits.jobs_per_peer"),
        (serves, services, MOST_SERVICES, "services of predictions", WAIT),
        (peer and not serves, theirs, MOST_QUEUED_OF_PEER, of, WAIT),
        (not serves, waiting, MOST_QUEUED, "jobs that wait for their turn", WAIT),
    ):
        if concerns and many >= most:
            busy = f"there are {most} {what} already"
            raise PolicyError(busy, code="E_BUSY", hint=hint, for_peer=busy)
