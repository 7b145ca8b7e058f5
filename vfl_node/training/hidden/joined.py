"""Predictions by opened weights with all halves in one place, for a trial whose tables have one owner; nothing is sent."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vfl_node.training.hidden.opened import OpenedHalf, placed
from vfl_node.training.serving import KeptHalf


def predict(active: KeptHalf, passives: Sequence[KeptHalf], positions: NDArray[np.int64]) -> NDArray[np.float64]:
    """What the model says of the rows at shared ``positions``: float64[k], or float64[k, K].

    They are probabilities; in a regression numbers in the target's unit. Columns of a party that does not own a row count as
    zeros, which are their means where ``scaling`` centres them.
    """
    opened = [OpenedHalf(half.model) for half in (active, *passives)]
    parts = [
        of.part(placed(of.columns(half.table), half.alignment, positions))
        for of, half in zip(opened, (active, *passives), strict=True)
    ]
    first, *_ = opened
    return first.predicted(np.sum(parts, axis=0))
