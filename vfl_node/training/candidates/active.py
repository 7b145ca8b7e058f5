"""The active party's half: everything above the cut layer of the passive one; labels, loss and metrics.

Leaks: the gradient of a candidate's embedding tells the passive party about labels and similarities of the rows beside which it
stands, summed over these; see disclosures.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vfl_node.data.features import Encoder
from vfl_node.errors import DataError, ProtocolError
from vfl_node.metrics.numbers import spearman
from vfl_node.models.storage import take_part
from vfl_node.privacy.attachment import Attachment
from vfl_node.process import failpoints
from vfl_node.session.session import Session
from vfl_node.training import boosted_tree
from vfl_node.training.candidates.config import Linked
from vfl_node.training.candidates.halves import Crossed
from vfl_node.training.candidates.network import ActiveNetwork
from vfl_node.training.evaluation import Evaluation, Figures, assess, measure
from vfl_node.training.messages import check_step, decode_tensor
from vfl_node.training.network.alone import logits_alone
from vfl_node.training.network.half import Defended, ForwardPass, Positions, RepeatStart, learner
from vfl_node.training.network.local import check_finite
from vfl_node.training.network.positioned_input import PositionedInput
from vfl_node.training.network.tasks import Numbers, task_of
from vfl_node.training.own_rows import OwnRows
from vfl_node.training.trainer import TrainingData
from vfl_node.training.unaligned.pretraining import Pretraining
from vfl_node.transport import codec
from vfl_node.transport.generated.vfl.v1 import training_pb2


class LinkedActive:
    """All above the passive party's cut layer. Args as :data:`vfl_node.training.network.loop.HalfOf`."""

    attachments: Sequence[Attachment] = ()
    pretraining: Pretraining | None = None

    def __init__(self, session: Session, data: TrainingData, start: RepeatStart) -> None:
        if data.table.labels is None:
            raise DataError("the active party's table has no label column", code="E_NO_LABEL", hint="set data.label")
        self._session, self._data, self._validation = session, data, start.validation
        randomness, repeat, training, saved = start.randomness, start.number, start.training, start.saved
        self._train, self._evaluate = Linked.section_of(session.job), session.job.evaluate
        rows = data.alignment.rows
        similarities = data.alignment.similarities
        assert similarities is not None
        self._similarities = torch.from_numpy(similarities).to(session.machine.device)  # (m, K)
        self._labels = data.table.labels[rows]
        self._task = task_of(self._train, self._labels[training])
        self._targets = self._task.targets(self._labels).to(session.machine.device)
        encoder = Encoder.fit(data.table, rows[training], self._train.scaling, self._train.least_rows)
        self.encoder = encoder.to_json()
        self._inputs = PositionedInput.from_features(encoder.transform(data.table), rows, session.machine.device)
        self._model = ActiveNetwork(self._train, self._inputs.schema, similarities[training])
        self.learner = learner(self._model, session, randomness, repeat)
        self._crossed = Crossed()
        if saved is not None:
            self.learner.restore(saved)
            self._crossed = Crossed.from_tensors(take_part("crossed", saved))
        self._private = randomness.derive(f"alone/{repeat}")
        self._resampling = randomness.derive(f"resampling/{repeat}")
        self._met: list[tuple[Positions, Tensor, float]] = []
        """Positions, logits and loss of each batch since figures were taken."""
        self._ranks = repeat == 0 and "auc" in self._evaluate.metrics  # only the first repeat's epochs are reported
        self._found: dict[str, Any] = {}

    def expect(self, positions: Positions) -> None:
        """As :meth:`Half.expect`: nothing is looked up."""

    async def step(self, number: int, positions: Positions) -> None:
        """As :meth:`Half.step`."""
        embeddings, index = await self._receive(number, positions)
        embeddings.requires_grad_()
        self.learner.begin(number)
        logits = self._logits_of(positions, embeddings, index)
        loss = self._loss(logits, self._targets[torch.from_numpy(positions)])
        check_finite(loss).backward()  # type: ignore[no-untyped-call]
        assert embeddings.grad is not None
        message = training_pb2.Gradient(step=number)
        codec.encode(check_finite(embeddings.grad), message.tensor)
        failpoints.reach("backward")
        await self._session.peer.send(message)
        self._crossed.gradients += len(embeddings)
        self.learner.step()
        self._met.append((positions, logits.detach(), loss.item()))

    def defence_figures(self) -> Defended:
        """As :meth:`Half.defence_figures`: nothing."""
        return Defended()

    def figures(self) -> Figures:
        """As :meth:`Half.figures`."""
        batches, logits, losses = zip(*self._met, strict=True)
        self._met = []
        positions = np.concatenate(batches)
        loss = sum(loss * len(batch) for batch, loss in zip(batches, losses, strict=True)) / len(positions)
        if not self._ranks:
            return Figures(loss)
        return Figures(loss, measure(("auc",), self._labels[positions], self._scores_of(torch.cat(logits)))["auc"])

    async def validate(self, rows: ForwardPass) -> Figures:
        """As :meth:`Half.validate`."""
        scores, labels = self._scores_of(await self._forward(rows)), self._labels[np.concatenate(rows.batches)]
        auc = measure(("auc",), labels, scores)["auc"] if self._ranks else None
        return Figures(validation_loss=self._task.mean_loss(labels, scores), validation_auc=auc)

    async def evaluate(self, rows: ForwardPass, validated: ForwardPass | None = None) -> Evaluation:
        """As :meth:`Half.evaluate`; the model of this party alone, and the tree, are FedSim's Solo."""
        logits, held_out = await self._forward(rows), np.concatenate(rows.batches)
        labels, table = self._labels[held_out], self._data.table
        self._found = {"pairs": self._pair_metrics(logits, labels), "spearman": self._rank_correlation(held_out)}
        apart = self._evaluate.test_fraction > 0
        own = OwnRows.select(self._data.alignment, held_out, held_out=apart, records=len(table), validation=self._validation)
        alone = logits_alone(self._session, self._data, own, self._task, self._private.derive("network"))
        return assess(
            self._evaluate,
            labels,
            self._task.output(self._scores_of(logits)),
            None if alone is None else self._task.output(self._task.plain_scores(alone)),
            self._task.constant(len(labels)),
            self._resampling,
            rival=boosted_tree.train(self._session, self._data, own, self._private.derive("tree")),
        )

    def tensors(self) -> dict[str, Tensor]:
        """As :meth:`Half.tensors`."""
        return {**self.learner.tensors(), **self._crossed.tensors()}

    def weights(self) -> dict[str, Tensor]:
        """As :meth:`Half.weights`."""
        return self.learner.weights()

    def go_back(self, weights: Mapping[str, Tensor]) -> None:
        """As :meth:`Half.go_back`."""
        self.learner.go_back(weights)

    def scoring(self) -> dict[str, Any]:
        """As :meth:`Half.scoring`: what has crossed, and what was found on the held-out rows beside metrics."""
        return {**self._crossed.to_json(), **self._found}

    def _loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The mean over rows, or over pairs where each is a sample: logits [B], [B, C], [B, K] or [B, K, C]."""
        if self._train.how.each:
            targets = targets.repeat_interleave(logits.shape[1], dim=0)
            logits = logits.flatten(0, 1)
        return self._task.losses(logits, targets).mean()

    def _scores_of(self, logits: Tensor) -> Numbers:
        """What logits say of each row, float64[n] or float64[n, C]; where pairs are samples, the mean over a row's K."""
        if not self._train.how.each:
            return self._task.plain_scores(logits)
        said = self._task.plain_scores(logits.flatten(0, 1))
        return np.asarray(said.reshape(*logits.shape[:2], *said.shape[1:]).mean(axis=1))

    def _pair_metrics(self, logits: Tensor, labels: NDArray[Any]) -> dict[str, float | None] | None:
        """Metrics with each pair counted as a row; None where pairs are no samples."""
        if not self._train.how.each:
            return None
        output = self._task.output(self._task.plain_scores(logits.flatten(0, 1)))
        of_each = np.repeat(labels, logits.shape[1])
        return dict(output.metrics(self._evaluate.metrics, of_each, self._evaluate.threshold))

    @torch.no_grad()
    def _rank_correlation(self, held_out: Positions) -> float | None:
        """Spearman's rank correlation of weight and similarity among the candidates of the held-out rows."""
        if self._model.gate is None:
            return None
        similarities = self._similarities[torch.from_numpy(held_out)]
        weights = self._model.gate(self._model.scale(similarities))
        known = (similarities != 0).cpu().numpy()
        return spearman(weights.cpu().numpy()[known], similarities.cpu().numpy()[known])

    async def _forward(self, rows: ForwardPass) -> Tensor:
        """Logits of all ``rows``, by the model at rest."""
        self.learner.rest()
        outputs = []
        for offset, positions in enumerate(rows.batches):
            embeddings, index = await self._receive(rows.number + offset, positions)
            with torch.no_grad():  # never across an await: another party may compute on this thread meanwhile
                outputs.append(check_finite(self._logits_of(positions, embeddings, index)))
        return torch.cat(outputs)

    def _logits_of(self, positions: Positions, embeddings: Tensor, index: Tensor) -> Tensor:
        logits: Tensor = self._model(
            self._inputs.take(positions), embeddings, index, self._similarities[torch.from_numpy(positions)]
        )
        return logits

    async def _receive(self, number: int, positions: Positions) -> tuple[Tensor, Tensor]:
        """The embeddings of step ``number``, float32[U, d], and where they stand, int64[B, K].

        Raises:
            ProtocolError: another step (``E_ORDER``) or shape, more embeddings than places, or a place that names none of them
                (``E_SHAPE``), or a value that is not finite (``E_NAN``).
        """
        channel, places = self._session.peer, (len(positions), self._similarities.shape[1])
        message = await channel.receive(training_pb2.LinkedEmbeddings)
        check_step(channel, message.step, number)
        distinct = message.embeddings.shape[0] if message.embeddings.shape else 0
        if not 1 <= distinct <= places[0] * places[1]:
            raise ProtocolError(f"{channel.peer} sent {distinct} embeddings for {places[0] * places[1]} places", code="E_SHAPE")
        embeddings = decode_tensor(channel, message.embeddings, (distinct, self._train.bottom[-1]))
        index = decode_tensor(channel, message.index, places, dtype=torch.int32).long()
        if int(index.min()) < 0 or int(index.max()) >= distinct:
            raise ProtocolError(f"{channel.peer} names an embedding that it did not send", code="E_SHAPE")
        self._crossed.count(distinct, index.numel())
        device = self._session.machine.device
        return embeddings.to(device), index.to(device)
