"""How much each row counts in a loss, and what is added to its score (``data.weight``, ``data.offset`` of the active party).

The loss of a batch is the mean over its rows of w·ℓ, with weights w whose mean over the rows trained on is 1. So a row of
weight 2 counts as the row twice, and steps are as long as without weights. An offset is added to a logit before the link: the
network learns what is left.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vfl_node.alignment.alignment import Alignment
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.row_columns import MOST_WEIGHT
from vfl_node.errors import DataError

Floats = NDArray[np.float64]


def scale_weights(weights: Floats, training: NDArray[np.int64]) -> Floats:
    """``weights``, float64[n], divided by their mean over the rows ``training``, int64[k], and cut at :data:`MOST_WEIGHT`.

    Raises:
        DataError: those of ``training`` are all 0 (``E_WEIGHT``).
    """
    mean = float(weights[training].mean())
    if not mean > 0:
        raise DataError(
            "all rows that are trained on have the weight 0 (data.weight)",
            code="E_WEIGHT",
            hint="training needs shared records of a weight above 0",
            for_peer="its owner does not go on",
            peer_code="E_STOPPED",
        )
    return np.minimum(weights / mean, MOST_WEIGHT)


def shared_weights(weights: Floats, alignment: Alignment, labelled: NDArray[np.int64], randomness: Randomness) -> Floats:
    """The weight of each of m shared rows, float64[m].

    A row that the active party lacks has the weight of a shared one that it owns, drawn by lot, so that the length of a
    gradient does not tell which rows these are.

    Args:
        weights: of its records, float64[n].
        alignment: its view.
        labelled: shared positions trained on that it owns, int64[k].
        randomness: its own; the same gives the same weights.

    Raises: as :func:`scale_weights`.
    """
    return scale_weights(weights[drawn_rows(alignment, randomness)], labelled)


def drawn_rows(alignment: Alignment, randomness: Randomness) -> NDArray[np.int64]:
    """For each of m shared rows the record of this party, int64[m]; of one that it lacks another one, drawn by lot.

    Args:
        alignment: its view.
        randomness: its own; the same gives the same rows.
    """
    rows = alignment.rows.copy()
    lacking = np.flatnonzero(~alignment.owned)
    if len(lacking):
        own = rows[alignment.owned]
        rows[lacking] = own[randomness.choices(len(own), len(lacking))]
    return rows
