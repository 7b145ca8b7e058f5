"""One data party's end of predictions in shares: batches that all parties agree on, each computed under masks of its own."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from typing_extensions import override

from vfl_node.alignment.alignment import NOT_MINE, Alignment
from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.shares.machine import Party, ShareMachine
from vfl_node.crypto.shares.paired.blocks import fill, tile_rows
from vfl_node.crypto.shares.paired.kit import PairKit
from vfl_node.crypto.shares.ring import Ring
from vfl_node.data.tables import Table
from vfl_node.errors import ProtocolError
from vfl_node.job import Job
from vfl_node.session.openings import OpeningLog
from vfl_node.session.session import Session
from vfl_node.session.share_wire import DealtCorrections, PairWire, StarWire
from vfl_node.training.prediction.exchange import Asking, PredictionBatch
from vfl_node.training.prediction.shown import DisclosureGuard, OutgoingBatch, names_of_new
from vfl_node.training.prediction.sides import Positions, Probabilities, ServiceSide, ServiceTerms
from vfl_node.training.predictor import Names, StoredModel
from vfl_node.training.shares.config import SharesConfig
from vfl_node.training.shares.kept import AnswerForm, KeptModel
from vfl_node.training.shares.pair import MetPair
from vfl_node.training.shares.prediction import answers
from vfl_node.transport.generated.vfl.v1.shares_pb2 import AnswerContext, AnswerInputs, AnswerTerms

MARK_BYTES = 8


class ShareSide(ServiceSide):
    """A party's columns as the model reads them. Every party owns every row.

    Args:
        model: what it has stored.
        kept: the same, read.
        alignment: the one of the training, or a new one.
        table: the party's records that were aligned.

    Raises:
        DataError: the table lacks a column of the model (``E_COLUMN``).
    """

    makes_rows_up: ClassVar[bool] = False

    def __init__(self, model: StoredModel, kept: KeptModel, alignment: Alignment, table: Table) -> None:
        train, serve, batches = SharesConfig.section_of(model.job), model.job.serve, bytes.fromhex(kept.stored.batches)
        assert serve is not None
        super().__init__(ServiceTerms(serve, batches, train.task, train.classes, train.outputs), alignment, table)
        self.draws = Randomness(batches)  # for attacks on rows that are made up, of which there are none
        self._columns = kept.columns(table)

    def columns(self, positions: Positions) -> NDArray[Any]:
        """Those of the rows at shared ``positions``, [B, d]."""
        return self._columns[self.alignment.rows[positions]]

    @override
    def own(self, positions: Positions) -> list[bytes]:
        return [row.tobytes() for row in self.columns(positions)]


class DealtAnswers:
    """Computes batches with what the coordinator deals.

    Args:
        session: this party's.
        form: of the model.
        masks: their seed, which the dealer knows, too.
        log: of what was opened.
    """

    def __init__(self, session: Session, form: AnswerForm, masks: Randomness, log: OpeningLog) -> None:
        dealer, channels, parties = session.coordinator, list(session.data_peers.values()), session.job.parties.data
        assert dealer is not None
        self.log, self._form, self._masks, self._dealer = log, form, masks, dealer
        self._place, self._count = parties.index(session.name), len(parties)
        self.wire = PairWire(self._place, channels[0]) if len(parties) == 2 else StarWire(self._place, channels)

    async def answer(
        self, terms: AnswerTerms, shares: Sequence[Ring], columns: NDArray[Any], offset: Ring | None, to: int
    ) -> Ring:
        """The low bits of a batch's scores, as :func:`~.answers.answer`."""
        context, corrections = answers.masks_of(terms), DealtCorrections(self._dealer)

        def check_opening(section: str, number: int, opened: Sequence[Ring]) -> None:
            self.log.check(f"{context} {section}", number, opened)

        party = Party(self._place, self._count, self._masks, self.wire, corrections, context, check_opening)
        await self._dealer.send(terms)
        low = await answers.answer(party, self._form, shares, len(columns), columns, offset, to)
        await corrections.finish()
        return low


