"""The active party's half of a split network: its own bottom, if it has columns, and the top, with labels, loss and metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vfl_node.crypto.randomness import Randomness
from vfl_node.models import architecture_of
from vfl_node.models.building import build_classifier
from vfl_node.models.inputs import ModelInput
from vfl_node.models.storage import add_prefix, take_part
from vfl_node.privacy.attachment import Attachment, Forward, TrainingStep
from vfl_node.privacy.defences.defence import Leaving, Sender
from vfl_node.process import failpoints
from vfl_node.session.session import Session
from vfl_node.training.evaluation import Evaluation, Figures, measure
from vfl_node.training.network.half import (
    Defended,
    ForwardPass,
    Positions,
    RepeatStart,
    attach,
    learner,
    way_out_of_projections,
)
from vfl_node.training.network.local import check_finite
from vfl_node.training.split.config import Train
from vfl_node.training.split.contributions import HeldOutInputs
from vfl_node.training.split.conversations import Conversations
from vfl_node.training.split.half import audit_of_peers, encode, go_on, label_meter, likeness, own_columns, row_column_meters
from vfl_node.training.split.held_out import HeldOutRows
from vfl_node.training.split.local_branch import ActiveParts
from vfl_node.training.split.outside import make_branch, repeat_to_announced, rows_outside
from vfl_node.training.split.pretraining import PretrainingMeeting, make_pretraining
from vfl_node.training.split.supervision import Supervision
from vfl_node.training.split.tasks import start_at_rate
from vfl_node.training.trainer import TrainingData
from vfl_node.training.unaligned.pretraining import Pretraining


class ActiveHalf:
    """The active party's half: its own bottom, if it has columns, and the top, with labels, loss and metrics.

    Args:
        session: the active party's session, with its channels to the peers.
        data: the rows that it trains on.
        start: how the repeat begins, or where it goes on.
    """

    def __init__(self, session: Session, data: TrainingData, start: RepeatStart) -> None:
        randomness, draws, repeat, training = start.randomness, start.draws, start.number, start.training
        train, saved = Train.section_of(session.job), start.saved
        self._supervision = supervision = Supervision(session, data, start, training)
        rows = rows_outside(session, data, training)
        self.encoder, self._inputs = encode(session, data, start.synthetic, training, rows)
        audit = audit_of_peers(session, data, training, randomness, repeat)
        self._peers = Conversations(session, Sender("gradients", supervision.owned), draws, repeat, audit)
        architecture = architecture_of(train.model, session.policy.models)
        self._model = build_classifier(architecture, train, self._inputs.schema, self._peers.widths)
        self.learner = learner(self._model, session, randomness, repeat)
        start_at_rate(self._model, supervision.task, train)
        go_on(self.learner, session)
        outside = self._rows_outside(session, data, training, rows, randomness.derive(f"unaligned/{repeat}"), saved or {})
        compared = likeness(session, training, repeat)
        self.pretraining = self._make_pretraining(session, data, training, rows, randomness, draws, repeat)
        meter = label_meter(session, data, supervision.labels, supervision.labelled)
        columns_of_rows = {"row_weight": supervision.weight_values, "row_offset": supervision.offset_values}
        meters = (meter, *row_column_meters(session, data, supervision.labelled, columns_of_rows))
        self.attachments: Sequence[Attachment] = attach(audit, *meters, compared, outside, self.pretraining)
        if saved is not None:
            self.learner.restore(saved)
            self._peers.restore(take_part("defences", saved))
            for attachment in self.attachments:
                attachment.restore(take_part(attachment.name, saved))
        supervision.learn_base_rates(session, self._inputs, randomness.derive(f"local/{repeat}"), saved)
        columns = not self._inputs.schema.empty
        self._held_out = HeldOutRows(
            session, data, supervision, rows, start.validation, randomness, repeat, compared, columns=columns
        )
        self._columns = own_columns(session, self.encoder, self._inputs)
        self._met: list[tuple[Positions, Tensor, float]] = []
        """Positions, logits and loss of each batch since the last call of :meth:`figures`."""
        self._ranks = repeat == 0 and "auc" in session.job.evaluate.metrics  # only the first repeat's epochs are reported

    def expect(self, positions: Positions) -> None:
        """As :meth:`Half.expect`: this party waits for the batch of the step itself, whose rows it looks up meanwhile."""

    async def step(self, number: int, positions: Positions) -> None:
        """As :meth:`Half.step`."""
        self.learner.begin(number)
        bottom = self._model.bottom
        self._supervision.look_up(positions)
        own = None if bottom is None else bottom(self._inputs.take(positions))  # (B, d'), while peers compute their embeddings
        embeddings = [
            embedding.requires_grad_() for embedding in await self._peers.embeddings(number, positions)
        ]  # (B, d) each
        logits = self._model.head_logits([*([] if own is None else [own]), *embeddings])  # (B,) or (B, K)
        logits = self._supervision.add_offsets(logits, positions)
        targets = self._supervision.step_targets(number, positions, logits.detach(), embeddings)
        loss = self._supervision.loss(logits, targets, positions)
        beside = self._added_loss(Forward(positions, own, embeddings, targets))
        learnt = check_finite(loss if beside is None else loss + beside)
        gradients = torch.autograd.grad(learnt, embeddings, retain_graph=True)
        failpoints.reach("backward")
        scale = len(positions) / self._supervision.largest_weight
        await self._peers.send(number, gradients, Leaving(f"step/{number}", positions, labels=targets, mean_of=scale))
        self.learner.backward(learnt, alone=beside is None)  # while peers compute their own backward pass
        self.learner.step()
        self._peers.step_done()
        self._met.append((positions, logits.detach(), loss.item()))
        for attachment in self.attachments:
            attachment.step_done(TrainingStep(positions, embeddings, self._peers.sent))

    def figures(self) -> Figures:
        """As :meth:`Half.figures`, from the logits that the steps have computed: it costs one sort and sends nothing."""
        batches, logits, losses = zip(*self._met, strict=True)
        self._met = []
        positions = np.concatenate(batches)
        loss = sum(loss * len(batch) for batch, loss in zip(batches, losses, strict=True)) / len(positions)
        if not self._ranks:
            return Figures(loss)
        owned = np.flatnonzero(self._supervision.owned[positions])
        rows = positions[owned]
        scores = self._supervision.expectation(torch.cat(logits)[torch.from_numpy(owned)], rows)
        return Figures(loss, measure(("auc",), self._supervision.labels[rows], scores)["auc"])

    def defence_figures(self) -> Defended:
        """As :meth:`Half.defence_figures`. Empty: only defences of embeddings have figures."""
        return Defended()

    async def validate(self, rows: ForwardPass) -> Figures:
        """As :meth:`Half.validate`, measured on those of the rows that this party owns."""
        supervision, logits = self._supervision, await self._logits(rows)
        scores = np.concatenate([supervision.expectation(*each) for each in zip(logits, rows.batches, strict=True)])
        positions = np.concatenate(rows.batches)
        owned = supervision.owned[positions]
        positions, scores = positions[owned], scores[owned]
        auc = measure(("auc",), supervision.labels[positions], scores)["auc"] if self._ranks else None
        return Figures(validation_loss=supervision.mean_loss(positions, scores), validation_auc=auc)

    async def evaluate(self, rows: ForwardPass, validated: ForwardPass | None = None) -> Evaluation:
        """As :meth:`Half.evaluate`, on the rows that this party owns; if the job says so, also on those that both own."""
        inputs = self._held_out.make_inputs()
        logits = await self._logits(rows, inputs)
        evaluation = await self._held_out.measure(rows.batches, logits, inputs, self._logits_of)
        return self._held_out.add_columns(evaluation, inputs, self._inputs, self._columns, self._logits_of)

    def tensors(self) -> dict[str, Tensor]:
        """As :meth:`Half.tensors`."""
        defended = add_prefix("defences", self._peers.state())
        return {**self.learner.tensors(), **defended, **self._supervision.tensors()}

    def weights(self) -> dict[str, Tensor]:
        """As :meth:`Half.weights`: the weights of the joint model, and those of the local model under the names ``local.NAME``.

        The local model gives the base rate of each row: the label to expect by this party's columns alone.
        """
        return {**self.learner.weights(), **self._supervision.weights()}

    def go_back(self, weights: Mapping[str, Tensor]) -> None:
        """As :meth:`Half.go_back`."""
        self.learner.go_back(weights)

    def scoring(self) -> dict[str, Any]:
        """As :meth:`Half.scoring`: the calibration, and what the task stores about its labels."""
        return self._supervision.to_json()

    def _rows_outside(
        self,
        session: Session,
        data: TrainingData,
        training: Positions,
        rows: Positions,
        randomness: Randomness,
        saved: Mapping[str, Tensor],
    ) -> Attachment | None:
        """The attachment that learns from ``rows``, which are rows of the table outside of the alignment."""
        supervision, beside = self._supervision, repeat_to_announced(session, data, rows, randomness)
        parts = ActiveParts(
            session,
            supervision.table,
            data.alignment,
            self._model,
            self.learner,
            self._inputs,
            supervision.task,
            training,
            beside,
            randomness,
        )
        return make_branch(parts, take_part("outside", saved))

    def _make_pretraining(
        self,
        session: Session,
        data: TrainingData,
        training: Positions,
        rows: Positions,
        randomness: Randomness,
        draws: Randomness,
        repeat: int,
    ) -> Pretraining | None:
        bottom = self._model.bottom
        sender = Sender("projections", self._supervision.owned, bottom, self._inputs.take)
        projections = way_out_of_projections(session, sender, draws, repeat)
        meeting = PretrainingMeeting(session, projections, conversations=self._peers)
        return make_pretraining(session, data.alignment, bottom, self._inputs, training, rows, meeting, randomness, repeat)

    def _added_loss(self, forward: Forward) -> Tensor | None:
        """The sum of the terms that attachments add to the loss; None if none adds one."""
        terms = [term for attachment in self.attachments if (term := attachment.loss_beside(forward)) is not None]
        return torch.stack(terms).sum() if terms else None

    async def _logits(self, rows: ForwardPass, inputs: HeldOutInputs | None = None) -> list[Tensor]:
        """Logits of the rows of each batch, float32[B] or [B, K]. If ``inputs`` is given, it stores their embeddings."""
        self.learner.rest()
        outputs = []
        for offset, positions in enumerate(rows.batches):
            embeddings = await self._peers.embeddings(rows.number + offset, positions)
            outputs.append(self._logits_of(positions, embeddings))
            if inputs is not None:
                inputs.add(positions, embeddings)
        return outputs

    @torch.no_grad()
    def _logits_of(self, positions: Positions, embeddings: Sequence[Tensor], own: ModelInput | None = None) -> Tensor:
        """Logits of the rows at ``positions``, from this party's columns of these rows and from the peers' ``embeddings``.

        The model must not be training. If ``own`` is given, it stands for these columns.
        """
        logits = self._model(self._inputs.take(positions) if own is None else own, embeddings)
        return check_finite(self._supervision.add_offsets(logits, positions))
