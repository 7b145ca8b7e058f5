"""Everything, compared exactly: the scope of an attacker who has a whole transcript, and time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from vfl_node.privacy.attacks import ATTACKS, collinear, distance_ratio, near_duplicate, same_step_twin
from vfl_node.privacy.attacks.attack import Attack, Positions, Scores, Subset
from vfl_node.privacy.attacks.transcript import Batch, TranscriptEpoch

A = TypeVar("A", bound=Attack)


class Whole:
    """A :class:`~vfl_node.privacy.attacks.attack.Scope` without bounds.

    Args:
        size: number of shared positions m.
    """

    def __init__(self, size: int) -> None:
        self.met = self.followed = Subset(np.arange(size), size)

    def alone(self, batch: Batch) -> Batch:
        """All rows, which are on the CPU already."""
        return batch

    def select_beside(self, batch: Batch) -> NDArray[np.int64]:
        """All rows."""
        return np.arange(len(batch.positions))

    def score_between(self, batch: Batch) -> tuple[Positions, Scores]:
        """All rows. Cost: B²·d multiplications."""
        return batch.positions, collinear.scores(batch.rows).numpy()

    def select_together(self, batch: Batch) -> Batch:
        """All rows."""
        return batch

    def reduce(self, batch: Batch) -> Tensor:
        """The rows as they are."""
        return batch.rows

    def twins(self, steps: Sequence[Tensor]) -> NDArray[np.bool_]:
        """By every pair of a step. Cost: S·B²·d multiplications."""
        return np.stack([same_step_twin.twins(rows) for rows in steps])

    def nearest(self, epoch: TranscriptEpoch) -> tuple[Positions, Scores]:
        """By every pair. Cost: k²·d multiplications."""
        positions, rows = epoch.sort()
        return positions, -near_duplicate.scores(rows).numpy()

    def ratios(self, epoch: TranscriptEpoch) -> tuple[Positions, Scores]:
        """By every pair. Cost: k²·d multiplications."""
        positions, rows = epoch.sort()
        return positions, distance_ratio.scores(rows).numpy()


def follow(attack: type[A], transcript: Iterable[Batch], truth: NDArray[np.bool_]) -> A:
    """The attack after it has seen the whole of ``transcript``, every row compared with every other one.

    Args:
        attack: of :data:`ATTACKS`.
        transcript: embeddings, as the active party received them, or gradients, as the
            passive one did, with the gradients beside them for the row loss.
        truth: bool[m], the secret at each shared position, which no attacker has.
    """
    following = attack(truth, Whole(len(truth)))
    for batch in transcript:
        following.see(batch)
    return following


def run_attacks(transcript: Sequence[Batch], truth: NDArray[np.bool_]) -> dict[str, float | None]:
    """The AUC of every attack on one transcript; args as :func:`follow`."""
    return {name: follow(ATTACKS[name], transcript, truth).score() for name in ATTACKS}