class PairedAnswers:
    """Computes batches with what both parties make themselves.

    Args:
        pair: both, with their keys.
        form: of the model.
    """

    def __init__(self, pair: MetPair, form: AnswerForm) -> None:
        self.log, self._pair, self._form = pair.log, pair, form

    async def answer(
        self, terms: AnswerTerms, shares: Sequence[Ring], columns: NDArray[Any], offset: Ring | None, to: int
    ) -> Ring:
        """As :meth:`DealtAnswers.answer`."""
        pair, count = self._pair.change_context(bytes.fromhex(answers.masks_of(terms))), len(columns)
        rows = fill(count, size := tile_rows(count, max(self._form.widths)))
        whole = np.concatenate([columns, np.zeros((rows - count, columns.shape[1]), np.uint64)])
        held = pair.describe_columns(whole, rows, self._form.widths, size)
        await pair.swap_columns(held)
        unknown = [replace(matrix, part=None) for matrix in held]
        nothing = [np.zeros(shape, np.uint64) for shape in self._form.shapes]

        async def program(machine: ShareMachine) -> None:
            await answers.answer(machine, self._form, nothing, count, unknown, None, to, PairKit())

        party = pair.party(program)
        try:
            return await answers.answer(party, self._form, shares, count, held, offset, to, pair.kit)
        finally:
            pair.remove_ahead()


