"""A passive record's keys from which active records have it as a candidate: they lie around it.

The active party knows its own keys, and which of its records have the same candidate
(:mod:`experiments.linkage.partition`). It needs no similarity, so noise does not matter: this is the passive party's
attack on candidates (:mod:`vfl_node.privacy.linkage.cells`) the other way round. The more candidates there are, the farther off
these records lie, and the less exact it is.

Who attacks: the active party, which follows the protocol.

Source: our own; the paper does not mention it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vfl_node.privacy.linkage.space import Floats


def locate(members: NDArray[np.bool_], own: Floats) -> Floats:
    """Where each passive record lies, float64[records, axes]: amid the active records that have it as a candidate.

    Args:
        members: bool[records, m], which these are; not none in a row.
        own: float64[m, axes], points of the active party's records.

    Cost: records·m·axes multiplications.
    """
    return members @ own / members.sum(axis=1, keepdims=True)
