"""Genuine-with-dummy training: the loop that both data parties walk through in step.

::

    toss a seed → which shared rows are held out, and batches if the job has them
    the key: from the active party (two-party) or the coordinator, checked
    how many columns the passive party has; too few rows for them are refused
    for each iteration:  clear.py, blind.py or strong_labels.py
                         a checkpoint at both
    the passive party's scores of the held-out rows, for the metrics

The model is z = θ_a·x_a + b + θ_p·x_p; each party keeps its own θ. Only rows that the active
party owns enter the sums; dummies take the same way with residuals of 0, under encryption.
The result equals plaintext regression (:mod:`~vfl_node.training.glm.plain`) on the genuine rows from the same start, up to the
rounding of fixed point (see :mod:`vfl_node.training.glm.scales`).

What every party learns: :mod:`vfl_node.training.glm.disclosures`, and docs/logistic.md.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

import numpy as np
import torch
from torch import Tensor

from vfl_node import failpoints
from vfl_node.crypto.paillier import keys
from vfl_node.crypto.paillier.encryption import Encryptor
from vfl_node.data.encoded import encoded_columns
from vfl_node.metrics import compute
from vfl_node.progress import Advanced, EpochTrained, PhaseBegan
from vfl_node.session.session import Session
from vfl_node.session.toss import toss
from vfl_node.training.checkpoints import Checkpoints, load_of
from vfl_node.training.evaluation import Evaluation, Figures, summarise
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
from vfl_node.training.glm.prepared_inputs import PreparedInputs, prepare
from vfl_node.training.glm.scales import Scales
from vfl_node.training.glm.section import GlmSection
from vfl_node.training.glm.side import Positions, Side
from vfl_node.training.glm.strong_labels import ActiveWithoutLabels, PassiveWithLabels
from vfl_node.training.schedule import Schedule
from vfl_node.training.sharing import receive_figures, send_figures
from vfl_node.training.trainer import Epoch, Servable, Trained, TrainingData
from vfl_node.transport.channel import Traffic

FLOWS: Mapping[tuple[str, str, str], Callable[[IterationContext], Flow]] = {
    ("two-party", "active", "active"): ActiveClear,
    ("two-party", "active", "passive"): PassiveClear,
    ("coordinator-clear", "active", "active"): ActiveClear,
    ("coordinator-clear", "active", "passive"): PassiveClear,
    ("coordinator", "active", "active"): ActiveBlind,
    ("coordinator", "active", "passive"): PassiveBlind,
    ("coordinator", "passive", "active"): ActiveWithoutLabels,
    ("coordinator", "passive", "passive"): PassiveWithLabels,
}
"""(flow, which party has the labels, role) → that party's part of an iteration."""


async def regress(
    session: Session, data: TrainingData, checkpoints: Checkpoints, log: DecryptionLog, *, resume_from: str | None = None
) -> Trained:
    """Train with the other data party.

    Args:
        session: the conversation with it, in which phase ``train`` is opened and ended here; with the coordinator, phase
            ``decrypt``, in all flows but that of two parties.
        data: what this party trains on.
        checkpoints: where its state is kept.
        log: what this party has decrypted for the other; used if it holds the key.
        resume_from: name of a checkpoint that both data parties hold, or None to begin.

    Raises:
        DataError: no columns (``E_NO_FEATURES``), nothing to train on (``E_EMPTY``), one class only (``E_ONE_CLASS``),
            scores out of range (``E_DIVERGED``).
        PolicyError: too few rows for the columns (``E_BATCH``), or columns that hide nothing (``E_NO_COVER``).
        ProtocolError: a key that is not well formed (``E_KEY``), bytes that are no ciphertext (``E_CIPHERTEXT``), a
            refused decryption (``E_DECRYPTION``), another step, shape or type.
        StateError: the checkpoint is damaged or of another schedule.
        UsageError: values that do not fit the key (``E_OVERFLOW``).

    Cost: with m shared rows, d columns of the passive party and n the modulus: an iteration takes m encryptions and m·d
        products modulo n²; m ciphertexts of 2·|n| bits travel (twice in the coordinator flow).

    Leaks: see :mod:`vfl_node.training.glm.disclosures`.
    """
    regression = _Regression(session, data, checkpoints, log)
    async with session.peer.phase("train") as traffic:
        if session.coordinator is None:
            return await regression.train(resume_from, traffic)
        async with session.coordinator.phase("decrypt"):
            return await regression.train(resume_from, traffic)


