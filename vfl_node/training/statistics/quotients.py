"""Quotients by numbers of records in whole columns and in bins, in shares.

D = n₁·N₀ − n₀·N₁ is exact, and D/(N₁·N₀) = n₁/N₁ − n₀/N₀. Everything is divided by twice N₁, N₀ and n₁ + n₀. Where one of them
is 0, so is the quotient, since the first guess is.

Source: ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from vfl_node.crypto.shares.functions import multiply_three
from vfl_node.crypto.shares.logarithm import INVERSE, SERIES_FRACTION, Normal, expand, find_logarithm, normalise
from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.operations import mask_value, product, truncate
from vfl_node.crypto.shares.rounds import run_beside
from vfl_node.crypto.shares.steps import largest
from vfl_node.crypto.shares.values import Opened, Shared, stack_rows
from vfl_node.training.statistics.exact_plan import GUESS, ExactPlan

_FACTOR_FRACTION = 17  # of 1/(1 + e)
_SHARE_FRACTION = 28  # of D/(N₁·N₀)
_LARGE_FRACTION = 8  # of D/(n₁ + n₀)


@dataclass(frozen=True, eq=False)
class Quotients:
    """What has to do with numbers of whole columns.

    Attributes:
        logarithms: of twice these numbers, [2, pairs, columns].
        shares: n/N − m/M of each pair of numbers, [pairs, bins], open under masks.
        distance, chi_square: KS and χ² of both labels, [columns].
    """

    logarithms: Shared
    shares: Opened
    distance: Shared
    chi_square: Shared


async def divide(machine: ShareMachine, counts: Shared, plan: ExactPlan) -> Quotients:
    """Quotients of numbers [2, pairs, bins], two bins of each column at least.

    15 rounds, and three more for each stage of maxima above three.
    """
    totals, sums = plan.add_up(counts), counts[0, 0] + counts[1, 0]
    (crosses, farthest), of_totals, of_sums = await run_beside(
        machine,
        partial(_find_farthest, counts=counts, totals=totals, plan=plan),
        partial(invert, value=totals.times(2)),
        partial(invert, value=sums.times(2)),
    )
    pairs, bins = crosses.shape
    at = (  # pair and column of each of these and of the farthest
        np.append(np.repeat(np.arange(pairs), bins), np.zeros(len(plan.bins), np.intp)),
        np.append(np.tile(plan.column, pairs), np.arange(len(plan.bins))),
    )
    every = Shared(np.append(crosses.part, farthest.part), 0)
    both = [(of_totals.normal.sigma[side][at], of_totals.factor[side][at]) for side in (0, 1)]
    logarithms, apart, large = await run_beside(
        machine,
        partial(find_logarithm, normal=of_totals.normal),
        partial(_divide_by_halves, value=every, divisors=both, fraction=_SHARE_FRACTION),
        partial(
            _divide_by_halves,
            value=crosses[0],
            divisors=[(of_sums.normal.sigma, of_sums.factor)],
            fraction=_LARGE_FRACTION,
        ),
    )
    of_bins = Shared(apart.part[: pairs * bins].reshape(pairs, bins), apart.fraction)
    shares, opened = await machine.run(mask_value(of_bins), mask_value(large))
    (terms,) = await machine.run(product(shares[0], opened, "numbers"))
    return Quotients(logarithms, shares, apart[pairs * bins :], plan.add_up(terms))


async def _divide_by_halves(
    machine: ShareMachine, value: Shared, divisors: Sequence[tuple[Opened, Opened]], fraction: int
) -> Shared:
    """Numbers divided by half of one other or of two, of which σ and what it is multiplied by are open. Four rounds."""
    rough = await _multiply(machine, value, [sigma for sigma, _ in divisors], fraction)
    near = await _multiply(machine, rough, [factor for _, factor in divisors], fraction + len(divisors))
    return Shared(near.part, fraction)


async def _multiply(machine: ShareMachine, value: Shared, factors: Sequence[Opened], fraction: int) -> Shared:
    """The product with one other number or two, cut to so many fractional bits. Two rounds."""
    (opened,) = await machine.run(mask_value(value))
    operation = multiply_three(opened, *factors) if len(factors) == 2 else product(opened, factors[0], "numbers")
    (found,) = await machine.run(operation)
    (found,) = await machine.run(truncate(found, found.fraction - fraction))
    return found


@dataclass(frozen=True, eq=False)
class Inverse:
    """1/v of numbers v.

    Attributes:
        normal: v, brought near 1.
        factor: what its σ is multiplied by, open under masks.
    """

    normal: Normal
    factor: Opened


async def invert(machine: ShareMachine, value: Shared) -> Inverse:
    """1/v of numbers of records or twice these. Ten rounds."""
    normal = await normalise(machine, GUESS, value)
    ((factor,),) = await machine.run(expand(normal, INVERSE))
    (factor,) = await machine.run(truncate(factor, SERIES_FRACTION - _FACTOR_FRACTION))
    (opened,) = await machine.run(mask_value(factor))
    return Inverse(normal, opened)


async def _find_farthest(machine: ShareMachine, counts: Shared, totals: Shared, plan: ExactPlan) -> tuple[Shared, Shared]:
    """D of each pair of numbers, [pairs, bins], and of both labels the largest |Σ D| over a column's first bins.

    A round, and three for each stage of maxima, of up to four numbers each. The sum over all bins is 0, and not among them.
    """
    opened, of_all = await machine.run(mask_value(counts), mask_value(totals))
    of_all = of_all[..., plan.column]
    one, other = await machine.run(product(opened[0], of_all[1], "numbers"), product(opened[1], of_all[0], "numbers"))
    crosses = one - other
    sums = plan.accumulate(crosses[0])
    values, places = (
        stack_rows([sums, sums.times(-1)]),
        [np.append(at[:-1], at[:-1] + len(plan.column)) for at in plan.find_places()],
    )
    while max(map(len, places)) > 1:
        filled = [np.append(at, np.repeat(at[:1], -len(at) % 4)) for at in places]
        values = await largest(machine, values[np.concatenate(filled).reshape(-1, 4)])
        places = np.split(np.arange(len(values.part)), np.cumsum([len(at) // 4 for at in filled])[:-1])
    return crosses, values
