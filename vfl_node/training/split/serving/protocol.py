"""Who says what when a prediction is asked for and given.

Whoever asks sends an ``Ask`` for at most :data:`AT_ONCE` batches, with an embedding for each
where it is the passive party, and takes in as many answers before it goes on: neither party
sends while the other does. Sizes and number of the messages depend on the number of batches
alone.

Source: Song et al. 2021 (FLORIST), Appendix D.

Leaks: see :func:`~vfl_node.training.split.serving.disclosures.learnt`.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vfl_node import failpoints
from vfl_node.alignment.alignment import NOT_MINE
from vfl_node.data.tables import Table
from vfl_node.errors import DataError, PolicyError, ProtocolError, UsageError, VflError
from vfl_node.job import Predict
from vfl_node.progress import Advanced, PhaseBegan, PredictionsAudited, Progress, Silent
from vfl_node.settings import Protection
from vfl_node.training.schedule import cut
from vfl_node.training.split.serving.served_model import check_allowed
from vfl_node.training.split.serving.shown import Disclosure, ShownRows, Told, names_of
from vfl_node.training.split.serving.sides import Embedder, Positions, Probabilities, Scorer, Unnamed
from vfl_node.transport import codec
from vfl_node.transport.channel import Channel
from vfl_node.transport.generated.vfl.v1 import prediction_pb2, training_pb2

AT_ONCE = 16
"""Most batches of one Ask."""

EXACT = np.dtype("<f8")


class Request(Protocol):
    """Rows that the asker's owner wants predictions of."""

    @property
    def table(self) -> Table:
        """Ids; and the model's columns, which are read where rows are not named."""

    def line(self, row: int) -> int:
        """The line of the owner's file in which row ``row`` of the table stands."""

    def answer(self, probabilities: NDArray[np.float64]) -> None:
        """Take float64[n] or, of more than two classes, float64[n, K], in the table's order."""

    def fail(self, error: VflError) -> None:
        """This request cannot be answered; others can."""


class RequestQueue(Protocol):
    """What the asker's node has to ask."""

    @property
    def closed(self) -> bool:
        """Whether the service ends once no request is left."""

    def take(self) -> Request | None:
        """The next request, or None if there is none just now; never blocks.

        One that was taken and not answered comes again in the next attempt.
        """


@dataclass
class Served:
    """What a service has exchanged, in all attempts.

    Attributes:
        rows: of a batch.
        requests: answered to the own side; 0 at the party that is asked.
        batches: asked for, twice where a conversation broke off and the request came again.
        unnamed: whether they are of rows that are not named.
        told: different rows of the model that this party has told the peer about, in all services over it.
        attacks: attack → AUC of this party's own attacks on the embeddings or probabilities that it has sent; empty where
            none of its rows is synthetic.
    """

    rows: int
    requests: int = 0
    batches: int = 0
    unnamed: bool = False
    told: int = 0
    attacks: Mapping[str, float | None] = field(default_factory=dict)


class Tally(Protocol):
    """Where :class:`Served` outlives an attempt."""

    def read(self) -> Served | None:
        """What was written last; None: nothing yet."""

    def write(self, served: Served) -> None:
        """Keep ``served``, before what it counts is exchanged."""


@dataclass(frozen=True)
class Predicted:
    """Predictions of new rows that both parties have.

    Attributes:
        rows: int64[k], those of the asker's table that are shared, ascending.
        probabilities: float64[k], or float64[k, K] of more than two classes.
        shared: number of shared rows.
    """

    rows: Positions
    probabilities: Probabilities
    shared: int


async def serve(
    channel: Channel,
    predict: Predict,
    side: Embedder | Scorer,
    requests: RequestQueue | None,
    progress: Progress | None = None,
    *,
    shown: ShownRows,
    tally: Tally | None = None,
    protection: Protection | None = None,
) -> Served:
    """Predict rows of the training's alignment, request by request, until the asker's owner ends it.

    Args:
        channel: the conversation; phase ``predict`` is opened and ended here.
        predict: the job's section.
        side: this party's half.
        requests: at the party that asks; None at the other.
        progress: told of every batch.
        shown: which rows of the model the peer was told about.
        tally: counts on where an earlier attempt ended.
        protection: which attacks run on what it sends, and how well they may do before the service ends; by default all run,
            and none ends it.

    Raises:
        PolicyError: the training does not let this party ask (``E_PREDICT``), or the peer would be told about more rows
            than this party's owner allows (``E_BUDGET``), or too much (``E_LEAK``).
        ProtocolError: the peer cuts other batches, or asks for what it may not (``E_PREDICT``),
            or sends another shape or step (``E_SHAPE``, ``E_NAN``, ``E_ORDER``).

    Cost: 4·d·B bytes a batch, and 8·B (8·K·B) more to a passive asker.
    """
    check_allowed(predict, side.kept.serve)
    disclosure = Disclosure(side, shown, protection or Protection())
    service = _Service(channel, predict, side, disclosure, progress or Silent(), tally)
    async with channel.phase("predict"):
        await (service.answer() if requests is None else service.ask(requests))
    return service.served


