"""Whether a node has room for one more job."""

from __future__ import annotations

from collections.abc import Sequence

from vfl_node.errors import PolicyError
from vfl_node.node.work import Work
from vfl_node.settings.node import MOST_SERVICES, MOST_WAITING, Settings

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
    share, scope = settings.waiting_of(submitter), f"jobs of {submitter}"
    for concerns, many, most, what, hint in (
        (peer, stored, settings.queue.share_of(submitter).stored, scope, "vfl-node prune, or raise queue.partners.*.stored"),
        (serves, services, MOST_SERVICES - peer, "services of predictions", WAIT),  # the last one is for this owner
        (peer and not serves, theirs, share, scope, WAIT),
        (peer, asked, share, f"{scope} that wait for the owner", "vfl-node asks"),
        (not (peer or serves), waiting, MOST_WAITING, "jobs that wait for their turn", WAIT),
    ):
        if concerns and many >= most:
            busy = f"there are {most} {what} already"
            raise PolicyError(busy, code="E_BUSY", hint=hint, for_peer=busy)
