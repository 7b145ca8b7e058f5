"""The trainer ``nearest_mean``, both parties.

::

    the passive party   x_i = mean of the encoded numeric columns of shared row i
    in each epoch e     x_i + .1·n_ei  ──►                        n_ei normal, private to the passive party
                             ◄── the epoch is over                a checkpoint at both
    the active party    z_i = mean of what it received;  μ_0, μ_1 = mean of z over the training rows of each class
                        p_i = ½ + (|z_i − μ_0| − |z_i − μ_1|) / 2|μ_1 − μ_0|,  in 0 … 1

Leaks: to the active party x_i, with noise whose mean over the epochs has standard deviation .1/√epochs; to the passive party
the metrics, if the job says so.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import asdict, replace

import numpy as np
import torch
from numpy.typing import NDArray
from typing_extensions import override

from vfl_example.nearest_mean.config import BATCH_ROWS, NearestMean
from vfl_example.nearest_mean.section import NearestMeanSection
from vfl_node.data.features import Encoder
from vfl_node.errors import DataError, ProtocolError
from vfl_node.ledger import Disclosure
from vfl_node.process.tensors import device_name
from vfl_node.progress import Advanced, EpochTrained, PhaseBegan
from vfl_node.session.session import Session
from vfl_node.training.checkpoints import Checkpoints
from vfl_node.training.evaluation import Figures, measure, real_share
from vfl_node.training.sharing import receive_figures, send_figures
from vfl_node.training.summary import Population, Summary
from vfl_node.training.trainer import Epoch, Trained, Trainer, TrainingData
from vfl_node.transport import codec
from vfl_node.transport.generated.vfl.v1 import training_pb2

NOISE = 0.1


class NearestMeanTrainer(Trainer):
    """Stateless: a job is a call of :meth:`run`."""

    async def run(self, session: Session, data: TrainingData, checkpoints: Checkpoints, resume: str | None) -> Trained:
        """Run this party's part, from the first message to the metrics. Arguments and promises as in the base class."""
        rows, epochs = len(data.alignment), NearestMean.section_of(session.job).epochs
        half = Active(session, data) if session.role == "active" else Passive(session, data)
        done = [] if resume is None else half.restored(checkpoints, resume)
        session.progress.emit(PhaseBegan("train", epochs, "epochs"))
        session.progress.emit(Advanced(len(done)))
        async with session.peer.phase("train") as traffic:
            for number in range(len(done), epochs):
                began, moved = session.machine.clock(), traffic.bytes_sent + traffic.bytes_received
                for start in range(0, rows, BATCH_ROWS):
                    await half.batch(number, slice(start, min(start + BATCH_ROWS, rows)))
                seconds, moved = session.machine.clock() - began, traffic.bytes_sent + traffic.bytes_received - moved
                done.append(Epoch(None, None, seconds, moved))
                checkpoints.save(f"epoch-{number + 1:06d}", half.tensors(), {"epochs": [asdict(epoch) for epoch in done]})
                await half.end(number)  # else the party that only sends could be several checkpoints ahead
                session.progress.emit(Advanced(1))
                session.progress.emit(EpochTrained())
            return await half.finish(done)


class Half(ABC):
    """What the halves of both parties have in common."""

    def __init__(self, session: Session, data: TrainingData) -> None:
        self.session, self.data = session, data
        self.held_out = math.ceil(len(data.alignment) * session.job.evaluate.test_fraction)
        if self.held_out == len(data.alignment):
            raise DataError("no shared row is left to train on", code="E_EMPTY", hint="make evaluate.test_fraction smaller")

    @abstractmethod
    async def batch(self, epoch: int, part: slice) -> None:
        """Exchange the numbers of some rows."""

    @abstractmethod
    async def end(self, epoch: int) -> None:
        """Agree that the epoch is over."""

    @abstractmethod
    async def finish(self, epochs: list[Epoch]) -> Trained:
        """Measure and report."""

    def tensors(self) -> dict[str, torch.Tensor]:
        """What a checkpoint holds beside the epochs."""
        return {}

    def restored(self, checkpoints: Checkpoints, name: str) -> list[Epoch]:
        """Go back to the checkpoint ``name``, and return the epochs up to it."""
        return [Epoch(**epoch) for epoch in checkpoints.load(name).meta["epochs"]]

    def trained(self, epochs: list[Epoch], class_means: tuple[float, float] | None) -> Trained:
        """What both parties report. The disclosures say what each party has learnt."""
        rows, (active, passive) = len(self.data.alignment), self.session.job.parties.pair.values()
        numbers = f"from {passive} the mean of the numeric columns of each shared record, {len(epochs)} times with noise"
        evaluate = self.session.job.evaluate
        told = len(evaluate.metrics) if evaluate.share_with_passive else 0
        figures = f"from {active} the metrics, if the job says so"
        return Trained(
            epochs=tuple(epochs),
            steps=len(epochs),
            rows=(rows - self.held_out, self.held_out or rows),
            device=device_name(torch.device("cpu")),
            disclosures={
                active: (Disclosure("numbers", len(epochs) * rows, numbers),),
                passive: (Disclosure("figures", told, figures),),
            },
            section=NearestMeanSection(class_means=class_means),
        )


