"""Predictions by a model whose weights stay in shares: between nodes, and in one place for a trial; and what each party learns.

::

    commitments of all to their shares                             once, when predictions begin
    digests of everybody's columns in the batch → its context      for each batch
    its shape and context to the coordinator
    the computation (answers.py)

The party that asks gets scores, 9 bits each however often it asks, and makes of them what they say. Nobody else gets a number
of any row.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import ClassVar

from vfl_node.alignment.alignment import Alignment
from vfl_node.crypto.kernels import lattice_kernel
from vfl_node.crypto.lattice.flooding import LIMIT, log2_distance
from vfl_node.crypto.lattice.parameters import LINEAR
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.tables import Table
from vfl_node.errors import ProtocolError, UsageError
from vfl_node.job import Job
from vfl_node.ledger import Disclosure
from vfl_node.session.counted import served_model
from vfl_node.session.openings import OpeningLog
from vfl_node.session.session import Session
from vfl_node.settings.declared import Declared
from vfl_node.training.prediction.disclosures import requests as asked_for
from vfl_node.training.prediction.known_records import check_all_shared, predict_known
from vfl_node.training.prediction.new_records import predict_new
from vfl_node.training.predictor import (
    Predicted,
    RequestQueue,
    ServiceCount,
    ServiceTally,
    ShownRows,
    StoredModel,
    check_allowed,
)
from vfl_node.training.shares import agreement
from vfl_node.training.shares.config import SharesConfig
from vfl_node.training.shares.deviating import PREDICTIONS, disclose_deviating
from vfl_node.training.shares.kept import AnswerForm, KeptModel
from vfl_node.training.shares.pair import meet_pair
from vfl_node.training.shares.prediction.dealing import AnswerDealing
from vfl_node.training.shares.prediction.exchange import AnswerExchange, DealtAnswers, PairedAnswers, ShareSide
from vfl_node.transport.generated.vfl.v1.shares_pb2 import AnswerTerms, DealerSeed


class SharesPredictor(ABC):
    """Predictions between nodes, as a `Predictor`."""

    defended: ClassVar[frozenset[str]] = frozenset()

    @abstractmethod
    def kept(self, model: StoredModel) -> KeptModel:
        """What a party has stored.

        Raises:
            StateError: it is not what a training of this job stores, or the shares are no longer those that this party has
                committed itself to (``E_STATE_CORRUPT``); another version stored it (``E_STATE_VERSION``).
        """

    @abstractmethod
    def form(self, trained: Job, widths: Sequence[int]) -> AnswerForm:
        """What is public of a model that a job has trained."""

    @abstractmethod
    def column_kinds(self, encoder: str) -> Mapping[str, Declared]:
        """Column → kind, of those that the encoder reads."""

    def check(self, model: StoredModel) -> None:
        """As the base: the shares must be those that the training has left, and without a coordinator lattices compiled."""
        self.kept(model)
        if not SharesConfig.section_of(model.job).coordinated:
            lattice_kernel()

    async def predict_known(
        self,
        session: Session,
        model: StoredModel,
        alignment: Alignment,
        table: Table,
        requests: RequestQueue | None,
        *,
        shown: ShownRows,
        tally: ServiceTally,
    ) -> ServiceCount:
        """As :func:`~vfl_node.training.prediction.known_records.predict_known`.

        Raises:
            UsageError: some party may not own a row (``E_PREDICT``): its prediction would show that.
            PolicyError: the asker would get answers of more models than this owner allows (``E_BUDGET``).
            StateError: the shares of some party have changed (``E_STATE_CORRUPT``).
        """
        check_all_shared(alignment)
        async with _exchange(session, model, self.kept(model), alignment, table) as exchange:
            return await predict_known(session, exchange.side, requests, shown=shown, tally=tally, exchange=exchange.use_guard)

    async def predict_new(
        self, session: Session, model: StoredModel, alignment: Alignment, table: Table, *, shown: ShownRows
    ) -> Predicted | None:
        """As :func:`~vfl_node.training.prediction.new_records.predict_new`; raises as :meth:`predict_known`."""
        async with _exchange(session, model, self.kept(model), alignment, table) as exchange:
            return await predict_new(session, exchange.side, shown=shown, exchange=exchange.use_guard)

    def coordination(self, session: Session, trained: Job, tally: ServiceTally) -> AnswerDealing:
        """The coordinator deals."""
        return AnswerDealing(session, trained, self.form, tally)

    def learnt(self, job: Job, exchanged: ServiceCount | Predicted) -> Mapping[str, tuple[Disclosure, ...]]:
        """As :func:`learnt`."""
        return learnt(job, exchanged)


def check_flood(form: AnswerForm) -> None:
    """Refuse a model of so many columns that noise would not hide what :data:`MOST_SCORES` scores tell of its weights.

    Raises:
        UsageError: it has (``E_PREDICT``).
    """
    if log2_distance(LINEAR, max(form.widths), MOST_SCORES * form.outputs) > LIMIT:
        raise UsageError(
            f"a model of {max(form.widths):,} columns of a party is too wide for predictions without a coordinator",
            code="E_PREDICT",
            hint="train on fewer columns, or with randomness: coordinator",
        )


MOST_SCORES = 1 << 28
"""Rows that a job of predictions without a coordinator may have."""


@asynccontextmanager
async def _exchange(
    session: Session, model: StoredModel, kept: KeptModel, alignment: Alignment, table: Table
) -> AsyncIterator[AnswerExchange]:
    """What answers batches with a party's part of a model, once all parties' shares are known to be those of the training."""
    job, dealer = session.job, session.coordinator
    assert job.predict is not None
    check_allowed(job, model.job.serve)
    if session.name != job.asker:
        counted = served_model(model.table, job.predict.model, session.policy.limits.budgets.models_served)
        session.memories[str(job.asker)].count(counted)
    agreement.check_tables()
    side = ShareSide(model, kept, alignment, table)
    async with session.phase("shares"):
        await kept.compare(session)
    if dealer is None:
        check_flood(kept.form)
        context = hashlib.sha256(f"answers {job.digest()} {' '.join(kept.stored.commitments)}".encode()).digest()
        async with AsyncExitStack() as met:
            async with session.phase("keys"):
                pair = await met.enter_async_context(meet_pair(session, context, hashlib.sha256(b"zero" + context).digest()))
            yield AnswerExchange(session, model.job, kept, side, PairedAnswers(pair, kept.form))
        return
    async with dealer.phase("deal"):
        masks = (await dealer.receive(DealerSeed)).seed
        if len(masks) != agreement.DIGEST_BYTES:
            raise ProtocolError(f"{dealer.peer} sent a seed of {len(masks)} bytes", code="E_COUNT")
        digest = hashlib.sha256(masks).digest()
        session.attempt.pins.check(f"masks of {dealer.peer}", digest)
        log = OpeningLog(session.attempt.folder / "openings", digest)
        try:
            yield AnswerExchange(session, model.job, kept, side, DealtAnswers(session, kept.form, Randomness(masks), log))
        finally:
            log.close()
        await dealer.send(AnswerTerms())


def learnt(job: Job, exchanged: ServiceCount | Predicted) -> Mapping[str, tuple[Disclosure, ...]]:
    """Party → what it learnt; the coordinator, too."""
    parties, asker = job.parties, str(job.asker)
    masked = Disclosure(
        "masked values", None, "columns and scores of the others, each under a mask of its own: uniform numbers"
    )
    if isinstance(exchanged, Predicted):
        rows, which = exchanged.shared, f"each record that {'all' if len(parties.passive) > 1 else 'both'} have"
        about = Disclosure(
            "requests",
            rows,
            f"that {asker} has these records predicted, and which of them it has asked for before with the same columns",
        )
        told = "how many records are predicted, and when"
    else:
        rows, which = exchanged.rows * exchanged.batches, "each row of the batches asked for"
        about, told = asked_for(asker, exchanged), "how many batches are asked for, and when"
    scores = Disclosure(
        "scores",
        rows,
        f"of {which} the score rounded to 9 bits for each output of the model, however often it is asked: minus the asker's "
        "own part that is an equation for the columns of the others in this record. Each further model gives another equation "
        "(budgets.models_served). "
        "From enough answers the weights can be computed",
    )
    entries = {name: [masked, scores if name == asker else about] for name in parties.data}
    if not parties.coordinator:
        for name, learnt_by in entries.items():
            learnt_by += disclose_deviating(parties.others(name), rows, PREDICTIONS)
    dealer = Disclosure(
        "shapes",
        rows,
        f"{told}, how many columns each party has, and when one of them restarts. No other number that it gets depends on "
        "data; but it knows every mask, so with what one data party receives it knows everything",
    )
    said = {name: tuple(learnt_by) for name, learnt_by in entries.items()}
    return {**said, **({parties.coordinator: (dealer,)} if parties.coordinator else {})}
