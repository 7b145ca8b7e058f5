"""Predictions by split networks, as a node runs them, and what each party learns from them, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from vfl_node.alignment.alignment import Alignment
from vfl_node.data.tables import Table
from vfl_node.job import Job
from vfl_node.ledger import Disclosure
from vfl_node.session.session import Session
from vfl_node.settings.declared import Declared
from vfl_node.training.prediction import disclosures
from vfl_node.training.prediction.disclosures import RowsTold
from vfl_node.training.prediction.known_records import predict_known
from vfl_node.training.prediction.new_records import predict_new
from vfl_node.training.predictor import Predicted, RequestQueue, ServiceCount, ServiceTally, ShownRows, StoredModel
from vfl_node.training.split.prediction.model import SplitModel, column_kinds, row_numbers
from vfl_node.training.split.prediction.sides import Embedder, Scorer


class SplitPredictor:
    """The halves of a split network (:mod:`vfl_node.training.split.prediction`), as a `Predictor`."""

    defended: ClassVar[frozenset[str]] = frozenset({"embeddings"})

    def check(self, model: StoredModel) -> None:
        """As the base: the networks must be those that were trained."""
        SplitModel.load(model).architecture  # noqa: B018 - raises where this node can no longer build it

    def column_kinds(self, encoder: str) -> Mapping[str, Declared]:
        """As :func:`~vfl_node.training.split.prediction.model.column_kinds`."""
        return column_kinds(encoder)

    def row_numbers(self, state: str) -> Mapping[str, str]:
        """As :func:`~vfl_node.training.split.prediction.model.row_numbers`."""
        return row_numbers(state)

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
        """As :func:`~vfl_node.training.prediction.known_records.predict_known`."""
        return await predict_known(session, _side(session, model, alignment, table), requests, shown=shown, tally=tally)

    async def predict_new(
        self, session: Session, model: StoredModel, alignment: Alignment, table: Table, *, shown: ShownRows
    ) -> Predicted | None:
        """As :func:`~vfl_node.training.prediction.new_records.predict_new`."""
        return await predict_new(session, _side(session, model, alignment, table), shown=shown)

    def learnt(self, job: Job, exchanged: ServiceCount | Predicted) -> Mapping[str, tuple[Disclosure, ...]]:
        """As :func:`vfl_node.training.prediction.disclosures.learnt`."""
        return learnt(job, exchanged)


def _side(session: Session, model: StoredModel, alignment: Alignment, table: Table) -> Embedder | Scorer:
    """This party's half of a trained model, over the training's alignment or a new one."""
    own = SplitModel.load(model)
    if session.role == "active":
        return Scorer(own, alignment, table, session.machine.device)
    return Embedder(own, alignment, table, session.machine.device, session.policy.protection.defences)


def learnt(job: Job, exchanged: ServiceCount | Predicted) -> Mapping[str, tuple[Disclosure, ...]]:
    """As :func:`vfl_node.training.prediction.disclosures.learnt`."""
    return disclosures.learnt(job, exchanged, _embedding)


def _embedding(party: str, rows: RowsTold) -> Disclosure:
    besides = "" if rows.of_all else ", and for shared rows which are not its own, as in training"
    return Disclosure(
        "embeddings",
        rows.count,
        f"from {party} an embedding of {rows.which}: values of {party}'s columns can be inferred from them in part{besides} "
        "(see docs/explanations/privacy/index.md)",
    )
