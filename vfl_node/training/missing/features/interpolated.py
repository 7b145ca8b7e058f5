"""``interpolated``: somewhere between a random own row and a near one of it.

No copy, so mostly no exact twin. The fewer numbers can be blended, and the coarser they are, the
more rows are like one of the two: 44 % in one table of three coarse numeric columns and four of
categories. Ours, after SMOTE-NC; the paper copies rows (``sampling``).

Source: Chawla et al. 2002 (SMOTE), section 6.1: near rows and blending of mixed columns.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.randomness import Randomness
from vfl_node.data.features import Features
from vfl_node.training.missing.features.near import near
from vfl_node.training.missing.features.rows import atoms, uniform


class Interpolated:
    """x + λ(z − x) with λ uniform and z one of the 5 rows nearest to x that differ from it.

    Categories come from x or z, each by itself. Of the numbers those that cannot be blended
    (:func:`~vfl_node.training.missing.features.rows.atoms`) come all from x or all from z, so
    that a missing value and its indicator stay together.

    Cost: that of :func:`~vfl_node.training.missing.features.near.near`.
    """

    def __init__(self, features: Features, randomness: Randomness) -> None:
        self._features = features
        self._atoms = atoms(features.numeric)
        self._near = near(features, randomness.derive("near"))

    def __call__(self, sources: NDArray[np.int64], randomness: Randomness) -> Features:
        """As :meth:`Rows.__call__`."""
        which = randomness.derive("near").choices(self._near.shape[1], len(sources))
        others = self._near[sources, which]
        x, z = self._features.take(sources), self._features.take(others)
        part, kept = uniform((len(sources), 2), randomness.derive("part")).T[:, :, None]  # λ, and whose atoms
        blended = x.numeric + part * (z.numeric - x.numeric)
        copied = np.where(kept < 0.5, x.numeric, z.numeric)
        first = uniform(x.categorical.shape, randomness.derive("categories")) < 0.5
        return Features(
            np.where(self._atoms[sources] | self._atoms[others], copied, blended).astype(np.float32),
            np.where(first, x.categorical, z.categorical),
            x.cardinalities,
        )
