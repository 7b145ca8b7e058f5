"""Early stopping: a repeat ends where the validation loss falls no more, and the weights of its smallest loss count.

After each epoch::

    each passive                                              active
    for each batch of validation rows: H  ──►                 loss on those that it owns, with their real labels
                                                              improved: the loss is smaller than in every epoch before
                              ◄── epoch, improved, last ──
    if improved: all store the weights of their half; if last: all go back to those stored last

``last`` follows from ``improved``: ``train.patience`` epochs in a row without it, or all epochs done. The passive party
checks that it does, so it can be stopped at no other point.

Leaks: ``improved``, a bit an epoch that derives from labels, and so the best epoch and the last one; see disclosures.py.

Source: Prechelt 1998, Early Stopping – But When? (criterion UP with strips of one epoch).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from vfl_node.errors import ProtocolError
from vfl_node.session.session import Session
from vfl_node.transport.channel import Channel
from vfl_node.transport.generated.vfl.v1 import training_pb2


@dataclass
class Stopping:
    """How long ago in one repeat the validation loss was smallest.

    Attributes:
        patience: epochs in a row without a smaller loss after which training stops.
        epochs: the most there can be.
        epoch: epochs counted.
        best: the epoch of the smallest loss, from 1; 0 before the first.
        loss: the smallest; None before the first, and at a party that does not know it.
    """

    patience: int
    epochs: int
    epoch: int = 0
    best: int = 0
    loss: float | None = None

    def improves(self, loss: float) -> bool:
        """Whether ``loss``, of the next epoch, is smaller than all before."""
        return loss < (math.inf if self.loss is None else self.loss)

    def count(self, improved: bool, loss: float | None = None) -> None:
        """Count an epoch, and its ``loss`` if it ``improved``."""
        self.epoch += 1
        if improved:
            self.best, self.loss = self.epoch, loss

    @property
    def over(self) -> bool:
        """Whether the epoch counted last is the repeat's last."""
        return self.epoch == self.epochs or self.epoch - self.best >= self.patience


async def decide(session: Session, stopping: Stopping, loss: float | None) -> bool:
    """Count an epoch at all parties, as its validation ``loss`` says, which the active party has and passive ones have not.

    Returns:
        Whether the loss is the smallest so far.

    Raises:
        ProtocolError: the active party ends another epoch than the one that is due, the first one is no improvement, or the
            end is not where the job puts it (``E_ORDER``).

    Leaks: whether the loss is the smallest so far, to every passive party.
    """
    if loss is None:
        return await _follow(session.peer, stopping)
    improved = stopping.improves(loss)
    stopping.count(improved, loss)
    for channel in session.data_peers.values():
        await channel.send(training_pb2.EpochEnd(epoch=stopping.epoch, improved=improved, last=stopping.over))
    return improved


async def _follow(channel: Channel, stopping: Stopping) -> bool:
    message = await channel.receive(training_pb2.EpochEnd)
    stopping.count(message.improved)
    if message.epoch != stopping.epoch:
        raise ProtocolError(f"{channel.peer} ended epoch {message.epoch} where epoch {stopping.epoch} was due", code="E_ORDER")
    if not stopping.best:
        raise ProtocolError(f"{channel.peer} says that the first epoch has no smallest validation loss", code="E_ORDER")
    if message.last != stopping.over:
        what = "stops" if message.last else "goes on"
        raise ProtocolError(
            f"{channel.peer} {what} after epoch {stopping.epoch}, which train.patience does not allow", code="E_ORDER"
        )
    return message.improved
