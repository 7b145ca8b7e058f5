"""What the audit looks at of a training: enough to see a leak, at a small part of a step's cost.

Equal and near rows are sought among *all* rows that are trained on, in sketches (:mod:`vfl_node.privacy.sketches`). Of a
sample they would show few: a row's twin is rarely in it. What an attack judges row by row or beside a step is a sample.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vfl_node.crypto.randomness import Randomness
from vfl_node.privacy.attacks import collinear
from vfl_node.privacy.attacks.attack import Positions, Scores, Subset
from vfl_node.privacy.attacks.transcript import Batch, TranscriptEpoch
from vfl_node.privacy.sketches import Floats, Sketch, distance_ratios, leaves, nearest, twins


@dataclass(frozen=True)
class Bounds:
    """The most that is looked at.

    Attributes:
        followed: rows of the sample.
        looks: steps of an epoch, spread evenly, that get a closer look.
        together: rows of such a step that are judged by their common distribution.
        beside: rows of such a step that are judged beside all of it.
    """

    followed: int = 2048
    looks: int = 2
    together: int = 512
    beside: int = 64


class Sample:
    """A bounded :class:`~vfl_node.privacy.attacks.attack.Scope`; every step is first shown to :meth:`meet`.

    Args:
        secret: bool[m], which shared rows are synthetic at this party.
        trained: int64[t], the shared positions trained on, ascending, each once an epoch.
        randomness: of this alone; it fixes the sample and the sketches.
        bounds: of its work.

    Attributes:
        steps: of this epoch, met so far.
    """

    def __init__(
        self, secret: NDArray[np.bool_], trained: Positions, randomness: Randomness, bounds: Bounds | None = None
    ) -> None:
        self._bounds, self._randomness = bounds or Bounds(), randomness
        followed, self._rank = follow(trained, secret[trained], self._bounds.followed, randomness.derive("followed"))
        self.met, self.followed = Subset(trained, len(secret)), Subset(followed, len(secret))
        self.begin(0)

    def begin(self, epoch: int) -> None:
        """Begin an epoch, whose sketches are its own."""
        self._drawn = self._randomness.derive(f"sketches/{epoch}")
        self._sketch: Sketch | None = None
        self._leaves: tuple[Floats, NDArray[np.int64]] | None = None
        self.steps, self._every = 0, 1

    def meet(self, batch: Batch) -> None:
        """Prepare what attacks may ask about the next step."""
        if self.steps == 0:  # the largest batch; the last may be smaller
            self._every = math.ceil(len(self.met) / len(batch.positions) / self._bounds.looks)
        self._closer = self.steps % self._every == 0
        self.steps += 1
        self._among = np.flatnonzero(self.followed.places(batch.positions) >= 0)
        self._alone: Batch | None = None
        self._reduced: Tensor | None = None

    def alone(self, batch: Batch) -> Batch:
        """The rows of the sample."""
        if self._alone is None:
            rows = torch.from_numpy(self._among)
            gradients = None if batch.gradients is None else batch.gradients[rows].cpu()
            positions = batch.positions[self._among]
            self._alone = Batch(batch.epoch, positions, batch.rows[rows].cpu(), gradients, batch.mean_of)
        return self._alone

    def select_beside(self, batch: Batch) -> NDArray[np.int64]:
        """A few rows of the sample, half of them synthetic if there are enough, at the steps that get a closer look."""
        if not self._closer:
            return np.empty(0, dtype=np.int64)
        places = self.followed.places(batch.positions[self._among])
        return self._among[np.argsort(self._rank[places], kind="stable")[: self._bounds.beside]]

    def score_between(self, batch: Batch) -> tuple[Positions, Scores]:
        """These few rows, beside all of the step."""
        which = self.select_beside(batch)
        return batch.positions[which], collinear.scores(batch.rows, torch.from_numpy(which)).numpy()

    def select_together(self, batch: Batch) -> Batch | None:
        """The first rows at the steps that get a closer look; a batch has its rows in random order."""
        most = self._bounds.together
        return Batch(batch.epoch, batch.positions[:most], batch.rows[:most]) if self._closer else None

    def reduce(self, batch: Batch) -> Tensor:
        """Sketches of all rows."""
        if self._sketch is None:
            self._sketch = Sketch(batch.rows.shape[1], self._drawn.derive("directions"))
        if self._reduced is None:
            self._reduced = torch.from_numpy(self._sketch(batch.rows))
        return self._reduced

    def twins(self, steps: Sequence[Tensor]) -> NDArray[np.bool_]:
        """By their sketches, sorted."""
        return twins(np.stack([rows.numpy() for rows in steps]))

    def nearest(self, epoch: TranscriptEpoch) -> tuple[Positions, Scores]:
        """Within the leaves of one tree."""
        return self.met.positions, nearest(*self._tree(epoch))

    def ratios(self, epoch: TranscriptEpoch) -> tuple[Positions, Scores]:
        """The ratios of the sample, within the same leaves."""
        followed = self.followed.positions
        return followed, distance_ratios(*self._tree(epoch), self.met.places(followed).astype(np.int64))

    def _tree(self, epoch: TranscriptEpoch) -> tuple[Floats, NDArray[np.int64]]:
        """The sketches of an epoch in the order of :attr:`met`, and their leaves; made once for all attacks."""
        if self._leaves is None:
            sketches = np.empty((len(self.met), epoch.rows[0].shape[1]), dtype=np.float32)
            sketches[self.met.places(np.concatenate(epoch.positions))] = torch.cat(epoch.rows).numpy()
            self._leaves = sketches, leaves(sketches, self._drawn.derive("tree"))
        return self._leaves


def follow(
    trained: Positions, synthetic: NDArray[np.bool_], most: int, randomness: Randomness
) -> tuple[Positions, NDArray[np.int64]]:
    """Which positions are followed, ascending, half of them synthetic if there are enough, and the rank of each.

    Those of the lowest ranks are half synthetic, too. None are followed if all are of one kind.
    """
    kinds = [trained[synthetic == kind] for kind in (True, False)]
    least = min(map(len, kinds))
    if least == 0:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    share = max(most // 2, most - least)
    drawn = [positions[randomness.permutation(len(positions))[:share]] for positions in kinds]
    positions = np.concatenate(drawn)
    rank = np.concatenate([2 * np.arange(len(rows)) + kind for kind, rows in enumerate(drawn)])
    order = np.argsort(positions)
    return positions[order], rank[order]
