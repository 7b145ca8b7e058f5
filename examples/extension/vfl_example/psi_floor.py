"""The alignment ``psi_floor``: PSI, but it refuses so small an intersection that training would point at single records."""

from __future__ import annotations

from dataclasses import replace

from vfl_example.psi_floor_spec import PSI_FLOOR
from vfl_node.alignment.alignment import Alignment, OwnRecords
from vfl_node.alignment.psi import protocol as psi
from vfl_node.crypto.groups import Group
from vfl_node.errors import DataError
from vfl_node.session.session import Session

FLOOR = 20


async def active(session: Session, records: OwnRecords, group: Group | None) -> Alignment:
    """The active party's side. Every protocol has these arguments."""
    return checked(await psi.active(session, records, group))


async def passive(session: Session, records: OwnRecords, group: Group | None) -> Alignment:
    """The passive party's side."""
    return checked(await psi.passive(session, records, group))


def checked(alignment: Alignment) -> Alignment:
    """The alignment as one of this protocol, if it is long enough. Both parties see its length, so both stop or neither."""
    if len(alignment) < FLOOR:
        raise DataError(f"only {len(alignment)} records are shared, and psi_floor needs {FLOOR}", code="E_EMPTY")
    return replace(alignment, spec=PSI_FLOOR)
