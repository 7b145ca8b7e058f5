"""A party's own attacks on rows that are all embedded by the same weights: those held out, or predicted.

No training hides them: a copy is exactly equal to its source, wherever the two stand, and a row made up between
two others lies between their embeddings. Rows can therefore be judged before the first of them is sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vfl_node.crypto.randomness import Randomness
from vfl_node.privacy.attacks import ATTACKS, collinear, distance_ratio
from vfl_node.privacy.attacks.attack import Attack, Positions, Scores, Subset
from vfl_node.privacy.attacks.neighbours import NearRows
from vfl_node.privacy.attacks.transcript import Batch, TranscriptEpoch
from vfl_node.privacy.silent import attempt
from vfl_node.privacy.sketches import Floats, Sketch, leaves, nearest, twins

SAMPLE = 1024
"""Rows that are projected, and rows that are sought between two others, at most."""

RANKS = 4096
"""Ranks that are drawn together: a row has the same one whichever rows it came with."""


@dataclass(frozen=True)
class Judged:
    """What attacks on a party's own rows showed.

    Attributes:
        attacks: attack → AUC, .5 at chance, not folded; None where not defined, or where the numbers are of no use to it.
            Empty if there is nothing to tell apart.
        judged: attack → number of rows behind the figure.
    """

    attacks: Mapping[str, float | None] = field(default_factory=dict)
    judged: Mapping[str, int] = field(default_factory=dict)


def works_at_once(attack: type[Attack]) -> bool:
    """Whether an attack needs neither gradients nor a second epoch."""
    return attack.finds == "membership" and attack.needs == {"rows"} and attack.epochs == 1


def audit_equal_weights(
    rows: Tensor, synthetic: NDArray[np.bool_], randomness: Randomness, attacks: Mapping[str, type[Attack]] | None = None
) -> Judged:
    """The attacks that need no gradient and no second epoch, on rows that are all there: see :class:`EqualWeights`.

    Args:
        rows: float32[n, d], embedded by the same weights; what would be sent.
        synthetic: bool[n], the truth about each.
        randomness: of this alone.
        attacks: those that run, by name; None: all there are.
    """
    audit = EqualWeights(randomness, attacks)
    audit.add(rows, synthetic)
    return audit.judge()


class EqualWeights:
    """Rows that meet the same weights, attacked as they come; all of them at once give the same figures.

    ``same_step_twin`` and ``near_duplicate`` compare all rows; ``collinear`` and ``distance_ratio`` look at a sample, half of
    it synthetic if there are enough, beside all rows; ``spectral`` at a random sample.

    Each row draws a rank when it comes, and the sample is the rows of the lowest ranks: a new row seldom enters it. What is
    near each of them is kept: only new rows are compared with the sample, and rows that enter it with all.

    Args:
        randomness: of this alone.
        attacks: those that run, by name; None: all there are.

    Cost: 4·d bytes a row. An audit after k of n rows have come is 2,048·k·d multiplications and 2,048·n operations.
    """

    def __init__(self, randomness: Randomness, attacks: Mapping[str, type[Attack]] | None = None) -> None:
        self._randomness = randomness
        kinds = {name: ATTACKS[name] for name in ATTACKS} if attacks is None else attacks
        self._kinds = {name: kind for name, kind in kinds.items() if works_at_once(kind)}
        self._rows, self._sketches = _GrowingRows(), _GrowingRows()
        self._sketch: Sketch | None = None
        self._synthetic, self._ranks = np.empty(0, dtype=np.bool_), np.empty(0, dtype=np.uint64)
        self._neighbours = NearRows()

    @torch.no_grad()
    def add(self, rows: Tensor, synthetic: NDArray[np.bool_]) -> None:
        """Take in more rows, which must not change after.

        Args:
            rows: float32[k, d], embedded by the same weights; what would be sent.
            synthetic: bool[k], the truth about each.
        """
        if self._sketch is None:
            self._sketch = Sketch(rows.shape[1], self._randomness.derive("directions"))
        self._rows.add(rows)
        self._sketches.add(torch.from_numpy(self._sketch(rows)))
        self._synthetic = np.concatenate([self._synthetic, synthetic])
        drawn = range(len(self._ranks) // RANKS, -(-len(self._synthetic) // RANKS))
        self._ranks = np.concatenate([self._ranks, *(self._randomness.derive(f"ranks/{k}").uint64(RANKS) for k in drawn)])

    @torch.no_grad()
    def judge(self) -> Judged:
        """What the attacks find among all rows so far."""
        rows, synthetic = self._rows.all, self._synthetic
        if synthetic.all() or not synthetic.any():
            return Judged()
        ranks = self._ranks[: len(rows)]
        kinds = [np.flatnonzero(synthetic == kind) for kind in (True, False)]
        share = max(SAMPLE // 2, SAMPLE - min(map(len, kinds)))
        followed = np.sort(np.concatenate([kind[_lowest(ranks[kind], share)] for kind in kinds]))
        sketches = self._sketches.all.numpy()
        scope = _OneStep(rows, sketches, followed, _lowest(ranks, SAMPLE), self._neighbours, self._randomness)
        batch = Batch(0, np.arange(len(rows)), rows)
        running = {name: kind(synthetic, scope) for name, kind in self._kinds.items()}
        for attack in running.values():
            attempt(partial(attack.see, batch))
        return Judged(
            {name: attempt(attack.score) for name, attack in running.items()},
            {name: attempt(partial(getattr, attack, "judged")) or 0 for name, attack in running.items()},
        )


def _lowest(ranks: NDArray[np.uint64], most: int) -> NDArray[np.int64]:
    """Places of the lowest ``ranks``, at most so many, ascending."""
    return np.sort(np.argpartition(ranks, most)[:most]) if most < len(ranks) else np.arange(len(ranks))


class _GrowingRows:
    """A tensor, float[n, d], that grows: each row is copied a few times in all."""

    def __init__(self) -> None:
        self._held: Tensor | None = None
        self._count = 0

    def add(self, rows: Tensor) -> None:
        """Append ``rows``, float[k, d]."""
        count = self._count + len(rows)
        if self._held is None:
            self._held = rows
        elif count > len(self._held):
            held = rows.new_empty((max(count, len(self._held) * 5 // 4), rows.shape[1]))
            held[: self._count] = self.all
            self._held = held
        if self._count:
            self._held[self._count : count] = rows
        self._count = count

    @property
    def all(self) -> Tensor:
        """Those there are, which do not change."""
        return torch.empty(0, 0) if self._held is None else self._held[: self._count]


class _OneStep:
    """A :class:`~vfl_node.privacy.attacks.attack.Scope` of one step.

    Args:
        rows: float32[n, d].
        sketches: float32[n, w].
        followed: int64[q], the sample of which half is synthetic if there are enough, ascending.
        sample: int64[k], a random one.
        neighbours: of the rows that are followed.
        randomness: of the audit.
    """

    def __init__(
        self,
        rows: Tensor,
        sketches: Floats,
        followed: Positions,
        sample: Positions,
        neighbours: NearRows,
        randomness: Randomness,
    ) -> None:
        self._rows, self._sketches, self._sample, self._randomness = rows, sketches, sample, randomness
        self._neighbours = neighbours
        self.met = Subset(np.arange(len(rows)), len(rows))
        self.followed = Subset(followed, len(rows))

    def alone(self, batch: Batch) -> Batch:
        """The sample of which half is synthetic if there are enough, on the CPU."""
        places = self.followed.positions
        return Batch(batch.epoch, batch.positions[places], batch.rows[torch.from_numpy(places).to(batch.rows.device)].cpu())

    def select_beside(self, batch: Batch) -> NDArray[np.int64]:
        """The sample of which half is synthetic if there are enough."""
        return self.followed.positions

    def score_between(self, batch: Batch) -> tuple[Positions, Scores]:
        """The same sample, beside all rows."""
        which = self.followed.positions
        return which, collinear.scores_beside(self._rows, torch.from_numpy(which), self._beside).numpy()

    def select_together(self, batch: Batch) -> Batch:
        """A random sample."""
        return Batch(batch.epoch, self._sample, batch.rows[torch.from_numpy(self._sample).to(batch.rows.device)])

    def reduce(self, batch: Batch) -> Tensor:
        """The rows as they are."""
        return batch.rows

    def twins(self, steps: Sequence[Tensor]) -> NDArray[np.bool_]:
        """By sketches."""
        return twins(self._sketches[None])

    def nearest(self, epoch: TranscriptEpoch) -> tuple[Positions, Scores]:
        """By sketches, in the leaves of a tree."""
        return self.met.positions, nearest(self._sketches, leaves(self._sketches, self._randomness.derive("tree")))

    def ratios(self, epoch: TranscriptEpoch) -> tuple[Positions, Scores]:
        """The ratios of the sample, beside all rows."""
        which = self.followed.positions
        return which, distance_ratio.scores_beside(self._rows, torch.from_numpy(which), self._beside).numpy()

    @cached_property
    def _beside(self) -> Tensor:
        return self._neighbours.look(self._rows, self.followed.positions)
