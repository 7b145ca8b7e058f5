"""The seed of pivots and hash keys that the data parties share, and the coordinator must never have.

It is the same in every job of these two parties: with other pivots the same records would have other distances and other
noise, and a coordinator, or the active party, that saw both would know them better. Each party's share of the toss is therefore
the same in every job, and both keep the result. A party that has lost it gets it from the other one, which gives nothing away:
both know it anyway.
"""

from __future__ import annotations

import dataclasses
import hashlib

from vfl_node.errors import ProtocolError, StateError
from vfl_node.session.session import Session
from vfl_node.session.toss import toss
from vfl_node.transport.generated.vfl.v1 import linkage_pb2

SEED_BYTES = 32
_NAME = "pivot-seed"


def mark_of(seed: bytes) -> bytes:
    """What stands for the seed: it tells a coordinator whether two are the same. 32 bytes."""
    return hashlib.sha256(b"vfl-node pivot seed mark" + seed).digest()


async def agree_on_seed(session: Session) -> bytes:
    """The seed that this party and its data peer have from an earlier job, or toss now. 32 bytes.

    Raises:
        ProtocolError: as :func:`vfl_node.session.toss.toss`, or a seed of another length.
        StateError: both have one, and not the same (``E_STATE_LOST``), or it is not that of an earlier attempt of this job.

    Leaks: nothing but the uniform shares.
    """
    channel, memory = session.peer, session.memory
    kept = memory.recall(_NAME)
    await channel.send(linkage_pb2.PivotSeed(mark=mark_of(kept) if kept else b""))
    theirs = (await channel.receive(linkage_pb2.PivotSeed)).mark
    if kept and theirs and theirs != mark_of(kept):
        raise _loss_error(channel.peer)
    if kept and not theirs:
        await channel.send(linkage_pb2.PivotSeed(mark=mark_of(kept), seed=kept))
    elif theirs and not kept:
        kept = (await channel.receive(linkage_pb2.PivotSeed)).seed
        if len(kept) != SEED_BYTES or mark_of(kept) != theirs:
            raise ProtocolError(f"{channel.peer} sent another seed than it has a mark of", code="E_TOSS")
    elif not kept:
        apart = dataclasses.replace(session, attempt=session.attempt.part("pivots"))
        kept = await toss(apart, memory.secret.derive("share of the pivot seed"))
    assert kept is not None
    if memory.keep(_NAME, kept) != kept:  # another job was faster, and tossed another one
        raise _loss_error(channel.peer)
    try:
        session.attempt.pins.check("pivot seed", mark_of(kept))
    except StateError:
        raise _loss_error(channel.peer) from None
    return kept


def _loss_error(peer: str) -> StateError:
    return StateError(
        f"this node and {peer} remember different seeds of the encoding of keys: what one remembered of the other is gone",
        code="E_STATE_LOST",
        hint="put the newest copy of the state folder's partners back",
        for_peer="the two nodes remember different seeds of the encoding of keys",
    )
