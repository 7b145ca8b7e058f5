"""The active party's half: an own bottom, if it has columns, and the top; labels, loss and metrics."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import one_hot

from vfl_node import failpoints
from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import DataError
from vfl_node.metrics import ModelOutput
from vfl_node.models import architecture_of, cut_width
from vfl_node.models.building import build_classifier
from vfl_node.models.classifier import Classifier
from vfl_node.models.initial_weights import initialise
from vfl_node.models.storage import prefixed, under
from vfl_node.privacy.defences.defence import Leaving, Sender
from vfl_node.session.session import Session
from vfl_node.training import boosted_tree
from vfl_node.training.evaluation import Evaluation, Figures, assess, class_shares, measure, real_share
from vfl_node.training.own_rows import OwnRows
from vfl_node.training.split.alone import logits_alone
from vfl_node.training.split.config import Train
from vfl_node.training.split.half import Positions, audit, check_step, encode, learner, way_out
from vfl_node.training.split.local import check_finite, local_logits, train_local
from vfl_node.training.split.matched import matched_active
from vfl_node.training.split.missing.calibration import Composition, calibration
from vfl_node.training.split.missing.labels.contract import Known, Labels, Step, build
from vfl_node.training.trainer import TrainingData
from vfl_node.transport import codec
from vfl_node.transport.generated.vfl.v1 import training_pb2

LOCAL_RATE_MARGIN = 1e-3
"""The local model's probability is kept this far from 0 and 1 where calibration uses it."""


