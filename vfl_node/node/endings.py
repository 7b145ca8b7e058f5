"""How a job ends at a node: the errors that the node itself ends one with, and what is stored and reported then."""

from __future__ import annotations

from dataclasses import replace

import structlog

from vfl_node.errors import Cancelled, Paused, StateError, VflError
from vfl_node.node.figures import attach_figures
from vfl_node.node.predictions import account
from vfl_node.node.record import Record
from vfl_node.node.releases import KEEPING, release
from vfl_node.node.states import STANDING
from vfl_node.node.store import Store
from vfl_node.process.counters import JOBS_ENDED, code_label
from vfl_node.process.machine import utc_now
from vfl_node.settings.node import Settings
from vfl_node.trust.refusal import RefusalReason

log = structlog.get_logger()

OWN_WISH = "cancelled by this node's owner"
"""Message of a job that the owner cancelled, by which it is told from one that a peer's owner cancelled."""

REFUSED = "E_REFUSED"
"""Code of a job that an owner has refused; at that owner's node its message is what the other parties are told."""


def owner_refusal(reason: str) -> str:
    """The message of a job that this node's owner has refused for this reason."""
    return f"its owner's reason: {reason}"


def refusal_hint(name: str, message: str) -> str:
    """What the submitter does about the refusal of a job by the owner of ``name``, with this message."""
    if message == owner_refusal(RefusalReason.purpose.value):
        return "say what it is for: vfl-node submit JOB.yaml --purpose TEXT"
    return f"ask the owner of {name}"


def conclude(settings: Settings, store: Store, record: Record) -> Record:
    """Store how a job ended. If it is over for good, report what it disclosed; its secrets are then destroyed.

    A job that is cancelled leaves no model at any party. One that is confirmed is done, whatever happened here since.

    Returns:
        The job as it has ended.
    """
    outcome = store.outcome(record)
    if outcome.confirmed:
        record = replace(record, state="done", finished=record.finished or utc_now(), code=None, message=None, hint=None)
    if record.over:
        try:
            if record.state == "cancelled":
                outcome.remove_artefacts()
            account(settings, store, record)
        except (VflError, OSError, ValueError) as error:
            log.warning("what was predicted could not be reported", job=record.id, reason=str(error))
    record = attach_figures(store, record)
    store.end(record)
    if record.state not in STANDING:
        document = record.document
        trainer, protocol = (document.get("train") or {}).get("algorithm"), document.get("align", {}).get("protocol")
        JOBS_ENDED.series(record.state, code_label(record.code), protocol or "", trainer or "").inc()
    if record.state not in KEEPING:
        release(store, record)
    return record


def owner_cancellation() -> Cancelled:
    """This node's owner cancelled the job."""
    return Cancelled(OWN_WISH, for_peer="its owner cancelled the job")


def node_stopping() -> Paused:
    """The node stops, and goes on with the job when it starts again."""
    return Paused("this node is stopping", for_peer="its node is stopping and will come back")


def quarantine_error(deaths: int) -> StateError:
    """The process died so often while it ran the job that only the owner can resume it."""
    return StateError(
        f"this node's process has died {deaths} times while it ran this job, and does not begin it by itself again",
        code="E_QUARANTINED",
        hint="see the node's log and the system's (out of memory?), then go on: vfl-node resume JOB",
    )
