"""What statistics in shares send, and how much memory they take: counted before they run, from shapes alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache

import numpy as np

from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.job.costs import Beside, TableShape, TrainingCost
from vfl_node.job.evaluate import Evaluate
from vfl_node.roles import DataRole
from vfl_node.training.shares.plan import SharesPlan
from vfl_node.training.statistics.config import Statistics
from vfl_node.training.statistics.plan import BLOCK_CELLS, Positions, StatisticsPlan

USUAL_COLUMNS = 12
"""Columns of a party, where nobody says how many it has."""

_ROW_BYTES = 120
"""What a row takes: marks of both groups with masks, and the parties' bits."""

_CELL_BYTES = 10
"""What a cell of a block takes: the masked one, a block of it as float64, and what comes from the dealer ahead of need."""

_BLOCK_BYTES = 256 << 20
"""Numbers in limbs, and messages on their way."""


_COUNTED_CELLS = 1 << 28
"""More cells are not counted one by one: their rows cost what these cost."""


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
    """Memory of a data party, which has the bins of its own columns, and one block of cells at a time."""
    cells = min(max(BLOCK_CELLS, rows * (section.bins + 1)), rows * max(columns) * (section.bins + 1))
    return rows * (_ROW_BYTES + 2 * max(columns)) + _CELL_BYTES * cells + _BLOCK_BYTES


def dealer_bytes(section: Statistics, rows: int, columns: Sequence[int]) -> int:
    """Memory of the coordinator, which deals to each party by itself."""
    return len(columns) * (rows * _ROW_BYTES + _CELL_BYTES * (BLOCK_CELLS // 4) + _BLOCK_BYTES)


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


@lru_cache(maxsize=64)
def _count(section: Statistics, columns: tuple[int, ...], rows: int, held_out: int) -> tuple[int, int, int, int]:
    """Rounds, bytes of the active party, of all passive ones and of the dealer, by the program itself."""
    from vfl_node.crypto.shares.machine import Counter
    from vfl_node.training.statistics.computation import Sums, compute

    few = max(1, min(rows, _COUNTED_CELLS // (sum(columns) * (section.bins + 1))))
    trained = np.arange(round(few * (rows - held_out) / max(1, rows)))
    groups = [trained, trained[:0]][: 1 + (held_out > 0)]
    counter = Counter(len(columns))

    async def skip(number: int, sums: Sums) -> None:
        pass

    with suppress(StopIteration):  # at its end: who counts waits for nobody
        compute(counter, plan_of(section, few, columns, groups), None, (), 0, skip).send(None)
    total, more = counter.cost, rows / few
    active, sent, dealt = total.opened[0], sum(total.opened.values()), sum(total.dealt.values())
    return round(total.rounds * more), round(active * more), round((sent - active) * more), round(dealt * more)
