"""The alignment ``psi_floor``: what PSI finds must be enough to train on without pointing at single records."""

from __future__ import annotations

from dataclasses import replace

from vfl_node.alignment.alignment import Alignment, Party
from vfl_node.alignment.psi import protocol as psi
from vfl_node.crypto.groups import Group
from vfl_node.errors import DataError
from vfl_node.job import Align
from vfl_node.settings import Role
from vfl_node.transport.channel import Channel

FLOOR = 20


async def active(align: Align, role: Role, channel: Channel, party: Party, group: Group | None) -> Alignment:
    """The active party's side; arguments as every side."""
    return checked(await psi.active(align, role, channel, party, group))


async def passive(align: Align, role: Role, channel: Channel, party: Party, group: Group | None) -> Alignment:
    """The passive party's side."""
    return checked(await psi.passive(align, role, channel, party, group))


def checked(alignment: Alignment) -> Alignment:
    """The same alignment under this protocol's name. Both parties see its length, so both end or none does."""
    if len(alignment) < FLOOR:
        raise DataError(f"only {len(alignment)} records are shared, and psi_floor needs {FLOOR}", code="E_EMPTY")
    return replace(alignment, protocol="psi_floor")
