"""Batches of predictions on the wire: embeddings to the active party and, if a passive party asks, probabilities back to it.

Passive parties talk with the active party only. What one of them asks for, the active party therefore asks the other passive
parties for, and it sends the predictions to the asker alone::

    the asker     asks                           and these ask
    active        every passive party
    passive       the active party               every other passive party

Source: Song et al. 2021 (FLORIST), Appendix D.

Leaks: see :func:`~vfl_node.training.prediction.disclosures.learnt`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from vfl_node.alignment.alignment import NOT_MINE
from vfl_node.errors import ProtocolError
from vfl_node.roles import NUMBER_TASKS
from vfl_node.session.session import Session
from vfl_node.training.messages import check_step, decode_tensor
from vfl_node.training.prediction.recent import Recent
from vfl_node.training.prediction.shown import DisclosureGuard, OutgoingBatch, names_of_new, names_of_unnamed
from vfl_node.training.prediction.sides import EmbeddingSide, Positions, Probabilities, ScoringSide, ServiceSide, Unnamed
from vfl_node.transport import codec
from vfl_node.transport.channel import Channel
from vfl_node.transport.generated.vfl.v1 import prediction_pb2, training_pb2

AT_ONCE = 16
"""Most batches that are asked for at once, before the first answer."""

_EXACT = np.dtype("<f8")


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
    def from_session(cls, session: Session) -> Asking:
        """Whom a party asks, and who asks it, in a job of predictions."""
        asker, peers = session.job.asker, session.data_peers
        if asker == session.name:
            return cls(tuple(peers.values()), None)
        if session.role == "passive":
            return cls((), session.peer)
        return cls(tuple(channel for name, channel in peers.items() if name != asker), peers[str(asker)])


@dataclass(frozen=True)
class PredictionBatch:
    """Rows that are predicted together.

    Attributes:
        positions: their shared positions, int64[B]; None if the rows are not named to the peer.
        number: of the batch.
        unnamed: at a passive party whose rows are not named: the rows of all such batches.
        new: whether the positions are those of a new alignment, not of the one that the model was trained on.
    """

    positions: Positions | None
    number: int
    unnamed: Unnamed | None = None
    new: bool = False

    @property
    def agreed(self) -> bool:
        """Whether it is one of the agreed batches, asked for as such: its number then says which rows it has."""
        return self.positions is not None and not self.new

    def outgoing(self, side: ServiceSide, sent: Tensor, received: Tensor | None = None) -> OutgoingBatch:
        """This batch as it is sent: ``sent``, which depends on ``received`` from others, if anything was received."""
        if self.positions is None:
            return self._unnamed_outgoing(side, sent, sent if received is None else received)
        names = names_of_new(side, self.positions, received) if self.new else self.positions
        return OutgoingBatch(names, sent, ~side.alignment.owned[self.positions], side.alignment.rows[self.positions])

    def _unnamed_outgoing(self, side: ServiceSide, sent: Tensor, embedding: Tensor) -> OutgoingBatch:
        """An agreed batch may be recognised, so its rows are counted as those that they are."""
        nobodys = np.full(len(sent), NOT_MINE)
        if self.unnamed is None:
            return OutgoingBatch(names_of_unnamed(side, embedding), sent, np.zeros(len(sent), dtype=np.bool_), nobodys)
        agreed = self.unnamed.agreed(self.number)
        names = names_of_unnamed(side, embedding) if agreed is None else agreed
        return OutgoingBatch(names, sent, self.unnamed.synthetic(self.number), nobodys)


class Exchanging(Protocol):
    """One party's end of the predictions of batches.

    Attributes:
        asking: whom this party asks, and who asks it.
    """

    asking: Asking

    async def run(self, batches: Sequence[PredictionBatch]) -> list[Probabilities]:
        """Exchange ``batches``; returns the probabilities of each at the asker, nothing at another party."""

    def join(self, parts: Sequence[Probabilities]) -> Probabilities:
        """The probabilities of all batches in one array, float64[n] or float64[n, K]."""


Exchanges = Callable[[Session, Any, DisclosureGuard], Exchanging]
"""Makes what exchanges batches: of a session, this party's half, and what guards what is sent of it."""