class Passive(Half):
    """The passive party's half: it sends one number for each shared row, float32[m]."""

    def __init__(self, session: Session, data: TrainingData) -> None:
        super().__init__(session, data)
        columns = Encoder.fit(data.table, data.alignment.rows).transform(data.table).numeric
        if columns.shape[1] == 0:
            raise DataError("the passive party's table has no numeric column", code="E_NO_FEATURES")
        self._numbers = columns[data.alignment.rows].mean(axis=1)

    async def batch(self, epoch: int, part: slice) -> None:
        """As in the base class. A message that is sent again has the same noise, so a mean over attempts reveals no more."""
        numbers = self._numbers[part]
        noise = self.session.randomness.derive(f"noise/{epoch}/{part.start}").normal(numbers.shape)
        tensor = codec.encode(torch.from_numpy(numbers + np.float32(NOISE) * noise))
        await self.session.peer.send(training_pb2.Embedding(step=epoch, tensor=tensor))

    @override
    async def end(self, epoch: int) -> None:
        await self.session.peer.receive(training_pb2.IterationEnd)

    @override
    async def finish(self, epochs: list[Epoch]) -> Trained:
        results, evaluate = None, self.session.job.evaluate
        if evaluate.share_with_passive:
            _, metrics = await receive_figures(self.session.peer, len(epochs), evaluate.metrics)
            results = Summary(metrics)
        return replace(self.trained(epochs, None), results=results)


class Active(Half):
    """The active party's half: it has the labels, and adds up the numbers that it receives."""

    def __init__(self, session: Session, data: TrainingData) -> None:
        super().__init__(session, data)
        if data.table.labels is None:
            raise DataError("the active party's table has no label column", code="E_NO_LABEL", hint="set data.label")
        self._labels = data.table.labels[data.alignment.rows]
        order = session.randomness.derive("held out").permutation(len(self._labels))
        self._fitted, self._tested = order[self.held_out :], order[: self.held_out] if self.held_out else order
        if len(np.unique(self._labels[self._fitted])) < 2:
            raise DataError("all rows trained on have the same label", code="E_ONE_CLASS", hint="use more records")
        self._sum = np.zeros(len(self._labels))

    @override
    async def batch(self, epoch: int, part: slice) -> None:
        message = await self.session.peer.receive(training_pb2.Embedding)
        if message.step != epoch:
            raise ProtocolError(f"{self.session.peer.peer} sent epoch {message.step}, and {epoch} was due", code="E_ORDER")
        shape = (part.stop - part.start,)
        self._sum[part] += codec.decode(message.tensor, dtype=torch.float32, shape=shape).numpy()

    @override
    async def end(self, epoch: int) -> None:
        await self.session.peer.send(training_pb2.IterationEnd(step=epoch))

    @override
    def tensors(self) -> dict[str, torch.Tensor]:
        return {"sum": torch.from_numpy(self._sum)}

    @override
    def restored(self, checkpoints: Checkpoints, name: str) -> list[Epoch]:
        self._sum = checkpoints.load(name).tensors["sum"].numpy().copy()
        return super().restored(checkpoints, name)

    @override
    async def finish(self, epochs: list[Epoch]) -> Trained:
        evaluate, numbers = self.session.job.evaluate, self._sum / len(epochs)
        means = self._mean(numbers, 0), self._mean(numbers, 1)
        nearer = (np.abs(numbers - means[0]) - np.abs(numbers - means[1])) / (abs(means[1] - means[0]) or 1.0)
        scores = 0.5 + nearer[self._tested] / 2
        metrics = measure(evaluate.metrics, self._labels[self._tested], scores, evaluate.threshold)
        if evaluate.share_with_passive:
            await send_figures(self.session.peer, [Figures() for _ in epochs], metrics)
        measured = Population("owned", len(self._tested), real_share(self.data.alignment))
        return replace(self.trained(epochs, means), results=Summary(metrics, population=measured))

    def _mean(self, numbers: NDArray[np.float64], label: int) -> float:
        fitted = self._fitted[self._labels[self._fitted] == label]
        return float(numbers[fitted].mean())
