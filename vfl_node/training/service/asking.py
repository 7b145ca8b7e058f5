"""Who asks whom for predictions.

Passive parties talk with the active party only. What one of them asks for, the active party therefore asks the other passive
parties for, and it sends the predictions to the asker alone::

    the asker     asks                           and these ask
    active        every passive party
    passive       the active party               every other passive party
"""

from __future__ import annotations

from dataclasses import dataclass

from vfl_node.session.session import Session
from vfl_node.transport.channel import Channel


@dataclass(frozen=True)
class Asking:
    """Whom one party asks for the batches of a prediction, and who asks it.

    Attributes:
        asked: conversations with those that this party asks, in the job's order.
        asker: conversation with the one that asks this party; None at the party that wants the predictions.
    """

    asked: tuple[Channel, ...]
    asker: Channel | None

    @classmethod
    def of(cls, session: Session) -> Asking:
        """That of a party in a job of predictions."""
        asker, peers = session.job.asker, session.data_peers
        if asker == session.name:
            return cls(tuple(peers.values()), None)
        if session.role == "passive":
            return cls((), session.peer)
        return cls(tuple(channel for name, channel in peers.items() if name != asker), peers[str(asker)])
