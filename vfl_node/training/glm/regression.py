"""Genuine-with-dummy training: the loop that all data parties walk through in step.

::

    toss a seed → which shared rows are held out, and batches if the job has them
    the key: from the active party (two-party) or the coordinator, checked
    how many columns each passive party has; too few rows for them are refused
    for each iteration:  clear.py, blind.py or strong_labels.py
                         a checkpoint at each
    each passive party's scores of the held-out rows, for the metrics

The model is z = θ_a·x_a + b + Σ_j θ_j·x_j over the passive parties j; each party keeps its own θ. Only rows that the active
party owns enter the sums; dummies take the same way with residuals of 0, under encryption. Passive parties have no
conversation with each other.
The result equals plaintext regression (:mod:`~vfl_node.training.glm.plain`) on the genuine rows from the same start, up to the
rounding of fixed point (see :mod:`vfl_node.training.glm.scales`).

What every party learns: :mod:`vfl_node.training.glm.disclosures`, and docs/guides/train-a-logistic-regression.md.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict

import numpy as np
import torch
from torch import Tensor

from vfl_node.crypto.paillier import keys
from vfl_node.crypto.paillier.encryption import Encryptor
from vfl_node.crypto.paillier.keys import PrivateKey, PublicKey
from vfl_node.metrics.classes import compute
from vfl_node.process import failpoints
from vfl_node.progress import Advanced, EpochTrained, PhaseBegan, ResultDoubted
from vfl_node.session.session import Session, bytes_moved
from vfl_node.training.additive.stored import StoredBatches
from vfl_node.training.checkpoints import Checkpoints
from vfl_node.training.evaluation import Evaluation, Figures
from vfl_node.training.glm.agreement import check, exchange_widths
from vfl_node.training.glm.blind import ActiveBlind, PassiveBlind
from vfl_node.training.glm.clear import ActiveClear, PassiveClear
from vfl_node.training.glm.config import GeneralisedLinear
from vfl_node.training.glm.decryption import DecryptionService, Decryptor
from vfl_node.training.glm.decryption_log import DecryptionLog
from vfl_node.training.glm.disclosures import Numbers, learns
from vfl_node.training.glm.exchange import receive_scores, send_scores
from vfl_node.training.glm.flow import Flow, IterationContext, Outcome
from vfl_node.training.glm.masked_decryption import MaskedDecryption
from vfl_node.training.glm.masked_tensors import MaskedTensor, shapes, tensors_of
from vfl_node.training.glm.measuring import labels_of, measure, output_of
from vfl_node.training.glm.place import IterationPlace, resume_place
from vfl_node.training.glm.prepared_inputs import PreparedInputs, prepare
from vfl_node.training.glm.scales import Scales
from vfl_node.training.glm.section import GlmSection
from vfl_node.training.glm.side import Positions
from vfl_node.training.glm.strong_labels import ActiveWithoutLabels, PassiveWithLabels
from vfl_node.training.own_columns import describe_used
from vfl_node.training.schedule import Schedule, toss_schedule
from vfl_node.training.sharing import receive_figures, send_figures
from vfl_node.training.summary import Summary, summarise
from vfl_node.training.trainer import Epoch, Servable, Trained, TrainingData
from vfl_node.transport.channel import Channel
from vfl_node.transport.pipe import Traffic

FLOWS: Mapping[tuple[str, str, str], Callable[[IterationContext], Flow]] = {
    ("two-party", "active", "active"): ActiveClear,
    ("two-party", "active", "passive"): PassiveClear,
    ("coordinator-open-scores", "active", "active"): ActiveClear,
    ("coordinator-open-scores", "active", "passive"): PassiveClear,
    ("coordinator", "active", "active"): ActiveBlind,
    ("coordinator", "active", "passive"): PassiveBlind,
    ("coordinator", "passive", "active"): ActiveWithoutLabels,
    ("coordinator", "passive", "passive"): PassiveWithLabels,
}
"""(flow, which party has the labels, role) → that party's part of an iteration."""


