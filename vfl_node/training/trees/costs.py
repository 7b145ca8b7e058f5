"""What training trees in shares will send and compute: counted before it runs, by the program of the training itself.

What is sent grows in proportion with rows, slots and trees, but for words of 64 bits. So the program is run by a
:class:`~vfl_node.crypto.shares.machine.Counter` with few rows and trees, and all else follows.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

from vfl_node.job.alignment import ALIGNMENTS, AlignmentSpec
from vfl_node.job.costs import HEAD_BYTES, TableShape, TrainingCost
from vfl_node.job.evaluate import Evaluate
from vfl_node.roles import DataRole
from vfl_node.training.shares.metric_noise import is_union
from vfl_node.training.shares.plan import SharesPlan
from vfl_node.training.trees import memory
from vfl_node.training.trees.config import MOST_ROWS, Trees

if TYPE_CHECKING:
    from vfl_node.crypto.shares.functions import Guess
    from vfl_node.training.trees.plan import TreesPlan

_ROWS = 1 << 10
"""Rows that are counted with: words of bits are full."""

_WITH_AS_MANY_SLOTS = _ROWS + 3 * 64
"""More of them, for which a column has no more slots."""

PAYS = 1_500
"""Shared records times ε, below which noise usually takes more than the others' columns give; over a union twice as many."""


