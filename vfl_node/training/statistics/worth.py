"""How much a column says of the label beyond what the active party knows itself, in shares: one rounded number a column.

The active party cuts its records into groups d, say by tenths of a score of its own. With bins b and labels y the conditional
mutual information is, of n records in all, ::

    I(b; y | d) = (Σ φ(n_dby) − Σ φ(n_db) − Σ φ(n_dy) + Σ φ(n_d))/n        φ(n) = n·ln n

With counts in place of probabilities that is too large, by about (bins − 1)·groups/(2·n) nats of a column that says nothing. So
φ(n) is n·ln(n − ½) here, and ¼ less of a single record: of a number n with a Poisson distribution, whose mean is λ, its mean is
within .08 of λ·ln λ from λ = 1 on. As n·ln 2 adds up to 0, the logarithm is that of 2·n − 1. The result may be below 0.

Bins with fewer than ``least_rows`` records of a label, in all groups together, are taken together first
(:mod:`vfl_node.training.statistics.pooling`).

Errors: 2e-4 bits, and half a step of .001. Without any record that is kept it is 0.

Leaks: the rounded number, to the column's owner and to the active party.

Sources: Cover and Thomas 2006, 2.5 (conditional mutual information); Grassberger 1988 (n·ψ(n) instead of n·ln n, and ψ(n) is
nearly ln(n − ½)); what a single record counts, and the computation in shares, are ours.
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
from vfl_node.training.statistics.exact_plan import ALONE, GUESS, ExactPlan
from vfl_node.training.statistics.pooling import pool_small
from vfl_node.training.statistics.quotients import invert
from vfl_node.training.statistics.telling import Floats, Unit, tell

_BITS = Unit(1000, 12)
_MEAN_FRACTION = 16  # of the sum times σ
_SCALE_FRACTION = 15
_SCALE = round(2**_SCALE_FRACTION / math.log(2))  # bits, not nats

_ALONE = tuple(ALONE * ((at == 0) - (least == 2)) for at, least in enumerate(GUESS.thresholds))  # reached by 1, and not by 3


async def find_worth(machine: ShareMachine, counts: Shared, plan: ExactPlan) -> Floats:
    """The conditional mutual information of each column and the label, in bits, float64[columns], to .001.

    Cost: 23 rounds; from the dealer about 1.3 kB for each number of records, those of both labels in a group and bin included.

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


async def _find_some(machine: ShareMachine, numbers: Shared, some: ExactPlan) -> Floats:
    """The same, of some columns' counts [T, bins]."""
    pooled, plan = await pool_small(machine, numbers[:, None], some, _add_groups), some.with_pools
    counts = pooled.counts[:, 0]
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


def _add_groups(counts: Shared) -> Shared:
    """Records of each label, all groups together, [2, ...]."""
    return Shared(counts.part.reshape(-1, 2, *counts.shape[1:]).sum(axis=0, dtype=np.uint64), counts.fraction)


async def _multiply_logarithms(machine: ShareMachine, numbers: Shared) -> Shared:
    """φ(n) + n·ln 2 of each number. Ten rounds."""
    less_one = Shared(numbers.part * np.uint64(2) - np.uint64(machine.place == 0), 0)
    normal = await normalise(machine, GUESS, less_one)
    logarithms = await find_logarithm(machine, normal)
    number, logarithm = await machine.run(mask_value(numbers), mask_value(logarithms))
    (found,) = await machine.run(product(number, logarithm, "numbers"))
    return found - normal.weigh(_ALONE, found.fraction)