class Exchange:
    """One party's end of an exchange of embeddings, in which every batch has the next step.

    Under one set of weights an agreed batch has the same embedding, and the same embeddings have the same predictions. So both
    are kept for batches that come again. Which these are is no secret: all parties see every request for a batch.

    Attributes:
        asking: whom this party asks, and who asks it.
    """

    def __init__(self, session: Session, side: EmbeddingSide | ScoringSide, guard: DisclosureGuard) -> None:
        self.asking = Asking.from_session(session)
        self._channels, self._side, self._guard = tuple(session.data_peers.values()), side, guard
        self._numbers, self._outputs = side.terms.task in NUMBER_TASKS, side.terms.outputs
        self._step = 0
        self._told: set[int] = set()  # agreed batches that were admitted: their rows stay known
        self._sent: Recent[tuple[Tensor, training_pb2.Tensor]] = Recent()
        self._scored: Recent[tuple[list[training_pb2.Tensor], Probabilities]] = Recent()

    async def run(self, batches: Sequence[PredictionBatch]) -> list[Probabilities]:
        """Exchange ``batches``; returns the probabilities of each at the asker, nothing at another party.

        Raises:
            PolicyError: as :meth:`DisclosureGuard.admit`; then this party sent nothing of ``batches``.
            ProtocolError: a peer sends another shape or step.
        """
        first, self._step = self._step, self._step + len(batches)
        if isinstance(self._side, ScoringSide):
            return await self._score(self._side, batches, first)
        return await self._embed(self._side, batches, first)

    async def _embed(self, side: EmbeddingSide, batches: Sequence[PredictionBatch], first: int) -> list[Probabilities]:
        (active,) = self._channels
        embeddings = [self._make(side, batch) for batch in batches]
        made = zip(batches, embeddings, strict=True)
        self._admit(batches, [batch.outgoing(side, h) for batch, (h, _) in made if not self._is_told(batch)])
        for step, (_, tensor) in enumerate(embeddings, start=first):
            await active.send(training_pb2.Embedding(step=step, tensor=tensor))
        if self.asking.asker:
            return []
        return [await self._receive(active, step, batch) for step, batch in enumerate(batches, start=first)]

    async def _score(self, side: ScoringSide, batches: Sequence[PredictionBatch], first: int) -> list[Probabilities]:
        asker, scores, outgoing = self.asking.asker, [], []
        for step, batch in enumerate(batches, start=first):
            received = [await self._receive_embedding(channel, step) for channel in self._channels]
            known = self._scored.find(batch.number) if batch.agreed else None
            if known and known[0] == received:
                scores.append(probabilities := known[1])
                if asker and not self._is_told(batch):
                    outgoing.append(batch.outgoing(side, torch.from_numpy(probabilities)))
                continue
            parts = zip(self._channels, received, strict=True)
            embeddings = [self._decode(channel, side, tensor, batch) for channel, tensor in parts]  # (B, d) each
            scores.append(probabilities := self._predict(side, batch, embeddings))
            if batch.agreed:
                size = probabilities.nbytes + sum(tensor.ByteSize() for tensor in received)
                self._scored.keep(batch.number, (received, probabilities), size)
            if asker and not self._is_told(batch):
                outgoing.append(batch.outgoing(side, torch.from_numpy(probabilities), torch.cat(embeddings, dim=1)))
        if asker is None:
            return scores
        self._admit(batches, outgoing)
        for step, probabilities in enumerate(scores, start=first):
            await asker.send(prediction_pb2.Probabilities(step=step, values=probabilities.astype(_EXACT).tobytes()))
        return []

    def join(self, parts: Sequence[Probabilities]) -> Probabilities:
        """The probabilities of all batches in one array, float64[n] or float64[n, K]."""
        return np.concatenate([np.empty((0, *self._outputs)), *parts])

    def _is_told(self, batch: PredictionBatch) -> bool:
        """Whether the peer was told about all rows of an agreed batch before: they stay known."""
        return batch.agreed and batch.number in self._told

    def _admit(self, batches: Sequence[PredictionBatch], outgoing: Sequence[OutgoingBatch]) -> None:
        """Have the guard admit what is ``outgoing`` of ``batches``."""
        self._guard.admit(outgoing)
        self._told.update(batch.number for batch in batches if batch.agreed)

    def _make(self, side: EmbeddingSide, batch: PredictionBatch) -> tuple[Tensor, training_pb2.Tensor]:
        """The embedding of a batch, float[B, d], and the same as it is sent."""
        if batch.agreed and (known := self._sent.find(batch.number)):
            return known
        embedding = _embedding(side, batch)
        made = embedding, codec.encode(embedding)
        return self._sent.keep(batch.number, made, 2 * embedding.nbytes) if batch.agreed else made

    async def _receive_embedding(self, channel: Channel, step: int) -> training_pb2.Tensor:
        message = await channel.receive(training_pb2.Embedding)
        check_step(channel, message.step, step)
        return message.tensor

    def _decode(self, channel: Channel, side: ScoringSide, tensor: training_pb2.Tensor, batch: PredictionBatch) -> Tensor:
        return decode_tensor(channel, tensor, (self._rows(batch), side.terms.width), dtype=side.terms.dtype)

    def _predict(self, side: ScoringSide, batch: PredictionBatch, embeddings: Sequence[Tensor]) -> Probabilities:
        if batch.positions is None:
            return side.probability_unnamed(embeddings)
        return (side.probability if self.asking.asker else side.own_probability)(batch.positions, embeddings)

    async def _receive(self, active: Channel, step: int, batch: PredictionBatch) -> Probabilities:
        message = await active.receive(prediction_pb2.Probabilities)
        check_step(active, message.step, step)
        shape = (self._rows(batch), *self._outputs)
        if len(message.values) != _EXACT.itemsize * math.prod(shape):
            raise ProtocolError(f"{active.peer} sent {len(message.values)} bytes of probabilities", code="E_SHAPE")
        values = np.frombuffer(message.values, dtype=_EXACT).astype(np.float64).reshape(shape)
        if self._numbers and not np.isfinite(values).all():
            raise ProtocolError(f"{active.peer} sent predictions that are not finite", code="E_NAN")
        if not self._numbers and not ((values >= 0) & (values <= 1)).all():
            raise ProtocolError(f"{active.peer} sent probabilities that are not within 0 and 1", code="E_NAN")
        return values

    def _rows(self, batch: PredictionBatch) -> int:
        return self._side.terms.serve.batch_size if batch.positions is None else len(batch.positions)


def _embedding(side: EmbeddingSide, batch: PredictionBatch) -> Tensor:
    if batch.positions is not None:
        return side.embed_new(batch.positions) if batch.new else side.embed_shared(batch.positions)
    assert batch.unnamed is not None
    return batch.unnamed.embedding(batch.number)
