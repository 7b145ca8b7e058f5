"""What training trees in shares will send and compute: counted before it runs, by the program of the training itself.

What is sent grows in proportion with rows and with trees, but for words of 64 bits. So the program is run by a
:class:`~vfl_node.crypto.shares.machine.Counter` with few rows and trees, and all else follows.
"""

from __future__ import annotations

import math
from functools import lru_cache

from vfl_node.job.alignment import ALIGNMENTS, AlignmentSpec
from vfl_node.job.costs import HEAD_BYTES, TableShape, TrainingCost
from vfl_node.job.evaluate import Evaluate
from vfl_node.roles import DataRole
from vfl_node.training.shares.metric_noise import is_union
from vfl_node.training.shares.plan import SharesPlan
from vfl_node.training.trees import memory
from vfl_node.training.trees.config import Trees

_ROWS = 1 << 10
"""Rows that are counted with: words of bits are full."""

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
        rounds, active, passive, dealt = _count(train, widths, rows, tested, evaluate.share_with_passive)
        common = rows if ALIGNMENTS[protocol].every_row_is_shared else self.beside.common if parties == 2 else None
        known = bool(self.beside.columns) and all(self.beside.columns)
        return TrainingCost(
            rows=rows - held_out,
            batches=train.trees,
            steps=rounds if parties > 2 else -(-rounds // 2),  # two parties send at the same time
            active_bytes=active,
            passive_bytes=passive,
            coordinator_bytes=dealt,
            coordinator_memory=memory.dealer_bytes(train, rows, widths),
            said=() if common is None else describe_noise(train, common * (1 - evaluate.test_fraction), ALIGNMENTS[protocol]),
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


def _count(train: Trees, widths: tuple[int, ...], rows: int, tested: int, told: bool) -> tuple[int, int, int, int]:
    """Rounds, bytes of the active party, of all passive ones and of the dealer."""
    opened = train.reveal == "owners", train.leaves == "active"
    what = train.depth, train.bins, widths, told, *opened, train.loss, train.epsilon is not None
    base = _run(*what, rows=_ROWS, trees=1, tested=0)
    of_row = [(two - one) / _ROWS for one, two in zip(base, _run(*what, rows=2 * _ROWS, trees=1, tested=0), strict=True)]
    more = _run(*what, rows=_ROWS, trees=2, tested=0)
    of_tree = [two - one for one, two in zip(base, more, strict=True)]
    of_both = _run(*what, rows=2 * _ROWS, trees=2, tested=0)
    tree_row = [
        (both - tree - row + one) / _ROWS
        for both, tree, row, one in zip(of_both, more, _run(*what, rows=2 * _ROWS, trees=1, tested=0), base, strict=True)
    ]
    extra = rows - _ROWS
    total = [
        one + row * extra + (train.trees - 1) * (tree + each * extra)
        for one, row, tree, each in zip(base, of_row, of_tree, tree_row, strict=True)
    ]
    if tested:
        first = _run(*what, rows=_ROWS, trees=1, tested=_ROWS // 2)
        second = _run(*what, rows=_ROWS, trees=1, tested=_ROWS)
        each = [(two - one) / (_ROWS // 2) for one, two in zip(first, second, strict=True)]
        total = [
            whole + one - none + row * (tested - _ROWS // 2)
            for whole, one, none, row in zip(total, first, base, each, strict=True)
        ]
    rounds, active, passive, dealt = (round(number) for number in total)
    return rounds, active, passive, dealt


@lru_cache(maxsize=64)
def _run(
    depth: int,
    bins: int,
    widths: tuple[int, ...],
    told: bool,
    reveals: bool,
    leaves: bool,
    loss: str,
    noised: bool,
    *,
    rows: int,
    trees: int,
    tested: int,
) -> tuple[int, int, int, int]:
    """The whole program over so few rows."""
    from contextlib import suppress

    import numpy as np

    from vfl_node.crypto.shares.machine import Counter
    from vfl_node.training.shares.metric_noise import MetricNoise
    from vfl_node.training.trees.computation import Grown, TreesTraining, compute
    from vfl_node.training.trees.plan import TreesPlan

    kind = "log" if loss == "log" else "squares"
    plan = TreesTraining(
        plan=TreesPlan(rows, widths, trees, depth, 0.5, 1.0, 0.01, 1, kind, 1.0 if noised else None),  # type: ignore[arg-type]
        training=np.arange(rows),
        testing=np.arange(tested),
        metric_noise=MetricNoise(1.0, numbers=loss == "squares"),
        told=told,
        reveals=reveals,
        leaves=leaves,
    )
    counter = Counter(len(widths))

    async def skip(number: int, grown: Grown) -> None:
        pass

    with suppress(StopIteration):  # at its end: who counts waits for nobody
        compute(counter, plan, None, None, 0, skip).send(None)
    total = counter.cost
    return total.rounds, total.opened[0], sum(total.opened.values()) - total.opened[0], sum(total.dealt.values())
