"""What numbers of records in bins say of a column, where the numbers stay in shares and only rounded results are opened.

With n₁ and n₀ records of label 1 and 0 in a bin, and N₁ and N₀ in all ::

    weight of evidence    ln((n₁ + ½)/N₁) − ln((n₀ + ½)/N₀)
    information value     Σ (n₁/N₁ − n₀/N₀)·weight of evidence
    KS                    the largest |Σ n₁/N₁ − n₀/N₀| over the first bins
    χ²                    Σ (n₁·N₀ − n₀·N₁)²/((n₁ + n₀)·N₁·N₀), which is Σ (O − E)²/E over bins and both labels
    stability index       Σ (a/A − e/E)·(ln((a + ½)/A) − ln((e + ½)/E))   a records held out, e trained on

**Small bins.** All of this is of bins after :mod:`vfl_node.training.statistics.pooling`: each pair of numbers, of both labels
and of both groups, takes small bins together by itself. In sums over bins the pool comes last. Each small bin has the weight of
its pool, and 0 if that is dropped. Its owner sees equal weights, so it may guess which bins are small.

**Numbers.** What is divided is exact, and below 2⁴⁶ (:mod:`vfl_node.training.statistics.quotients`):

===================  ===============  ==========  ===================================================================
number               fractional bits  below       errors
===================  ===============  ==========  ===================================================================
logarithm            18               17          1.1e-5
n₁/N₁ − n₀/N₀        28               1           5e-5 of it, and 3e-8
D/(n₁ + n₀)          8                2²²         3e-5 of it, and .014
weight of evidence   18               17          5e-5
information value    46               34          5e-5 of it, and 1e-4
χ²                   36               2²³         1e-4 of it, .03, and 3e-8·D/(n₁ + n₀) of each bin (.13 at most)
===================  ===============  ==========  ===================================================================

and half a step of the rounding each. Where no bin is kept and the pool is dropped, all figures of the pair are 0.

Cost: 26 rounds; 29 or 32 where a column has more than 32 or 128 bins. Many columns are computed some at a time, each time anew.

Leaks: of each column the rounded weights of evidence to its owner, and the rounded other figures to it and the active party.

Source: ours; the figures are those of Good 1950 (weight of evidence) and Siddiqi 2006 (information value, stability index).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from vfl_node.crypto.shares.logarithm import find_logarithm, normalise
from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.operations import mask_value, product
from vfl_node.crypto.shares.rounds import run_beside
from vfl_node.crypto.shares.steps import Lifted, multiply_bits
from vfl_node.crypto.shares.values import Opened, Shared
from vfl_node.training.statistics.exact_plan import GUESS, ExactPlan
from vfl_node.training.statistics.pooling import Pooled, pool_small
from vfl_node.training.statistics.quotients import divide
from vfl_node.training.statistics.telling import Floats, Unit, tell

_EVIDENCE, _DIVERGENCE, _DISTANCE, _CHI_SQUARE = Unit(100, 13), Unit(1000, 18), Unit(1000, 12), Unit(10, 28)


@dataclass(frozen=True, eq=False)
class ExactFigures:
    """What was opened to this party; not a number elsewhere.

    Attributes:
        evidence: weights of evidence, float64[bins], rounded to .01.
        information: information values, float64[columns], to .001.
        distance: KS, float64[columns], to .001.
        chi_square: float64[columns], to .1.
        stability: stability indices, float64[columns], to .001.
    """

    evidence: Floats
    information: Floats
    distance: Floats
    chi_square: Floats
    stability: Floats


async def summarise(machine: ShareMachine, counts: Shared, plan: ExactPlan) -> ExactFigures:
    """Figures of all columns.

    Args:
        machine: of whoever runs it.
        counts: [bins, T] without fractional bits: of label 0 and 1; if T is 4, of records held out after those trained on. Each
            column has :data:`~vfl_node.training.statistics.exact_plan.MOST_ROWS` of each at most.
        plan: the same for everybody.

    Returns:
        Figures; without records held out no stability indices.
    """
    groups = counts.shape[1] // 2
    found = ExactFigures(np.full(len(plan.column), np.nan), *(np.full(len(plan.bins), np.nan) for _ in range(4)))
    for rows, which, some in plan.split(2 * groups + 1):
        evidence, divergence, distance, chi_square = await _summarise_some(machine, _pair(counts[rows]), some)
        found.evidence[rows], found.distance[which], found.chi_square[which] = evidence, distance, chi_square
        for each, row in zip((found.information, found.stability), divergence, strict=False):
            each[which] = row
    return found


def _pair(counts: Shared) -> Shared:
    """Numbers that are compared, [2, pairs, bins]: of label 1 with 0, and of records held out with those trained on."""
    columns = counts.part.T
    pairs = [columns[1::-1]]
    if len(columns) == 4:
        pairs.append(np.stack([columns[2] + columns[3], columns[0] + columns[1]]))
    return Shared(np.stack(pairs, axis=1), counts.fraction)


async def _summarise_some(machine: ShareMachine, counts: Shared, plan: ExactPlan) -> tuple[Floats, Floats, Floats, Floats]:
    """Weights of evidence, divergences [pairs, columns], KS and χ² of some columns, of numbers [2, pairs, bins]."""
    pooled, wide = await pool_small(machine, counts, plan), plan.with_pools
    of_bins, quotients = await run_beside(
        machine,
        partial(_find_logarithms, counts=pooled.counts),
        partial(divide, counts=pooled.counts, plan=wide),
    )
    logarithms = of_bins - quotients.logarithms[..., wide.column]
    (ratios,) = await machine.run(mask_value(logarithms[0] - logarithms[1]))

    told = plan.find_receivers(machine.parties)
    own = plan.owned(machine.parties)[:, plan.column]

    async def tell_evidence(machine: ShareMachine) -> Floats:
        return await tell(machine, await _weigh(machine, ratios[0], pooled, plan), _EVIDENCE, own)

    async def tell_divergence(machine: ShareMachine) -> Floats:
        (terms,) = await machine.run(product(quotients.shares, ratios, "numbers"))
        return await tell(machine, wide.add_up(terms), _DIVERGENCE, told)

    evidence, divergence, distance, chi_square = await run_beside(
        machine,
        tell_evidence,
        tell_divergence,
        partial(tell, value=quotients.distance, unit=_DISTANCE, receivers=told),
        partial(tell, value=quotients.chi_square, unit=_CHI_SQUARE, receivers=told),
    )
    return evidence, divergence, distance, chi_square


async def _find_logarithms(machine: ShareMachine, counts: Shared) -> Shared:
    """ln(2·n + 1). Nine rounds."""
    numbers = Shared(counts.part * np.uint64(2) + np.uint64(machine.place == 0), 0)
    return await find_logarithm(machine, await normalise(machine, GUESS, numbers))


async def _weigh(machine: ShareMachine, ratios: Opened, pooled: Pooled, plan: ExactPlan) -> Shared:
    """Weights of evidence, [bins], of those of bins and pools: w·k + v·p·(1 − k), without a message."""
    kept = [Lifted(each.flags[0], each.mask[0]) for each in pooled.kept]
    of_pool = [Lifted(each.flags[0, plan.column], each.mask[0, plan.column]) for each in pooled.pooled]
    mine, pool = ratios[plan.places], ratios[plan.pools[plan.column]]
    of_kept, of_pools, of_both = await machine.run(
        multiply_bits(mine, kept), multiply_bits(pool, of_pool), multiply_bits(pool, [*of_pool, *kept])
    )
    return of_kept + of_pools - of_both
