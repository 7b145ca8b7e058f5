"""Where records lie, by least squares: the points whose distances to others are most like those that were measured.

The sum of squares has several minima, as distances do not grow beyond twice the reach. So the search goes over a grid of all
points, and then over ever finer ones around each record's best.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from vfl_node.privacy.linkage.space import Floats, grid

Predict = Callable[[Floats, NDArray[np.int64]], Floats]
"""Points float64[n, axes] and which k of the others → distances float64[n, k]."""

COARSE = 4096
"""Points of the first grid."""

_AROUND = 7  # points along an axis of a finer grid, which reaches one step of the last one to each side
_ZOOMS = 5  # each makes a step a third


def misfits(measured: Floats, predicted: Floats) -> Floats:
    """Mean squared difference of measured and predicted distances, float64[records, n].

    Args:
        measured: float64[records, k]; NaN where there is none, but not everywhere in a row.
        predicted: float64[n, k], of n points or n texts.

    Cost: records·n·k multiplications.
    """
    known = ~np.isnan(measured)
    distances = np.where(known, measured, 0.0)
    squares = (distances**2).sum(axis=1)[:, None] - 2 * distances @ predicted.T + known.astype(np.float64) @ (predicted**2).T
    return np.asarray(squares / known.sum(axis=1)[:, None])


def place_points(measured: Floats, predict: Predict, bounds: Floats) -> Floats:
    """The point of each record that fits its distances best: float64[records, axes].

    Args:
        measured: float64[records, k], distances to k others; NaN where unknown, but not everywhere in a row.
        predict: what they would be.
        bounds: least and greatest value of each axis, float64[axes, 2].

    Cost: COARSE + records·5·7^axes points, each with up to k distances.
    """
    axes = len(bounds)
    coarse = grid(bounds, COARSE)
    found = coarse[misfits(measured, predict(coarse, np.arange(measured.shape[1]))).argmin(axis=1)]
    step = (bounds[:, 1] - bounds[:, 0]) / (max(2, int(COARSE ** (1 / axes) + 1e-9)) - 1)
    for _ in range(_ZOOMS):
        around = grid(np.stack([-step, step], axis=1), _AROUND**axes)
        for record, distances in enumerate(measured):
            near = np.clip(found[record] + around, bounds[:, 0], bounds[:, 1])
            known = np.flatnonzero(~np.isnan(distances))
            found[record] = near[misfits(distances[None, known], predict(near, known))[0].argmin()]
        step = step / 3
    return found
