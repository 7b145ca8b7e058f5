"""How far a training is, as its checkpoints have it."""

from __future__ import annotations

import dataclasses
from dataclasses import asdict, dataclass

from vfl_node.training.checkpoints import Checkpoints, load_of
from vfl_node.training.glm.side import Side
from vfl_node.training.trainer import Epoch


@dataclass
class IterationPlace:
    """How far training is: iterations done, whether the last was the last, and their figures."""

    step: int = 0
    over: bool = False
    epochs: list[Epoch] = dataclasses.field(default_factory=list)

    def advance(self, epoch: Epoch, *, last: bool) -> None:
        """Note an iteration."""
        self.step, self.over = self.step + 1, last
        self.epochs.append(epoch)

    def save(self, checkpoints: Checkpoints, side: Side, fingerprint: str) -> None:
        """Store a checkpoint of this place and of ``side``."""
        epochs = [asdict(epoch) for epoch in self.epochs]
        meta = {"schedule": fingerprint, "step": self.step, "over": self.over, "epochs": epochs}
        checkpoints.save(f"i{self.step:06d}", side.tensors(), meta)


def resume_place(checkpoints: Checkpoints, name: str | None, side: Side, fingerprint: str) -> IterationPlace:
    """Load checkpoint ``name`` into ``side``, and return its place in training; None: the beginning.

    Raises:
        StateError: it is not there or damaged (``E_STATE_CORRUPT``), or of another schedule (``E_REPLAY``).
    """
    if name is None:
        return IterationPlace()
    checkpoint = load_of(checkpoints, name, fingerprint)
    meta = checkpoint.meta
    side.restore(checkpoint.tensors)
    return IterationPlace(meta["step"], meta["over"], [Epoch(**epoch) for epoch in meta["epochs"]])
