"""Runs one party's side of the alignment protocol that a job names."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Protocol, TypeAlias

from vfl_node.alignment.alignment import Alignment, OwnRecords
from vfl_node.configuration.registry import load
from vfl_node.crypto.groups import Group
from vfl_node.job.alignment import AlignmentSpec
from vfl_node.ledger import Disclosure
from vfl_node.roles import Role
from vfl_node.session.session import Session
from vfl_node.transport.channel import Channel

Side: TypeAlias = Callable[[Session, OwnRecords, Group | None], Awaitable[Alignment]]
"""One party's side of a protocol: from its session, its records, and a group in place of the job's.
:func:`vfl_node.alignment.lists.side.open_lists` makes one of a coroutine over lists, such as
:func:`vfl_node.alignment.psu.protocol.active`."""


class AlignmentCoordination(Protocol):
    """A coordinator's part in one alignment: a conversation with each data party, side by side on threads of their own."""

    async def serve(self, channel: Channel) -> None:
        """Do what one data party needs, in phase ``align``."""

    def disclosures(self) -> Mapping[str, tuple[Disclosure, ...]]:
        """Party → what it learnt, as far as the coordinator knows, once every data party has its alignment."""

    def close(self) -> None:
        """Close all files, once no conversation of the attempt goes on."""


def side_of(spec: AlignmentSpec, role: Role, passive_parties: int = 1) -> Side:
    """The coroutine that plays ``role`` in a job with so many passive parties; the first call imports it.

    Raises:
        KeyError: the role takes no part.
        UsageError: it cannot be loaded (``E_EXTENSION``).
    """
    places = spec.sides if passive_parties == 1 else spec.several.sides
    return load(places[role], what=f"the {role} side of align.protocol {spec.name}")


def coordination_of(spec: AlignmentSpec, session: Session) -> AlignmentCoordination:
    """The coordinator's part, where :attr:`~AlignmentSpec.coordinated` says so. Raises UsageError (``E_EXTENSION``)."""
    part: Callable[[Session], AlignmentCoordination] = load(
        spec.sides["coordinator"], what=f"the coordinator's side of align.protocol {spec.name}"
    )
    return part(session)


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
    side = side_of(spec, session.role, len(session.job.parties.passive))
    async with AsyncExitStack() as phases:
        await phases.enter_async_context(session.phase("align"))
        if spec.coordinated and session.coordinator:
            await phases.enter_async_context(session.coordinator.phase("align"))
        return await side(session, records, group)
