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
from vfl_node.privacy.attacks import ATTACKS, distance_ratio
from vfl_node.privacy.attacks.attack import Attack, Positions, Scores, Subset
from vfl_node.privacy.attacks.transcript import Batch, TranscriptEpoch
from vfl_node.privacy.silent import attempt
from vfl_node.privacy.sketches import Floats, Sketch, leaves, nearest, twins

SAMPLE = 1024
"""Rows that are projected, and rows that are sought between two others, at most."""


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


@torch.no_grad()
def audit_equal_weights(
    rows: Tensor, synthetic: NDArray[np.bool_], randomness: Randomness, attacks: Mapping[str, type[Attack]] | None = None
) -> Judged:
    """The attacks that need no gradient and no second epoch.

    ``same_step_twin`` and ``near_duplicate`` compare all rows; ``collinear`` and ``distance_ratio`` look at a sample, half of
    it synthetic if there are enough, beside all rows; ``spectral`` at a random sample.

    Args:
        rows: float32[n, d], embedded by the same weights; what would be sent.
        synthetic: bool[n], the truth about each.
        randomness: of this alone.
        attacks: those that run, by name; None: all there are.

    Cost: 2,048·n·d multiplications, n·log n operations.
    """
    if synthetic.all() or not synthetic.any():
        return Judged()
    scope, batch = _OneStep(rows, synthetic, randomness), Batch(0, np.arange(len(rows)), rows)
    kinds = {name: ATTACKS[name] for name in ATTACKS} if attacks is None else attacks
    running = {name: kind(synthetic, scope) for name, kind in kinds.items() if works_at_once(kind)}
    for attack in running.values():
        attempt(partial(attack.see, batch))
    return Judged(
        {name: attempt(attack.score) for name, attack in running.items()},
        {name: attempt(partial(getattr, attack, "judged")) or 0 for name, attack in running.items()},
    )


class _OneStep:
    """A :class:`~vfl_node.privacy.attacks.attack.Scope` of one step."""

    def __init__(self, rows: Tensor, synthetic: NDArray[np.bool_], randomness: Randomness) -> None:
        self._rows, self._randomness = rows, randomness
        order = randomness.derive("sample").permutation(len(rows))
        kinds = [order[synthetic[order] == kind] for kind in (True, False)]
        share = max(SAMPLE // 2, SAMPLE - min(map(len, kinds)))
        self._sample = order[:SAMPLE]
        self.met = Subset(np.arange(len(rows)), len(rows))
        self.followed = Subset(np.concatenate([kind[:share] for kind in kinds]), len(rows))

    def alone(self, batch: Batch) -> Batch:
        """The sample of which half is synthetic if there are enough, on the CPU."""
        places = self.followed.positions
        return Batch(batch.epoch, batch.positions[places], batch.rows[torch.from_numpy(places).to(batch.rows.device)].cpu())

    def select_beside(self, batch: Batch) -> NDArray[np.int64]:
        """The sample of which half is synthetic if there are enough."""
        return self.followed.positions

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
        return which, distance_ratio.scores(self._rows, torch.from_numpy(which)).numpy()

    @cached_property
    def _sketches(self) -> Floats:
        return Sketch(self._rows.shape[1], self._randomness.derive("directions"))(self._rows)