class _Regression:
    """One attempt of one party."""

    def __init__(self, session: Session, data: TrainingData, checkpoints: Checkpoints, log: DecryptionLog) -> None:
        self._session, self._data, self._checkpoints, self._log = session, data, checkpoints, log
        self._train, self._evaluate = GeneralisedLinear.of(session.job), session.job.evaluate
        self._channel, self._coordinator, self._randomness = session.peer, session.coordinator, session.randomness

    async def train(self, resume_from: str | None, traffic: Traffic) -> Trained:
        """From the toss to the metrics."""
        session, train = self._session, self._train
        seed = await toss(session, self._randomness.derive("toss"))
        schedule = Schedule(seed, len(self._data.alignment), train.seed)
        self._training, self._testing = schedule.split(0, self._evaluate.test_fraction)
        own = prepare(session, self._data, self._training, self._randomness)
        place = _resume(self._checkpoints, resume_from, own.side, schedule.fingerprint)
        context = await self._context(own, schedule, place)
        flow = FLOWS[train.flow, train.labels, session.role](context)

        session.progress.emit(PhaseBegan("train", train.iterations, "iterations"))
        session.progress.emit(Advanced(place.step))
        while place.step < train.iterations and not place.over:
            started, moved = session.clock(), traffic.bytes_sent + traffic.bytes_received
            outcome = await flow.iterate(place.step)
            moved = traffic.bytes_sent + traffic.bytes_received - moved
            epoch = Epoch(outcome.loss, self._auc(outcome, context, place.step), session.clock() - started, moved)
            failpoints.reach("updated")
            place.done(epoch, last=outcome.last)
            context.losses.append(outcome.loss)
            place.save(self._checkpoints, own.side, schedule.fingerprint)
            session.progress.emit(Advanced(1))
            if outcome.loss is not None:
                session.progress.emit(EpochTrained(outcome.loss))
        if self._coordinator and self._decryptor:
            await self._decryptor.done()
        return await self._finish(own, place)

    async def _context(self, own: PreparedInputs, schedule: Schedule, place: _Place) -> IterationContext:
        """Send or receive the key, and agree on the numbers of columns."""
        session, train = self._session, self._train
        self._size = min(train.batch_size or len(self._training), len(self._training))
        self._scales = scales = Scales.of(train)
        self._service, self._decryptor = None, None
        if train.flow == "two-party" and session.role == "active":
            private = keys.generate(train.key_bits, self._randomness.derive("paillier key"))
            self._service = DecryptionService(
                self._channel, private, train, "passive", session.processes, self._log, session.pins
            )
            await self._service.send_key()
            public, encrypting = private.public, private
        else:
            self._decryptor = Decryptor(self._coordinator or self._channel, train, session.processes)
            public, encrypting = await self._decryptor.meet(), None
        positions = _positions(schedule, self._training, self._size)
        self._widths = await exchange_widths(session, own.side, public)
        self._warnings = check(session, self._data, own.side, self._widths, self._size, self._training, positions)
        encryptor = Encryptor(
            public,
            self._randomness.derive(f"attempt/{session.attempt}/encryption"),
            session.processes,
            short_exponents=train.short_exponents,
            private=encrypting,
        )
        opening = None
        if self._decryptor:
            opening = MaskedDecryption(
                self._decryptor, encryptor, train, scales, self._randomness, session.attempt, session.processes
            )
            plans = self._plans(scales)
            await opening.plan(plans[session.name], place.step, plans.get(self._channel.peer, ()) if self._coordinator else ())
        if self._service:
            await self._service.take_plan(self._plans(scales)[self._channel.peer])
        return IterationContext(
            channel=self._channel,
            side=own.side,
            train=train,
            scales=scales,
            public=public,
            encryptor=encryptor,
            workers=session.processes,
            opening=opening,
            service=self._service,
            targets=own.targets,
            lasting=self._randomness,
            positions=positions,
            losses=[epoch.loss for epoch in place.epochs],
            row_weights=own.row_weights,
        )

    def _auc(self, outcome: Outcome, context: IterationContext, step: int) -> float | None:
        if outcome.scores is None or context.targets is None or "auc" not in self._evaluate.metrics:
            return None
        positions = context.positions(step)
        own = context.side.owned[positions]
        output, labels = output_of(outcome.scores[own]), labels_of(context.targets[positions][own])
        return compute(("auc",), labels, output.scores, output.probabilities)["auc"]

    async def _finish(self, own: PreparedInputs, place: _Place) -> Trained:
        """Measure the model, and gather everything that is reported."""
        session, train, evaluate = self._session, self._train, self._evaluate
        rows = len(self._training), len(self._testing)
        measured = await self._measure(own)
        summary = summarise([measured], *rows) if measured else None
        epochs, metrics = place.epochs, measured.metrics if measured else None
        if evaluate.share_with_passive and measured:
            await send_figures(self._channel, [Figures(epoch.loss, epoch.auc) for epoch in epochs], measured.metrics)
        elif evaluate.share_with_passive:
            shared, metrics = await receive_figures(self._channel, len(epochs), evaluate.metrics)
            epochs = [dataclasses.replace(epoch, **asdict(figures)) for epoch, figures in zip(epochs, shared, strict=True)]
        plans = {name: plan for name, plan in self._plans(self._scales).items() if plan}
        each = {name: [tensor.values(train.outputs) for tensor in plan] for name, plan in plans.items()}
        decryptions = {name: place.step * sum(of) for name, of in each.items()}
        bits = {
            name: place.step * sum(count * tensor.returned_bits for count, tensor in zip(of, plans[name], strict=True))
            for name, of in each.items()
        }
        if self._service:  # which knows better: an iteration that was repeated was decrypted again
            count = self._service.count
            decryptions[self._channel.peer], bits[self._channel.peer] = count.values, count.bits
        numbers = Numbers(self._size, place.step, self._widths, len(self._testing), bits)
        trained = Trained(
            epochs=tuple(epochs),
            steps=place.step,
            rows=rows,
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
            warnings=self._warnings,
            weights={**own.side.model(), **_unit(own)},
            encoder=own.encoder.to_json(),
            servable=Servable("", np.empty(0, dtype=np.int64)),
            columns=encoded_columns(self._data.table, own.encoder.columns),
            metrics=metrics,
            held_out=self._testing if evaluate.test_fraction else np.empty(0, dtype=np.int64),
        )
        if measured is None or summary is None:
            return trained
        kind = f"a {GeneralisedLinear.of(self._session.job).title} of the same kind"
        return trained.with_results(summary, measured, real_share=1.0, local_kind=kind)

    async def _measure(self, own: PreparedInputs) -> Evaluation | None:
        """Results at the active party, to which the passive one sends its scores of the rows measured on."""
        failpoints.reach("evaluate")
        train = self._train
        if train.labels == "passive":
            return None
        if self._session.role == "passive":
            await send_scores(self._channel, train.iterations, own.side.scores(self._testing))
            return None
        theirs = await receive_scores(self._channel, train.iterations, len(self._testing), train.outputs)
        return measure(self._session, self._data, own, self._training, self._testing, theirs)

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


