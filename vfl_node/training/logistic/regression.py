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
The result equals plaintext regression on the genuine rows from the same start, up to the
rounding of fixed point (see :mod:`vfl_node.training.logistic.scales`).

What every party learns: :mod:`vfl_node.training.logistic.learns`, and docs/logistic.md.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np

from vfl_node import metrics
from vfl_node.alignment.alignment import Alignment, Pins
from vfl_node.crypto.paillier import keys
from vfl_node.crypto.paillier.encryption import Encryptor
from vfl_node.crypto.processes import Processes
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.design import LinearEncoder
from vfl_node.data.tables import Table
from vfl_node.errors import DataError, PolicyError, ProtocolError, StateError
from vfl_node.job import Evaluate, Logistic, Parties
from vfl_node.progress import Progress
from vfl_node.training.checkpoints import Checkpoints
from vfl_node.training.evaluation import Curve, Figures, Values
from vfl_node.training.logistic import plain
from vfl_node.training.logistic.blind import ActiveBlind, PassiveBlind
from vfl_node.training.logistic.clear import ActiveClear, PassiveClear
from vfl_node.training.logistic.decryption import LOSS, Decryptor, Journal, Service, tensors_of
from vfl_node.training.logistic.exchange import receive_scores, send_scores
from vfl_node.training.logistic.flow import Flow, Outcome, Seat
from vfl_node.training.logistic.learns import Numbers, learns
from vfl_node.training.logistic.opening import Opening, shapes
from vfl_node.training.logistic.scales import Scales
from vfl_node.training.logistic.side import Floats, Positions, Side, common_enough
from vfl_node.training.logistic.strong_labels import ActiveWithoutLabels, PassiveWithLabels
from vfl_node.training.schedule import Schedule, toss
from vfl_node.training.sharing import receive_figures, send_figures
from vfl_node.training.task import Epoch, LogisticFigures, TrainingResult
from vfl_node.transport.channel import Channel, Traffic
from vfl_node.transport.generated.vfl.v1 import training_pb2

RECOMMENDED_BITS = 3072

AMPLE = 20
"""Shared rows a column from which on the passive party's gradients tell dummies hardly better than chance."""

KINDS = 20
"""Kinds of records below which the active party's own columns do not hide |I|: with a few it was computed from one gradient."""

