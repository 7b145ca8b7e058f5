"""The label strategy ``coin``."""

from __future__ import annotations

import numpy as np

from vfl_example.coin_spec import Coin
from vfl_node.training.split.missing.labels.contract import Known
from vfl_node.training.split.missing.labels.made_up import Fixed


def coin(strategy: Coin, known: Known) -> Fixed:
    """A label for every shared position. The draw must not depend on who owns the row."""
    drawn = known.randomness.derive("coin").uniform((known.shared,)) < strategy.heads
    return Fixed(drawn.astype(np.float32), known.classes, strategy.heads)
