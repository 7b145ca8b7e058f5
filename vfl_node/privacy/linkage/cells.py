"""An active record's keys from the set of its candidates: its order-K Voronoi cell.

The passive party knows its own keys and the seed. The points of which exactly these K of its records are the nearest are a
small cell, the smaller the more records there are. The order of candidates is not needed, nor is any similarity, so noise does
not matter.

Who attacks: the passive party, which follows the protocol.

Source: our own; the paper does not mention it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.nearest.search import hamming
from vfl_node.crypto.randomness import Randomness
from vfl_node.privacy.linkage.space import Floats, KeySpace, grid

POINTS = 90_000
"""Points of the grid."""

_AT_ONCE = 2048


def locate(
    candidates: NDArray[np.int64],
    own: Floats,
    space: KeySpace,
    seed: Randomness,
    *,
    most: int = POINTS,
    within: Floats | None = None,
) -> Floats:
    """Where each active record lies, float64[m, axes]: the middle of the points whose candidates are most like its own.

    Args:
        candidates: int64[m, K], places of ``own``; below 0 where there are fewer.
        own: float64[n, axes], points of the passive party's records.
        space: of the job's keys.
        seed: of filters, which both data parties know.
        most: points of the grid.
        within: least and greatest value of each axis, float64[axes, 2]; by default all that there are.

    Cost: ``most``·n distances of filters, and ``most``·n·m multiplications. Memory: 2,048·(9·n + 12·m) bytes.
    """
    m, k = candidates.shape
    chosen = np.zeros((m, len(own) + 1), dtype=np.float32)
    np.put_along_axis(chosen, np.where(candidates < 0, len(own), candidates), 1.0, axis=1)
    chosen = chosen[:, :-1]
    filters, points = space.filters(own, seed), grid(space.bounds if within is None else within, most)
    best, count, total = np.full(m, -1.0), np.zeros(m), np.zeros((m, points.shape[1]))
    for start in range(0, len(points), _AT_ONCE):
        part = points[start : start + _AT_ONCE]
        near = np.zeros((len(part), len(own)), dtype=np.float32)
        distances = hamming(space.filters(part, seed), filters)
        np.put_along_axis(near, np.argpartition(distances, k - 1, axis=1)[:, :k], 1.0, axis=1)
        alike = chosen @ near.T  # (m, part)
        better = alike.max(axis=1) > best
        best[better] = alike[better].max(axis=1)
        count[better] = total[better] = 0
        equal = (alike == best[:, None]).astype(np.float64)
        count += equal.sum(axis=1)
        total += equal @ part
    return np.asarray(total / count[:, None])
