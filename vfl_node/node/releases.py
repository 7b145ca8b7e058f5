"""What jobs had set aside with partners and not used counts no more once they have ended."""

from __future__ import annotations

import structlog

from vfl_node.errors import StateError
from vfl_node.node.record import Record
from vfl_node.node.states import UNFINISHED
from vfl_node.node.store import Store

log = structlog.get_logger()


def release(store: Store, record: Record) -> None:
    """Let what a job that has ended had set aside and not used count no more. Never raises: what stays is tried at a start."""
    for peer in record.parties:
        try:
            if (store.folder / "partners" / peer).exists():
                store.partner(peer).release(record.id)
        except (OSError, StateError) as error:
            log.warning("what a job had set aside still counts", job=record.id, peer=peer, reason=str(error))


def release_ended(store: Store) -> None:
    """The same for all jobs that ended as the process died. Never raises."""
    for folder in (store.folder / "partners").glob("*/"):
        try:
            partner = store.partner(folder.name)
            for job_id in partner.reserving:
                record = store.get(job_id)
                if record is None or record.state not in UNFINISHED:
                    partner.release(job_id)
        except (OSError, StateError) as error:
            log.warning("what jobs had set aside still counts", peer=folder.name, reason=str(error))
