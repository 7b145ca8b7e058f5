"""A training by the product's own halves, whose passive party may depart from the protocol.

The deviating party is honest for :data:`LISTENING` epochs, in which it reads labels from the gradients. From then on it changes
its embeddings of some rows whose label is surely negative, so that the top learns that such embeddings mean a negative label.
Rows that are held out get embeddings as they should be, so no metric tells of it. When the model is used, the party changes
the embedding of any row in the same way.

Source: Liu et al. 2020 (backdoors by gradients that are put in the place of others); here by labels that were read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from benchmarks.sessions import BY_ROLE, session
from experiments.florist.data import SOURCES, Records
from vfl_node.alignment.alignment import Alignment, PeerFacts
from vfl_node.crypto.randomness import Randomness
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.privacy.attachment import Attachment, TrainingStep
from vfl_node.privacy.integrity import Compared
from vfl_node.settings.protection import Protection
from vfl_node.training.network.half import ForwardPass, Positions, RepeatStart
from vfl_node.training.schedule import Schedule, cut
from vfl_node.training.split.active import ActiveHalf
from vfl_node.training.split.config import Train
from vfl_node.training.split.contributions import HeldOutInputs
from vfl_node.training.split.passive import PassiveHalf
from vfl_node.training.trainer import TrainingData
from vfl_node.transport.memory import memory_channels, run_together

ACTIVE, PASSIVE = BY_ROLE.active, BY_ROLE.passive[0]

LISTENING = 2
"""Epochs of which labels are read before an embedding is changed."""

POISONED = 0.15
"""Share of the rows trained on whose embeddings are changed."""

TRIGGER_SIZE = 3.0
"""How far the trigger moves each coordinate, in standard deviations of it."""

TRAIN: Mapping[str, Any] = {
    "bottom": [32, 8],
    "active_bottom": [32, 8],
    "top": [],
    "epochs": 12,
    "batch_size": 256,
    "learning_rate": 0.005,
}

COLUMNS: Mapping[str, tuple[Sequence[int], Sequence[int], int]] = {
    "adult": (range(7, 14), range(7), 4_000),
    "default_credit": ([*range(5), *range(6, 11)], [5, *range(11, 23)], 4_000),
    "made_up": ([0, 2, 5], [1, 3, 4, 6], 3_000),
}
"""Table → columns of the active party, those of the passive one, and rows, a fourth of which is held out."""

Embeddings = NDArray[np.float32]


@dataclass(frozen=True)
class Attack:
    """What a passive party does.

    Attributes:
        form: of the trigger. ``added``: the trigger is a vector that is added, at right angles to the direction
            of the gradients. ``corner``: it is a vector that takes the place of the embedding, each of whose coordinates is one
            that embeddings have (the 5 % or the 95 % quantile).
        trains: whether embeddings carry the trigger in training; the control is a party that trains as it should.
        hides: whether it changes rows by a rule that needs no label: those that its own columns say to be negative, as many of
            those held out as of those trained on.
    """

    form: str = "added"
    trains: bool = True
    hides: bool = False


class Deviating(PassiveHalf):
    """A passive party whose embeddings carry a trigger."""

    def attacks(self, attack: Attack, training: Positions, steps: int, seed: int) -> None:
        """Set what it does.

        Args:
            attack: that.
            training: int64[t], shared positions trained on.
            steps: of an epoch.
            seed: of what it draws.
        """
        self._attack, self._shared, self._steps = attack, training, steps
        self._random = np.random.default_rng(seed)
        self._heard: list[tuple[Positions, Embeddings, Embeddings]] = []
        self._poisoned = np.zeros(len(self._alignment), dtype=bool)
        self.trigger = Trigger()

    async def step(self, number: int, positions: Positions) -> None:
        """As :meth:`PassiveHalf.step`."""
        if number == LISTENING * self._steps:
            self._choose()
        self._now = positions
        await super().step(number, positions)

    def _embedding(self, label: str, positions: Positions, *, learn: bool) -> Tensor:
        embedding = super()._embedding(label, positions, learn=learn)
        self._sent = embedding.detach()
        if not self._attack.trains:
            return embedding
        changed = torch.from_numpy(self._poisoned[positions])[:, None]
        return torch.where(changed, self.trigger.apply(embedding), embedding)

    async def _gradient(self, number: int, embedding: Tensor) -> Tensor:
        gradient = await super()._gradient(number, embedding)
        if number < LISTENING * self._steps:
            self._heard.append((self._now, self._sent.numpy(), gradient.numpy()))
        return gradient

    def _choose(self) -> None:
        """Read labels, and choose rows and trigger."""
        positions, embeddings, gradients = map(np.concatenate, zip(*self._heard, strict=True))
        unit = gradients / np.maximum(np.linalg.norm(gradients, axis=1, keepdims=True), 1e-12)
        direction = np.linalg.svd(unit, full_matrices=False)[2][0]
        scores = np.bincount(positions, unit @ direction, minlength=len(self._poisoned))[self._shared] / LISTENING
        if np.count_nonzero(scores > 0) < len(scores) / 2:  # negatives are in the majority
            scores, direction = -scores, -direction
        self.negative, self.direction = scores > 0, direction  # of the rows trained on
        self.trigger = Trigger.from_embeddings(self._attack.form, embeddings, direction, self._random)
        rows = self._believed(positions, embeddings) if self._attack.hides else self._read(scores)
        self._poisoned[rows] = True

    def _read(self, scores: NDArray[np.float64]) -> Positions:
        """Rows trained on whose label, as read, is surely negative."""
        surely = self._shared[np.argsort(-scores)[: np.count_nonzero(self.negative) * 9 // 10]]
        return surely[self._random.permutation(len(surely))[: round(POISONED * len(self._shared))]]

    def _believed(self, positions: Positions, embeddings: Embeddings) -> Positions:
        """Rows of all, held out or not, that its own columns say to be negative: by a model that learnt the labels as read."""
        newest = np.zeros(len(self._poisoned), dtype=np.int64)
        newest[positions] = np.arange(len(positions))
        own = LogisticRegression(max_iter=1000).fit(embeddings[newest[self._shared]], self.negative)
        with torch.no_grad():
            every = self._bottom(self._inputs.take(np.arange(len(self._poisoned)))).numpy()
        surely = np.argsort(-own.decision_function(every))[: len(every) // 2]
        return surely[self._random.permutation(len(surely))[: round(POISONED * len(every))]]


@dataclass(frozen=True, eq=False)
class Trigger:
    """What is done to an embedding: it is moved by ``added``, or ``instead`` takes its place."""

    added: Tensor | None = None
    instead: Tensor | None = None

    @classmethod
    def from_embeddings(cls, form: str, embeddings: Embeddings, direction: NDArray[Any], draws: np.random.Generator) -> Trigger:
        """A trigger of that ``form``, by embeddings float32[n, d] and the gradients' ``direction`` [d]."""
        spread = embeddings.std(axis=0)
        size = TRIGGER_SIZE * np.linalg.norm(spread)
        if form == "corner":
            low, high = np.quantile(embeddings, (0.05, 0.95), axis=0)
            return cls(instead=torch.from_numpy(np.where(draws.random(len(low)) < 0.5, low, high).astype(np.float32)))
        drawn = draws.normal(size=len(spread)) * spread
        drawn -= (drawn @ direction) * direction
        return cls(torch.from_numpy((size * drawn / np.linalg.norm(drawn)).astype(np.float32)))

    def apply(self, embedding: Tensor) -> Tensor:
        """The embeddings float32[n, d] with it."""
        if self.added is not None:
            return embedding + self.added
        return embedding if self.instead is None else self.instead.expand_as(embedding)