async def predict_once(
    channel: Channel, predict: Predict, side: Embedder | Scorer, progress: Progress | None = None, *, shown: ShownRows
) -> Predicted | None:
    """Predict all rows of a new intersection, in its order; the asker's result, None at the other party.

    Both parties have every row. What stood in for others would be drawn anew in each alignment,
    where positions stand for other records, while the model and real rows stay the same: whoever
    compared two jobs over the same ids, or one with known rows, would tell which are real.

    Args: as :func:`serve`.

    Raises:
        UsageError: a party lacks some of the rows, or may (``E_PREDICT``).
        VflError: as :func:`serve`.

    Cost: 4·d bytes a shared row, and 8 (8·K) more to a passive asker.
    """
    check_allowed(predict, side.kept.serve)
    progress = progress or Silent()
    view, wire = side.alignment, _Wire(channel, predict, side, Disclosure(side, shown, Protection()))
    if view.has_synthetic_rows:
        reason = "new records are predicted where both parties have every one: align them by psi"
        raise UsageError(reason, code="E_PREDICT", for_peer=reason)
    batches = [
        _Batch(positions, number, new=True)
        for number, positions in enumerate(cut(np.arange(len(view)), side.kept.serve.batch_size))
    ]
    found: list[Probabilities] = []
    progress.emit(PhaseBegan("predict", len(batches), "batches"))
    async with channel.phase("predict"):
        for first in range(0, len(batches), AT_ONCE):
            part = batches[first : first + AT_ONCE]
            failpoints.reach("predict")
            found += await wire.exchange(part)
            progress.emit(Advanced(len(part)))
    if not wire.asks:
        return None
    own = np.flatnonzero(view.owned)
    own = own[np.argsort(view.rows[own])]
    return Predicted(view.rows[own], wire.joined(found)[own], len(view))