class ActiveHalf:
    """An own bottom, if there are columns, and the top; labels, loss and metrics.

    Args:
        session: whom it meets; this is one half of two.
        data: what it trains on.
        randomness: its own.
        draws: its own, too: synthetic rows and labels come from it.
        repeat: number of the repeat, which has its own weights.
        training: shared positions trained on in it.
        saved: tensors of a checkpoint within this repeat, to go on from.
    """

    def __init__(
        self,
        session: Session,
        data: TrainingData,
        randomness: Randomness,
        draws: Randomness,
        repeat: int,
        training: Positions,
        saved: Mapping[str, Tensor] | None,
    ) -> None:
        self._channel, self._session, self._data, self._alignment = session.peer, session, data, data.alignment
        train, self._owned = Train.of(session.job), data.alignment.owned
        self._train, self._evaluate = train, session.job.evaluate
        self._labels = _labels(data)
        labelled = training[self._owned[training]]
        if len(labelled) == 0:
            raise DataError(
                "the active party owns none of the shared rows drawn for training, so there is no label to learn from",
                code="E_EMPTY",
                hint="use more records, or a smaller evaluate.test_fraction",
            )
        self._targets = _as_targets(self._labels, train).to(session.device)
        self._real = torch.from_numpy(self._owned).to(session.device)
        self._synthetic: Labels | None = None
        if data.alignment.missing:  # from all labels, not those trained on: a label must not change between repeats
            own = draws.derive("labels")
            known = Known(self._labels[self._owned], len(self._owned), train.classes, own)
            self._synthetic = build(train.missing.label_strategy, known)
        missing = train.missing
        self._calibration = calibration(
            missing.calibration,
            None if missing.calibration == "none" else Composition.of(data.alignment, missing.shares, missing.calibrate),
            self._synthetic.rate if self._synthetic else 0.0,
        )
        self.encoder, self._inputs = encode(session, data, draws, training)
        self._cut = cut_width(train)
        self._architecture = architecture_of(train.model, session.models)
        self._model = build_classifier(self._architecture, train, self._inputs.schema, [self._cut])
        self.learner = learner(self._model, session, randomness, repeat)
        self._class_shares = class_shares(self._labels[labelled], train.classes)
        self._positive_rate = float((self._labels[labelled] == 1).mean())
        if missing.calibration == "train" and 0 < self._positive_rate < 1:
            # From ½ down to a rare class's rate logits overshoot, w10·q explains the labels, and no gradient leads back.
            self._model.start_at(self._positive_rate)
        self.audit = audit(session, data, training, randomness, repeat)
        self.exit = way_out(session, Sender("gradients", self._owned), draws, repeat, self.audit)
        if saved is not None:
            self.learner.restore(saved)
            self.audit.restore(under("audit", saved))
            self.exit.restore(under("defences", saved))

        self._base_rate = torch.full((len(self._owned),), self._positive_rate, device=session.device)
        self._local: Classifier | None = None
        if missing.calibration != "none" and not self._inputs.schema.empty:
            self._local = build_classifier(self._architecture, train, self._inputs.schema, []).to(session.device)
            if saved is not None:
                self._local.load_state_dict(under("local", saved))
                self._base_rate = saved["rate"].to(session.device)
            else:
                self._train_local(randomness.derive(f"local/{repeat}"), training, labelled)
        self._private = randomness.derive(f"alone/{repeat}")
        self._met: list[tuple[Positions, Tensor, float]] = []
        """Positions, logits and loss of each batch since figures were taken."""
        self._ranks = repeat == 0 and "auc" in session.job.evaluate.metrics  # only the first repeat's epochs are reported
        self._resampling = randomness.derive(f"resampling/{repeat}")
        self._randomness = randomness.derive(f"matched/{repeat}") if repeat == 0 and session.job.evaluate.matched else None

    async def step(self, number: int, positions: Positions) -> None:
        """As :meth:`Half.step`."""
        received = (await self._embedding(number, positions)).requires_grad_()  # (B, d)
        self.learner.begin(number)
        logits = self._model(self._inputs.at(positions), [received])  # (B,) or (B, K)
        rows = torch.from_numpy(positions)
        base_rate = self._base_rate[rows]
        targets = self._used(number, positions, logits.detach(), base_rate, received.detach())
        loss = self._calibration.loss(logits, targets, base_rate)
        check_finite(loss).backward()  # type: ignore[no-untyped-call]
        if received.grad is None:
            raise RuntimeError("the loss does not depend on the embedding")
        gradient = check_finite(received.grad)
        failpoints.reach("backward")
        message = training_pb2.Gradient(step=number)
        leaving = Leaving(f"step/{number}", positions, labels=targets, mean_of=len(positions))
        codec.encode(self.exit.step(gradient, leaving), message.tensor)
        await self._channel.send(message)
        self.learner.step()
        self.exit.step_done()
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
        rows = positions[owned]
        base_rate = self._base_rate[torch.from_numpy(rows)]
        scores = self._calibration.expectation(torch.cat(logits)[torch.from_numpy(owned)], base_rate)
        return Figures(loss, measure(("auc",), self._labels[rows], scores)["auc"])

    async def evaluate(self, number: int, batches: Sequence[Positions]) -> Evaluation:
        """As :meth:`Half.evaluate`, on the rows this party owns; and, if the job says so, on those both own."""
        self.learner.rest()
        expected: list[NDArray[np.float64]] = []
        if_both: list[NDArray[np.float64]] = []  # scores for rows with real columns of the passive party
        for offset, positions in enumerate(batches):
            received = await self._embedding(number + offset, positions)
            with torch.no_grad():  # never across an await
                logits = check_finite(self._model(self._inputs.at(positions), [received]))
            base_rate = self._base_rate[torch.from_numpy(positions)]
            expected.append(self._calibration.expectation(logits, base_rate))
            if_both.append(self._calibration.probability(logits, base_rate))
        held_out, scores = np.concatenate(batches), np.concatenate(expected)
        owned = self._owned[held_out]
        labels = self._labels[held_out]
        joint, own = ModelOutput.clipped(scores[owned]), self._own_rows(held_out)
        alone, tree = self._alone(own), boosted_tree.train(self._session, self._data, own, self._private.derive("tree"))
        evaluation = assess(self._evaluate, labels[owned], joint, alone, self._class_shares, self._resampling, rival=tree)
        if alone is not None:
            evaluation = dataclasses.replace(evaluation, local_rows=len(own.training))
        if self._randomness is None:
            return evaluation
        both = await matched_active(
            self._channel,
            labels,
            np.concatenate(if_both),
            owned,
            self._evaluate.metrics,
            self._randomness,
            threshold=self._evaluate.threshold,
            share=real_share(self._alignment),
        )
        return dataclasses.replace(evaluation, matched=both.values, matched_rows=both.rows)

    def tensors(self) -> dict[str, Tensor]:
        """As :meth:`Half.tensors`."""
        rate = {} if self._local is None else {"rate": self._base_rate}
        defended = prefixed("defences", self.exit.state())
        return {**self.learner.tensors(), **prefixed("audit", self.audit.tensors()), **defended, **self._judge(), **rate}

    def weights(self) -> dict[str, Tensor]:
        """As :meth:`Half.weights`: the joint model's, and as ``local.NAME`` those of the model that gives calibration its q."""
        return {**self.learner.weights(), **self._judge()}

    def scoring(self) -> dict[str, Any]:
        """As :meth:`Half.scoring`: calibration, and the rate of positives among its labels."""
        return {"calibration": self._calibration.to_json(), "positive_rate": self._positive_rate}

    def _own_rows(self, testing: Positions) -> OwnRows:
        held_out, table = self._evaluate.test_fraction > 0, self._data.table
        return OwnRows.of(self._alignment, testing, held_out=held_out, records=len(table))

    def _alone(self, own: OwnRows) -> ModelOutput | None:
        """What a network of this party alone says of the rows measured on; None if it has no columns."""
        assert self._data.table.labels is not None
        targets = _as_targets(self._data.table.labels, self._train).to(self._session.device)
        logits = logits_alone(self._session, self._data, own, targets, self._private.derive("network"))
        return None if logits is None else ModelOutput.clipped(probabilities(logits))

    def _judge(self) -> dict[str, Tensor]:
        if self._local is None:
            return {}
        return prefixed("local", {name: tensor.cpu() for name, tensor in self._local.state_dict().items()})

    def _train_local(self, private: Randomness, training: Positions, labelled: Positions) -> None:
        """Train a model of this party alone, and set q, the rate of positives where the peer's features are synthetic.

        The peer waits for the first gradient meanwhile. How long must not tell how many of the rows are this party's, which
        padding hides: all rows of training are computed, of which only the labelled ones count.

        In the loss q of a row must not come from a model that has learnt its label, which would make up for what the
        joint model is to learn: there rows of one half are judged by a model of the other.
        """
        train, missing = self._train, self._train.missing

        def trained(model: Classifier, own: Randomness, counted: Tensor) -> Classifier:
            initialise(model, own)
            train_local(model, train, self._inputs, self._targets, training, own, self._session.progress, counted=counted)
            return model

        def rates(model: Classifier) -> Tensor:
            return local_rate(local_logits(model, self._inputs, np.arange(len(self._owned))))

        assert self._local is not None
        trained(self._local, private, self._real)
        self._base_rate = rates(self._local)
        if missing.calibration == "train" and len(labelled) > 1:
            mixed = labelled[private.derive("folds").permutation(len(labelled))]
            folds = np.array_split(mixed, 2)
            for number, (judged, learnt) in enumerate((folds, folds[::-1])):
                other = build_classifier(self._architecture, train, self._inputs.schema, []).to(self._session.device)
                counted = torch.zeros_like(self._real)
                counted[torch.from_numpy(learnt)] = True
                trained(other, private.derive(f"fold/{number}"), counted)
                rows = torch.from_numpy(judged)
                self._base_rate[rows] = rates(other)[rows]

    def _used(self, number: int, positions: Positions, logits: Tensor, base_rate: Tensor, received: Tensor) -> Tensor:
        """The targets trained on: of real labels, else synthetic; the latter are computed for every row alike."""
        rows = torch.from_numpy(positions)
        targets = self._targets[rows]  # (B,) or (B, K)
        if self._synthetic is None:
            return targets
        real = self._real[rows]  # (B,)
        step = Step(number, positions, real, targets, self._calibration.seen(logits, base_rate), received)
        synthetic = self._synthetic.targets(step)
        return torch.where(real if targets.dim() == 1 else real[:, None], targets, synthetic)

    async def _embedding(self, number: int, positions: Positions) -> Tensor:
        message = await self._channel.receive(training_pb2.Embedding)
        check_step(self._channel, message.step, number)
        embedding = codec.decode(message.tensor, dtype=torch.float32, shape=(len(positions), self._cut))
        return embedding.to(self._session.device)


def local_rate(logits: Tensor) -> Tensor:
    """q of rows with these logits of the active party's own model, float32[B]."""
    return torch.sigmoid(logits).clamp(LOCAL_RATE_MARGIN, 1 - LOCAL_RATE_MARGIN)


def probabilities(logits: Tensor) -> NDArray[np.float64]:
    """What logits float32[B] or float32[B, K] say, float64 of the same shape."""
    exact = logits.double()
    likelihood = torch.sigmoid(exact) if logits.dim() == 1 else torch.softmax(exact, dim=1)
    return np.asarray(likelihood.cpu().numpy())


def _labels(data: TrainingData) -> NDArray[np.float32]:
    """The label at each shared position, float32[m]; 0 where there is none."""
    if data.table.labels is None:
        raise DataError("the active party's table has no label column", code="E_NO_LABEL", hint="set data.label")
    view = data.alignment
    return np.where(view.owned, data.table.labels[view.rows], np.float32(0)).astype(np.float32)


def _as_targets(labels: NDArray[np.float32], train: Train) -> Tensor:
    """float32[m], or float32[m, K] with a 1 in each row."""
    values = torch.from_numpy(labels)
    return values if train.classes == 2 else one_hot(values.long(), train.classes).float()
