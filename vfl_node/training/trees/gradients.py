"""Gradients and hessians of the loss in shares, as one number for each row that counts."""

from __future__ import annotations

import numpy as np

from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.operations import mask_value, product, sum_sines, truncate
from vfl_node.crypto.shares.ring import BITS, FRACTION, Ring
from vfl_node.crypto.shares.sines import SIGMOID
from vfl_node.crypto.shares.values import Opened, Shared
from vfl_node.training.trees.plan import CURVE_FLOOR, PLACE_BITS, SCORE_FRACTION, TreesPlan

TERMS = 13
"""Sines of the sigmoid."""

PAIR_BITS = 32
"""By which a gradient is above its hessian, where both are one number."""

_ABOVE = BITS - PLACE_BITS
_SHORT = _ABOVE + SCORE_FRACTION - 2 * FRACTION  # what targets have less


async def find_pairs(machine: ShareMachine, plan: TreesPlan, scores: Shared, targets: Ring, counted: Opened) -> Shared:
    """(g, h)·w as g·2³² + h, [T, n].

    Args:
        machine: of whoever runs it.
        plan: the same for everybody.
        scores: of T trees, [T, n].
        targets: uint64[T, n], y at the active party with 2·:data:`~vfl_node.crypto.shares.ring.FRACTION` fractional bits; zeros
            elsewhere.
        counted: w: 1 for rows that all parties have and that are trained on, [n].
    """
    if plan.loss == "log":
        (curve,) = await machine.run(sum_sines(scores, SIGMOID[TERMS], slope=True))
        assert curve.slope is not None
        half = np.uint64(1 << (2 * FRACTION - 1)) if machine.place == 0 else np.uint64(0)
        gradients, hessians = await machine.run(
            truncate(Shared(curve.value.part + half - targets, 2 * FRACTION), 2 * FRACTION - plan.gradient_fraction),
            truncate(curve.slope, 2 * FRACTION - plan.hessian_fraction),
        )
        floor = round(CURVE_FLOOR * 2**plan.hessian_fraction) if machine.place == 0 else 0
        of_hessian = hessians.part + np.uint64(floor)
    else:
        lifted = scores.times(1 << _ABOVE, _ABOVE)  # so high, scores wrap around where numbers do
        apart = lifted - Shared(targets, 2 * FRACTION).times(1 << _SHORT, _SHORT)
        (gradients,) = await machine.run(truncate(apart, apart.fraction - plan.gradient_fraction))
        of_hessian = np.full(scores.shape, (machine.place == 0) << plan.hessian_fraction, np.uint64)
    (pairs,) = await machine.run(mask_value(Shared((gradients.part << np.uint64(PAIR_BITS)) + of_hessian, 0)))
    (counting,) = await machine.run(product(pairs, counted, "numbers"))
    return counting
