"""How many jobs a node accepts; which ones says :mod:`vfl_node.execution.allowed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vfl_node.errors import PolicyError
from vfl_node.settings import MOST_SERVICES, Settings

if TYPE_CHECKING:
    from vfl_node.node.work import Work

MOST_QUEUED = 256
"""So many jobs may wait for their turn; a peer that may submit jobs must not be able to exhaust the node."""

MOST_QUEUED_OF_PEER = 64
"""So many jobs of one peer may be under way or wait."""

WAIT = "wait or cancel one"


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
