"""The trainer and its predictions: the active party sends the share of labels 1 to whoever asks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch

from vfl_node.alignment.alignment import Alignment
from vfl_node.data.features import Encoder
from vfl_node.data.tables import Table
from vfl_node.job import Job
from vfl_node.ledger import Disclosure
from vfl_node.session.session import Session
from vfl_node.settings.declared import Kind
from vfl_node.training.checkpoints import Checkpoints
from vfl_node.training.predictor import Predicted, RequestQueue, ServiceCount, ServiceTally, ShownRows, StoredModel
from vfl_node.training.section import TrainerSection
from vfl_node.training.trainer import Coordination, Servable, Trained, TrainingData
from vfl_node.transport.generated.vfl.v1 import prediction_pb2

NO_ROWS = np.empty(0, dtype=np.int64)


class ConstantTrainer:
    """A :class:`~vfl_node.training.trainer.Trainer`."""

    def prepare(self, session: Session) -> None:
        """Any machine can run it."""

    async def run(self, session: Session, data: TrainingData, checkpoints: Checkpoints, resume: str | None) -> Trained:
        """The active party counts; nothing is sent."""
        labels, rows = data.table.labels, data.alignment.rows[data.alignment.owned]
        share = 0.0 if labels is None else float(labels[rows].mean())
        async with session.peer.phase("train"):
            pass
        return Trained(
            epochs=(),
            steps=1,
            rows=(len(data.alignment), 0),
            device="cpu",
            disclosures=dict.fromkeys(session.job.parties.all, ()),
            section=TrainerSection(),
            weights={"share": torch.tensor([share], dtype=torch.float64)},
            encoder=Encoder.fit(data.table, rows).to_json(),
            servable=Servable("{}", NO_ROWS),
        )

    def coordination(self, session: Session) -> Coordination:
        """There is none."""
        raise NotImplementedError


class ConstantPredictor:
    """A :class:`~vfl_node.training.predictor.Predictor`."""

    defended: ClassVar[frozenset[str]] = frozenset()

    def check(self, model: StoredModel) -> None:
        """Every model will do."""

    def column_kinds(self, encoder: str) -> Mapping[str, Kind]:
        """No column is read."""
        return {}

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
        """One answer for each request."""
        served = tally.read() or ServiceCount(rows=1)
        async with session.peer.phase("predict"):
            while requests is None or not requests.closed:
                if requests is None and (await session.peer.receive(prediction_pb2.PredictionAsk)).done:
                    return served
                request = requests.take() if requests else None
                if requests and request is None:
                    await session.peer.pause()
                    continue
                served.batches += 1
                if request:
                    await session.peer.send(prediction_pb2.PredictionAsk(unnamed=1))
                    request.answer(np.full(len(request.table), await share_of(session, model)))
                    served.requests += 1
                else:
                    await share_of(session, model)
                tally.write(served)
            await session.peer.send(prediction_pb2.PredictionAsk(done=True))
        return served

    async def predict_new(
        self, session: Session, model: StoredModel, alignment: Alignment, table: Table, *, shown: ShownRows
    ) -> Predicted | None:
        """The share for every shared record."""
        async with session.peer.phase("predict"):
            share = await share_of(session, model)
        if session.name != session.job.asker:
            return None
        return Predicted(np.sort(alignment.rows), np.full(len(alignment), share), len(alignment))

    def learnt(self, job: Job, exchanged: ServiceCount | Predicted) -> Mapping[str, tuple[Disclosure, ...]]:
        """The share of labels 1, if the passive party asks."""
        active, asker = job.parties.active, job.asker
        share = Disclosure("predictions", 1, f"from {active} the share of labels 1")
        return {name: (share,) if name == asker != active else () for name in job.parties.data}


async def share_of(session: Session, model: StoredModel) -> float:
    """The share of labels 1; the active party sends it if the other one asks."""
    own = float(model.weights["share"][0])
    if session.job.asker == session.job.parties.active:
        return own
    if session.role == "active":
        await session.peer.send(prediction_pb2.Probabilities(values=np.array([own]).tobytes()))
        return own
    return float(np.frombuffer((await session.peer.receive(prediction_pb2.Probabilities)).values)[0])
