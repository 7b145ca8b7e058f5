"""What jobs had set aside with partners and not used counts no more once they have ended."""

from __future__ import annotations

import structlog

from vfl_node.errors import StateError, VflError
from vfl_node.node.record import Record
from vfl_node.node.states import STANDING, State
from vfl_node.node.store import Store
from vfl_node.trust.lanes import FILE

KEEPING: tuple[State, ...] = (*STANDING, "unconfirmed")
"""States in which a job keeps what it has set aside."""

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
    """The same for all jobs that ended as the process died; a changed signing key is written down, too. Never raises."""
    for path in (store.folder / "partners").glob(f"*/{FILE}"):
        try:
            partner = store.partner(path.parent.name)
            partner.lane.note_key()
            for job_id in partner.reserving:
                record = store.get(job_id)
                if record is None or record.state not in KEEPING:
                    partner.release(job_id)
        except (OSError, VflError, ValueError) as error:  # such as a copy under a name that no party has
            log.warning("a ledger cannot be used", folder=path.parent.name, reason=str(error))