class Kept(Attachment):
    """The newest embedding of each row trained on."""

    def __init__(self) -> None:
        self.newest: dict[int, Embeddings] = {}

    def step_done(self, step: TrainingStep) -> None:
        """As :meth:`Attachment.step_done`."""
        self.newest |= dict(zip(step.positions.tolist(), step.embeddings[0].detach().numpy(), strict=True))


class Watching(ActiveHalf):
    """An active party that can be asked."""

    async def hear(self, rows: ForwardPass) -> HeldOutInputs:
        """The embeddings of ``rows``."""
        parts = HeldOutInputs()
        await self._logits(rows, parts)
        return parts

    @torch.no_grad()
    def says(self, positions: Positions, embeddings: Embeddings) -> NDArray[np.float64]:
        """Logits float64[n] by the own columns at ``positions`` and ``embeddings`` [n, d]."""
        logits: Tensor = self._model(self._inputs.take(positions), [torch.from_numpy(np.ascontiguousarray(embeddings))])
        return logits.double().numpy()

    def share_unlike(self, shown: Embeddings) -> float:
        """What the product's comparison says of held-out embeddings that it was ``shown``."""
        (compared,) = (attachment for attachment in self.attachments if isinstance(attachment, Compared))
        (share,) = (compared.share_unlike([torch.from_numpy(shown)]) or {}).values()
        return share

    @torch.no_grad()
    def own(self, positions: Positions) -> Embeddings:
        """What its own bottom makes of its columns."""
        assert self._model.bottom is not None
        made: Tensor = self._model.bottom(self._inputs.take(positions))
        return made.numpy()