@dataclass
class _Place:
    """How far training is: iterations done, whether the last was the last, and their figures."""

    step: int = 0
    over: bool = False
    epochs: list[Epoch] = dataclasses.field(default_factory=list)

    def done(self, epoch: Epoch, *, last: bool) -> None:
        """Note an iteration."""
        self.step, self.over = self.step + 1, last
        self.epochs.append(epoch)

    def save(self, checkpoints: Checkpoints, side: Side, fingerprint: str) -> None:
        """Store a checkpoint of this place and of ``side``."""
        epochs = [asdict(epoch) for epoch in self.epochs]
        meta = {"schedule": fingerprint, "step": self.step, "over": self.over, "epochs": epochs}
        checkpoints.save(f"i{self.step:06d}", side.tensors(), meta)


def _resume(checkpoints: Checkpoints, name: str | None, side: Side, fingerprint: str) -> _Place:
    """Load checkpoint ``name`` into ``side``, and return its place in training; None: the beginning.

    Raises:
        StateError: it is not there or damaged (``E_STATE_CORRUPT``), or of another schedule (``E_REPLAY``).
    """
    if name is None:
        return _Place()
    checkpoint = load_of(checkpoints, name, fingerprint)
    meta = checkpoint.meta
    side.restore(checkpoint.tensors)
    return _Place(meta["step"], meta["over"], [Epoch(**epoch) for epoch in meta["epochs"]])
