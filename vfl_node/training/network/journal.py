"""How far a training is, and what it has found so far: what a restarted party reads first."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from vfl_node.models.storage import add_prefix, take_part
from vfl_node.privacy.attacks import ATTACKS
from vfl_node.privacy.silent import silent
from vfl_node.training.checkpoints import Checkpoints, load_of
from vfl_node.training.evaluation import Evaluation
from vfl_node.training.network.half import Half
from vfl_node.training.network.stopping import Stopping
from vfl_node.training.trainer import Epoch

STEPS_BETWEEN = 50
"""Fewest training steps between two checkpoints, so that tiny epochs are not outweighed by writing to disk."""


@dataclass
class Journal:
    """The place both parties have reached, and one party's results.

    Attributes:
        repeat: repeats completed.
        epoch: epochs completed in the repeat under way.
        pretrained: epochs without labels completed in it, which come before.
        exchanges: messages of embeddings exchanged: the number of the next step.
        epochs: of the first repeat.
        evaluations: one a completed repeat; empty at the passive party.
        weights: this party's half after the first repeat.
        encoder: its encoder.
        scoring: what the first repeat's half needs beside its weights to predict.
        testing: positions held out in the first repeat; made anew in every attempt.
        validated: positions set apart for validation in it; likewise.
        shared: what predictions need that does not depend on the repeat; made anew in every attempt.
        findings: of its half's attachments, as JSON: ``audit``, ``held_out``, ``rebuilt``, ``labels``, ``trainings`` and
            ``unaligned``, each where there is such an attachment.
        so_far: what they leave to the next repeat.
        saved: tensors of the half under way, from a checkpoint; None to begin it anew.
        split: as :attr:`vfl_node.training.schedule.Schedule.split_seed`; likewise.
        rows: shared rows trained and tested on.
        steps: training steps done.
        stopping: of the repeat under way; None before it begins, and without validation.
        best: this party's half after the best epoch of the repeat under way; likewise.
        stopped: (best epoch, last epoch) of each completed repeat; empty without validation.
    """

    repeat: int = 0
    epoch: int = 0
    pretrained: int = 0
    exchanges: int = 0
    epochs: list[Epoch] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)
    weights: Mapping[str, Tensor] = field(default_factory=dict)
    encoder: str = ""
    scoring: Mapping[str, Any] = field(default_factory=dict)
    testing: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    validated: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    shared: Mapping[str, Any] = field(default_factory=dict, repr=False)
    findings: dict[str, Any] = field(default_factory=dict)
    so_far: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict)
    saved: Mapping[str, Tensor] | None = None
    split: bytes = b""
    rows: tuple[int, int] = (0, 0)
    steps: int = 0
    stopping: Stopping | None = None
    best: Mapping[str, Tensor] = field(default_factory=dict)
    stopped: list[tuple[int, int]] = field(default_factory=list)

    @property
    def silent(self) -> tuple[str, ...]:
        """A warning of this party's attacks on itself that said nothing in some epoch of the first repeat."""
        waits = {name: kind.epochs for name, kind in ATTACKS.usable({name for epoch in self.epochs for name in epoch.attacks})}
        return silent([{**epoch.attacks, **epoch.labels} for epoch in self.epochs], waits)

    @property
    def share_of_defences(self) -> float | None:
        """The share of the time of the first repeat's epochs in which this party's defences moved its model; None: in none."""
        moved = sum(epoch.defence_seconds for epoch in self.epochs)
        return min(1.0, moved / sum(epoch.seconds for epoch in self.epochs)) if moved else None

    @property
    def tested(self) -> NDArray[np.int64]:
        """Positions whose embeddings the peer has by the first repeat's weights, held out or validated on, ascending."""
        return np.union1d(self.testing, self.validated)

    def is_over(self, epochs: int) -> bool:
        """Whether the repeat under way, of ``epochs`` at most, has no epoch left."""
        return self.stopping.over if self.stopping else self.epoch == epochs

    def note_epoch(self, epoch: Epoch, steps: int) -> None:
        """Note an epoch of so many steps; only the figures of the first repeat are kept."""
        self.epoch, self.steps = self.epoch + 1, self.steps + steps
        if self.repeat == 0:
            self.epochs.append(epoch)

    def complete(self, late: Mapping[str, Any]) -> None:
        """Add to the record of the newest epoch what was still being found when it ended: field → value."""
        if self.repeat == 0:
            self.epochs[-1] = dataclasses.replace(self.epochs[-1], **late)

    def note_repeat(self, half: Half, evaluation: Evaluation | None) -> None:
        """Note a repeat, and keep the first one's weights."""
        if self.repeat == 0:
            self.weights, self.encoder, self.scoring = half.weights(), half.encoder, half.scoring()
            if self.stopping:  # rows that were validated on have names with the epoch; predictions name them alike
                self.scoring = {**self.scoring, "epoch": self.stopping.best}
        before = dict(self.findings) if self.repeat else None
        for attachment in half.attachments:
            self.findings |= attachment.findings(before)
        self.so_far = {kept.carries: kept.carry_over() for kept in half.attachments if kept.carries}
        if evaluation is not None:
            self.evaluations.append(evaluation)
        if self.stopping:
            self.stopped.append((self.stopping.best, self.stopping.epoch))
        self.stopping, self.best = None, {}
        self.repeat, self.epoch, self.pretrained, self.saved = self.repeat + 1, 0, 0, None

    def save(self, checkpoints: Checkpoints, half: Half, fingerprint: str) -> None:
        """Keep a checkpoint of this place and of ``half``."""
        meta = {
            "schedule": fingerprint,
            "repeat": self.repeat,
            "epoch": self.epoch,
            "pretrained": self.pretrained,
            "exchanges": self.exchanges,
            "epochs": [dataclasses.asdict(epoch) for epoch in self.epochs],
            "evaluations": [dataclasses.asdict(evaluation) for evaluation in self.evaluations],
            "encoder": self.encoder,
            "scoring": dict(self.scoring),
            "findings": self.findings,
            "steps": self.steps,
            "stopping": self.stopping and dataclasses.asdict(self.stopping),
            "stopped": self.stopped,
        }
        tensors = {
            **add_prefix("half", half.tensors() | _prefix_parts({kept.name: kept.tensors() for kept in half.attachments})),
            **add_prefix("first", self.weights),
            **add_prefix("best", self.best),
            **_prefix_parts(self.so_far),
        }
        before = "" if self.epoch else f"-p{self.pretrained:06d}"
        checkpoints.save(f"r{self.repeat:03d}-e{self.epoch:06d}{before}", tensors, meta)