class _Service:
    """One attempt of a service at one party."""

    def __init__(
        self,
        channel: Channel,
        predict: Predict,
        side: Embedder | Scorer,
        disclosure: Disclosure,
        progress: Progress,
        tally: Tally | None,
    ) -> None:
        self._channel, self._side, self._progress, self._tally = channel, side, progress, tally
        self._disclosure = disclosure
        self._wire = _Wire(channel, predict, side, disclosure)
        self.served = (tally.read() if tally else None) or Served(side.kept.serve.batch_size)
        progress.emit(PhaseBegan("predict", 0, "batches"))

    async def ask(self, requests: RequestQueue) -> None:
        """Ask for what ``requests`` gives, and say when that was all."""
        terms = await self._channel.receive(prediction_pb2.PredictionTerms)
        if terms.batches != self._side.batches.fingerprint:
            raise _refused(self._channel, "cuts the shared rows into other batches")
        self.served.unnamed = terms.unnamed and isinstance(self._side, Embedder)
        async for request in _coming(self._channel, requests):
            try:
                wanted = self._wanted(request)
            except (DataError, PolicyError) as error:
                request.fail(error)
                continue
            found: list[Probabilities] = []
            for first in range(0, len(wanted.batches), AT_ONCE):
                part = wanted.batches[first : first + AT_ONCE]
                self._count(batches=len(part))
                await self._channel.send(_naming(part))
                found += await self._exchanged(part)
            self._count(requests=1)
            request.answer(self._wire.joined(found)[wanted.places])
        await self._channel.send(prediction_pb2.PredictionAsk(done=True))

    async def answer(self) -> None:
        """Answer until the peer has no more to ask."""
        side = self._side
        self.served.unnamed = isinstance(side, Scorer) and side.unnamed
        terms = prediction_pb2.PredictionTerms(batches=side.batches.fingerprint, unnamed=self.served.unnamed)
        await self._channel.send(terms)
        while not (ask := await self._channel.receive(prediction_pb2.PredictionAsk)).done:
            asked = self._asked(ask)
            self._count(batches=len(asked))
            await self._exchanged(asked)

    def _count(self, *, batches: int = 0, requests: int = 0) -> None:
        self.served.batches += batches
        self.served.requests += requests
        if self._tally:
            self._tally.write(self.served)

    async def _exchanged(self, batches: Sequence[_Batch]) -> list[Probabilities]:
        failpoints.reach("predict")
        try:
            found = await self._wire.exchange(batches)
        finally:
            self._audited()
        self._progress.emit(Advanced(len(batches)))
        return found

    def _audited(self) -> None:
        """Show what was told, also by a service that ends for it."""
        told, found = self._disclosure.told, self._disclosure.judged
        if (told, found.attacks) != (self.served.told, self.served.attacks):
            self.served.told, self.served.attacks = told, found.attacks
            self._count()
            self._progress.emit(PredictionsAudited(found.attacks, found.judged))

    def _wanted(self, request: Request) -> _Wanted:
        """What to ask for.

        Raises:
            DataError: it cannot be (``E_UNKNOWN_ID``, ``E_COLUMN``).
            PolicyError: its embeddings would be of more rows than this party's owner allows (``E_BUDGET``).
        """
        side = self._side
        if self.served.unnamed and isinstance(side, Embedder):
            hidden = side.unnamed(request.table)
            return _Wanted([_Batch(None, number, hidden) for number in range(hidden.count)], hidden.places)
        positions = side.positions(request.table.ids)
        unknown = np.flatnonzero(positions == NOT_MINE)
        if len(unknown):
            raise DataError(
                f"{len(unknown)} of {len(positions)} ids are not among the records that the model's job has aligned; "
                f"the first is in line {request.line(int(unknown[0]))}",
                code="E_UNKNOWN_ID",
                hint="leave them out, or predict new records: vfl-node predict --align",
            )
        numbers, places = side.batches.find(positions)
        wanted = _Wanted([self._named(number) for number in numbers.tolist()], places)
        if isinstance(side, Embedder) and wanted.batches:
            self._disclosure.check(np.concatenate([batch.positions for batch in wanted.batches if batch.positions is not None]))
        return wanted

    def _asked(self, ask: prediction_pb2.PredictionAsk) -> list[_Batch]:
        """The batches that the peer asks for.

        Raises:
            ProtocolError: too many, not in order, none that there are, or rows not named where they must be (``E_PREDICT``).
        """
        numbers = list(ask.batches)
        if (
            not 0 < len(numbers) + ask.unnamed <= AT_ONCE
            or (ask.unnamed > 0) != self.served.unnamed
            or (numbers and ask.unnamed)
        ):
            raise _refused(self._channel, f"asks for {len(numbers)} batches and {ask.unnamed} of rows that are not named")
        if numbers != sorted(set(numbers)) or any(number >= len(self._side.batches) for number in numbers):
            raise _refused(self._channel, f"asks for batches out of order, or beyond the {len(self._side.batches)} there are")
        return [self._named(number) for number in numbers] or [_Batch(None, 0)] * ask.unnamed

    def _named(self, number: int) -> _Batch:
        return _Batch(self._side.batches.positions(number), number)


@dataclass(frozen=True)
class _Batch:
    """Rows that are predicted together.

    Attributes:
        positions: where they are shared, int64[B]; None where they are not named.
        number: of the batch.
        hidden: of one that is not named, at the passive party that asks: the rows in it.
        new: whether the positions are those of a new alignment, not of the model's.
    """

    positions: Positions | None
    number: int
    hidden: Unnamed | None = None
    new: bool = False

    def told(self, side: Embedder | Scorer, sent: Tensor, embedding: Tensor) -> Told:
        """What leaves of it: ``sent``, of the rows of ``embedding``."""
        if self.positions is None:
            synthetic = self.hidden.synthetic(self.number) if self.hidden else np.zeros(len(sent), dtype=np.bool_)
            return Told(names_of(embedding), sent, synthetic)
        return Told(names_of(embedding) if self.new else self.positions, sent, ~side.alignment.owned[self.positions])


@dataclass(frozen=True)
class _Wanted:
    """What one request asks for: batches, and where each of its rows stands in them, one behind the other, int64[n]."""

    batches: list[_Batch]
    places: Positions


