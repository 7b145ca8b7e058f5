"""Quotients by numbers of records in whole columns and in bins, in shares.

D = n₁·N₀ − n₀·N₁ is exact, and D/(N₁·N₀) = n₁/N₁ − n₀/N₀. Everything is divided by twice N₁, N₀ and n₁ + n₀. Where one of them
is 0, so is the quotient, since the first guess is.

Source: ours.
"""

from __future__ import annotations

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
    """Quotients of numbers [2, pairs, bins]. 15 rounds, and three more for each stage of maxima above three."""
    totals = plan.add_up(counts)
    sums = counts[0, 0] + counts[1, 0]
    (crosses, farthest), of_totals, of_sums = await run_beside(
        machine,
        partial(_find_farthest, counts=counts, totals=totals, plan=plan),
        partial(_invert, value=totals.times(2)),
        partial(_invert, value=sums.times(2)),
    )
    pairs, bins = crosses.shape
    at = (
        np.append(np.repeat(np.arange(pairs), bins), np.zeros(len(plan.bins), np.intp)),
        np.append(np.tile(plan.column, pairs), np.arange(len(plan.bins))),
    )
    (opened,) = await machine.run(mask_value(Shared(np.append(crosses.part, farthest.part), 0)))
    share, large = await machine.run(
        multiply_three(opened, *(of_totals.sigma[side][at] for side in (0, 1))),
        product(opened[:bins], of_sums.sigma, "numbers"),
    )
    share, large = await machine.run(
        truncate(share, share.fraction - _SHARE_FRACTION), truncate(large, large.fraction - _LARGE_FRACTION - 1)
    )
    opened, opened_large = await machine.run(mask_value(share), mask_value(large))
    share, large = await machine.run(
        multiply_three(opened, *(of_totals.factor[side][at] for side in (0, 1))),
        product(opened_large, of_sums.factor, "numbers"),
    )
    share, large = await machine.run(
        truncate(share, share.fraction - _SHARE_FRACTION - 2), truncate(large, large.fraction - _LARGE_FRACTION - 1)
    )
    every = Shared(share.part, _SHARE_FRACTION)  # four times what it was, and twice: numbers were divided by twice others
    shares, opened_large = await machine.run(
        mask_value(Shared(every.part[: pairs * bins].reshape(pairs, bins), _SHARE_FRACTION)),
        mask_value(Shared(large.part, _LARGE_FRACTION)),
    )
    (terms,) = await machine.run(product(shares[0], opened_large, "numbers"))
    return Quotients(of_totals.logarithms, shares, every[pairs * bins :], plan.add_up(terms))


@dataclass(frozen=True, eq=False)
class _Inverse:
    """Numbers v: 1/v is ``sigma`` times ``factor``, both open under masks; and ln v."""

    sigma: Opened
    factor: Opened
    logarithms: Shared


async def _invert(machine: ShareMachine, value: Shared) -> _Inverse:
    """Ten rounds."""
    normal = await normalise(machine, GUESS, value)
    logarithms, (factor,) = await run_beside(
        machine, partial(find_logarithm, normal=normal), partial(_find_factor, normal=normal)
    )
    return _Inverse(normal.sigma, factor, logarithms)


async def _find_factor(machine: ShareMachine, normal: Normal) -> list[Opened]:
    ((factor,),) = await machine.run(expand(normal, INVERSE))
    (factor,) = await machine.run(truncate(factor, SERIES_FRACTION - _FACTOR_FRACTION))
    return await machine.run(mask_value(factor))


async def _find_farthest(machine: ShareMachine, counts: Shared, totals: Shared, plan: ExactPlan) -> tuple[Shared, Shared]:
    """D of each pair of numbers, [pairs, bins], and of both labels the largest |Σ D| over a column's first bins.

    A round, and three for each stage of maxima, of up to four numbers each.
    """
    opened, of_all = await machine.run(mask_value(counts), mask_value(totals))
    of_all = of_all[..., plan.column]
    one, other = await machine.run(product(opened[0], of_all[1], "numbers"), product(opened[1], of_all[0], "numbers"))
    crosses = one - other
    sums = plan.accumulate(crosses[0])
    values, places = stack_rows([sums, sums.times(-1)]), [np.append(at, at + len(plan.column)) for at in plan.find_places()]
    while max(map(len, places)) > 1:
        filled = [np.append(at, np.repeat(at[:1], -len(at) % 4)) for at in places]
        values = await largest(machine, values[np.concatenate(filled).reshape(-1, 4)])
        places = np.split(np.arange(len(values.part)), np.cumsum([len(at) // 4 for at in filled])[:-1])
    return crosses, values
