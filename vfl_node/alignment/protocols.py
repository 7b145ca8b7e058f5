"""Runs one party's side of the alignment protocol that a job names."""

from __future__ import annotations

from contextlib import AsyncExitStack

from vfl_node.alignment.alignment import Alignment, OwnRecords
from vfl_node.crypto.groups import Group
from vfl_node.session.session import Session


async def align(session: Session, records: OwnRecords, *, group: Group | None = None) -> Alignment:
    """Run this party's side of the protocol that the job names.

    Args:
        session: this party's; everything happens in phase ``align`` of the conversations with its data peers, and with
            a coordinator that takes part; lists lie in its folder until the job no longer needs them.
        records: of this party; the same again on a resumed attempt.
        group: instead of the one that the job names.

    Raises:
        UsageError: the protocol cannot be loaded (``E_EXTENSION``).
        DataError: an identifier occurs twice (``E_DUP_IDS``).
        PolicyError: a set is too small (``E_TOO_FEW``) or too large (``E_TOO_MANY``) for this owner.
        ProtocolError: the peer sent what the protocol does not permit.
        StateError: the peer sent another list than in an earlier attempt (``E_REPLAY``), or the
            disk has no room for the lists (``E_DISK_FULL``).

    Leaks: as the protocol's own file says; the result's ``learnt`` puts it in words.
    """
    spec = session.job.align.spec
    side = spec.side(session.role, len(session.job.parties.passive))
    async with AsyncExitStack() as phases:
        await phases.enter_async_context(session.phase("align"))
        if spec.coordinated and session.coordinator:
            await phases.enter_async_context(session.coordinator.phase("align"))
        return await side(session, records, group)
