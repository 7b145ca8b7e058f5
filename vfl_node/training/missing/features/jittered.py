"""``jittered``: a random own row moved as far as a near one is away, in any direction.

A copied row has a twin at distance 0. With noise of one size for all rows, one in a crowd
becomes an outlier and one on its own keeps its twin; noise as long as the gap to a near row
does neither. A table without a number that can move has mixtures of two rows, often like one
of them. Ours: the paper copies rows (``sampling``).
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from vfl_node.crypto.randomness import Randomness
from vfl_node.data.features import CLIP, Features
from vfl_node.training.missing.features.near import near
from vfl_node.training.missing.features.rows import atoms, uniform

EXCHANGED = 0.5
"""Share of the categories that are taken from the near row."""


class Jittered:
    """x + N(0, s²/k) in the k numbers that can move, s their distance to z, one of the 5 rows nearest to x.

    Cells that no noise fits (:func:`~vfl_node.training.missing.features.rows.atoms`) stay.
    Categories come from x or z, each by itself.

    Cost: that of :func:`~vfl_node.training.missing.features.near.near`.
    """

    def __init__(self, features: Features, randomness: Randomness) -> None:
        self._features = features
        self._atoms = atoms(features.numeric)
        self._near = near(features, randomness.derive("near"))

    def __call__(self, sources: NDArray[np.int64], randomness: Randomness) -> Features:
        """As :meth:`Rows.__call__`."""
        which = randomness.derive("near").choices(self._near.shape[1], len(sources))
        x, z = self._features.take(sources), self._features.take(self._near[sources, which])
        movable = ~self._atoms[sources]
        gaps = np.square(z.numeric - x.numeric).sum(axis=1, where=movable)  # (b,)
        sd = np.sqrt(gaps / np.maximum(movable.sum(axis=1), 1)).astype(np.float32)
        noise = torch.randn(x.numeric.shape, generator=randomness.derive("noise").torch()).numpy()
        moved = np.clip(x.numeric + sd[:, None] * noise, -CLIP, CLIP)
        exchanged = uniform(x.categorical.shape, randomness.derive("exchanged")) < EXCHANGED
        return Features(
            np.where(movable, moved, x.numeric),
            np.where(exchanged, z.categorical, x.categorical),
            x.cardinalities,
        )
