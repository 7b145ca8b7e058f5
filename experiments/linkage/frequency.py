"""Records' keys from how often each filter comes: equal keys have equal filters.

Who knows how frequent keys are, such as names, or sales at an address, takes the most frequent filter for the most frequent
key, and so on. That needs neither the seed nor the distances.

Who attacks: the coordinator, which follows the protocol.

Source: the classical attack on deterministic encryption; Naveed, Kamara and Wright 2015.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.rows import Rows


def recognise(filters: Rows, frequencies: NDArray[np.float64]) -> NDArray[np.int64]:
    """Which key each record has, int64[n]; −1 where there are more filters than keys.

    Args:
        filters: uint8[n, w].
        frequencies: float64[keys], how frequent each key is, as far as the attacker knows. Of equal ones the first
            is taken first.
    """
    raw = np.ascontiguousarray(filters).view(np.dtype((np.void, filters.shape[1]))).ravel()
    _, which, counts = np.unique(raw, return_inverse=True, return_counts=True)
    ranks = np.empty(len(counts), dtype=np.int64)
    ranks[np.argsort(-counts, kind="stable")] = np.arange(len(counts))
    keys = np.full(len(counts), -1, dtype=np.int64)
    order = np.argsort(-frequencies, kind="stable")
    known = ranks < len(order)
    keys[known] = order[ranks[known]]
    return keys[which]