async def regress(
    session: Session,
    data: TrainingData,
    checkpoints: Checkpoints,
    logs: Mapping[str, DecryptionLog],
    *,
    resume_from: str | None = None,
) -> Trained:
    """Train with the other data parties.

    Args:
        session: the conversations with them, in which phase ``train`` is opened and ended here; with the coordinator, phase
            ``decrypt``, in all flows but that of two parties.
        data: what this party trains on.
        checkpoints: where its state is kept.
        logs: other data party → what this one has decrypted for it; used if this party holds the key.
        resume_from: name of a checkpoint that all data parties hold, or None to begin.

    Raises:
        DataError: no columns (``E_NO_FEATURES``), nothing to train on (``E_EMPTY``), one class only (``E_ONE_CLASS``),
            scores out of range (``E_DIVERGED``).
        PolicyError: too few rows for the columns (``E_BATCH``), or columns that hide nothing (``E_NO_COVER``).
        ProtocolError: a key that is not well formed (``E_KEY``), bytes that are no ciphertext (``E_CIPHERTEXT``), a
            refused decryption (``E_DECRYPTION``), another step, shape or type.
        StateError: the checkpoint is damaged or of another schedule.
        UsageError: values that do not fit the key (``E_OVERFLOW``).

    Cost: with m shared rows, d columns of a passive party and n the modulus: an iteration takes m encryptions and, at each
        passive party, m·d products modulo n²; m ciphertexts of 2·|n| bits travel to each (twice in the coordinator flow).

    Leaks: see :mod:`vfl_node.training.glm.disclosures`.
    """
    regression = _Regression(session, data, checkpoints, logs)
    async with session.phase("train") as traffic:
        if session.coordinator is None:
            return await regression.train(resume_from, traffic)
        async with session.coordinator.phase("decrypt"):
            return await regression.train(resume_from, traffic)


