"""The point from which an attempt goes on: the newest one that all data parties hold."""

from __future__ import annotations

from collections.abc import Sequence

from vfl_node.errors import ProtocolError
from vfl_node.session.preflight import InputCommitments, preflight
from vfl_node.session.session import Session
from vfl_node.transport.channel import Channel
from vfl_node.transport.generated.vfl.v1 import session_pb2


async def agree(
    session: Session,
    held: Sequence[str],
    *,
    input_digest: bytes,
    inputs: InputCommitments,
    peers: Sequence[Channel] | None = None,
) -> str | None:
    """Compare version, job and inputs with every data peer, and agree on a point to go on from.

    Each party says which points it holds, so two parties know at once. With several passive parties only the active one
    hears all of them; it passes the common point on in a second message.

    Args:
        session: this party's; its channels carry the agreed attempts from here on.
        held: names of the points that this party can resume from, oldest first.
        input_digest: of this party's table (stays here).
        inputs: where commitments to the parties' inputs are kept.
        peers: instead of the session's data peers.

    Returns:
        The name of the newest point that all hold; None to begin.

    Raises:
        PeerError, ProtocolError, StateError: as :func:`vfl_node.session.preflight.preflight`.

    Leaks: what the preflight leaks; with several passive parties, which points all of them hold.
    """
    common = list(held)
    channels = list(session.data_peers.values()) if peers is None else list(peers)
    for channel in channels:
        agreed = await preflight(
            channel,
            session.job,
            own=session.name,
            attempt=session.attempt.number,
            checkpoints=list(held),
            input_digest=input_digest,
            salt=session.randomness.derive("input commitment").bytes(32),
            inputs=inputs,
            marks=session.marks,
            heads=session.heads(channel.peer),
        )
        common = [name for name in common if name in agreed.common]
    point = common[-1] if common else None
    if peers is None and len(session.job.parties.passive) > 1:
        return await _pass_on(session, channels, point, held)
    return point


async def _pass_on(session: Session, channels: Sequence[Channel], point: str | None, held: Sequence[str]) -> str | None:
    """The point that the active party has found to be common to all."""
    for channel in channels:
        async with channel.phase("agreement"):
            if session.role == "active":
                await channel.send(session_pb2.Preflight(checkpoints=[point] if point else []))
            else:
                names = list((await channel.receive(session_pb2.Preflight)).checkpoints)
                if len(names) > 1 or any(name not in held for name in names):
                    raise ProtocolError(f"{channel.peer} goes on from a point that this party does not hold", code="E_ORDER")
                point = names[0] if names else None
    return point