def resume(checkpoints: Checkpoints, name: str | None, fingerprint: str) -> Journal:
    """The journal as it was at checkpoint ``name``, or a new one for None.

    Raises:
        StateError: the checkpoint is not there or damaged (``E_STATE_CORRUPT``), or it
            belongs to a schedule with another seed or size (``E_REPLAY``).
    """
    if name is None:
        return Journal()
    checkpoint = load_of(checkpoints, name, fingerprint)
    meta, parts = checkpoint.meta, {name.partition(".")[0] for name in checkpoint.tensors}
    return Journal(
        repeat=meta["repeat"],
        epoch=meta["epoch"],
        pretrained=meta.get("pretrained", 0),  # an earlier version did not pretrain
        exchanges=meta["exchanges"],
        epochs=[Epoch(**epoch) for epoch in meta["epochs"]],
        evaluations=[Evaluation.from_json(evaluation) for evaluation in meta["evaluations"]],
        weights=take_part("first", checkpoint.tensors),
        encoder=meta["encoder"],
        scoring=meta["scoring"],
        findings=meta["findings"] if "findings" in meta else {name: meta[name] for name in _EARLIER if name in meta},
        so_far={part: take_part(part, checkpoint.tensors) for part in parts if part not in ("half", "first", "best")},
        saved=take_part("half", checkpoint.tensors),
        steps=meta["steps"],
        stopping=meta["stopping"] and Stopping(**meta["stopping"]),
        best=take_part("best", checkpoint.tensors),
        stopped=[(best, last) for best, last in meta["stopped"]],
    )


_EARLIER = ("audit", "held_out", "rebuilt", "labels", "trainings", "unaligned")
"""Findings as an earlier version named them beside all else."""


def _prefix_parts(parts: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    return {name: tensor for part, tensors in parts.items() for name, tensor in add_prefix(part, tensors).items()}


def is_due(epoch: int, last: int, steps_per_epoch: int) -> bool:
    """Whether both parties keep a checkpoint after ``epoch``, where the ``last`` one is as far as both know by then."""
    every = -(-STEPS_BETWEEN // steps_per_epoch)
    return epoch == last or epoch % every == 0