class _Regression:
    """One attempt of one party."""

    def __init__(
        self, session: Session, data: TrainingData, checkpoints: Checkpoints, logs: Mapping[str, DecryptionLog]
    ) -> None:
        self._session, self._data, self._checkpoints, self._logs = session, data, checkpoints, logs
        self._train, self._evaluate = GeneralisedLinear.section_of(session.job), session.job.evaluate
        self._channels, self._passive_parties = tuple(session.data_peers.values()), len(session.job.parties.passive)
        self._coordinator, self._randomness = session.coordinator, session.randomness
        self._service: DecryptionService | None = None
        self._decryptor: Decryptor | None = None

    async def train(self, resume_from: str | None, traffic: Sequence[Traffic]) -> Trained:
        """Train, from the toss to the metrics."""
        session, train = self._session, self._train
        self._schedule = schedule = await toss_schedule(session, len(self._data.alignment), train.seed)
        self._training, self._testing = schedule.split(0, self._evaluate.test_fraction)
        own = prepare(session, self._data, self._training, self._randomness)
        place = resume_place(self._checkpoints, resume_from, own.side, schedule.fingerprint)
        context = await self._context(own, schedule, place)
        flow = FLOWS[train.flow, train.labels, session.role](context)

        session.progress.emit(PhaseBegan("train", train.iterations, "iterations"))
        session.progress.emit(Advanced(place.step))
        while place.step < train.iterations and not place.over:
            started, moved = session.machine.clock(), bytes_moved(traffic)
            outcome = await flow.iterate(place.step)
            moved = bytes_moved(traffic) - moved
            epoch = Epoch(outcome.loss, self._auc(outcome, context, place.step), session.machine.clock() - started, moved)
            failpoints.reach("updated")
            place.advance(epoch, last=outcome.last)
            context.losses.append(outcome.loss)
            place.save(self._checkpoints, own.side, schedule.fingerprint)
            session.progress.emit(Advanced(1))
            if outcome.loss is not None:
                session.progress.emit(EpochTrained(epoch.loss, auc=epoch.auc, seconds=epoch.seconds, number=place.step))
        if self._coordinator and self._decryptor:
            await self._decryptor.end()
        return await self._finish(own, place)

    async def _context(self, own: PreparedInputs, schedule: Schedule, place: IterationPlace) -> IterationContext:
        """Send or receive the key, and agree on the numbers of columns."""
        session, train = self._session, self._train
        self._size = min(train.batch_size or len(self._training), len(self._training))
        self._scales = scales = Scales.from_config(train, self._passive_parties)
        if train.flow == "two-party":
            public, encrypting = await self._meet_in_two_party_flow(session.peer)
        else:
            assert self._coordinator is not None
            self._decryptor = Decryptor(self._coordinator, train, session.machine.processes)
            public, encrypting = await self._decryptor.meet(), None
        positions = _positions(schedule, self._training, self._size)
        self._widths = await exchange_widths(session, own.side, public)
        self._warnings = check(session, self._data, own.side, self._widths, self._size, self._training, positions)
        encryptor = Encryptor(
            public,
            self._randomness.derive(f"attempt/{session.attempt.number}/encryption"),
            session.machine.processes,
            short_exponents=train.short_exponents,
            private=encrypting,
        )
        opening = None
        if self._decryptor:
            opening = MaskedDecryption(
                self._decryptor, encryptor, train, scales, self._randomness, session.attempt.number, session.machine.processes
            )
            plans = self._plans(scales)
            theirs = {name: plan for name, plan in plans.items() if name != session.name and self._coordinator}
            await opening.plan(plans[session.name], place.step, theirs)
        if self._service:
            await self._service.take_plan(self._plans(scales)[session.peer.peer])
        return IterationContext(
            channels=self._channels,
            passive_parties=self._passive_parties,
            side=own.side,
            train=train,
            scales=scales,
            public=public,
            encryptor=encryptor,
            workers=session.machine.processes,
            opening=opening,
            service=self._service,
            targets=own.targets,
            lasting=self._randomness,
            positions=positions,
            losses=[epoch.loss for epoch in place.epochs],
            row_weights=own.row_weights,
        )

    async def _meet_in_two_party_flow(self, channel: Channel) -> tuple[PublicKey, PrivateKey | None]:
        """The active party's key: it makes and sends it, and decrypts for the passive one, which receives it."""
        session, train = self._session, self._train
        if session.role == "passive":
            self._decryptor = Decryptor(channel, train, session.machine.processes)
            return await self._decryptor.meet(), None
        private = keys.generate(train.key_bits, self._randomness.derive("paillier key"))
        log = self._logs[channel.peer]
        self._service = DecryptionService(
            channel, private, train, session.job.parties, session.machine.processes, log, session.attempt.pins
        )
        await self._service.send_key()
        return private.public, private

    def _auc(self, outcome: Outcome, context: IterationContext, step: int) -> float | None:
        if outcome.scores is None or context.targets is None or "auc" not in self._evaluate.metrics:
            return None
        positions = context.positions(step)
        own = context.side.owned[positions]
        output, labels = output_of(outcome.scores[own]), labels_of(context.targets[positions][own])
        return compute(("auc",), labels, output.scores, output.probabilities)["auc"]

    async def _finish(self, own: PreparedInputs, place: IterationPlace) -> Trained:
        """Measure the model, and gather everything that is reported."""
        session, train, evaluate = self._session, self._train, self._evaluate
        rows = len(self._training), len(self._testing)
        measured = await self._measure(own)
        epochs, results = place.epochs, None
        if measured:
            results = summarise([measured], *rows, real_share=1.0, kind=f"a {train.title} of the same kind")
        if evaluate.share_with_passive and measured:
            for channel in self._channels:
                await send_figures(channel, [Figures(epoch.loss, epoch.auc) for epoch in epochs], measured.metrics)
        elif evaluate.share_with_passive:
            shared, metrics = await receive_figures(session.peer, len(epochs), evaluate.metrics)
            results = Summary(metrics)
            epochs = [dataclasses.replace(epoch, **asdict(figures)) for epoch, figures in zip(epochs, shared, strict=True)]
        plans = {name: plan for name, plan in self._plans(self._scales).items() if plan}
        each = {name: [tensor.values(train.outputs) for tensor in plan] for name, plan in plans.items()}
        decryptions = {name: place.step * sum(counts) for name, counts in each.items()}
        bits = {
            name: place.step * sum(count * tensor.returned_bits for count, tensor in zip(counts, plans[name], strict=True))
            for name, counts in each.items()
        }
        if self._service:  # which knows better: an iteration that was repeated was decrypted again
            count = self._service.count
            decryptions[session.peer.peer], bits[session.peer.peer] = count.values, count.bits
        for text in (*own.warnings, *self._warnings):
            session.progress.emit(ResultDoubted(text))
        numbers = Numbers(self._size, place.step, self._widths, len(self._testing), bits)
        return Trained(
            epochs=tuple(epochs),
            steps=place.step,
            rows=rows,
            split=self._schedule.split_seed,
            device="cpu",
            disclosures=learns(session.job.parties, train, evaluate, numbers),
            section=GlmSection(
                flow=train.flow,
                rows=len(self._training),
                features={name: self._widths.get(name) for name in session.job.parties.data},
                rounds=place.step,
                decryptions=decryptions,
                decrypted_bits=bits,
                dropped=own.dropped,
            ),
            warnings=(*own.warnings, *self._warnings),
            weights={**own.side.model(), **_unit(own)},
            encoder=own.encoder.to_json(),
            servable=Servable(StoredBatches.from_schedule(self._schedule).to_json(), self._shown),
            columns=describe_used(own.encoder, own.used, self._data.table),
            results=results,
            held_out=self._testing if evaluate.test_fraction else np.empty(0, dtype=np.int64),
        )

    @property
    def _shown(self) -> Positions:
        """Rows of which the active party has this party's scores by the trained weights."""
        sent = self._session.role == "passive" and self._train.labels == "active"
        return self._testing if sent else np.empty(0, dtype=np.int64)

    async def _measure(self, own: PreparedInputs) -> Evaluation | None:
        """Results at the active party, to which the others send their scores of the rows measured on."""
        failpoints.reach("evaluate")
        train = self._train
        if train.labels == "passive":
            return None
        if self._session.role == "passive":
            await send_scores(self._session.peer, train.iterations, own.side.scores(self._testing))
            return None
        theirs = [await receive_scores(peer, train.iterations, len(self._testing), train.outputs) for peer in self._channels]
        return measure(self._session, self._data, own, self._training, self._testing, np.sum(theirs, axis=0))

    def _plans(self, scales: Scales) -> dict[str, tuple[MaskedTensor, ...]]:
        """Party → what it may have decrypted in an iteration, of the parties whose width this one knows."""
        parties, train = self._session.job.parties, self._train
        return {
            name: shapes(tensors_of(train, "active" if name == parties.active else "passive"), width, scales)
            for name, width in self._widths.items()
        }


def _unit(own: PreparedInputs) -> dict[str, Tensor]:
    """Mean and deviation of a target, float64[2]: it is predicted as mean + deviation · score."""
    return {} if own.scale is None else {"target": torch.tensor([own.scale.mean, own.scale.deviation], dtype=torch.float64)}


def _positions(schedule: Schedule, training: Positions, size: int) -> Callable[[int], Positions]:
    """The shared rows of each iteration: all, or a batch of ``size``. The incomplete last batch of an epoch is left out."""
    if size == len(training):
        return lambda step: training
    per_epoch = len(training) // size
    known: dict[int, list[Positions]] = {}

    def positions(step: int) -> Positions:
        epoch, place = divmod(step, per_epoch)
        if epoch not in known:
            known.clear()
            known[epoch] = schedule.batches(0, epoch, training, size)
        return known[epoch][place]

    return positions
