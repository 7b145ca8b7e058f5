"""Predictions by split networks, as a node runs them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from vfl_node.alignment.alignment import Alignment
from vfl_node.data.tables import Table
from vfl_node.job import Job
from vfl_node.ledger import Disclosure
from vfl_node.session.session import Session
from vfl_node.settings.declared import Declared
from vfl_node.training.service.known_records import serve
from vfl_node.training.service.new_records import predict_once
from vfl_node.training.serving import Predicted, RequestQueue, Served, ServiceTally, ShownRows, StoredModel
from vfl_node.training.split.serving.disclosures import learnt
from vfl_node.training.split.serving.served_model import ServedModel, column_kinds
from vfl_node.training.split.serving.sides import Embedder, Scorer


class SplitPredictor:
    """The halves of a split network (:mod:`vfl_node.training.split.serving`), as a `Predictor`."""

    defended: ClassVar[frozenset[str]] = frozenset({"embeddings"})

    def check(self, model: StoredModel) -> None:
        """As the base: the networks must be those that were trained."""
        ServedModel.of(model).architecture  # noqa: B018 - raises where this node can no longer build it

    def column_kinds(self, encoder: str) -> Mapping[str, Declared]:
        """As :func:`~vfl_node.training.split.serving.served_model.column_kinds`."""
        return column_kinds(encoder)

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
        """As :func:`~vfl_node.training.service.known_records.serve`."""
        return await serve(session, _side(session, model, alignment, table), requests, shown=shown, tally=tally)

    async def predict_once(
        self, session: Session, model: StoredModel, alignment: Alignment, table: Table, *, shown: ShownRows
    ) -> Predicted | None:
        """As :func:`~vfl_node.training.service.new_records.predict_once`."""
        return await predict_once(session, _side(session, model, alignment, table), shown=shown)

    def learnt(self, job: Job, exchanged: Served | Predicted) -> Mapping[str, tuple[Disclosure, ...]]:
        """As :func:`~vfl_node.training.split.serving.disclosures.learnt`."""
        return learnt(job, exchanged)


def _side(session: Session, model: StoredModel, alignment: Alignment, table: Table) -> Embedder | Scorer:
    """This party's half of a trained model, over the training's alignment or a new one."""
    served_model = ServedModel.of(model)
    if session.role == "active":
        return Scorer(served_model, alignment, table, session.machine.device)
    return Embedder(served_model, alignment, table, session.machine.device, session.policy.protection.defences)
