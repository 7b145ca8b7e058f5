"""What statistics in shares send, and how much memory they take: counted before they run, from shapes alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.job.costs import Beside, TableShape, TrainingCost
from vfl_node.job.evaluate import Evaluate
from vfl_node.roles import DataRole
from vfl_node.training.shares.plan import SharesPlan
from vfl_node.training.statistics import correlations
from vfl_node.training.statistics.config import Statistics
from vfl_node.training.statistics.plan import BLOCK_CELLS, SCORE_GROUPS, Positions, StatisticsPlan

if TYPE_CHECKING:
    from vfl_node.crypto.shares.machine import Counter as CostCounter

USUAL_COLUMNS = 12
"""Columns of a party, where nobody says how many it has."""

_ROW_BYTES = 120
"""What a row takes: marks of both groups with masks, and the parties' bits."""

_COLUMN_BYTES = 9
"""What a row takes in each of a party's own columns: its bin, while the table is cut."""

_NUMBER_BYTES = 16
"""Likewise, where columns are compared: its number, and a copy for rows that are trained on."""

_MADE_BYTES = 52
"""Likewise, while numbers are made, before all else."""

_GROUP_BYTES = 40
"""What a row takes in each further group of the active party's score: marks of it, under masks."""

_PRODUCT_BYTES = 10
"""What a number of a row that is multiplied takes for each party, and for one more: masks of it, and of its product."""

_PAIR_BYTES = 60
"""What a pair of columns that are compared takes: sums, products, and noise in limbs."""

_CELL_BYTES = 10
"""What a cell of a block takes: the masked one, a block of it as float64, and what comes from the dealer ahead of need."""

_BLOCK_BYTES = 256 << 20
"""Numbers in limbs, and messages on their way."""

_ROWS = 1 << 10
"""Rows that are counted with: words of bits are full."""

_WITH_AS_MANY_SLOTS = _ROWS + 3 * 64
"""More of them, for which a column has no more slots."""


def plan_of(section: Statistics, rows: int, columns: Sequence[int], groups: Sequence[Positions] = ()) -> StatisticsPlan:
    """The shapes of a job over so many rows and columns of each party."""
    return StatisticsPlan(
        rows,
        tuple(columns),
        section.bins + 1,
        tuple(groups),
        section.epsilon,
        section.least_rows,
        section.correlations,
        section.worth,
    )


def party_bytes(section: Statistics, rows: int, columns: Sequence[int]) -> int:
    """Memory of the data party with most columns. It has the bins of its own columns, and one block of cells at a time."""
    own = max(columns)
    cells = min(max(BLOCK_CELLS, rows * (section.bins + 1)), rows * own * (section.bins + 1))
    compared = section.correlations * (own + correlations.BESIDE)
    counting = rows * _NUMBER_BYTES * compared + _CELL_BYTES * cells + _shared_bytes(section, rows, columns)
    return rows * _COLUMN_BYTES * own + max(rows * _MADE_BYTES * compared, counting)


