"""What passive parties say to each other: each says it to the active party, which relays it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from google.protobuf.message import Message

from vfl_node.errors import ProtocolError
from vfl_node.session.session import Session

M = TypeVar("M", bound=Message)
T = TypeVar("T")


async def relay(
    session: Session, said: Mapping[str, T], pack: Callable[[Sequence[T]], M], kind: type[M], unpack: Callable[[M], Sequence[T]]
) -> dict[str, T]:
    """What each other data party said, in the order of the job.

    With several passive parties the active one sends to each what the others said. With one there is nothing to relay.

    Args:
        session: this party's.
        said: peer → what it said to this party.
        pack: makes one message of what several parties said.
        kind: type of that message.
        unpack: takes it apart.

    Raises:
        ProtocolError: the active party relays what more or fewer parties said (``E_COUNT``).

    Leaks: at the active party, to each passive party what the others said.
    """
    if session.role == "active":
        for name, channel in session.data_peers.items():
            if others := [said[other] for other in said if other != name]:
                await channel.send(pack(others))
        return dict(said)
    unheard = [name for name in session.others if name not in said]
    if not unheard:
        return dict(said)
    heard = unpack(await session.peer.receive(kind))
    if len(heard) != len(unheard):
        raise ProtocolError(
            f"{session.peer.peer} relays what {len(heard)} parties announced, expected {len(unheard)}", code="E_COUNT"
        )
    return {**said, **dict(zip(unheard, heard, strict=True))}
