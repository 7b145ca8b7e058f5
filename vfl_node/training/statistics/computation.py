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
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.shares.cells import OwnCells, mask_cells, sum_cells
from vfl_node.crypto.shares.functions import split_pair
from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.noise import draw_noise
from vfl_node.crypto.shares.operations import known_product, mask_apart, mask_known, reveal
from vfl_node.crypto.shares.ring import Ring
from vfl_node.crypto.shares.values import Opened, Shared
from vfl_node.training.shares.candidates import Candidates
from vfl_node.training.statistics.correlations import multiply_rows
from vfl_node.training.statistics.exact import ExactFigures, summarise
from vfl_node.training.statistics.plan import StatisticsPlan
from vfl_node.training.statistics.worth import find_worth

LABEL_BITS = 32
"""Records with label 1 are counted above so many bits of those with label 0."""

Sums = tuple[Ring, ...]
"""A party's shares of the sums of each block so far, uint64[groups, cells]."""

After = Callable[[int, Sums], Awaitable[None]]
"""What happens after a block, counted from 0."""


@dataclass(frozen=True, eq=False)
class StatisticsOwn:
    """What one party brings.

    Attributes:
        cells: of its bins over the shared order.
        marks: uint64[n]: 1 where a row is its own; at the active party 2^:data:`LABEL_BITS` where the label is 1.
        numbers: uint64[n, d], its part of rows that are compared; zeros where a row is not its own.
        scored: int64[n] below :data:`~.plan.SCORE_GROUPS`, the group of its own score, at the active party; zeros elsewhere.
    """

    cells: Candidates
    marks: Ring
    numbers: Ring
    scored: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class StatisticsOutcome:
    """What was opened to a party.

    Attributes:
        counts: its own numbers with noise, float64[groups, columns, cells, 2], by label; empty at the dealer and without noise.
        products: of :func:`~.correlations.multiply_rows`; None where the job does not ask for it.
        exact: without noise, of all columns.
        worth: of passive parties' columns, float64[columns] in bits; None where the job does not ask for it.
    """

    counts: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 0, 0, 2)))
    products: NDArray[np.float64] | None = None
    exact: ExactFigures | None = None
    worth: NDArray[np.float64] | None = None


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
    by_score = whole.part[:, : plan.score_groups]
    counted = np.zeros((len(plan.groups) + plan.worth * plan.score_groups, plan.rows), np.uint64)
    for group, rows in zip(counted, plan.groups, strict=False):
        group[rows] = by_score[rows].sum(axis=1, dtype=np.uint64)
    counted[len(plan.groups) :, plan.groups[0]] = by_score[plan.groups[0]].T[: len(counted) - len(plan.groups)]
    (marks,) = await machine.run(mask_apart(Shared(counted, 0), machine.parties))
    sums = list(start)
    for number, block in enumerate(plan.blocks):
        width, values = (block.last - block.first) * plan.cells, marks[: None if block.owner else len(plan.groups)]
        if machine.place < 0 and number < first:
            sums.append(np.zeros((len(values.mask), width), np.uint64))
        if number < first:
            continue
        machine.begin(f"block {number}")
        mine = own.cells.select(block.first, block.last) if own and machine.place == block.owner else None
        sums.append((await sum_block(machine, block.owner, width, values, mine)).part)
        await after(number, tuple(sums))
    products = None
    if plan.correlations:
        machine.begin("products")
        trained, numbers = plan.groups[0], own.numbers if own else None
        of_rows = None if numbers is None else numbers[trained]
        products = await multiply_rows(machine, plan.widths, of_rows, whole[trained, -1], plan.deviation_of_products)
    machine.begin("open")
    if plan.epsilon is not None:
        return StatisticsOutcome(await open_counts(machine, plan, sums), products)
    counts = await _split_sums(machine, [part[: len(plan.groups)] for part in sums])
    exact, worth = await summarise(machine, counts, plan.exact), None
    if plan.worth:
        of_others = [part[len(plan.groups) :] for block, part in zip(plan.blocks, sums, strict=True) if block.owner]
        worth = np.maximum(await find_worth(machine, await _split_sums(machine, of_others), plan.judged), 0.0)
    return StatisticsOutcome(exact=exact, worth=worth)


async def sum_block(machine: ShareMachine, owner: int, width: int, values: Opened, mine: OwnCells | None) -> Shared:
    """Sums of numbers of rows by cells of one party, [groups, cells].

    Args:
        machine: of whoever runs it.
        owner: place of that party.
        width: how many cells a row has.
        values: the numbers, [groups, n].
        mine: the cells, at their owner; None elsewhere.
    """
    cells = await mask_cells(machine, owner, values.mask.shape[1], width, mine)
    (found,) = await machine.run(sum_cells(cells, values))
    return found


async def _mark_shared(machine: ShareMachine, plan: StatisticsPlan, own: StatisticsOwn | None) -> Shared:
    """The active party's marks where a row is every party's, and 0 elsewhere, [n, groups of its score].

    For comparisons one more column is 1 where a row is every party's.
    """
    marks, scored = (own.marks, own.scored) if own else (np.zeros(plan.rows, np.uint64), np.zeros(plan.rows, np.int64))
    each = (np.arange(plan.score_groups) == scored[:, None]) * marks[:, None]
    if plan.correlations:
        each = np.concatenate([each, (marks > 0).astype(np.uint64)[:, None]], axis=1)
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


async def _split_sums(machine: ShareMachine, sums: Sequence[Ring]) -> Shared:
    """Numbers of records of each bin, [bins, 2·groups]: of label 0 and 1 of each group."""
    packed = np.concatenate(sums, axis=1)
    ((ones, zeros),) = await machine.run(split_pair(Shared(packed, 0)))
    return Shared(np.stack([zeros, ones], axis=1).reshape(-1, packed.shape[1]).T, 0)


def split_counts(numbers: Ring) -> NDArray[np.float64]:
    """Both counts of each number, float64[…, 2]; either may be below 0."""
    low = (numbers & np.uint64((1 << LABEL_BITS) - 1)).astype(np.uint32).view(np.int32).astype(np.int64)
    high = (numbers.view(np.int64) - low) >> np.int64(LABEL_BITS)
    return np.stack([low, high], axis=-1).astype(np.float64)