class AnswerExchange:
    """As :class:`vfl_node.training.prediction.exchange.Exchanging`.

    Args:
        session: this party's.
        trained: the job that trained the model.
        kept: this party's part of it.
        side: its columns.
        answering: computes a batch.
    """

    def __init__(
        self, session: Session, trained: Job, kept: KeptModel, side: ShareSide, answering: DealtAnswers | PairedAnswers
    ) -> None:
        self.side, self.asking = side, Asking.from_session(session)
        self._session, self._trained, self._train = session, trained, SharesConfig.section_of(trained)
        self._kept, self._answering = kept, answering
        self._parties, self._channels = session.job.parties, list(session.data_peers.values())
        self._place, self._asker = kept.stored.place, self._parties.data.index(str(session.job.asker))
        self._salt = session.randomness.derive("salt of answers").bytes(32)
        secret = bytes.fromhex(kept.stored.salt)
        self._mark_key, self._offset_key = (hashlib.sha256(use + secret).digest() for use in (b"marks", b"offsets"))
        self._guard: DisclosureGuard | None = None

    def use_guard(self, session: Session, side: ServiceSide, guard: DisclosureGuard) -> AnswerExchange:
        """Have ``guard`` count the rows of which the asker is told; returns itself."""
        self._guard = guard
        return self

    async def run(self, batches: Sequence[PredictionBatch]) -> list[Probabilities]:
        """Answer ``batches``; returns what the model says of each at the asker, nothing at another party.

        Raises:
            PolicyError: the asker would be told of more rows than this owner allows (``E_BUDGET``).
            ProtocolError: a message of another size, or contexts that differ (``E_COUNT``).
            StateError: another party sends other values than in an earlier attempt (``E_REPLAY``); no memory (``E_MEMORY``).
        """
        widths = self._kept.form.widths
        sizes = [len(_positions(batch)) for batch in batches]
        answers.check_memory(self._session, self._kept.form, max(sizes))
        contexts = await self._agree(batches)
        shapes = []
        for batch, rows, said in zip(batches, sizes, contexts, strict=True):
            commitments, digests = self._kept.stored.commitments, list(said.digests)
            context = answers.context_of(self._session.job, self._trained, batch.number, rows, widths, commitments, digests)
            shapes.append(AnswerTerms(rows=rows, widths=widths, context=context))
        low = [await self._answer(*each) for each in zip(batches, shapes, contexts, strict=True)]
        self._answering.log.keep()
        if self.asking.asker:
            return []
        form, target = self._kept.form, self._kept.stored.target
        return [answers.interpret(answers.read(bits, form), self._train, target) for bits in low]

    def join(self, parts: Sequence[Probabilities]) -> Probabilities:
        """The answers of all batches in one array."""
        return np.concatenate([np.empty((0, *self.side.terms.outputs)), *parts])

    async def _answer(self, batch: PredictionBatch, terms: AnswerTerms, said: AnswerContext) -> Ring:
        columns, offset = self.side.columns(_positions(batch)), None
        if self.asking.asker:
            own, outputs = self.side.own(_positions(batch)), self._kept.form.outputs
            offset = answers.offsets(self._offset_key, self._offset_names(batch, said), own, outputs)
        return await self._answering.answer(terms, self._kept.shares, columns, offset, self._asker)

    async def _agree(self, batches: Sequence[PredictionBatch]) -> list[AnswerContext]:
        """The digests of all for each batch; before anything else is sent of it, its rows are counted."""
        own = [self._inputs(batch) for batch in batches]
        if self._place == 0:
            contexts = [AnswerContext(digests=[inputs.digest], marks=inputs.marks) for inputs in own]
            for place, channel in enumerate(self._channels, 1):
                for context in contexts:
                    theirs = await channel.receive(AnswerInputs)
                    context.digests.append(theirs.digest)
                    if place == self._asker:
                        context.marks = theirs.marks
            self._admit(batches, contexts, self._channels[self._asker - 1].peer)
            for channel in self._channels:
                for context in contexts:
                    await channel.send(context)
            return contexts
        (active,) = self._channels
        for inputs in own:
            await active.send(inputs)
        contexts = [await active.receive(AnswerContext) for _ in batches]
        passed_on = [list(said.digests)[self._place : self._place + 1] for said in contexts]
        if passed_on != [[inputs.digest] for inputs in own]:
            raise ProtocolError(f"{active.peer} passes on another digest than this party's", code="E_COUNT")
        self._admit(batches, contexts, active.peer)
        return contexts

    def _inputs(self, batch: PredictionBatch) -> AnswerInputs:
        """What this party's values in a batch are made of.

        The asker of new records marks each row by a digest of record and columns: the same ones in every job, for by them the
        others count what it is told. Any other digest is salted for this job.
        """
        positions = _positions(batch)
        which = self.side.ids(positions) if batch.new else [position.tobytes() for position in positions.astype("<i8")]
        rows = [b"".join(row) for row in zip(self.side.own(positions), which, strict=True)]  # all own ones are equally long
        if batch.new and self._place == self._asker:
            marks = b"".join(blake2b(row, digest_size=MARK_BYTES, key=self._mark_key).digest() for row in rows)
            return AnswerInputs(digest=hashlib.sha256(marks).digest(), marks=marks)
        return AnswerInputs(digest=hashlib.sha256(self._salt + b"".join(hashlib.sha256(row).digest() for row in rows)).digest())

    def _names(self, batch: PredictionBatch, said: AnswerContext) -> Names:
        """Under which rows are counted at a party that does not ask, int64[B]."""
        if not batch.new:
            return _positions(batch)
        marks = np.frombuffer(said.marks, "<i8").astype(np.int64)[:, None]
        return names_of_new(self.side, _positions(batch), torch.from_numpy(marks))

    def _offset_names(self, batch: PredictionBatch, said: AnswerContext) -> Names:
        """What one offset belongs to.

        In a sum of columns times weights it is a record, whichever columns the asker brings and however it asks: its score
        then moves by what the asker knows, so another offset would only tell more of the rest.
        """
        return self._names(batch, said) if self._kept.form.follows_columns else names_of_new(self.side, _positions(batch), None)

    def _admit(self, batches: Sequence[PredictionBatch], contexts: Sequence[AnswerContext], peer: str) -> None:
        """Check what is agreed, and count the rows, unless this party asks itself."""
        outgoing = []
        for batch, said in zip(batches, contexts, strict=True):
            positions, digests = _positions(batch), list(said.digests)
            fits = (
                len(digests) == len(self._parties.data)
                and all(len(digest) == 32 for digest in digests)
                and len(said.marks) == (MARK_BYTES * len(positions) if batch.new else 0)
                and (not batch.new or digests[self._asker] == hashlib.sha256(said.marks).digest())
            )
            if not fits:
                raise ProtocolError(f"{peer} says what no batch of these predictions is made of", code="E_COUNT")
            names = self._names(batch, said)
            made_up = np.zeros(len(names), np.bool_)
            outgoing.append(OutgoingBatch(names, torch.zeros(len(names), 1), made_up, np.full(len(names), NOT_MINE)))
        if self.asking.asker:
            assert self._guard is not None
            self._guard.admit(outgoing)


def _positions(batch: PredictionBatch) -> Positions:
    assert batch.positions is not None  # every party has columns, so rows are named
    return batch.positions