class _Wire:
    """Embeddings one way, and probabilities the other where the passive party asks.

    Attributes:
        asks: whether this party does.
    """

    def __init__(self, channel: Channel, predict: Predict, side: Embedder | Scorer, disclosure: Disclosure) -> None:
        self._channel, self._side, self._disclosure = channel, side, disclosure
        self._to_passive = predict.to == "passive"
        self.asks = isinstance(side, Embedder) == self._to_passive
        self._classes = () if side.kept.train.classes == 2 else (side.kept.train.classes,)
        self._step = 0

    async def exchange(self, batches: Sequence[_Batch]) -> list[Probabilities]:
        """The probabilities of each of ``batches`` at the asker, nothing at the other.

        Raises:
            PolicyError: as :meth:`Disclosure.leaves`; nothing of ``batches`` has left then.
            ProtocolError: the peer sends another shape or step.
        """
        first, self._step = self._step, self._step + len(batches)
        side = self._side
        if isinstance(side, Embedder):
            embeddings = [_embedding(side, batch) for batch in batches]
            self._disclosure.leaves([batch.told(side, h, h) for batch, h in zip(batches, embeddings, strict=True)])
            for step, embedding in enumerate(embeddings, start=first):
                await self._channel.send(training_pb2.Embedding(step=step, tensor=codec.encode(embedding)))
            told = range(first, self._step) if self._to_passive else ()
            return [await self._received(step, batch) for step, batch in zip(told, batches, strict=False)]
        embeddings = [await self._embedding(side, step, batch) for step, batch in enumerate(batches, start=first)]
        made = [self._scored(side, batch, embedding) for batch, embedding in zip(batches, embeddings, strict=True)]
        if not self._to_passive:
            return made
        self._disclosure.leaves(
            [batch.told(side, torch.from_numpy(p), h) for batch, p, h in zip(batches, made, embeddings, strict=True)]
        )
        for step, probabilities in enumerate(made, start=first):
            await self._channel.send(prediction_pb2.Probabilities(step=step, values=probabilities.astype(EXACT).tobytes()))
        return []

    def joined(self, found: Sequence[Probabilities]) -> Probabilities:
        """Probabilities of batches one behind the other, float64[n] or float64[n, K]."""
        return np.concatenate([np.empty((0, *self._classes)), *found])

    async def _embedding(self, side: Scorer, step: int, batch: _Batch) -> Tensor:
        message = await self._channel.receive(training_pb2.Embedding)
        self._check(message.step, step)
        return codec.decode(message.tensor, dtype=torch.float32, shape=(self._rows(batch), side.cut_width))

    def _scored(self, side: Scorer, batch: _Batch, embedding: Tensor) -> Probabilities:
        if batch.positions is None:
            return side.probability_unnamed(embedding)
        return (side.probability if self._to_passive else side.expected)(batch.positions, embedding)

    async def _received(self, step: int, batch: _Batch) -> Probabilities:
        message = await self._channel.receive(prediction_pb2.Probabilities)
        self._check(message.step, step)
        shape = (self._rows(batch), *self._classes)
        if len(message.values) != EXACT.itemsize * math.prod(shape):
            raise ProtocolError(f"{self._channel.peer} sent {len(message.values)} bytes of probabilities", code="E_SHAPE")
        values = np.frombuffer(message.values, dtype=EXACT).astype(np.float64).reshape(shape)
        if not ((values >= 0) & (values <= 1)).all():
            raise ProtocolError(f"{self._channel.peer} sent probabilities that are not within 0 and 1", code="E_NAN")
        return values

    def _check(self, step: int, expected: int) -> None:
        if step != expected:
            raise ProtocolError(f"{self._channel.peer} sent step {step} where step {expected} was due", code="E_ORDER")

    def _rows(self, batch: _Batch) -> int:
        return self._side.kept.serve.batch_size if batch.positions is None else len(batch.positions)


def _embedding(side: Embedder, batch: _Batch) -> Tensor:
    if batch.positions is not None:
        return side.new(batch.positions) if batch.new else side.shared(batch.positions)
    assert batch.hidden is not None
    return batch.hidden.embedding(batch.number)


async def _coming(channel: Channel, requests: RequestQueue) -> AsyncIterator[Request]:
    """Requests as they come, until the owner ends the service."""
    while True:
        closed = requests.closed  # before looking: one may come in between
        request = requests.take()
        if request is not None:
            yield request
        elif closed:
            return
        else:
            await channel.pause()


def _naming(batches: Sequence[_Batch]) -> prediction_pb2.PredictionAsk:
    if batches[0].positions is None:
        return prediction_pb2.PredictionAsk(unnamed=len(batches))
    return prediction_pb2.PredictionAsk(batches=[batch.number for batch in batches])


def _refused(channel: Channel, what: str) -> ProtocolError:
    return ProtocolError(f"{channel.peer} {what}", code="E_PREDICT")
