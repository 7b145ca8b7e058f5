"""Whether a node has room for one more job."""

from __future__ import annotations

from collections.abc import Sequence

from vfl_node.errors import PolicyError
from vfl_node.node.work import Work
from vfl_node.settings.node import MOST_SERVICES, Settings

MOST_QUEUED = 256
"""So many jobs of this owner may wait for their turn, and so many of peers be under way or wait, which must not fill a node."""

MOST_QUEUED_OF_PEER = 64
"""So many of them may be of one peer; fewer if more peers than four may submit jobs, so that there is room for each."""

WAIT = "wait or cancel one"


def check_room(settings: Settings, works: Sequence[Work], stored: int, submitter: str, *, serves: bool, asked: int = 0) -> None:
    """Raise PolicyError (``E_BUSY``) if the submitter of the job has too many jobs at this node already.

    Args:
        settings: this node's.
        works: jobs under way.
        stored: jobs of ``submitter`` in the index, without this one.
        submitter: of the job.
        serves: whether it is a service of predictions, which needs no place.
        asked: how many jobs of ``submitter`` wait for this node's owner.
    """
    peer = submitter != settings.name
    services = sum(work.turn is None for work in works)
    theirs = sum(work.record.submitter == submitter and work.turn is not None for work in works)
    waiting = sum(work.record.submitter == settings.name and work.place > 0 for work in works)
    share = min(MOST_QUEUED_OF_PEER, MOST_QUEUED // max(1, len(settings.submitters)))
    scope = f"jobs of {submitter}"
    for concerns, many, most, what, hint in (
        (peer, stored, settings.queue.share_of(submitter).stored, scope, "vfl-node prune, or raise queue.partners.*.stored"),
        (serves, services, MOST_SERVICES - peer, "services of predictions", WAIT),  # the last one is for this owner
        (peer and not serves, theirs, share, scope, WAIT),
        (peer, asked, MOST_QUEUED_OF_PEER, f"{scope} that wait for the owner", "vfl-node asks"),
        (not (peer or serves), waiting, MOST_QUEUED, "jobs that wait for their turn", WAIT),
    ):
        if concerns and many >= most:
            busy = f"there are {most} {what} already"
            raise PolicyError(busy, code="E_BUSY", hint=hint, for_peer=busy)
