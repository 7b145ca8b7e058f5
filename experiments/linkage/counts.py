"""Passive records' keys from how many of them are within reach: exact counts, wherever they are fewer than K.

A record beyond twice the reach is no candidate, and a missing one has the similarity 0, which no other has. So beside noisy
similarities the active party has an exact count for each of its records. Along a key that is a number the count rises where
records of the passive party come within reach, and falls where they leave it. That needs neither a training nor many uses of a
record. Where each record has K candidates the count is K everywhere, and tells nothing.

Who attacks: the active party, which follows the protocol; here with one key that is a number or a date.

Source: our own; the paper does not mention it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vfl_node.privacy.linkage.space import Floats


def locate(counts: NDArray[np.int64], own: Floats, reach: float) -> Floats:
    """Where passive records lie, float64[found], in ascending order: between two keys of the active party each.

    Args:
        counts: int64[m], similarities of each active record that are not 0.
        own: float64[m], its key.
        reach: of the key.

    Cost: that of sorting.
    """
    order = np.argsort(own, kind="stable")
    keys, steps = own[order], np.diff(counts[order])
    between = (keys[1:] + keys[:-1]) / 2
    rises, falls = (np.repeat(between, np.maximum(sign * steps, 0)) for sign in (1, -1))
    risen = int(counts[order[0]])  # before the first key: these are known by their falls alone
    return np.concatenate([falls[:risen] - 2 * reach, rises + 2 * reach])
