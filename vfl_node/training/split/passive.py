"""The passive party's half: a bottom."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vfl_node.crypto.randomness import Randomness
from vfl_node.models import architecture_of
from vfl_node.models.building import build_bottom
from vfl_node.models.storage import add_prefix, take_part
from vfl_node.privacy.attachment import Attachment
from vfl_node.privacy.defences.defence import Leaving, Sender, names_of_positions
from vfl_node.privacy.features.targets import Targets, targets_of
from vfl_node.process import failpoints
from vfl_node.session.session import Session
from vfl_node.training.evaluation import Figures
from vfl_node.training.messages import check_step, decode_tensor, receive_tensor, send_tensor
from vfl_node.training.network.half import (
    NO_ROWS,
    Defended,
    ForwardPass,
    Positions,
    RepeatStart,
    attach,
    learner,
    way_out,
    way_out_of_projections,
)
from vfl_node.training.network.local import check_finite
from vfl_node.training.network.recorder import StepRecorder
from vfl_node.training.schedule import cut
from vfl_node.training.split.config import Train
from vfl_node.training.split.contributions import ColumnMovements, draw_rows
from vfl_node.training.split.half import audit, decoder_audit, encode, go_on, own_columns
from vfl_node.training.split.matched import matched_passive
from vfl_node.training.split.missing.features.contract import substitute
from vfl_node.training.split.pretraining import PretrainingMeeting, make_pretraining, unshared_rows
from vfl_node.training.split.received import Received
from vfl_node.training.split.table_use import SplitTableUse
from vfl_node.training.trainer import TrainingData
from vfl_node.transport.generated.vfl.v1 import training_pb2


class PassiveHalf:
    """A bottom, which learns by the active party's gradients; it meets no other passive party. Args as :class:`ActiveHalf`."""

    def __init__(self, session: Session, data: TrainingData, start: RepeatStart) -> None:
        randomness, draws, repeat, training = start.randomness, start.draws, start.number, start.training
        self._channel, self._pins, train = session.peer, session.attempt.pins, Train.section_of(session.job)
        SplitTableUse(train).check("passive", data.table)
        outside = unshared_rows(train, data.alignment, len(data.table))
        self.encoder, self._inputs = encode(session, data, start.synthetic, training, outside)
        architecture = architecture_of(train.model, session.policy.models)
        self._bottom = build_bottom(architecture, train, self._inputs.schema, train.bottom)
        self.learner = learner(nn.ModuleDict({"bottom": self._bottom}), session, randomness, repeat)
        go_on(self.learner, session)
        self._alignment, self._expected = data.alignment, NO_ROWS
        self._owned = torch.from_numpy(data.alignment.owned).to(session.machine.device)
        self._substitute = substitute(train.missing.feature_strategy, draws) if data.alignment.missing else None
        self._training, self._batch_size = training, train.batch_size
        columns = partial(_targets, session, data)
        sender = Sender("embeddings", data.alignment.owned, self._bottom, self._inputs.take, columns)
        membership = audit(session, data, training, randomness, repeat)
        decoders = decoder_audit(session, data, columns, self._inputs.take, training, randomness, repeat)
        kept, rows, before = session.recording.transcript, data.alignment.rows, start.saved or {}
        recorder = projected = received = None
        if kept:
            recorder = StepRecorder("transcript", kept.embeddings, repeat, rows, before)
            projected = StepRecorder("projected", kept.projections, repeat, rows, before)
        if session.recording.received and repeat == 0:
            received = Received(session.recording.received, training, take_part("received", before))
        observers = (observer for observer in (membership, decoders, recorder, received) if observer is not None)
        self.exit = way_out(session, sender, draws, repeat, *observers)
        self._clock, self._seconds = session.machine.clock if session.policy.protection.defences else None, 0.0
        self._randomness = randomness.derive(f"matched/{repeat}") if repeat == 0 and session.job.evaluate.matched else None
        projecting = dataclasses.replace(sender, direction="projections")
        seen_before = (observer for observer in (decoders and decoders.projections, projected) if observer is not None)
        projections = way_out_of_projections(session, projecting, draws, repeat, *seen_before)
        meeting = PretrainingMeeting(session, projections, learn=self.step)
        self.pretraining = make_pretraining(
            session, data.alignment, self._bottom, self._inputs, training, outside, meeting, randomness, repeat
        )
        self.attachments: Sequence[Attachment] = attach(
            membership, decoders, recorder, projected, received, self._movements(session, randomness), self.pretraining
        )
        if (saved := start.saved) is not None:
            self.learner.restore(saved)
            for attachment in self.attachments:
                attachment.restore(take_part(attachment.name, saved))
            self.exit.restore(take_part("defences", saved))
            if self._substitute:
                self._substitute.restore(take_part("substitute", saved))

    def _movements(self, session: Session, randomness: Randomness) -> ColumnMovements | None:
        """What each column does to the embeddings, if the job asks for contributions."""
        columns, owned = own_columns(session, self.encoder, self._inputs), np.flatnonzero(self._alignment.owned)
        if not columns or not len(owned):
            return None
        randomness = randomness.derive("movements")
        rows = self._inputs.take(draw_rows(owned, randomness.derive("rows")))
        return ColumnMovements(self._bottom, rows, columns, randomness)

    def expect(self, positions: Positions) -> None:
        """As :meth:`Half.expect`."""
        self._expected = positions

    async def step(self, number: int, positions: Positions) -> None:
        """As :meth:`Half.step`."""
        leaving = Leaving(f"step/{number}", positions)
        if self.exit.defends:
            with self._time_defences(), self.learner.rehearse():  # with norms by the batch, as it sends
                self.exit.prepare(leaving)
        self.learner.begin(number)
        embedding = self._embedding(leaving.label, positions, learn=True)  # (B, d)
        await self._send(number, self.exit.step(embedding.detach(), leaving))
        if len(self._expected):
            self._inputs.fetch(self._expected)
        gradient = await self._gradient(number, embedding)  # (B, d)
        penalty = self.exit.penalty(embedding, leaving)
        if penalty is not None:
            penalty.backward(retain_graph=True)  # type: ignore[no-untyped-call]
        embedding.backward(gradient)  # type: ignore[no-untyped-call]
        self.learner.step()
        self.exit.step_done(gradient)

    def figures(self) -> Figures:
        """As :meth:`Half.figures`: nothing."""
        return Figures()

    def defence_figures(self) -> Defended:
        """As :meth:`Half.defence_figures`."""
        seconds, self._seconds = self._seconds, 0.0
        return Defended(seconds, self.exit.figures())

    async def validate(self, rows: ForwardPass) -> Figures:
        """As :meth:`Half.validate`: nothing is known here. The weights that are measured, and may be kept, are settled."""
        self._settle(rows.number)
        await self._forward(rows)
        return Figures()

    async def evaluate(self, rows: ForwardPass, validated: ForwardPass | None = None) -> None:
        """As :meth:`Half.evaluate`. Weights that were validated are settled already."""
        if validated is None:
            self._settle(rows.number)
        await self._forward(rows, validated)
        if self._randomness:
            owned = self._alignment.owned[np.concatenate(rows.batches)]
            await matched_passive(self._channel, owned, self._randomness, pins=self._pins)

    def _settle(self, number: int) -> None:
        """Let the defences prepare the weights as they are before message ``number``, the last ones for now."""
        self.learner.rest()
        batches = cut(self._training, self._batch_size)
        with self._time_defences():
            self.exit.settle([Leaving(f"settle/{number}/{place}", positions) for place, positions in enumerate(batches)])

    @contextmanager
    def _time_defences(self) -> Iterator[None]:
        """Takes the time of what is done within, if there are defences."""
        started = self._clock() if self._clock else 0.0
        yield
        if self._clock:
            self._seconds += self._clock() - started

    async def _forward(self, rows: ForwardPass, earlier: ForwardPass | None = None) -> None:
        """Send embeddings of ``rows``, judged beside the ``earlier`` ones that met the same weights."""
        self.learner.rest()
        with torch.no_grad():  # never across an await: another party may compute on this thread meanwhile
            leaving = _batches(rows)
            embeddings = [self._embedding(batch.label, batch.positions, learn=False) for batch in leaving]
            known = [
                (self._embedding(batch.label, batch.positions, learn=False), batch)
                for batch in (_batches(earlier) if earlier else ())
            ]
            sent = self.exit.protect_held_out(embeddings, leaving, earlier=known)
        for offset, embedding in enumerate(sent):
            await self._send(rows.number + offset, embedding)

    def tensors(self) -> dict[str, Tensor]:
        """As :meth:`Half.tensors`."""
        return {**self.learner.tensors(), **add_prefix("defences", self.exit.state()), **self._averages()}

    def weights(self) -> dict[str, Tensor]:
        """As :meth:`Half.weights`."""
        return {**self.learner.weights(), **self._averages()}

    def go_back(self, weights: Mapping[str, Tensor]) -> None:
        """As :meth:`Half.go_back`."""
        self.learner.go_back(weights)
        if self._substitute:
            self._substitute.restore(take_part("substitute", weights))

    def scoring(self) -> dict[str, Any]:
        """As :meth:`Half.scoring`: nothing."""
        return {}

    def _averages(self) -> dict[str, Tensor]:
        return add_prefix("substitute", self._substitute.tensors()) if self._substitute else {}

    def _embedding(self, label: str, positions: Positions, *, learn: bool) -> Tensor:
        """float32[B, d]; where the strategy says so, embeddings of rows that are not its own are drawn."""
        embedding: Tensor = self._bottom(self._inputs.take(positions))
        if self._substitute is None:
            return embedding
        return self._substitute(label, embedding, self._owned[torch.from_numpy(positions)], learn=learn)

    async def _send(self, number: int, embedding: Tensor) -> None:
        failpoints.reach("forward")
        await send_tensor(self._channel, training_pb2.Embedding(step=number), check_finite(embedding))

    async def _gradient(self, number: int, embedding: Tensor) -> Tensor:
        message, tensor = await receive_tensor(self._channel, training_pb2.Gradient)
        check_step(self._channel, message.step, number)
        return decode_tensor(self._channel, tensor, tuple(embedding.shape)).to(embedding.device)


def _targets(session: Session, data: TrainingData, names: Sequence[str]) -> Targets:
    """What a decoder of this party's columns is to give at each shared position."""
    return targets_of(data.table, data.alignment.rows, names, session.machine.device, party=session.name)


def _batches(rows: ForwardPass) -> list[Leaving]:
    """The batches of ``rows`` as the defences see them."""
    return [
        Leaving(f"step/{rows.number + at}", positions, rows=partial(names_of_positions, positions, rows.epoch))
        for at, positions in enumerate(rows.batches)
    ]
