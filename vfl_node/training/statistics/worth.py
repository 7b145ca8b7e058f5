"""How much a column says of the label beyond what the active party knows itself, in shares: one rounded number a column.

The active party cuts its records into groups d, say by tenths of a score of its own. With bins b and labels y the conditional
mutual information is, of n records in all, ::

    I(b; y | d) = (Σ φ(n_dby) − Σ φ(n_db) − Σ φ(n_dy) + Σ φ(n_d))/n        φ(n) = n·ln n

As an estimate from counts it is too large: a column that says nothing has about (bins − 1)·groups/(2·n·ln 2) bits.

Errors: 2e-4 bits, and half a step of .001. Without any shared record it is 0.

Leaks: the rounded number, to the column's owner and to the active party.

Source: Cover and Thomas 2006, 2.5 (conditional mutual information); its computation in shares is ours.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from vfl_node.crypto.shares.logarithm import find_logarithm, normalise
from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.operations import mask_value, product, truncate
from vfl_node.crypto.shares.rounds import run_beside
from vfl_node.crypto.shares.values import Shared
from vfl_node.training.statistics.exact_plan import GUESS, ExactPlan
from vfl_node.training.statistics.quotients import invert
from vfl_node.training.statistics.telling import Floats, Unit, tell

_BITS = Unit(1000, 12)
_MEAN_FRACTION = 16  # of the sum times σ
_SCALE_FRACTION = 15
_SCALE = round(2**_SCALE_FRACTION / math.log(2))  # bits, not nats


async def find_worth(machine: ShareMachine, counts: Shared, plan: ExactPlan) -> Floats:
    """The conditional mutual information of each column and the label, in bits, float64[columns], to .001.

    Cost: 17 rounds; from the dealer about 1.2 kB for each number of records, those of both labels in a group and bin included.

    Args:
        machine: of whoever runs it.
        counts: [bins, T] without fractional bits: of label 0 and 1 of the first group, then of the second one, and so on. Each
            column has :data:`~vfl_node.training.statistics.exact_plan.MOST_ROWS` of each label at most.
        plan: the same for everybody.

    Returns:
        At a column's owner and at the active party; elsewhere not a number.
    """
    found = np.full(len(plan.bins), np.nan)
    for rows, which, some in plan.split(counts.shape[1] // 2 * 3):
        found[which] = await _find_some(machine, counts[rows].transposed, some)
    return found


async def _find_some(machine: ShareMachine, counts: Shared, plan: ExactPlan) -> Floats:
    """The same, of some columns' counts [T, bins]."""
    labels, bins = counts.shape
    both = np.concatenate([counts.part, counts.part[::2] + counts.part[1::2]])  # by label, then of both
    of_bins = Shared(both, 0)
    of_columns = plan.add_up(of_bins)
    numbers = Shared(np.concatenate([both, of_columns.part], axis=1), 0)
    terms, of_all = await run_beside(
        machine, partial(_multiply_logarithms, numbers=numbers), partial(invert, value=of_columns[:labels].sum(0))
    )
    apart = terms[:labels].sum(0) - terms[labels:].sum(0)
    total = plan.add_up(apart[:bins]) - apart[bins:]
    (opened,) = await machine.run(mask_value(total))
    (mean,) = await machine.run(product(opened, of_all.normal.sigma, "numbers"))
    (mean,) = await machine.run(truncate(mean, mean.fraction - _MEAN_FRACTION))
    (opened,) = await machine.run(mask_value(mean))
    (mean,) = await machine.run(product(opened, of_all.factor, "numbers"))
    return await tell(machine, mean.times(_SCALE, _SCALE_FRACTION), _BITS, plan.find_receivers(machine.parties))


async def _multiply_logarithms(machine: ShareMachine, numbers: Shared) -> Shared:
    """n·ln n of each number. Ten rounds."""
    logarithms = await find_logarithm(machine, await normalise(machine, GUESS, numbers))
    number, logarithm = await machine.run(mask_value(numbers), mask_value(logarithms))
    (found,) = await machine.run(product(number, logarithm, "numbers"))
    return found
