"""Runs one party's side of the alignment protocol that a job names."""

from __future__ import annotations

from vfl_node.alignment.alignment import Alignment, Party
from vfl_node.crypto.groups import Group
from vfl_node.job import Align
from vfl_node.settings import Role
from vfl_node.transport.channel import Channel


async def align(role: Role, terms: Align, channel: Channel, party: Party, *, group: Group | None = None) -> Alignment:
    """Run this party's side of the protocol that the job names.

    Args:
        role: the side.
        terms: the job's alignment section.
        channel: the conversation with the peer; everything happens in its phase ``align``.
        party: what this party brings; the same again on a resumed attempt.
        group: instead of the one that ``terms`` names.

    Raises:
        UsageError: the protocol cannot be loaded (``E_EXTENSION``).
        DataError: an identifier occurs twice (``E_DUP_IDS``).
        PolicyError: a set is too small (``E_TOO_FEW``) or too large (``E_TOO_MANY``) for this owner.
        ProtocolError: the peer sent what the protocol does not permit.
        StateError: the peer sent another list than in an earlier attempt (``E_REPLAY``), or the
            disk has no room for the lists (``E_DISK_FULL``).

    Leaks: as the protocol's own file says; the result's ``learnt`` puts it in words.
    """
    async with channel.phase("align"):
        return await terms.spec.side(role)(terms, role, channel, party, group)
