"""Records' keys from the distances of their filters to a few records whose keys are known: anchors.

The coordinator has all filters, and so all distances between them: a map of both parties' records, without its place. It
does not know the seed, but the terms of the job, which say how distances grow with keys on average. A few records with known
keys are enough to put the map in its place: those of a public register, or a party's own address. Secret pivots or hash keys
do not change distances.

Who attacks: the coordinator, which follows the protocol, and knows where some records of either party are.

Source: our own.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.nearest.search import hamming
from vfl_node.crypto.rows import Rows
from vfl_node.privacy.linkage.fitting import place_points
from vfl_node.privacy.linkage.space import Floats, KeySpace


def locate(filters: Rows, anchors: Rows, keys: Floats, space: KeySpace) -> Floats:
    """Where each record lies, float64[n, axes].

    Args:
        filters: uint8[n, w], of the records.
        anchors: uint8[k, w], filters of the records that are known.
        keys: float64[k, axes], points of these.
        space: of the job's keys.

    Cost: as :func:`vfl_node.privacy.linkage.fitting.place_points`.
    """

    def predict(points: Floats, which: NDArray[np.int64]) -> Floats:
        return space.expected_distances(points, keys[which])

    return place_points(hamming(filters, anchors).astype(np.float64), predict, space.bounds)