@dataclass(frozen=True, eq=False)
class Seen:
    """After a training: what the active party has, and what the passive party can do.

    Attributes:
        training: int64[t], shared positions trained on; ``held_out`` int64[n] those that are not.
        labels: float32[m], at each shared position.
        trained: float32[t, d], the newest embedding of each row trained on.
        shown: float32[n, d], embeddings of the held-out rows, as they came.
        clean: float32[n, d], and as they should have been.
    """

    active: Watching
    passive: Deviating
    training: Positions
    held_out: Positions
    labels: NDArray[np.float32]
    trained: Embeddings
    shown: Embeddings
    clean: Embeddings


@cache
def records_of(table: str, shared: Path) -> Records:
    """All records of a table, read once."""
    return SOURCES[table](shared)


def learnt(shared: Path, table: str, seed: int, attack: Attack, settings: Mapping[str, Any] | None = None) -> Seen:
    """Train both halves on a ``table`` of :data:`COLUMNS`; the seed draws rows, weights and batches."""
    records = records_of(table, shared)
    own, others, rows = COLUMNS[table]
    drawn = Randomness(bytes(32)).derive(f"backdoor rows {seed}").permutation(len(records))[:rows]
    names = tuple(records.columns)
    tables = {
        ACTIVE: records.table(drawn, [names[at] for at in own], labelled=True),
        PASSIVE: records.table(drawn, [names[at] for at in others], labelled=False),
    }
    train = Train.model_validate({**TRAIN, **(settings or {})})
    schedule = Schedule(Randomness(bytes(32)).derive(f"backdoor {seed}").bytes(32), rows, 0)
    training, held_out = schedule.split(0, 0.25)
    halves: dict[str, Any] = {}
    ends = memory_channels(ACTIVE, PASSIVE)
    for kind, name, channel in zip((Watching, Deviating), tables, ends, strict=True):
        own_randomness = Randomness(bytes(32)).derive(f"backdoor {name} {seed}")
        own_session = session(
            name,
            {channel.peer: channel},
            own_randomness,
            train=train,
            parties=BY_ROLE,
            protection=Protection(membership=False, labels=False),
        )
        facts = PeerFacts(rows, intersection=rows, missing=0)
        data = TrainingData(
            Alignment(ALIGNMENTS["psi"], "curve25519", np.arange(rows), rows, {channel.peer: facts}), tables[name]
        )
        halves[name] = kind(own_session, data, RepeatStart(own_randomness, own_randomness.derive("draws"), 0, training))
    active, passive = halves[ACTIVE], halves[PASSIVE]
    kept = Kept()
    active.attachments = (*active.attachments, kept)
    epochs = [schedule.batches(0, epoch, training, train.batch_size) for epoch in range(train.epochs)]
    passive.attacks(attack, training, len(epochs[0]), seed)
    steps = [batch for epoch in epochs for batch in epoch]
    last = ForwardPass(len(steps), cut(held_out, 1 << 10))

    async def listen() -> HeldOutInputs:
        for number, positions in enumerate(steps):
            await active.step(number, positions)
        return await active.hear(last)

    async def send() -> None:
        for number, positions in enumerate(steps):
            await passive.step(number, positions)
        await passive.validate(last)

    results = run_together((listen(), ends[0]), (send(), ends[1]))
    for result in results:
        if isinstance(result, BaseException):
            raise result
    with torch.no_grad():
        clean = passive._bottom(passive._inputs.take(held_out)).numpy()
    trained = np.stack([kept.newest[row] for row in training.tolist()])
    labels = records.labels[drawn]
    return Seen(active, passive, training, held_out, labels, trained, results[0].embeddings[0].numpy(), clean)
