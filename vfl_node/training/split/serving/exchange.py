"""Batches of predictions on the wire: embeddings one way and, if the passive party asks, probabilities the other way.

Source: Song et al. 2021 (FLORIST), Appendix D.

Leaks: see :func:`~vfl_node.training.split.serving.disclosures.learnt`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vfl_node.errors import ProtocolError
from vfl_node.job import Predict
from vfl_node.training.split.serving.shown import DisclosureGuard, OutgoingBatch, names_of
from vfl_node.training.split.serving.sides import Embedder, Positions, Probabilities, Scorer, Unnamed
from vfl_node.transport import codec
from vfl_node.transport.channel import Channel
from vfl_node.transport.generated.vfl.v1 import prediction_pb2, training_pb2

AT_ONCE = 16
"""Most batches that are asked for at once, before the first answer."""

_EXACT = np.dtype("<f8")


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

    def outgoing(self, side: Embedder | Scorer, sent: Tensor, embedding: Tensor) -> OutgoingBatch:
        """This batch as it is sent: ``sent``, of the rows that have ``embedding``."""
        if self.positions is None:
            synthetic = self.unnamed.synthetic(self.number) if self.unnamed else np.zeros(len(sent), dtype=np.bool_)
            return OutgoingBatch(names_of(embedding), sent, synthetic)
        return OutgoingBatch(names_of(embedding) if self.new else self.positions, sent, ~side.alignment.owned[self.positions])


class Exchange:
    """One party's end of the exchange, in which every batch has the next step.

    Attributes:
        asks: whether this party asks for predictions.
    """

    def __init__(self, channel: Channel, predict: Predict, side: Embedder | Scorer, guard: DisclosureGuard) -> None:
        self._channel, self._side, self._guard = channel, side, guard
        self._to_passive = predict.to == "passive"
        self.asks = isinstance(side, Embedder) == self._to_passive
        self._numbers = side.served_model.train.task == "regression"
        self._classes = () if side.served_model.train.classes == 2 else (side.served_model.train.classes,)
        self._step = 0

    async def run(self, batches: Sequence[PredictionBatch]) -> list[Probabilities]:
        """Exchange ``batches``; returns the probabilities of each at the asker, nothing at the other party.

        Raises:
            PolicyError: as :meth:`DisclosureGuard.admit`; then nothing of ``batches`` was sent.
            ProtocolError: the peer sends another shape or step.
        """
        first, self._step = self._step, self._step + len(batches)
        side = self._side
        if isinstance(side, Embedder):
            embeddings = [_embedding(side, batch) for batch in batches]
            self._guard.admit([batch.outgoing(side, h, h) for batch, h in zip(batches, embeddings, strict=True)])
            for step, embedding in enumerate(embeddings, start=first):
                await self._channel.send(training_pb2.Embedding(step=step, tensor=codec.encode(embedding)))
            answered = range(first, self._step) if self._to_passive else ()
            return [await self._received(step, batch) for step, batch in zip(answered, batches, strict=False)]
        embeddings = [await self._embedding(side, step, batch) for step, batch in enumerate(batches, start=first)]
        scores = [self._scored(side, batch, embedding) for batch, embedding in zip(batches, embeddings, strict=True)]
        if not self._to_passive:
            return scores
        self._guard.admit(
            [batch.outgoing(side, torch.from_numpy(p), h) for batch, p, h in zip(batches, scores, embeddings, strict=True)]
        )
        for step, probabilities in enumerate(scores, start=first):
            await self._channel.send(prediction_pb2.Probabilities(step=step, values=probabilities.astype(_EXACT).tobytes()))
        return []

    def joined(self, parts: Sequence[Probabilities]) -> Probabilities:
        """The probabilities of all batches in one array, float64[n] or float64[n, K]."""
        return np.concatenate([np.empty((0, *self._classes)), *parts])

    async def _embedding(self, side: Scorer, step: int, batch: PredictionBatch) -> Tensor:
        message = await self._channel.receive(training_pb2.Embedding)
        self._check(message.step, step)
        return codec.decode(message.tensor, dtype=torch.float32, shape=(self._rows(batch), side.cut_width))

    def _scored(self, side: Scorer, batch: PredictionBatch, embedding: Tensor) -> Probabilities:
        if batch.positions is None:
            return side.probability_unnamed(embedding)
        return (side.probability if self._to_passive else side.expected)(batch.positions, embedding)

    async def _received(self, step: int, batch: PredictionBatch) -> Probabilities:
        message = await self._channel.receive(prediction_pb2.Probabilities)
        self._check(message.step, step)
        shape = (self._rows(batch), *self._classes)
        if len(message.values) != _EXACT.itemsize * math.prod(shape):
            raise ProtocolError(f"{self._channel.peer} sent {len(message.values)} bytes of probabilities", code="E_SHAPE")
        values = np.frombuffer(message.values, dtype=_EXACT).astype(np.float64).reshape(shape)
        if self._numbers and not np.isfinite(values).all():
            raise ProtocolError(f"{self._channel.peer} sent predictions that are not finite", code="E_NAN")
        if not self._numbers and not ((values >= 0) & (values <= 1)).all():
            raise ProtocolError(f"{self._channel.peer} sent probabilities that are not within 0 and 1", code="E_NAN")
        return values

    def _check(self, step: int, expected: int) -> None:
        if step != expected:
            raise ProtocolError(f"{self._channel.peer} sent step {step} where step {expected} was due", code="E_ORDER")

    def _rows(self, batch: PredictionBatch) -> int:
        return self._side.served_model.serve.batch_size if batch.positions is None else len(batch.positions)


def _embedding(side: Embedder, batch: PredictionBatch) -> Tensor:
    if batch.positions is not None:
        return side.new(batch.positions) if batch.new else side.shared(batch.positions)
    assert batch.unnamed is not None
    return batch.unnamed.embedding(batch.number)
