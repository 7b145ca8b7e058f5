"""A service: predictions of known rows, request by request, until the asker's owner ends it.

All requests that wait when the asker comes round share one exchange: each batch that some of them need is asked for once, and
each request gets its own rows.

The asker sends an ``Ask`` for at most :data:`~vfl_node.training.prediction.exchange.AT_ONCE` batches to every party that it
asks (:mod:`~vfl_node.training.prediction.exchange`) and, if it is a passive party, an embedding for each. The active party
passes the ``Ask`` of a passive party on to the other passive parties. The asker receives all answers before it goes on, so two
parties never send to each other at the same time. Sizes and number of the messages depend on the number of batches alone.

Source: Song et al. 2021 (FLORIST), Appendix D.

Leaks: see :func:`~vfl_node.training.prediction.disclosures.learnt`.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import cycle

import numpy as np

from vfl_node.alignment.alignment import NOT_MINE, Alignment
from vfl_node.errors import DataError, PolicyError, ProtocolError, UsageError, VflError
from vfl_node.process import failpoints
from vfl_node.progress import Advanced, PhaseBegan, PredictionsAudited
from vfl_node.session.session import Session
from vfl_node.training.prediction.exchange import AT_ONCE, Exchange, Exchanges, PredictionBatch
from vfl_node.training.prediction.shown import DisclosureGuard, check_judged, label_audit
from vfl_node.training.prediction.sides import EmbeddingSide, Positions, Probabilities, ScoringSide, ServiceSide
from vfl_node.training.predictor import Request, RequestQueue, ServiceCount, ServiceTally, ShownRows, check_allowed
from vfl_node.transport.channel import Channel
from vfl_node.transport.generated.vfl.v1 import prediction_pb2


def check_all_shared(alignment: Alignment) -> None:
    """Refuse known records where some party may lack one, for models whose answer would show that.

    Raises:
        UsageError: some party may lack one (``E_PREDICT``).
    """
    if alignment.has_synthetic_rows:
        reason = "known records are predicted only where all parties have every one"
        raise UsageError(reason, code="E_PREDICT", for_peer=reason)


async def predict_known(
    session: Session,
    side: ServiceSide,
    requests: RequestQueue | None,
    *,
    shown: ShownRows,
    tally: ServiceTally | None = None,
    exchange: Exchanges = Exchange,
) -> ServiceCount:
    """Predict rows of the training's alignment, request by request, until the asker's owner ends it.

    Args:
        session: this party's; phase ``predict`` of its conversations is opened and ended here. Its ``policy.protection`` says
            which attacks this party runs on what it sends, and how successful they may be before the service ends.
        side: this party's half.
        requests: at the party that asks; None at another one.
        shown: which rows of the model others were told about.
        tally: stores what is exchanged, and has what earlier attempts exchanged.
        exchange: makes what exchanges batches, by the half.

    Raises:
        PolicyError: the training does not let the asker ask (``E_PREDICT``), or a peer would be told about more rows
            than this party's owner allows (``E_BUDGET``), or too much (``E_LEAK``).
        ProtocolError: a peer has other batches, or asks for what it may not have (``E_PREDICT``),
            or sends another shape or step (``E_SHAPE``, ``E_NAN``, ``E_ORDER``).

    Cost: 4·d·B bytes a batch and passive party, and 8·B more to a passive asker (8·K·B with K > 2 classes).
    """
    check_allowed(session.job, side.terms.serve)
    service = _Service(
        session, side, DisclosureGuard(side, shown, session.policy.protection, label_audit(session, side)), tally, exchange
    )
    async with session.phase("predict"):
        try:
            await service.run(requests)
        except BaseException:
            with suppress(Exception):  # the first reason counts: from a lost peer the service comes back, and judges then
                service.finish()
            raise
        service.finish()
    return service.counted


class _Service:
    """One attempt of a service at one party."""

    def __init__(
        self,
        session: Session,
        side: ServiceSide,
        guard: DisclosureGuard,
        tally: ServiceTally | None,
        exchange: Exchanges,
    ) -> None:
        self._session, self._side, self._progress, self._tally = session, side, session.progress, tally
        self._guard, self._exchange = guard, exchange(session, side, guard)
        self._asked, self._asker = self._exchange.asking.asked, self._exchange.asking.asker
        self.counted = (tally.read() if tally else None) or ServiceCount(side.terms.serve.batch_size)
        self._counting = threading.RLock()
        guard.on_judged = self._record_beside
        self._progress.emit(PhaseBegan("predict", 0, "batches"))

    async def run(self, requests: RequestQueue | None) -> None:
        """Ask for the rows of all ``requests``, or answer the asker; then say that there are no more."""
        self._guard.begin()
        for channel in self._asked:
            terms = await channel.receive(prediction_pb2.PredictionTerms)
            if terms.batches != self._side.batches.fingerprint:
                raise _refusal(channel, "cuts the shared rows into other batches")
            self.counted.unnamed = terms.unnamed and isinstance(self._side, EmbeddingSide)
        if self._asker:
            await self._answer(self._asker)
        else:
            assert requests is not None
            await self._ask(requests)
        for channel in self._asked:
            await channel.send(prediction_pb2.PredictionAsk(done=True))

    async def _ask(self, requests: RequestQueue) -> None:
        """Ask for the rows of all ``requests``."""
        async for waiting in _await_requests(self._asked, requests):
            found = self._find_all(waiting)
            named = not (self.counted.unnamed and isinstance(self._side, EmbeddingSide))
            for together in [found] if named and found else [[each] for each in found]:
                await self._ask_for_all(together)

    async def _ask_for_all(self, together: Sequence[_RequestedBatches]) -> None:
        """Ask once for each batch that some of these requests need; answer each request as soon as its own are there."""
        answers: dict[int, Probabilities] = {}
        left = together
        while left := [requested for requested in left if not requested.request.over]:  # nothing for who has hung up
            needed = {batch.number: batch for requested in left for batch in requested.batches if batch.number not in answers}
            if part := [needed[number] for number in sorted(needed)[:AT_ONCE]]:
                answers |= zip((batch.number for batch in part), await self._exchange_batches(part), strict=True)
            whole = [requested for requested in left if requested.is_whole(answers)]
            left = [requested for requested in left if requested not in whole]
            self._count(requests=len(whole))
            for requested in whole:
                parts = [answers[batch.number] for batch in requested.batches]
                requested.request.answer(self._exchange.join(parts)[requested.places])

    async def _answer(self, asker: Channel) -> None:
        """Answer until ``asker`` has no more to ask."""
        side = self._side
        self.counted.unnamed = isinstance(side, ScoringSide) and side.unnamed
        check_judged(self._session, named=not self.counted.unnamed)
        terms = prediction_pb2.PredictionTerms(batches=side.batches.fingerprint, unnamed=self.counted.unnamed)
        await asker.send(terms)
        while not (ask := await asker.receive(prediction_pb2.PredictionAsk)).done:
            await self._exchange_batches(self._batches(asker, ask))

    def finish(self) -> None:
        """Judge and record everything that was told, however the service ends."""
        self._guard.finish()
        self._record_audit()

    def _count(self, *, batches: int = 0, requests: int = 0) -> None:
        with self._counting:
            self.counted.batches += batches
            self.counted.requests += requests
            if self._tally:
                self._tally.write(self.counted)

    async def _exchange_batches(self, batches: Sequence[PredictionBatch]) -> list[Probabilities]:
        self._count(batches=len(batches))
        for channel in self._asked:
            await channel.send(_ask_for(batches))
        failpoints.reach("predict")
        try:
            answers = await self._exchange.run(batches)
        finally:
            self._record_audit()
        self._progress.emit(Advanced(len(batches)))
        return answers

    def _record_audit(self) -> None:
        """Record what the peer was told, also if the service ends because of it."""
        with self._counting:
            rows, judged, labels = self._guard.rows_told, self._guard.judged, self._guard.labels_read
            if (rows, judged.attacks, labels) == (self.counted.told, self.counted.attacks, self.counted.labels):
                return
            self.counted.told, self.counted.attacks, self.counted.labels = rows, judged.attacks, labels
            self._count()
        self._progress.emit(PredictionsAudited(judged.attacks, judged.judged, labels))

    def _record_beside(self) -> None:
        """The same, on the thread that has judged it."""
        with suppress(VflError):  # a wish to stop, which the service hears itself
            self._record_audit()

    def _find_all(self, waiting: Sequence[Request]) -> list[_RequestedBatches]:
        """The batches that each request needs; one that cannot be answered fails alone, and the others as if it were not."""
        found: list[_RequestedBatches] = []
        rows: dict[int, Positions] = {}
        for request in waiting:
            try:
                requested = self._find_batches(request)
                new = {each.number: each.positions for each in requested.batches if each.positions is not None}
                if isinstance(self._side, EmbeddingSide) and not new.keys() <= rows.keys():
                    self._guard.check(np.concatenate([*(rows | new).values()]))
            except (DataError, PolicyError) as error:
                request.fail(error)
            else:
                rows |= new
                found.append(requested)
        return found

    def _find_batches(self, request: Request) -> _RequestedBatches:
        """The batches to ask for. Raises DataError where the rows cannot be predicted (``E_UNKNOWN_ID``, ``E_COLUMN``)."""
        side = self._side
        if self.counted.unnamed and isinstance(side, EmbeddingSide):
            unnamed = side.hide_rows(request.table)
            batches = [PredictionBatch(None, number, unnamed) for number in range(unnamed.count)]
            return _RequestedBatches(request, batches, unnamed.places)
        positions = side.positions(request.table.ids)
        unknown = np.flatnonzero(positions == NOT_MINE)
        if len(unknown):
            raise DataError(
                f"{len(unknown)} of {len(positions)} ids are not among the records that the model's job has aligned; "
                f"the first is in {request.place(int(unknown[0]))}",
                code="E_UNKNOWN_ID",
                hint="leave them out, or predict new records: vfl-node predict --align",
            )
        numbers, places = side.batches.find(positions)
        return _RequestedBatches(request, [self._named_batch(number) for number in numbers.tolist()], places)

    def _batches(self, asker: Channel, ask: prediction_pb2.PredictionAsk) -> list[PredictionBatch]:
        """The batches that ``asker`` asks for.

        Raises:
            ProtocolError: too many batches, in the wrong order or that do not exist, or rows that are not named although they
                must be (``E_PREDICT``).
        """
        numbers = list(ask.batches)
        if (
            not 0 < len(numbers) + ask.unnamed <= AT_ONCE
            or (ask.unnamed > 0) != self.counted.unnamed
            or (numbers and ask.unnamed)
        ):
            raise _refusal(asker, f"asks for {len(numbers)} batches and {ask.unnamed} of rows that are not named")
        if numbers != sorted(set(numbers)) or any(number >= len(self._side.batches) for number in numbers):
            raise _refusal(asker, f"asks for batches out of order, or beyond the {len(self._side.batches)} there are")
        return [self._named_batch(number) for number in numbers] or [PredictionBatch(None, 0)] * ask.unnamed

    def _named_batch(self, number: int) -> PredictionBatch:
        return PredictionBatch(self._side.batches.positions(number), number)


@dataclass(frozen=True, eq=False)
class _RequestedBatches:
    """The batches that one request needs.

    Attributes:
        request: the request.
        batches: in the order in which they are asked for.
        places: int64[n], the place of each row of the request in all these batches together.
    """

    request: Request
    batches: list[PredictionBatch]
    places: Positions

    def is_whole(self, answers: Mapping[int, Probabilities]) -> bool:
        """Whether all its batches are among ``answers``, by number."""
        return all(batch.number in answers for batch in self.batches)


async def _await_requests(asked: Sequence[Channel], requests: RequestQueue) -> AsyncIterator[Sequence[Request]]:
    """All requests that wait, as they arrive, until the owner ends the service or one of those ``asked`` is gone."""
    for channel in cycle(asked):
        requests.bell.clear()  # first: whatever happens from now on sets it again
        closed = requests.closed
        if waiting := requests.take_all():
            yield waiting
        elif closed:
            return
        else:
            for each in asked:
                each.watch(requests.bell)
            await channel.pause(requests.bell)  # returns at once where another one is gone, whose turn comes


def _ask_for(batches: Sequence[PredictionBatch]) -> prediction_pb2.PredictionAsk:
    if batches[0].positions is None:
        return prediction_pb2.PredictionAsk(unnamed=len(batches))
    return prediction_pb2.PredictionAsk(batches=[batch.number for batch in batches])


def _refusal(channel: Channel, what: str) -> ProtocolError:
    return ProtocolError(f"{channel.peer} {what}", code="E_PREDICT")
