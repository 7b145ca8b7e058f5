"""The active party's half: an own bottom, if it has columns, and the top; labels, loss and metrics."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vfl_node import failpoints
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.tables import LabelColumn
from vfl_node.errors import DataError
from vfl_node.models import architecture_of
from vfl_node.models.building import build_classifier
from vfl_node.models.classifier import Classifier
from vfl_node.models.storage import prefixed, under
from vfl_node.privacy.defences.defence import Leaving, Sender
from vfl_node.privacy.features.audit import FeatureAudit
from vfl_node.session.session import Session
from vfl_node.training import boosted_tree
from vfl_node.training.evaluation import Evaluation, Figures, Repeats, Values, assess, measure, real_share
from vfl_node.training.intervals import Output
from vfl_node.training.network.alone import by_aligned_rows, logits_alone
from vfl_node.training.network.half import NO_ROWS, Defended, ForwardPass, Positions, learner, way_out_of_projections
from vfl_node.training.network.local import check_finite
from vfl_node.training.own_rows import OwnRows
from vfl_node.training.schedule import cut
from vfl_node.training.split.base_rates import base_rates, model_alone
from vfl_node.training.split.config import Train
from vfl_node.training.split.contributions import MOST_ROWS, HeldOutInputs, drops
from vfl_node.training.split.conversations import Conversations
from vfl_node.training.split.half import audit_of_peers, encode, label_audit, likeness
from vfl_node.training.split.local_branch import ActiveParts
from vfl_node.training.split.matched import matched_active
from vfl_node.training.split.missing.calibration import Composition
from vfl_node.training.split.missing.labels.contract import Labels, Step, build
from vfl_node.training.split.outside import as_many_as_announced, outside_of, rows_outside
from vfl_node.training.split.pretraining import PretrainingMeeting, before_labels
from vfl_node.training.split.randomised import learnt_task, own_task, with_answers
from vfl_node.training.split.tasks import start_at_rate
from vfl_node.training.trainer import TrainingData


class ActiveHalf:
    """An own bottom, if there are columns, and the top; labels, loss and metrics.

    Args:
        session: whom it meets.
        data: what it trains on.
        randomness: its own.
        draws: its own, too: synthetic rows and labels come from it.
        repeat: number of the repeat, which has its own weights.
        training: shared positions trained on in it.
        saved: tensors of a checkpoint within this repeat, to go on from.
        validation: shared positions set apart for validation in it.
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
        validation: Positions = NO_ROWS,
    ) -> None:
        self._session, self._data, self._alignment = session, data, data.alignment
        train, self._owned = Train.of(session.job), data.alignment.owned
        self._train, self._evaluate = train, session.job.evaluate
        learnt = with_answers(session, data)  # whatever a peer gets may depend on its labels, and not on those of ``data``
        self._labels, self._answers = _labels(data), _labels(learnt)
        labelled = training[self._owned[training]]
        if len(labelled) == 0:
            raise DataError(
                "the active party owns none of the shared rows drawn for training, so there is no label to learn from",
                code="E_EMPTY",
                hint="use more records, or a smaller evaluate.test_fraction",
            )
        if len(validation) and not self._owned[validation].any():
            raise DataError(
                "the active party owns none of the shared rows set apart for validation, so no loss tells when to stop",
                code="E_EMPTY",
                hint="use more records, or a larger evaluate.validation_fraction",
            )
        self._validation = validation
        self._task = learnt_task(session, self._answers[labelled])
        self._own_task = own_task(session, self._task, self._labels[labelled])
        self._targets = self._task.targets(self._answers).to(session.device)
        self._real = torch.from_numpy(self._owned).to(session.device)
        self._synthetic: Labels | None = None
        if data.alignment.missing:  # from all labels, not those trained on: a label must not change between repeats
            own = draws.derive("labels")
            known = self._task.known(self._answers[self._owned], len(self._owned), own)
            self._synthetic = build(train.missing.label_strategy, known)
        missing = train.missing
        self._calibration = self._task.calibration(
            missing.calibration,
            None if missing.calibration == "none" else Composition.of(data.alignment, missing.shares, missing.calibrate),
            self._synthetic.rate if self._synthetic else 0.0,
        )
        rows = self._rows_outside = rows_outside(session, data, training)
        self.encoder, self._inputs = encode(session, data, draws, training, rows)
        self.audit = audit_of_peers(session, data, training, randomness, repeat)
        self.features = FeatureAudit()  # gradients tell of no columns
        self.labels = label_audit(session, data, self._labels, labelled)
        self._likeness = likeness(session, training, repeat)
        self.peers = Conversations(session, Sender("gradients", self._owned), draws, repeat, self.audit)
        self._architecture = architecture_of(train.model, session.models)
        self._model = build_classifier(self._architecture, train, self._inputs.schema, self.peers.widths)
        self.learner = learner(self._model, session, randomness, repeat)
        start_at_rate(self._model, self._task, train)
        own, table = randomness.derive(f"unaligned/{repeat}"), learnt.table
        beside = as_many_as_announced(session, data, rows, own)
        parts = ActiveParts(
            session, table, data.alignment, self._model, self.learner, self._inputs, self._task, training, beside, own
        )
        self.outside = outside_of(parts, under("outside", saved or {}))
        bottom = self._model.bottom
        projecting = Sender("projections", self._owned, bottom, self._inputs.at)
        projections = way_out_of_projections(session, projecting, draws, repeat)
        meeting = PretrainingMeeting(session, projections, conversations=self.peers)
        self.pretraining = before_labels(
            session, data.alignment, bottom, self._inputs, training, rows, meeting, randomness, repeat
        )
        if saved is not None:
            self.learner.restore(saved)
            self.pretraining.restore(under("pretraining", saved))
            self.audit.restore(under("audit", saved))
            self.labels.restore(under("labels", saved))
            self._likeness.restore(under("likeness", saved))
            self.peers.restore(under("defences", saved))

        self._base_rate = torch.full((len(self._owned),), self._task.rate, device=session.device)
        self._local: Classifier | None = None
        if missing.calibration != "none" and not self._inputs.schema.empty:
            self._local = model_alone(session, self._inputs)
            if saved is not None:
                self._local.load_state_dict(under("local", saved))
                self._base_rate = saved["rate"].to(session.device)
            else:
                self._base_rate = base_rates(
                    session,
                    self._local,
                    self._inputs,
                    self._task,
                    self._targets,
                    self._real,
                    randomness.derive(f"local/{repeat}"),
                    training=training,
                    validation=validation,
                    labelled=labelled,
                )
        self._private = randomness.derive(f"alone/{repeat}")
        self._met: list[tuple[Positions, Tensor, float]] = []
        """Positions, logits and loss of each batch since figures were taken."""
        self._ranks = repeat == 0 and "auc" in session.job.evaluate.metrics  # only the first repeat's epochs are reported
        self._resampling = randomness.derive(f"resampling/{repeat}")
        self._randomness = randomness.derive(f"matched/{repeat}") if repeat == 0 and session.job.evaluate.matched else None
        self._permuting = randomness.derive("contributions") if repeat == 0 and session.job.evaluate.contributions else None

    async def step(self, number: int, positions: Positions) -> None:
        """As :meth:`Half.step`."""
        self.learner.begin(number)
        bottom = self._model.bottom
        own = [] if bottom is None else [bottom(self._inputs.at(positions))]  # (B, d'), while peers compute theirs
        embeddings = [embedding.requires_grad_() for embedding in await self.peers.embeddings(number, positions)]  # (B, d) each
        logits = self._model.above([*own, *embeddings])  # (B,) or (B, K)
        rows = torch.from_numpy(positions)
        base_rate = self._base_rate[rows]
        targets = self._used(number, positions, logits.detach(), base_rate, embeddings)
        loss = self._calibration.loss(logits, targets, base_rate)
        beside = self.outside.loss_beside(positions, own[0], embeddings[0], targets) if own else None
        learnt = check_finite(loss if beside is None else loss + beside)
        gradients = [check_finite(of) for of in torch.autograd.grad(learnt, embeddings, retain_graph=True)]
        failpoints.reach("backward")
        leaving = Leaving(f"step/{number}", positions, labels=targets, mean_of=len(positions) / self._task.largest_weight)
        await self.peers.send(number, gradients, leaving)
        self.learner.backward(learnt, alone=beside is None)  # while peers compute theirs
        self.learner.step()
        self.peers.step_done(positions)
        self.labels.see(positions, embeddings, self.peers.sent)
        self._likeness.see(embeddings)
        self._met.append((positions, logits.detach(), loss.item()))
        self.outside.saw(positions, embeddings)
        self.outside.step_done()

    def defended(self) -> Defended:
        """As :meth:`Half.defended`: nothing, as no model is moved for gradients."""
        return Defended()

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

    async def validate(self, rows: ForwardPass) -> Figures:
        """As :meth:`Half.validate`, on the rows this party owns."""
        scores = np.concatenate([self._calibration.expectation(*batch) for batch in await self._logits(rows)])
        positions = np.concatenate(rows.batches)
        owned = self._owned[positions]
        positions, scores = positions[owned], scores[owned]
        auc = measure(("auc",), self._labels[positions], scores)["auc"] if self._ranks else None
        return Figures(validation_loss=self._task.mean_loss(self._answers[positions], scores), validation_auc=auc)

    async def evaluate(self, rows: ForwardPass, validated: ForwardPass | None = None) -> Evaluation:
        """As :meth:`Half.evaluate`, on the rows this party owns; and, if the job says so, on those both own."""
        expected: list[NDArray[np.float64]] = []
        if_both: list[NDArray[np.float64]] = []  # scores for rows with real columns of the passive party
        parts = HeldOutInputs(MOST_ROWS if self._permuting else self._likeness.rows)
        for logits, base_rate in await self._logits(rows, parts):
            expected.append(self._calibration.expectation(logits, base_rate))
            if_both.append(self._calibration.probability(logits, base_rate))
        held_out, scores = np.concatenate(rows.batches), np.concatenate(expected)
        owned = self._owned[held_out]
        labels = self._labels[held_out]
        alone, own = self._alone(held_out)
        joint, constant = self._task.output(scores[owned]), self._own_task.constant(int(np.count_nonzero(owned)))
        tree = boosted_tree.train(self._session, self._data, own, self._private.derive("tree"))
        aligned = by_aligned_rows(
            self._session, self._data, own, self._rows_outside, self._own_task, self._private.derive("aligned")
        )
        evaluation = assess(
            self._evaluate, labels[owned], joint, alone, constant, self._resampling, rival=tree, aligned=aligned
        )
        if alone is not None:
            evaluation = dataclasses.replace(evaluation, local_rows=len(own.training))
        evaluation = dataclasses.replace(evaluation, unlike=self._likeness.unlike(parts.embeddings))
        if self._permuting:
            evaluation = dataclasses.replace(evaluation, contributions=self._contributions(parts, self._permuting))
        if self._randomness is None:
            return evaluation
        both = await matched_active(
            self._session.peer,
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
        defended = prefixed("defences", self.peers.state())
        audits = {**prefixed("audit", self.audit.tensors()), **prefixed("labels", self.labels.tensors())}
        outside = {**prefixed("outside", self.outside.tensors()), **prefixed("pretraining", self.pretraining.tensors())}
        seen = prefixed("likeness", self._likeness.tensors())
        return {**self.learner.tensors(), **audits, **defended, **self._judge(), **rate, **outside, **seen}

    def weights(self) -> dict[str, Tensor]:
        """As :meth:`Half.weights`: the joint model's, and as ``local.NAME`` those of the model that gives calibration its q."""
        return {**self.learner.weights(), **self._judge()}

    def go_back(self, weights: Mapping[str, Tensor]) -> None:
        """As :meth:`Half.go_back`."""
        self.learner.go_back(weights)

    def scoring(self) -> dict[str, Any]:
        """As :meth:`Half.scoring`: calibration, and what the task knows of its labels."""
        return {"calibration": self._calibration.to_json(), **self._task.to_json()}

    def _alone(self, testing: Positions) -> tuple[Output | None, OwnRows]:
        """What a network of this party alone says of the rows measured on, None if it has no columns; and its rows."""
        held_out, table = self._evaluate.test_fraction > 0, self._data.table
        own = OwnRows.of(
            self._alignment,
            testing,
            held_out=held_out,
            records=len(table),
            validation=self._validation,
            order=table.order,
        )
        task = self._own_task
        logits = logits_alone(self._session, self._data, own, task, self._private.derive("network"))
        return None if logits is None else task.output(task.alone(logits)), own

    def _judge(self) -> dict[str, Tensor]:
        return prefixed("local", {k: v.cpu() for k, v in self._local.state_dict().items()} if self._local else {})

    def _used(
        self, number: int, positions: Positions, logits: Tensor, base_rate: Tensor, embeddings: Sequence[Tensor]
    ) -> Tensor:
        """The targets trained on: of real labels, else synthetic; the latter are computed for every row alike."""
        rows = torch.from_numpy(positions)
        targets = self._targets[rows]  # (B,) or (B, K)
        if self._synthetic is None:
            return targets
        real = self._real[rows]  # (B,)
        received = torch.cat([embedding.detach() for embedding in embeddings], dim=1)
        step = Step(number, positions, real, targets, self._calibration.seen(logits, base_rate), received)
        synthetic = self._synthetic.targets(step)
        return torch.where(real if targets.dim() == 1 else real[:, None], targets, synthetic)

    async def _logits(self, rows: ForwardPass, parts: HeldOutInputs | None = None) -> list[tuple[Tensor, Tensor]]:
        """Logits and q of the rows of each batch: float32[B], or [B, K], and float32[B]. ``parts`` are what the top read."""
        self.learner.rest()
        outputs = []
        for offset, positions in enumerate(rows.batches):
            embeddings = await self.peers.embeddings(rows.number + offset, positions)
            outputs.append(self._output(positions, embeddings))
            if parts is not None:
                parts.add(positions, embeddings)
        return outputs

    @torch.no_grad()
    def _output(self, positions: Positions, embeddings: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Logits and q by the own columns of the rows at ``positions``, and by ``embeddings``; the model is at rest."""
        logits = check_finite(self._model(self._inputs.at(positions), embeddings))
        return logits, self._base_rate[torch.from_numpy(positions)]

    def _contributions(self, parts: HeldOutInputs, randomness: Randomness) -> dict[str, Repeats]:
        """What each party's columns are worth on the held-out rows."""
        own = self._owned[parts.positions]
        labels = self._labels[parts.positions][own]

        def measured(columns: Positions, embeddings: Sequence[Tensor]) -> Values:
            batches = cut(np.arange(len(columns)), self._train.batch_size)
            outputs = [self._output(columns[of], [embedding[of] for embedding in embeddings]) for of in batches]
            scores = np.concatenate([self._calibration.expectation(*output) for output in outputs])
            return self._task.output(scores[own]).metrics(self._evaluate.metrics, labels, self._evaluate.threshold)

        active = None if self._inputs.schema.empty else self._session.name
        return drops(parts, self._owned, active, list(self._session.data_peers), measured, randomness)


def _labels(data: TrainingData) -> LabelColumn:
    """The label at each shared position, [m], as the table has it; 0 where there is none."""
    view, labels = data.alignment, data.table.labels
    if labels is None:
        raise DataError("the active party's table has no label column", code="E_NO_LABEL", hint="set data.label")
    return np.where(view.owned, labels[view.rows], 0).astype(labels.dtype)
