"""A party's own attacks on rows that are all embedded by the same weights: those held out, or predicted.

No training hides them: a copy is exactly equal to its source, wherever the two stand, and a row made up between
two others lies between their embeddings. Rows can therefore be judged before the first of them is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vfl_node.crypto.randomness import Randomness
from vfl_node.metrics import auc
from vfl_node.privacy.attacks import collinear, distance_ratio, spectral
from vfl_node.privacy.sketches import Sketch, leaves, nearest, twins

SAMPLE = 1024
"""Rows that are projected, and rows that are sought between two others, at most."""


@dataclass(frozen=True)
class Judged:
    """What attacks on a party's own rows found.

    Attributes:
        attacks: attack → AUC, .5 at chance, not folded; None where not defined. Empty if there is nothing to tell apart.
        judged: attack → number of rows behind the figure.
    """

    attacks: Mapping[str, float | None] = field(default_factory=dict)
    judged: Mapping[str, int] = field(default_factory=dict)


@torch.no_grad()
def audit_equal_weights(rows: Tensor, synthetic: NDArray[np.bool_], randomness: Randomness) -> Judged:
    """The attacks that need no gradient and no second epoch.

    ``same_step_twin`` and ``near_duplicate`` compare all rows; ``collinear`` and ``distance_ratio`` look at a sample, half of
    it synthetic if there are enough, beside all rows; ``spectral`` at a random sample.

    Args:
        rows: float32[n, d], embedded by the same weights; what would be sent.
        synthetic: bool[n], the truth about each.
        randomness: of this alone.

    Cost: 2,048·n·d multiplications, n·log n operations.
    """
    if synthetic.all() or not synthetic.any():
        return Judged()
    sketches = Sketch(rows.shape[1], randomness.derive("directions"))(rows)
    drawn = randomness.derive("sample").permutation(len(rows))
    sample = drawn[:SAMPLE]
    kinds = [drawn[synthetic[drawn] == kind] for kind in (True, False)]
    share = max(SAMPLE // 2, SAMPLE - min(map(len, kinds)))
    asked = np.concatenate([of[:share] for of in kinds])
    beside = torch.from_numpy(asked)
    found = {
        "collinear": (asked, collinear.scores(rows, beside).numpy()),
        "distance_ratio": (asked, distance_ratio.scores(rows, beside).numpy()),
        "near_duplicate": (np.arange(len(rows)), -nearest(sketches, leaves(sketches, randomness.derive("tree")))),
        "same_step_twin": (np.arange(len(rows)), twins(sketches[None])[0].astype(np.float64)),
        "spectral": (sample, spectral.scores(rows[torch.from_numpy(sample).to(rows.device)]).numpy()),
    }
    return Judged(
        {name: auc(synthetic[which], scores) for name, (which, scores) in found.items()},
        {name: len(which) for name, (which, _) in found.items()},
    )
