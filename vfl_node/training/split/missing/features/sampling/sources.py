"""``sampling``: a whole real row, so that the columns keep their joint distribution.

A synthetic row is drawn from the marginal of x; no other distribution p(x)·q(y) is closer
to the real one. Its exact twin is among the party's own rows, which a peer that sees both in
one epoch can notice (:mod:`vfl_node.privacy.attacks.near_duplicate`).

Source: Song et al. 2021, section 4.2 and Theorem 2; the fixed draw is ours.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.randomness import Randomness


def sampling(own_rows: int, shared_rows: int, randomness: Randomness) -> NDArray[np.int64]:
    """A uniform own row for every position, drawn whether it is needed or not. int64[shared_rows].

    The draw at a position depends on the party's secret seed and the position alone.
    """
    return randomness.derive("synthetic rows").choices(own_rows, shared_rows)
