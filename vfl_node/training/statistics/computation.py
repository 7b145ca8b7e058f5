"""Statistics in shares, as every data party and the dealer compute them.

::

    both      a number of each row: 1 or 2³² by its label where a row is every party's, else 0; so a sum has both counts
    block k   cells of some columns under masks, and the sums of these numbers by bin
    products  how all columns move together, if the job asks for it (correlations.py)
    open      each party's sums to it, with noise; without noise rounded results alone (exact.py)

Each line is a section (:class:`vfl_node.crypto.shares.machine.ShareMachine`). What is opened depends on shapes alone.

Source: ours.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.shares.cells import mask_cells, sum_cells
from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.noise import draw_noise
from vfl_node.crypto.shares.operations import known_product, mask_apart, mask_known, reveal
from vfl_node.crypto.shares.ring import Ring
from vfl_node.crypto.shares.values import Shared
from vfl_node.training.shares.candidates import Candidates
from vfl_node.training.statistics.correlations import multiply_rows
from vfl_node.training.statistics.plan import StatisticsPlan

LABEL_BITS = 32
"""Records with label 1 are counted above so many bits of those with label 0."""

Sums = tuple[Ring, ...]
"""Of each block so far, uint64[groups, cells], a party's shares."""

After = Callable[[int, Sums], Awaitable[None]]
"""What happens after a block, counted from 0."""


@dataclass(frozen=True, eq=False)
class StatisticsOwn:
    """What one party brings.

    Attributes:
        cells: of its bins over the shared order.
        marks: uint64[n]: 1 where a row is its own; at the active party 2^:data:`LABEL_BITS` where the label is 1.
        numbers: uint64[n, d], its part of rows that are compared; zeros where a row is not its own.
    """

    cells: Candidates
    marks: Ring
    numbers: Ring


@dataclass(frozen=True, eq=False)
class StatisticsOutcome:
    """What was opened to a party.

    Attributes:
        counts: its own numbers with noise, float64[groups, columns, cells, 2], by label; empty at the dealer.
        products: of :func:`~.correlations.multiply_rows`; None where the job does not ask for it.
    """

    counts: NDArray[np.float64]
    products: NDArray[np.float64] | None


async def compute(
    machine: ShareMachine, plan: StatisticsPlan, own: StatisticsOwn | None, start: Sums, first: int, after: After
) -> StatisticsOutcome:
    """Count, and open.

    Args:
        machine: of whoever runs it.
        plan: the same for everybody.
        own: this party's; None at the dealer.
        start: this party's shares before block ``first``; of the dealer nothing counts.
        first: block to begin with.
        after: called after each block.
    """
    machine.begin("both")
    whole = await _mark_shared(machine, plan, own)
    grouped = np.zeros((len(plan.groups), plan.rows), np.uint64)
    for group, rows in zip(grouped, plan.groups, strict=True):
        group[rows] = whole.part[rows, 0]
    (marks,) = await machine.run(mask_apart(Shared(grouped, 0), machine.parties))
    sums = list(start)
    for number, block in enumerate(plan.blocks):
        width = (block.last - block.first) * plan.cells
        if machine.place < 0 and number < first:
            sums.append(np.zeros((len(plan.groups), width), np.uint64))
        if number < first:
            continue
        machine.begin(f"block {number}")
        mine = own.cells.of_columns(block.first, block.last) if own and machine.place == block.owner else None
        cells = await mask_cells(machine, block.owner, plan.rows, width, mine)
        (counted,) = await machine.run(sum_cells(cells, marks))
        sums.append(counted.part)
        await after(number, tuple(sums))
    products = None
    if plan.correlations:
        machine.begin("products")
        trained, numbers = plan.groups[0], own.numbers if own else None
        of_rows = None if numbers is None else numbers[trained]
        products = await multiply_rows(machine, plan.widths, of_rows, whole[trained, 1], plan.deviation_of_products)
    machine.begin("open")
    return StatisticsOutcome(await open_counts(machine, plan, sums), products)


async def _mark_shared(machine: ShareMachine, plan: StatisticsPlan, own: StatisticsOwn | None) -> Shared:
    """The active party's marks where a row is every party's, and 0 elsewhere; for comparisons 1 there as well, [n, 1 or 2]."""
    marks = own.marks if own else np.zeros(plan.rows, np.uint64)
    each = np.stack([marks, (marks > 0).astype(np.uint64)][: 1 + plan.correlations], axis=1)
    made = Shared(each if machine.place == 0 else np.zeros_like(each), 0)
    bits = await machine.run(
        *(
            mask_known(owner, (plan.rows, 1), 0, marks[:, None] if own and machine.place == owner else None)
            for owner in range(1, machine.parties)
        )
    )
    for bit in bits:
        (made,) = await machine.run(known_product(bit, made, "numbers"))
    return made


async def open_counts(machine: ShareMachine, plan: StatisticsPlan, sums: Sequence[Ring]) -> NDArray[np.float64]:
    """Each party's own sums to it, with noise on both counts of each."""
    opened = []
    for owner in range(machine.parties):
        mine = [part for block, part in zip(plan.blocks, sums, strict=True) if block.owner == owner]
        counted = Shared(np.concatenate(mine, axis=1), 0)
        (noise,) = await machine.run(draw_noise((2, *counted.shape), plan.deviation, 0))
        noisy = counted + noise[0] + noise[1].times(1 << LABEL_BITS)
        (numbers,) = await machine.run(reveal(noisy, owner))
        opened.append(numbers)
    if machine.place < 0:
        return np.zeros((0, 0, 0, 2))
    return split_counts(opened[machine.place]).reshape(len(plan.groups), -1, plan.cells, 2)


def split_counts(numbers: Ring) -> NDArray[np.float64]:
    """Both counts of each number, float64[…, 2]; either may be below 0."""
    low = (numbers & np.uint64((1 << LABEL_BITS) - 1)).astype(np.uint32).view(np.int32).astype(np.int64)
    high = (numbers.view(np.int64) - low) >> np.int64(LABEL_BITS)
    return np.stack([low, high], axis=-1).astype(np.float64)
