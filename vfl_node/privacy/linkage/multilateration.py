"""A passive record's keys from its similarities to many active records: multilateration.

The active party knows the seed of all filters, and so the filter of any key that it can think of. A similarity is a
distance with noise, −(σ0·s + μ0), to a record whose keys it knows. From several of them a record is placed as a ship is by
beacons, and the more there are the better. Noise is σ times the deviation of distances, which grows with filters as distances
do: so their length does not matter, while τ falls with it. Even the seed matters little, as the job's terms say how distances
grow with keys on average.

Which similarities are of the same record it learns by :mod:`experiments.linkage.partition`.

Who attacks: the active party, which follows the protocol.

Source: our own; Theorem 1 of the paper does not have it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.nearest.search import hamming
from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.rows import Rows
from vfl_node.privacy.linkage.fitting import misfits, place_points
from vfl_node.privacy.linkage.space import Floats, KeySpace


def locate(similarities: Floats, own: Rows, mean: float, deviation: float, space: KeySpace, seed: Randomness) -> Floats:
    """Where each passive record lies, float64[records, axes].

    Args:
        similarities: float64[records, k] to k active records; NaN where there is none, but not everywhere in a row.
        own: uint8[k, w], filters of these.
        mean: μ0.
        deviation: σ0.
        space: of the job's keys.
        seed: of filters, which both data parties know.

    Cost: as :func:`vfl_node.privacy.linkage.fitting.place_points`, a distance of filters each; 20 ms a record with 200
    similarities and filters of 2 kB.
    """

    def predict(points: Floats, which: NDArray[np.int64]) -> Floats:
        return hamming(space.filters(points, seed), own[which]).astype(np.float64)

    return place_points(-(deviation * similarities + mean), predict, space.bounds)


def recognise(similarities: Floats, own: Rows, mean: float, deviation: float, tried: Rows) -> NDArray[np.int64]:
    """Which of the ``tried`` filters, such as those of a list of names, fits each passive record best: int64[records].

    Args:
        similarities: as :func:`locate`.
        own: as there.
        mean: μ0.
        deviation: σ0.
        tried: uint8[n, w].
    """
    fits = misfits(-(deviation * similarities + mean), hamming(tried, own).astype(np.float64))
    return fits.argmin(axis=1)
