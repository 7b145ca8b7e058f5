"""Small bins of a column together, in shares: so no figure is of a handful of records.

Two numbers of records of each bin are compared, say of both labels. A bin is *kept* where both are ``least_rows`` or more. All
other bins of its column are its *pool*, one more bin. A pool that is small, too, is dropped with its records: none of them is
in any sum of the column. So totals are 0, or ``least_rows`` of either number or more.

Which bins are kept stays in shares.

Source: ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.operations import mask_value
from vfl_node.crypto.shares.rounds import run_beside
from vfl_node.crypto.shares.steps import Lifted, lift, multiply_bits, negative
from vfl_node.crypto.shares.values import Opened, Shared
from vfl_node.training.statistics.exact_plan import ExactPlan

Many = tuple[Lifted, Lifted]
"""Whether each of both numbers is ``least_rows`` or more, [..., K]; both must be."""


@dataclass(frozen=True, eq=False)
class Pooled:
    """Numbers of records after it.

    Attributes:
        counts: [..., bins + columns], by :attr:`ExactPlan.with_pools`: 0 of bins that are not kept, and of dropped pools.
        kept: of bins [pairs, bins].
        pooled: of pools [pairs, columns].
    """

    counts: Shared
    kept: Many
    pooled: Many


async def pool_small(
    machine: ShareMachine, counts: Shared, plan: ExactPlan, judge: Callable[[Shared], Shared] | None = None
) -> Pooled:
    """Take small bins together. Six rounds; from the dealer about 600 bytes for each of the numbers that are compared.

    Args:
        machine: of whoever runs it.
        counts: [V, pairs, bins] without fractional bits.
        plan: the same for everybody.
        judge: makes of such counts those that are compared, [2, pairs, bins], by adding up; None: they are the counts.
    """
    kept, held = await _keep(machine, counts, plan, judge)
    rest = plan.add_up(counts - held)
    pooled, pools = await _keep(machine, rest, plan, judge)
    return Pooled(plan.insert_pools(held, pools), kept, pooled)


async def _keep(
    machine: ShareMachine, counts: Shared, plan: ExactPlan, judge: Callable[[Shared], Shared] | None
) -> tuple[Many, Shared]:
    """Whether bins are large, and counts of those that are, 0 of others. Three rounds."""
    judged = counts if judge is None else judge(counts)
    least = np.uint64(plan.least_rows if machine.place == 0 else 0)
    few, (opened,) = await run_beside(
        machine, partial(_find_few, value=Shared(judged.part - least, 0)), lambda machine: machine.run(mask_value(counts))
    )
    flags = few.flags ^ np.uint8(1)
    many = Lifted(flags[0], few.mask[0]), Lifted(flags[1], few.mask[1])
    return many, await _multiply(machine, opened, many)


async def _find_few(machine: ShareMachine, value: Shared) -> Lifted:
    sign, _ = await negative(machine, value)
    return await lift(machine, sign)


async def _multiply(machine: ShareMachine, opened: Opened, many: Many) -> Shared:
    """Numbers [V, ...] where both bits [...] are 1, else 0; without a message."""
    shape = opened.mask.shape
    spread = [Lifted(np.broadcast_to(each.flags, shape), np.broadcast_to(each.mask, shape)) for each in many]
    (found,) = await machine.run(multiply_bits(opened, spread))
    return found
