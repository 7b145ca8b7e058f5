"""One training step and one evaluation, as each party takes them.

::

    passive                                   active
    H = bottom(X_p)           ── H [B, d] ──►  l = top(bottom(X_a), H)
                                               L = mean loss(l, y)
    back-propagates g         ◄── g [B, d] ──  g = ∂L/∂H
    updates its bottom                         updates bottom and top

A row that a party does not own takes the same way as any other: the columns of its source
row, or the synthetic label. Rows of H and g stand at their place in the batch and carry no
identifier; rows of g are never averaged or reordered.

Source: Song et al. 2021 (FLORIST), sections 3.3 and 4, Table 4.

Leaks: H tells the active party about the passive party's columns, and g tells the passive
party which label was used in each row; see docs/training.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vfl_node.crypto.randomness import Randomness
from vfl_node.data.features import Encoder
from vfl_node.errors import DataError, ProtocolError
from vfl_node.job import Train
from vfl_node.metrics import auc, calibration_curve
from vfl_node.models import MODELS, Classifier, initialise
from vfl_node.training.evaluation import Curve, Evaluation, Figures, Values, measure
from vfl_node.training.learner import Inputs, Learner, prefixed, under
from vfl_node.training.local import check_finite, local_logits, train_local
from vfl_node.training.missing import CALIBRATIONS, shared_labels
from vfl_node.training.task import Task
from vfl_node.transport import codec
from vfl_node.transport.channel import Channel
from vfl_node.transport.generated.vfl.v1 import training_pb2

Positions = NDArray[np.int64]
LOCAL_RATE_MARGIN = 1e-3
"""The local model's probability is kept this far from 0 and 1 where calibration uses it."""


class Half(Protocol):
    """One party's half of the network during one repeat.

    Attributes:
        learner: the half that is trained jointly.
        encoder: JSON of how the party's columns are encoded.
    """

    learner: Learner
    encoder: str

    async def step(self, number: int, positions: Positions) -> None:
        """Train on the batch at ``positions``."""

    def figures(self) -> Figures:
        """What the steps since the last call show, where the party knows it."""

    async def evaluate(self, number: int, batches: Sequence[Positions]) -> Evaluation | None:
        """Go through the held-out ``batches``, numbered from ``number``; results, where the party knows them."""

    def tensors(self) -> dict[str, Tensor]:
        """All that a checkpoint must hold of this half."""


class PassiveHalf:
    """A bottom. Args as :class:`ActiveHalf`."""

    def __init__(
        self,
        channel: Channel,
        task: Task,
        randomness: Randomness,
        source: Positions,
        repeat: int,
        training: Positions,
        saved: Mapping[str, Tensor] | None,
    ) -> None:
        self._channel = channel
        self.encoder, self._inputs = _encode(task, source, training)
        if self._inputs.width == 0:
            raise DataError(
                "the passive party's table has no feature column",
                code="E_NO_FEATURES",
                hint="add columns, or declare the ignored ones numeric or categorical in data.columns",
            )
        bottom = self._inputs.bottom(task.train, task.train.bottom)
        self._bottom = bottom
        self.learner = _learner(nn.ModuleDict({"bottom": bottom}), task, randomness, repeat)
        if saved is not None:
            self.learner.restore(saved)

    async def step(self, number: int, positions: Positions) -> None:
        """As :meth:`Half.step`."""
        embedding = self._bottom(*self._inputs.at(positions))  # (B, d)
        await self._send(number, embedding.detach())
        gradient = await self._gradient(number, embedding)  # (B, d)
        self.learner.zero_grad()
        embedding.backward(gradient)
        self.learner.step()

    def figures(self) -> Figures:
        """As :meth:`Half.figures`: nothing."""
        return Figures()

    async def evaluate(self, number: int, batches: Sequence[Positions]) -> None:
        """As :meth:`Half.evaluate`."""
        for offset, positions in enumerate(batches):
            with torch.no_grad():  # never across an await: another party may compute on this thread meanwhile
                embedding = self._bottom(*self._inputs.at(positions))
            await self._send(number + offset, embedding)

    def tensors(self) -> dict[str, Tensor]:
        """As :meth:`Half.tensors`."""
        return self.learner.tensors()

    async def _send(self, number: int, embedding: Tensor) -> None:
        await self._channel.send(training_pb2.Embedding(step=number, tensor=codec.encode(check_finite(embedding))))

    async def _gradient(self, number: int, embedding: Tensor) -> Tensor:
        message = await self._channel.receive(training_pb2.Gradient)
        _check_step(self._channel, message.step, number)
        gradient = codec.decode(message.tensor, dtype=torch.float32, shape=tuple(embedding.shape))
        return gradient.to(embedding.device)


