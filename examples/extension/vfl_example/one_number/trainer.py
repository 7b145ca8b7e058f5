"""The trainer ``one_number``: the passive party sends the mean of its columns, the active party fits a line through it."""

from __future__ import annotations

import numpy as np
import torch

from vfl_example.one_number.config import OneNumber
from vfl_example.one_number.section import OneNumberSection
from vfl_node.data.features import Encoder
from vfl_node.errors import DataError
from vfl_node.ledger import Disclosure
from vfl_node.session.session import Session
from vfl_node.training.checkpoints import Checkpoints
from vfl_node.training.evaluation import measure
from vfl_node.training.sharing import receive_figures, send_figures
from vfl_node.training.trainer import Coordination, Trained, TrainingData, device_name
from vfl_node.transport import codec
from vfl_node.transport.generated.vfl.v1 import training_pb2


class OneNumberTrainer:
    """A :class:`~vfl_node.training.trainer.Trainer`."""

    def prepare(self, session: Session) -> None:
        """Any machine can run it."""

    async def run(self, session: Session, data: TrainingData, checkpoints: Checkpoints, resume: str | None) -> Trained:
        """Train with the other party. It is over in one message, so there is nothing to save.

        Leaks: to the active party one number of each shared record.
        """
        async with session.peer.phase("train"):
            return await (active if session.role == "active" else passive)(session, data)

    def coordination(self, session: Session) -> Coordination:
        """There is none."""
        raise NotImplementedError("one_number has no coordinator")


async def passive(session: Session, data: TrainingData) -> Trained:
    """Send the mean of the encoded numeric columns of each shared row, float32[m]."""
    columns = Encoder.fit(data.table, data.alignment.rows).transform(data.table).numeric
    if columns.shape[1] == 0:
        raise DataError("the passive party's table has no numeric column", code="E_NO_FEATURES")
    numbers = torch.from_numpy(columns[data.alignment.rows].mean(axis=1))
    await session.peer.send(training_pb2.Embedding(tensor=codec.encode(numbers)))
    metrics = None
    if session.job.evaluate.share_with_passive:
        _, metrics = await receive_figures(session.peer, 0, session.job.evaluate.metrics)
    return trained(session, session.peer.peer, session.name, (len(numbers), 0), None, metrics)


async def active(session: Session, data: TrainingData) -> Trained:
    """Fit label = intercept + slope · number over the rows trained on, and measure on the others."""
    job, rows = session.job, data.alignment.rows
    assert data.table.labels is not None
    labels = data.table.labels[rows]
    message = (await session.peer.receive(training_pb2.Embedding)).tensor
    numbers = codec.decode(message, dtype=torch.float32, shape=(len(rows),)).numpy().astype(np.float64)
    order = session.randomness.derive("held out").permutation(len(rows))
    tested, fitted = np.split(order, [int(len(rows) * job.evaluate.test_fraction)])
    x, y = numbers[fitted], labels[fitted]
    slope = float(np.mean((x - x.mean()) * (y - y.mean())) / (x.var() + OneNumber.of(job).ridge))
    scores = y.mean() + slope * (numbers - x.mean())
    metrics = measure(job.evaluate.metrics, labels[tested], scores[tested])
    if job.evaluate.share_with_passive:
        await send_figures(session.peer, [], metrics)
    return trained(session, session.name, session.peer.peer, (len(fitted), len(tested)), slope, metrics)


def trained(
    session: Session,
    active: str,
    passive: str,
    rows: tuple[int, int],
    slope: float | None,
    metrics: dict[str, float | None] | None,
) -> Trained:
    """The result of either party. The ledger names what each one has learnt."""
    numbers = Disclosure("numbers", sum(rows), f"from {passive} the mean of the columns of each shared record")
    figures = Disclosure("figures", 0, f"from {active} at most the metrics, if the job says so")
    return Trained(
        epochs=(),
        steps=1,
        rows=rows,
        device=device_name(torch.device("cpu")),
        disclosures={active: (numbers,), passive: (figures,)},
        section=OneNumberSection(slope=slope),
        metrics=metrics,
    )
