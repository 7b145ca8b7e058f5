"""Predictions by additive models, as a node runs them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from vfl_node.alignment.alignment import Alignment
from vfl_node.data.design import LinearEncoder
from vfl_node.data.tables import Table
from vfl_node.errors import UsageError
from vfl_node.job import Job
from vfl_node.ledger import Disclosure
from vfl_node.session.session import Session
from vfl_node.settings.declared import Declared
from vfl_node.training.additive.disclosures import learnt
from vfl_node.training.additive.half import AdditiveHalf
from vfl_node.training.additive.sides import PartOfScores, SumOfScores, terms_of
from vfl_node.training.service.known_records import serve
from vfl_node.training.service.new_records import predict_once
from vfl_node.training.serving import Answering, Predicted, RequestQueue, Served, ServiceTally, ShownRows, StoredModel


class AdditivePredictor(ABC):
    """The halves of an additive model, as a `Predictor`; a trainer says how its weights are opened."""

    defended: ClassVar[frozenset[str]] = frozenset()

    @abstractmethod
    def opened(self, model: StoredModel) -> AdditiveHalf:
        """One party's half. Raises StateError where it is damaged (``E_STATE_CORRUPT``)."""

    def check(self, model: StoredModel) -> None:
        """As the base: the weights must be those of the job's model."""
        terms_of(model, self.opened(model))

    def column_kinds(self, encoder: str) -> Mapping[str, Declared]:
        """As the base."""
        stored = LinearEncoder.from_json(encoder)
        return stored.written(stored.kinds)

    async def serve(
        self,
        session: Session,
        model: StoredModel,
        alignment: Alignment,
        table: Table,
        requests: RequestQueue | None,
        *,
        shown: ShownRows,
        tally: ServiceTally,
    ) -> Served:
        """As :func:`~vfl_node.training.service.known_records.serve`.

        Raises:
            UsageError: some party may not own a row (``E_PREDICT``): what is sent of it would show that.
        """
        if alignment.has_synthetic_rows:
            reason = "known records are predicted only where all parties have every one"
            raise UsageError(reason, code="E_PREDICT", for_peer=reason)
        return await serve(session, self._side(session, model, alignment, table), requests, shown=shown, tally=tally)

    async def predict_once(
        self, session: Session, model: StoredModel, alignment: Alignment, table: Table, *, shown: ShownRows
    ) -> Predicted | None:
        """As :func:`~vfl_node.training.service.new_records.predict_once`."""
        return await predict_once(session, self._side(session, model, alignment, table), shown=shown)

    def coordination(self, session: Session, trained: Job, tally: ServiceTally) -> Answering:
        """No coordinator takes part."""
        raise NotImplementedError

    def learnt(self, job: Job, exchanged: Served | Predicted) -> Mapping[str, tuple[Disclosure, ...]]:
        """As :func:`~vfl_node.training.additive.disclosures.learnt`."""
        return learnt(job, exchanged)

    def _side(self, session: Session, model: StoredModel, alignment: Alignment, table: Table) -> PartOfScores | SumOfScores:
        """This party's half, over the training's alignment or a new one."""
        side = SumOfScores if session.role == "active" else PartOfScores
        return side(model, self.opened(model), alignment, table)