class ActiveHalf:
    """An own bottom, if there are columns, and the top; labels, loss and metrics.

    Args:
        channel: the conversation with the passive party.
        task: this party's side.
        randomness: its own.
        source: int64[m], the local row whose columns stand at each shared position.
        repeat: number of the repeat, which has its own weights.
        training: shared positions trained on in it.
        saved: tensors of a checkpoint within this repeat, to go on from.
    """

    def __init__(
        self,
        channel: Channel,
        task: Task,
        randomness: Randomness,
        source: Positions,
        repeat: int,
        training: Positions,
        saved: Mapping[str, Tensor] | None,
    ) -> None:
        if task.table.labels is None:
            raise DataError("the active party's table has no label column", code="E_NO_LABEL", hint="set data.label")
        self._channel, self._task = channel, task
        self._owned = task.alignment.owned
        labelled = training[self._owned[training]]
        labels = shared_labels(task.alignment, task.table.labels, training, task.train.missing.labels)
        self._labels = torch.from_numpy(labels).to(task.device)
        synthetic = labels[~self._owned]
        c = float(synthetic.mean()) if len(synthetic) else 0.0
        self._calibration = CALIBRATIONS[task.train.missing.calibration](task.alignment, c)
        self.encoder, self._inputs = _encode(task, source, training)

        cut = MODELS[task.train.model].cut_width(task.train.bottom)
        self._model = _classifier(task.train, self._inputs, [cut])
        self._cut = cut
        self.learner = _learner(self._model, task, randomness, repeat)
        if saved is not None:
            self.learner.restore(saved)

        self._local: Classifier | None = None
        if self._inputs.width:
            private = randomness.derive(f"local/{repeat}")
            self._local = _classifier(task.train, self._inputs, [])
            initialise(self._local, private.torch())
            self._local.to(task.device)
            if saved is not None:
                self._local.load_state_dict(under("local", saved))
            else:
                train_local(self._local, task.train, self._inputs, self._labels, labelled, private, task.progress)
        self._base_rate = self._rates(float(labels[labelled].mean()))
        self._met: list[tuple[Positions, Tensor, float]] = []
        """Positions, logits and loss of each batch since figures were taken."""
        self._ranks = repeat == 0 and "auc" in task.evaluate.metrics  # only the first repeat's epochs are reported

    async def step(self, number: int, positions: Positions) -> None:
        """As :meth:`Half.step`."""
        received = (await self._embedding(number, positions)).requires_grad_()  # (B, d)
        logits = self._model(*self._inputs.at(positions), [received])  # (B,)
        rows = torch.from_numpy(positions)
        loss = self._calibration.loss(logits, self._labels[rows], self._base_rate[rows])
        self.learner.zero_grad()
        check_finite(loss).backward()  # type: ignore[no-untyped-call]
        if received.grad is None:
            raise RuntimeError("the loss does not depend on the embedding")
        gradient = codec.encode(check_finite(received.grad))
        await self._channel.send(training_pb2.Gradient(step=number, tensor=gradient))
        self.learner.step()
        self._met.append((positions, logits.detach(), loss.item()))

    def figures(self) -> Figures:
        """As :meth:`Half.figures`. Costs one sort; nothing is computed or sent anew."""
        batches, logits, losses = zip(*self._met, strict=True)
        self._met = []
        positions = np.concatenate(batches)
        loss = sum(loss * len(batch) for batch, loss in zip(batches, losses, strict=True)) / len(positions)
        if not self._ranks:
            return Figures(loss)
        owned = np.flatnonzero(self._owned[positions])
        rows = torch.from_numpy(positions[owned])
        scores = self._calibration.expectation(torch.cat(logits)[torch.from_numpy(owned)], self._base_rate[rows])
        return Figures(loss, auc(self._labels[rows].cpu().numpy(), scores))

    async def evaluate(self, number: int, batches: Sequence[Positions]) -> Evaluation:
        """As :meth:`Half.evaluate`, on the rows this party owns."""
        scores: list[NDArray[np.float64]] = []
        for offset, positions in enumerate(batches):
            received = await self._embedding(number + offset, positions)
            with torch.no_grad():  # never across an await
                logits = check_finite(self._model(*self._inputs.at(positions), [received]))  # (B,)
            scores.append(self._calibration.expectation(logits, self._base_rate[torch.from_numpy(positions)]))
        held_out = np.concatenate(batches)
        owned = self._owned[held_out]
        names = self._task.evaluate.metrics
        labels = self._labels.cpu().numpy()[held_out[owned]]
        joint = np.concatenate(scores)[owned]
        local: Values | None = None
        local_curve: Curve = []
        if self._local is not None:
            alone = torch.sigmoid(local_logits(self._local, self._inputs, held_out[owned]).double()).cpu().numpy()
            local, local_curve = measure(names, labels, alone), calibration_curve(labels, alone)
        return Evaluation(
            metrics=measure(names, labels, joint),
            local_metrics=local,
            rows=len(labels),
            curve=calibration_curve(labels, np.clip(joint, 0, 1)),
            local_curve=local_curve,
        )

    def tensors(self) -> dict[str, Tensor]:
        """As :meth:`Half.tensors`."""
        local = {} if self._local is None else prefixed("local", self._local.state_dict())
        return {**self.learner.tensors(), **local}

    async def _embedding(self, number: int, positions: Positions) -> Tensor:
        message = await self._channel.receive(training_pb2.Embedding)
        _check_step(self._channel, message.step, number)
        embedding = codec.decode(message.tensor, dtype=torch.float32, shape=(len(positions), self._cut))
        return embedding.to(self._task.device)

    def _rates(self, positive_rate: float) -> Tensor:
        """q at each shared position, float32[m]: rate of positives where the peer's features are synthetic."""
        if self._local is None:
            return torch.full((len(self._owned),), positive_rate, device=self._task.device)
        probabilities = torch.sigmoid(local_logits(self._local, self._inputs, np.arange(len(self._owned))))
        return probabilities.clamp(LOCAL_RATE_MARGIN, 1 - LOCAL_RATE_MARGIN)


def _check_step(channel: Channel, step: int, expected: int) -> None:
    if step != expected:
        raise ProtocolError(f"{channel.peer} sent step {step} where step {expected} was due", code="E_ORDER")


def _encode(task: Task, source: Positions, training: Positions) -> tuple[str, Inputs]:
    """Encode the table as its own rows among ``training`` suggest (all its rows if there are none)."""
    own = task.alignment.rows[training][task.alignment.owned[training]]
    encoder = Encoder.fit(task.table, own if len(own) else np.arange(len(task.table)))
    return encoder.to_json(), Inputs(encoder.transform(task.table), source, task.device)


def _classifier(train: Train, inputs: Inputs, received: Sequence[int]) -> Classifier:
    architecture = MODELS[train.model]
    bottom = inputs.bottom(train, train.active_bottom) if inputs.width else None
    own = [architecture.cut_width(train.active_bottom)] if inputs.width else []
    return Classifier(bottom, architecture.top(widths=[*own, *received], sizes=train.top))


def _learner(model: nn.Module, task: Task, randomness: Randomness, repeat: int) -> Learner:
    initialise(model, randomness.derive(f"weights/{repeat}").torch())
    return Learner(model.to(task.device), task.train)