def dealer_bytes(section: Statistics, rows: int, columns: Sequence[int]) -> int:
    """Memory of the coordinator, which deals to each party by itself."""
    return len(columns) * (_CELL_BYTES * (BLOCK_CELLS // 4) + _shared_bytes(section, rows, columns))


def _shared_bytes(section: Statistics, rows: int, columns: Sequence[int]) -> int:
    """What a party needs as the dealer does for each party: marks of rows, products, and messages."""
    of_row, products = _ROW_BYTES + section.worth * SCORE_GROUPS * _GROUP_BYTES, 0
    if section.correlations:
        total = sum(columns) + correlations.BESIDE
        at_once = min(rows, _compared_at_once(total)) * total
        products = _PRODUCT_BYTES * (len(columns) + 1) * at_once + _PAIR_BYTES * total**2
    return rows * of_row + products + _BLOCK_BYTES


class StatisticsTrainingPlan(SharesPlan[Statistics]):
    """The plan of statistics in shares."""

    def steps(self, evaluate: Evaluate, rows: int) -> int:
        """Blocks of columns."""
        return len(plan_of(self.train, rows, _columns(self.passive_parties, self.beside)).blocks)

    def cost(self, evaluate: Evaluate, rows: int, protocol: str) -> TrainingCost | None:
        """Cells under masks, which grow with rows, and what is opened at the end."""
        if ALIGNMENTS[protocol].by_similarity:
            return None
        columns, held_out = _columns(self.passive_parties, self.beside), math.ceil(rows * evaluate.test_fraction)
        rounds, active, passive, dealt = _count(self.train, columns, rows, held_out)
        known = bool(self.beside.columns) and all(self.beside.columns)
        return TrainingCost(
            rows=rows - held_out,
            batches=self.steps(evaluate, rows),
            steps=rounds if self.passive_parties > 1 else -(-rounds // 2),  # two parties send at the same time
            active_bytes=active,
            passive_bytes=passive,
            coordinator_bytes=dealt,
            coordinator_memory=dealer_bytes(self.train, rows, columns),
            counted_with="" if known else f"{USUAL_COLUMNS} columns a party",
        )

    def parameters(self, role: DataRole, table: TableShape) -> int:
        """A weight of evidence for each bin."""
        return (table.numeric + len(table.cardinalities) or USUAL_COLUMNS) * (self.train.bins + 1)

    def batch_bytes(self, role: DataRole, table: TableShape) -> int:
        """A block of cells."""
        columns = table.numeric + len(table.cardinalities) or USUAL_COLUMNS
        return party_bytes(self.train, table.rows, [columns] * (1 + self.passive_parties))

    def reported_epochs(self, evaluate: Evaluate) -> int:
        """Blocks; of an unknown number of rows one for each party."""
        return 1 + self.passive_parties


def _columns(passive_parties: int, beside: Beside) -> tuple[int, ...]:
    known = beside.columns or (0,) * (1 + passive_parties)
    return tuple(columns or USUAL_COLUMNS for columns in known)


def _compared_at_once(total: int) -> int:
    """Rows of so many numbers that are multiplied at a time."""
    return max(1, correlations.NUMBERS_AT_ONCE // total)


@lru_cache(maxsize=64)
def _count(section: Statistics, columns: tuple[int, ...], rows: int, held_out: int) -> tuple[int, int, int, int]:
    """Rounds, bytes of the active party, of all passive ones and of the dealer, by the program itself.

    What is sent grows in proportion with rows and slots, so few rows are counted, and each shape of a block once. Of groups of
    rows their number alone counts, but for products of columns.
    """
    from vfl_node.crypto.shares.masked import blocks_of

    rows, groups = max(1, rows), [np.zeros(0, np.int64)] * (1 + (held_out > 0))
    plan = plan_of(section, rows, columns, groups)
    shapes = Counter((block.owner, (block.last - block.first) * plan.cells) for block in plan.blocks)

    def count(few: int) -> NDArray[np.float64]:
        total = _count_rest(plan_of(section, few, columns, groups))
        for (owner, width), times in shapes.items():
            total += times * _count_block(plan, owner, width, few)
        return total

    total = _extrapolate(count, rows)
    total[0] += sum(times * len(list(blocks_of(rows, width))) for (_, width), times in shapes.items())
    if section.correlations:
        total += _count_products(plan.widths, rows - held_out)
    rounds, active, passive, dealt = (round(number) for number in total.tolist())
    return rounds, active, passive, dealt


def _extrapolate(count: Callable[[int], NDArray[np.float64]], rows: int) -> NDArray[np.float64]:
    """What ``count`` says of ``rows``; of many by what it says of few."""
    from vfl_node.crypto.shares.masked import slots_of

    if rows <= 2 * _ROWS:
        return count(rows)
    few = count(_ROWS)
    of_row = (count(_WITH_AS_MANY_SLOTS) - few) / (_WITH_AS_MANY_SLOTS - _ROWS)
    of_slot = (count(2 * _ROWS) - few - of_row * _ROWS) / (slots_of(2 * _ROWS) - slots_of(_ROWS))
    return np.asarray(few + of_row * (rows - _ROWS) + of_slot * (slots_of(rows) - slots_of(_ROWS)))


def _count_rest(plan: StatisticsPlan) -> NDArray[np.float64]:
    """All but blocks, and products of rows."""
    from vfl_node.training.statistics.computation import Sums, compute

    async def skip(number: int, sums: Sums) -> None:
        pass

    return _run(len(plan.columns), lambda counter: compute(counter, plan, None, (), len(plan.blocks), skip))


def _count_block(plan: StatisticsPlan, owner: int, width: int, rows: int) -> NDArray[np.float64]:
    """One block over so few rows, without rounds that open its cells."""
    from vfl_node.crypto.shares.masked import blocks_of
    from vfl_node.crypto.shares.values import Opened
    from vfl_node.training.statistics.computation import sum_block

    nothing = np.zeros((len(plan.groups) + (plan.worth * plan.score_groups if owner else 0), rows), np.uint64)
    values = Opened(nothing, nothing, 0, (nothing,) * len(plan.columns))
    found = _run(len(plan.columns), lambda counter: sum_block(counter, owner, width, values, None))
    found[0] -= len(list(blocks_of(rows, width)))
    return found


def _count_products(widths: Sequence[int], rows: int) -> NDArray[np.float64]:
    """Products of so many rows."""
    from vfl_node.crypto.shares.values import Shared

    def count(few: int) -> NDArray[np.float64]:
        both = Shared(np.zeros(few, np.uint64), 0)
        return _run(len(widths), lambda counter: correlations.multiply_rows(counter, widths, None, both, 1.0))

    at_once = _compared_at_once(sum(widths))
    few = max(1, min(_ROWS, at_once // 2))
    none, once, twice = count(0), count(few), count(2 * few)
    of_row = (twice - once) / few
    return np.asarray(-(-rows // at_once) * (once - none - few * of_row) + rows * of_row)


def _run(parties: int, program: Callable[[CostCounter], Coroutine[Any, Any, object]]) -> NDArray[np.float64]:
    """What a program costs, as :func:`_count`."""
    from vfl_node.crypto.shares.machine import Counter as CostCounter

    counter = CostCounter(parties)
    with suppress(StopIteration):  # at its end: who counts waits for nobody
        program(counter).send(None)
    total, active = counter.cost, counter.cost.opened[0]
    return np.array([total.rounds, active, sum(total.opened.values()) - active, sum(total.dealt.values())], np.float64)