class TreesTrainingPlan(SharesPlan[Trees]):
    """The plan of training trees in shares."""

    def steps(self, evaluate: Evaluate, rows: int) -> int:
        """Trees."""
        return self.train.trees

    def cost(self, evaluate: Evaluate, rows: int, protocol: str) -> TrainingCost | None:
        """Masked shares of the data parties, and the dealer's numbers."""
        if ALIGNMENTS[protocol].by_similarity:
            return None
        train, parties = self.train, 1 + self.passive_parties
        widths = memory.widths(train, self.passive_parties, self.beside)
        held_out = math.ceil(rows * evaluate.test_fraction)
        tested = (held_out or rows) if train.metrics_by == "histogram" else 0
        align = ALIGNMENTS[protocol]
        rounds, active, passive, dealt = _count(train, widths, rows, tested, evaluate.share_with_passive, align)
        common = rows if align.every_row_is_shared else self.beside.common if parties == 2 else None
        known = bool(self.beside.columns) and all(self.beside.columns)
        return TrainingCost(
            rows=rows - held_out,
            batches=train.trees,
            steps=rounds if parties > 2 else -(-rounds // 2),  # two parties send at the same time
            active_bytes=active,
            passive_bytes=passive,
            coordinator_bytes=dealt,
            coordinator_memory=memory.dealer_bytes(train, rows, widths),
            said=() if common is None else describe_noise(train, common * (1 - evaluate.test_fraction), align),
            counted_with="" if known else f"{memory.USUAL_CANDIDATES} candidates for splits a party",
        )

    def parameters(self, role: DataRole, table: TableShape) -> int:
        """Leaves, and for each node a bit for each candidate."""
        width = memory.width_of(self.train, role, table) * (1 + self.passive_parties)
        return self.train.trees * ((1 << self.train.depth) + ((1 << self.train.depth) * width) // 64)

    def batch_bytes(self, role: DataRole, table: TableShape) -> int:
        """All cells of others, and what a level takes."""
        width = memory.width_of(self.train, role, table)
        return memory.party_bytes(self.train, table.rows, [width] * (1 + self.passive_parties))

    def served_message_bytes(self, rows: int) -> int:
        """What the asker marks new records with, a number each; masked shares travel in pieces."""
        return 8 * rows + HEAD_BYTES

    def reported_epochs(self, evaluate: Evaluate) -> int:
        """Trees."""
        return self.train.trees


def describe_noise(train: Trees, records: float, align: AlignmentSpec) -> tuple[str, ...]:
    """Whether noise may take too much, for owners beforehand, of about so many shared ``records`` to train on."""
    least = PAYS * (2 if is_union(align) else 1)
    if train.epsilon is None or records * train.epsilon >= least:
        return ()
    return (
        f"with about {records:,.0f} shared records to train on and an ε of {train.epsilon:g}, noise may take more than the "
        f"columns of others give: below a product of {least:,} trees are seldom better than the active party alone",
    )


def _count(
    train: Trees, widths: tuple[int, ...], rows: int, tested: int, told: bool, align: AlignmentSpec
) -> tuple[int, int, int, int]:
    """Rounds, bytes of the active party, of all passive ones and of the dealer.

    Thresholds and slots do not grow with rows as all else does. So few rows are counted with as many thresholds as all rows
    have, and slots by themselves.
    """
    import numpy as np

    from vfl_node.crypto.shares.masked import slots_of
    from vfl_node.crypto.shares.tallies import rows_at_once
    from vfl_node.training.shares.measuring import BINS
    from vfl_node.training.trees.noised import deviation_of

    noise = deviation_of(train, align)
    at_once = memory.grown_at_once(train, rows, widths)
    guess = _plan_of(train, widths, min(max(rows, 1), MOST_ROWS), 1, at_once, noise).guess

    def run(train: Trees, outputs: int, rows: int, trees: int, tested: int = 0) -> np.ndarray:
        return np.array(_run(train, widths, told, noise, guess, outputs, rows=rows, trees=trees, tested=tested), np.float64)

    def grow(outputs: int, trees: int) -> np.ndarray:
        few = run(train, outputs, _ROWS, trees)
        of_row = (run(train, outputs, _WITH_AS_MANY_SLOTS, trees) - few) / (_WITH_AS_MANY_SLOTS - _ROWS)
        of_slot = (run(train, outputs, 2 * _ROWS, trees) - few - of_row * _ROWS) / (slots_of(2 * _ROWS) - slots_of(_ROWS))
        return np.asarray(few + of_row * (rows - _ROWS) + of_slot * (slots_of(rows) - slots_of(_ROWS)))

    groups, left = divmod(train.outputs, at_once)
    first = grow(at_once, 1)
    total = first + (train.trees * groups - 1) * (grow(at_once, 2) - first)
    if left:
        total += train.trees * (grow(left, 2) - grow(left, 1))
    total[0] += _blocks(rows, widths)
    if tested:
        in_round = rows_at_once(BINS, train.outputs)
        turns, rest = divmod(tested - 1, in_round)
        closed = train.model_copy(update={"reveal": "none", "leaves": "none"})
        counts = (0, in_round, 2 * in_round, rest + 1)
        none, once, twice, last = (run(closed, train.outputs, 2 * in_round, 0, count) for count in counts)
        total += last - none + turns * (twice - once)
    rounds, active, passive, dealt = (round(number) for number in total.tolist())
    return rounds, active, passive, dealt


def _plan_of(train: Trees, widths: tuple[int, ...], rows: int, trees: int, outputs: int, noise: float | None) -> TreesPlan:
    """The shapes of a training of so many outputs, whose trees grow side by side."""
    from vfl_node.training.trees.plan import TreesPlan

    rest = train.learning_rate, max(train.l2, noise or 0.0), train.min_gain, train.least_rows, train.loss
    return TreesPlan(rows, widths, trees, train.depth, *rest, outputs, outputs, noise)


def _blocks(rows: int, widths: tuple[int, ...]) -> int:
    """Rounds in which all cells are opened, some rows at a time."""
    from vfl_node.crypto.shares.masked import blocks_of

    return sum(len(list(blocks_of(rows, width))) for width in widths)


@lru_cache(maxsize=64)
def _run(
    train: Trees,
    widths: tuple[int, ...],
    told: bool,
    noise: float | None,
    guess: Guess,
    outputs: int,
    *,
    rows: int,
    trees: int,
    tested: int,
) -> tuple[int, int, int, int]:
    """The whole program over so few rows, with this guess; without the rounds of :func:`_blocks`."""
    from contextlib import suppress

    import numpy as np

    from vfl_node.crypto.shares.machine import Counter
    from vfl_node.training.shares.metric_noise import MetricNoise
    from vfl_node.training.trees.computation import Grown, TreesTraining, compute

    shapes = _plan_of(train, widths, rows, trees, outputs, noise)
    vars(shapes)["guess"] = guess  # of all rows, in place of that of so few
    plan = TreesTraining(
        plan=shapes,
        training=np.arange(rows),
        testing=np.arange(tested),
        metric_noise=MetricNoise(1.0, outputs=outputs, numbers=train.task == "regression"),
        told=told,
        reveals=train.reveal == "owners",
        leaves=train.leaves == "active",
    )
    counter = Counter(len(widths))

    async def skip(number: int, grown: Grown) -> None:
        pass

    with suppress(StopIteration):  # at its end: who counts waits for nobody
        compute(counter, plan, None, None, 0, skip).send(None)
    total, active = counter.cost, counter.cost.opened[0]
    return total.rounds - _blocks(rows, widths), active, sum(total.opened.values()) - active, sum(total.dealt.values())