FLOWS: Mapping[tuple[str, str, str], Callable[[Seat], Flow]] = {
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


@dataclass(frozen=True)
class Regression:
    """What a data party brings to the training.

    Attributes:
        parties: of the job.
        role: this party's.
        alignment: the shared rows as it sees them.
        table: its records; labels where the job has them at this party.
        train: the job's section.
        evaluate: the job's section.
        attempt: how often this party has begun the job; no noise or mask is ever drawn for two attempts.
        workers: who computes on ciphertexts.
        journal: what it has decrypted for the other; used where it holds the key.
        checkpoints: where its state is kept.
        pins: digests of what the others sent in earlier attempts.
        clock: seconds since any fixed moment.
        progress: whom to tell.
    """

    parties: Parties
    role: Literal["active", "passive"]
    alignment: Alignment
    table: Table
    train: Logistic
    evaluate: Evaluate
    attempt: int
    workers: Processes
    journal: Journal
    checkpoints: Checkpoints
    pins: Pins
    clock: Callable[[], float]
    progress: Progress

    @property
    def labelled(self) -> bool:
        """Whether this party has the labels."""
        return self.role == self.train.labels


async def regress(
    channel: Channel, helper: Channel | None, task: Regression, randomness: Randomness, *, resume_from: str | None = None
) -> TrainingResult:
    """Train with the other data party.

    Args:
        channel: the conversation with it; phase ``train`` is opened and ended here.
        helper: the conversation with the coordinator, phase ``decrypt``; None in the two-party flow.
        task: this party's side.
        randomness: its own, kept with the job.
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

    Leaks: see :mod:`vfl_node.training.logistic.learns`.
    """
    async with channel.phase("train") as traffic:
        if helper is None:
            return await _Run(channel, None, task, randomness).train(resume_from, traffic)
        async with helper.phase("decrypt"):
            return await _Run(channel, helper, task, randomness).train(resume_from, traffic)


class _Run:
    """One attempt of one party."""

    def __init__(self, channel: Channel, helper: Channel | None, task: Regression, randomness: Randomness) -> None:
        self._channel, self._helper, self._task, self._train = channel, helper, task, task.train
        self._randomness = randomness
        self._passive = task.parties.passive[0]
        self._warnings = list(_doubts(task.train))

    async def train(self, resume_from: str | None, traffic: Traffic) -> TrainingResult:
        """From the toss to the metrics."""
        task, train = self._task, self._train
        seed = await toss(self._channel, self._randomness.derive("toss"), first=task.role == "active", pins=task.pins)
        self._schedule = Schedule(seed, len(task.alignment), train.seed)
        self._training, self._testing = self._schedule.split(0, task.evaluate.test_fraction)
        size = min(train.batch_size or len(self._training), len(self._training))
        self._check_rows(size)
        side, targets = self._prepare()
        journal = self._resume(resume_from, side)
        seat = await self._seat(side, targets, size, journal)
        flow = FLOWS[train.flow, train.labels, task.role](seat)

        task.progress.phase("train", train.iterations, "iterations")
        task.progress.advance(journal.step)
        while journal.step < train.iterations and not journal.over:
            started, moved = task.clock(), traffic.bytes_sent + traffic.bytes_received
            outcome = await flow.iterate(journal.step)
            moved = traffic.bytes_sent + traffic.bytes_received - moved
            auc = self._auc(outcome, seat.positions(journal.step), targets)
            journal.step, journal.over = journal.step + 1, outcome.last
            journal.epochs.append(Epoch(outcome.loss, auc, task.clock() - started, moved))
            seat.losses.append(outcome.loss)
            journal.save(task.checkpoints, side, self._schedule.fingerprint)
            task.progress.advance(1)
            if outcome.loss is not None:
                task.progress.note(loss=outcome.loss)
        if self._helper and self._decryptor:
            await self._decryptor.done()
        return await self._finish(side, journal)

    def _check_rows(self, size: int) -> None:
        if size == 0:
            raise DataError(
                f"{len(self._task.alignment)} shared rows leave none to train on",
                code="E_EMPTY",
                hint="use more records, or a smaller evaluate.test_fraction",
            )

    def _prepare(self) -> tuple[Side, Floats | None]:
        """This party's columns and start; its labels at the shared rows."""
        task, train = self._task, self._train
        encoder = LinearEncoder.fit(task.table, train.scaling)
        design = encoder.transform(task.table)
        rows = task.alignment.rows
        own = self._training[rows[self._training] >= 0]
        kept = np.ones(len(design.steps), np.bool_)
        if task.role == "passive" or not task.labelled:  # its gradient is a linear image of what it must not know
            kept = common_enough(design.integers[rows[own]], train.least_rows)
        self._encoder, self._design = encoder, design
        self._dropped = (*encoder.dropped, *(name for name, stays in zip(design.names, kept, strict=True) if not stays))
        if task.role == "passive" and not kept.any():
            raise DataError(
                "the passive party's table has no column to train on",
                code="E_NO_FEATURES",
                hint="add columns that vary, or declare ignored ones in data.columns; train.least_rows leaves rare ones out",
            )
        side = Side(rows, design, kept, train, self._randomness, intercept=task.role == "active")
        if task.role == "active" and len(own):
            side.spread(own, self._randomness.derive("spread"))
        targets = None
        if task.labelled:
            if task.table.labels is None:
                raise DataError("the table has no label column", code="E_NO_LABEL", hint="set data.label")
            labels = task.table.labels[rows[own]]
            if len(labels) and labels.min() == labels.max() and task.role == "active":
                raise DataError(
                    "all records that are shared have the same label",
                    code="E_ONE_CLASS",
                    hint="a classifier needs shared records of both classes",
                    for_peer="its owner does not go on",
                )
            targets = np.zeros((len(rows), train.outputs))
            mine = rows >= 0
            targets[mine] = plain.one_hot(task.table.labels[rows[mine]], train.classes)
        return side, targets

    async def _seat(self, side: Side, targets: Floats | None, size: int, journal: _Place) -> Seat:
        """Meet the key, and agree on widths."""
        task, train = self._task, self._train
        scales = Scales.of(train, size)
        service, self._decryptor = None, None
        if train.flow == "two-party" and task.role == "active":
            private = keys.generate(train.key_bits, self._randomness.derive("paillier key"))
            service = Service(self._channel, private, train, "passive", task.workers, task.journal, task.pins)
            await service.send_key()
            public, encrypting = private.public, private
        else:
            self._decryptor = Decryptor(self._helper or self._channel, train, task.workers)
            public, encrypting = await self._decryptor.meet(), None
        await self._agree(side, public, size)
        encryptor = Encryptor(
            public,
            self._randomness.derive(f"attempt/{task.attempt}/encryption"),
            task.workers,
            short_exponents=train.short_exponents,
            private=encrypting,
        )
        opening = None
        if self._decryptor:
            opening = Opening(self._decryptor, encryptor, train, scales, self._randomness, task.attempt, task.workers)
            await opening.plan(tensors_of(train, task.role), side.width, journal.step)
        if service:
            await service.take_plan(shapes(tensors_of(train, "passive"), self._features[self._passive], scales))
        return Seat(
            channel=self._channel,
            side=side,
            train=train,
            scales=scales,
            public=public,
            encryptor=encryptor,
            workers=task.workers,
            opening=opening,
            service=service,
            targets=targets,
            positions=self._positions(size),
            losses=[epoch.loss for epoch in journal.epochs],
        )

    async def _agree(self, side: Side, public: keys.PublicKey, size: int) -> None:
        """Tell each other what must be known of one's columns, and refuse what would tell too much."""
        task, train = self._task, self._train
        tells = task.role == "passive" or train.labels == "passive"
        hears = task.role == "active" or train.labels == "passive"
        self._features = {task.parties.active if task.role == "active" else self._passive: side.width}
        if tells:
            await self._channel.send(training_pb2.Features(columns=side.width, key=public.fingerprint()))
        if hears:
            theirs = await self._channel.receive(training_pb2.Features)
            if theirs.key != public.fingerprint():
                raise ProtocolError(
                    f"{self._channel.peer} encrypts under another key than this party was given",
                    code="E_KEY",
                    hint="the coordinator must give both parties the same key",
                )
            self._features[self._channel.peer] = theirs.columns
        for party, width in self._features.items():
            if party == task.parties.active and train.labels == "active":
                continue  # its gradient tells it nothing of its own labels and dummies
            if size <= width:
                raise PolicyError(
                    f"an iteration over {size} shared rows has no more of them than {party} has columns ({width}): {party} "
                    "could solve its gradient for every residual, and so for labels and dummies",
                    code="E_BATCH",
                    hint="train on all rows at once (train.batch_size: null), on more records, or on fewer columns",
                    for_peer="an iteration has no more rows than the passive party has columns",
                )
            if size < AMPLE * width:
                self._warnings.append(
                    f"An iteration has {size} shared rows, fewer than {AMPLE} for each of {party}'s {width} columns: its "
                    "gradients tell it more about labels and dummies than they need to."
                )
        if task.role == "active" and task.alignment.protocol == "apsi":
            self._check_cover(side, self._features.get(self._passive, 0))
        if train.batch_size and task.role == "active":
            positions, owned = self._positions(size), task.alignment.owned
            if not all(owned[positions(step)].any() for step in range(train.iterations)):
                raise PolicyError(
                    f"one of {train.iterations} batches of {size} rows has none of this party: its gradient would be 0",
                    code="E_BATCH",
                    hint="train on all rows at once (train.batch_size: null)",
                    for_peer="its owner does not go on",
                )

    def _check_cover(self, side: Side, columns: int) -> None:
        """Refuse where this party's own scores vary too little to hide |I| and the dummies."""
        own = self._training[side.owned[self._training]]
        if len(own) == 0:
            raise PolicyError(
                "no record is shared, so there is nothing to train on",
                code="E_STOPPED",
                hint="to stop here tells the other party something; see obfuscation.min_intersection",
                for_peer="its owner does not go on",
            )
        distinct = len(np.unique(side.scores(own)[:, 0].round(12)))
        if distinct < max(KINDS, columns + 1):
            raise PolicyError(
                f"this party's columns tell its shared records into {distinct} kinds only, and {self._passive} has {columns} "
                f"columns: from its gradients {self._passive} could compute how many records are shared, and find many dummies",
                code="E_NO_COVER",
                hint="add columns that vary from record to record (one of random numbers, drawn once, serves)",
                for_peer="its owner does not go on",
            )

    def _positions(self, size: int) -> Callable[[int], Positions]:
        """The shared rows of each iteration; batches that would be smaller are left out."""
        per_epoch = len(self._training) // size
        known: dict[int, list[Positions]] = {}

        def positions(step: int) -> Positions:
            epoch, place = divmod(step, per_epoch)
            if per_epoch == 1 and size == len(self._training):
                return self._training
            if epoch not in known:
                known.clear()
                known[epoch] = self._schedule.batches(0, epoch, self._training, size)
            return known[epoch][place]

        return positions

    def _resume(self, name: str | None, side: Side) -> _Place:
        if name is None:
            return _Place()
        checkpoint = self._task.checkpoints.load(name)
        meta = checkpoint.meta
        if meta["schedule"] != self._schedule.fingerprint:
            raise StateError(
                f"checkpoint {name} belongs to another schedule than the one tossed now",
                code="E_REPLAY",
                hint="a job may be resumed only with the same secrets at both parties; submit a new job",
            )
        side.restore(checkpoint.tensors)
        return _Place(meta["step"], meta["over"], [Epoch(**epoch) for epoch in meta["epochs"]])

    def _auc(self, outcome: Outcome, positions: Positions, targets: Floats | None) -> float | None:
        if outcome.scores is None or targets is None or "auc" not in self._task.evaluate.metrics:
            return None
        own = self._task.alignment.owned[positions]
        return self._measure(("auc",), targets[positions][own], outcome.scores[own])["auc"]

    def _measure(self, names: tuple[str, ...], targets: Floats, scores: Floats) -> Values:
        """Metrics of scores float64[n, K]; of several classes accuracy and the mean AUC."""
        found = plain.probabilities(scores)
        if self._train.outputs == 1:
            return metrics.compute(names, targets[:, 0], scores[:, 0], found[:, 0])
        labels = targets.argmax(axis=1)
        several = {"accuracy": metrics.multiclass_accuracy(labels, found), "auc": metrics.macro_auc(labels, scores)}
        return {name: several.get(name) for name in names}

    async def _finish(self, side: Side, journal: _Place) -> TrainingResult:
        """Evaluate, and tell this party's owner everything."""
        task, train = self._task, self._train
        values, local, curve, local_curve, rows = await self._evaluate(side)
        epochs, metric_values = journal.epochs, values
        if task.evaluate.share_with_passive:
            if task.role == "active":
                assert values is not None
                await send_figures(self._channel, [Figures(epoch.loss, epoch.auc) for epoch in epochs], values)
            else:
                told, metric_values = await receive_figures(self._channel, len(epochs), task.evaluate.metrics)
                epochs = [dataclasses.replace(epoch, **asdict(figures)) for epoch, figures in zip(epochs, told, strict=True)]
        size = min(train.batch_size or len(self._training), len(self._training))
        entries = {name: width * train.outputs * journal.step for name, width in self._features.items()}
        opened = {self._passive: entries.get(self._passive, 0)}
        if train.flow == "coordinator" and task.parties.active in entries:
            opened[task.parties.active] = entries[task.parties.active]
        labelled = task.parties.active if train.labels == "active" else self._passive
        if LOSS in tensors_of(train, train.labels) and labelled in opened:
            opened[labelled] += journal.step
        numbers = Numbers(size, journal.step, self._features, len(self._testing))
        return TrainingResult(
            epochs=tuple(epochs),
            steps=journal.step,
            rows=(len(self._training), len(self._testing)),
            device="cpu",
            metrics=metric_values,
            local_metrics=local,
            intervals={},
            local_intervals={},
            gains={},
            population={"population": "owned", "rows": rows, "real_share": 1.0} if values is not None else None,
            calibration_curve=curve,
            local_calibration_curve=local_curve,
            weights=side.model(),
            encoder=self._encoder.to_json(),
            learnt=learns(task.parties, train, task.evaluate, numbers),
            logistic=LogisticFigures(
                flow=train.flow,
                rows=len(self._training),
                features=self._features,
                rounds=journal.step,
                decryptions=opened,
                dropped=self._dropped,
                warnings=tuple(self._warnings),
            ),
        )

    async def _evaluate(self, side: Side) -> tuple[Values | None, Values | None, Curve, Curve, int]:
        """Metrics of both parties' model and of the active one's own, on the held-out rows the active party owns."""
        task, train = self._task, self._train
        if train.labels == "passive":
            return None, None, [], [], 0
        step, positions = train.iterations, self._testing
        if task.role == "passive":
            await send_scores(self._channel, step, side.scores(positions))
            return None, None, [], [], 0
        theirs = await receive_scores(self._channel, step, len(positions), train.outputs)
        own = side.owned[positions]
        rows = task.alignment.rows
        assert task.table.labels is not None
        targets = plain.one_hot(task.table.labels[rows[positions[own]]], train.classes)
        names = task.evaluate.metrics
        scores = (theirs + side.scores(positions))[own]
        local, local_curve = None, []
        if len(self._design.steps):
            mine = self._training[side.owned[self._training]]
            alone = self._alone(rows[mine], rows[positions[own]])
            local, local_curve = self._measure(names, targets, alone), self._curve(targets, alone)
        return self._measure(names, targets, scores), local, self._curve(targets, scores), local_curve, int(own.sum())

    def _alone(self, training: Positions, testing: Positions) -> Floats:
        """Scores float64[n, K] of the active party's own model, trained alike on its own columns; local rows."""
        task, train = self._task, self._train
        assert task.table.labels is not None
        design = self._design
        fitted = plain.fit(
            [design.integers[training] * design.steps],
            task.table.labels[training],
            [np.zeros((len(design.steps), train.outputs))],
            loss=plain.LOSSES[train.loss],
            l2=train.l2,
            learning_rate=train.learning_rate,
            iterations=train.iterations,
            tolerance=train.tolerance,
        )
        return plain.logits([design.integers[testing] * design.steps], fitted.weights, fitted.intercepts)

    def _curve(self, targets: Floats, scores: Floats) -> Curve:
        if self._train.outputs > 1:
            return []
        return metrics.calibration_curve(targets[:, 0], plain.probabilities(scores)[:, 0])


def _doubts(train: Logistic) -> Iterator[str]:
    """Warnings about the job itself."""
    if train.key_bits < RECOMMENDED_BITS:
        yield f"The Paillier key has {train.key_bits} bits; {RECOMMENDED_BITS} are recommended today (train.key_bits)."
    if train.short_exponents:
        yield "Noise with short exponents rests on a further assumption (train.short_exponents)."


@dataclass
class _Place:
    """How far training is: iterations done, whether the last was the last, and their figures."""

    step: int = 0
    over: bool = False
    epochs: list[Epoch] = dataclasses.field(default_factory=list)

    def save(self, checkpoints: Checkpoints, side: Side, fingerprint: str) -> None:
        """Keep a checkpoint of this place and of ``side``."""
        epochs = [asdict(epoch) for epoch in self.epochs]
        meta = {"schedule": fingerprint, "step": self.step, "over": self.over, "epochs": epochs}
        checkpoints.save(f"i{self.step:06d}", side.tensors(), meta)
