"""Predictions by additive models, as a node runs them, and what each party learns from them, in words."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from vfl_node.alignment.alignment import Alignment
from vfl_node.data.design import LinearEncoder
from vfl_node.data.tables import Table
from vfl_node.job import Job
from vfl_node.ledger import Disclosure
from vfl_node.session.session import Session
from vfl_node.settings.declared import Declared
from vfl_node.training.additive.half import AdditiveHalf
from vfl_node.training.additive.sides import PartOfScores, SumOfScores, terms_of
from vfl_node.training.prediction import disclosures
from vfl_node.training.prediction.disclosures import RowsTold
from vfl_node.training.prediction.known_records import check_all_shared, predict_known
from vfl_node.training.prediction.new_records import predict_new
from vfl_node.training.predictor import Answering, Predicted, RequestQueue, ServiceCount, ServiceTally, ShownRows, StoredModel

SOLVED = (
    "; without hidden layers, a probability gives the score, and minus the asker's own part that is a linear function of the "
    "columns of the others, whose weights follow from rows with known columns"
)


class AdditivePredictor(ABC):
    """The halves of an additive model, as a `Predictor`; a trainer says how its weights are opened."""

    defended: ClassVar[frozenset[str]] = frozenset()

    @abstractmethod
    def open_half(self, model: StoredModel) -> AdditiveHalf:
        """One party's half. Raises StateError where it is damaged (``E_STATE_CORRUPT``)."""

    def check(self, model: StoredModel) -> None:
        """As the base: the weights must be those of the job's model."""
        terms_of(model, self.open_half(model))

    def column_kinds(self, encoder: str) -> Mapping[str, Declared]:
        """Column → its kind, of the columns that a stored ``encoder`` reads."""
        stored = LinearEncoder.from_json(encoder)
        return stored.declare(stored.kinds)

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
            UsageError: some party may not own a row (``E_PREDICT``): what is sent of it would show that.
        """
        check_all_shared(alignment)
        return await predict_known(session, self._side(session, model, alignment, table), requests, shown=shown, tally=tally)

    async def predict_new(
        self, session: Session, model: StoredModel, alignment: Alignment, table: Table, *, shown: ShownRows
    ) -> Predicted | None:
        """As :func:`~vfl_node.training.prediction.new_records.predict_new`."""
        return await predict_new(session, self._side(session, model, alignment, table), shown=shown)

    def coordination(self, session: Session, trained: Job, tally: ServiceTally) -> Answering:
        """No coordinator takes part."""
        raise NotImplementedError

    def learnt(self, job: Job, exchanged: ServiceCount | Predicted) -> Mapping[str, tuple[Disclosure, ...]]:
        """As :func:`vfl_node.training.prediction.disclosures.learnt`."""
        return learnt(job, exchanged)

    def _side(self, session: Session, model: StoredModel, alignment: Alignment, table: Table) -> PartOfScores | SumOfScores:
        """This party's half, over the training's alignment or a new one."""
        side = SumOfScores if session.role == "active" else PartOfScores
        return side(model, self.open_half(model), alignment, table)


def learnt(job: Job, exchanged: ServiceCount | Predicted) -> Mapping[str, tuple[Disclosure, ...]]:
    """As :func:`vfl_node.training.prediction.disclosures.learnt`."""
    return disclosures.learnt(job, exchanged, _part, solved=SOLVED)


def _part(party: str, rows: RowsTold) -> Disclosure:
    return Disclosure(
        "partial scores",
        rows.count,
        f"from {party} its partial scores of {rows.which}: a linear function of {party}'s columns, one number for each unit of "
        f"the first layer, or without hidden layers for each output. Whoever knows the columns of as many rows as {party} has "
        f"columns can compute its weights. If there are as many numbers as {party} has columns, or more, the columns of all "
        "other rows follow, too (see docs/guides/give-predictions.md)",
    )
