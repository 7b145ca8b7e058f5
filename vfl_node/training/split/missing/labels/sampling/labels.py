"""``sampling``: a target drawn from the distribution of the real ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vfl_node.training.split.missing.labels.contract import Known
from vfl_node.training.split.missing.labels.fixed import Fixed
from vfl_node.training.split.missing.strategies import LabelStrategy

MOST_DECIMALS = 9
"""Targets that need more decimals are taken as continuous."""


def sampled(strategy: LabelStrategy, known: Known) -> Fixed:
    """A target for every shared position from the distribution of the real ones, one draw for the whole job.

    The draw at a position depends on this party's seed and the position alone, as with random-pos. It lies between two
    neighbouring real targets and has as many decimals as they have: a copy of a real target would repeat it, which real ones
    of a continuous target do not, and a number with other decimals would stand out, too.
    """
    assert known.scale is not None
    real = known.scale.original(known.labels)
    drawn = np.quantile(real, known.randomness.derive("sampling").uniform((known.shared,)))
    decimals = _decimals(real)
    drawn = drawn if decimals is None else np.round(drawn, decimals)
    return Fixed(known.scale.scaled(drawn).astype(np.float32), known.classes, float(known.labels.mean()))


def _decimals(values: NDArray[np.float64]) -> int | None:
    """How many decimals ``values`` have at most; None for more than :data:`MOST_DECIMALS`."""
    close = 1e-12 * float(np.abs(values).max())
    fitting = (of for of in range(MOST_DECIMALS + 1) if (np.abs(np.round(values, of) - values) <= close).all())
    return next(fitting, None)
