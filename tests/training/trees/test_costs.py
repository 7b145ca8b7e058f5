"""What training trees is said to send is what it sends, also over more rows than are counted with."""

from __future__ import annotations

from contextlib import suppress
from math import ceil
from typing import Any

import pytest

from vfl_node.crypto.shares.machine import Counter
from vfl_node.crypto.shares.masked import slots_of
from vfl_node.job.costs import Beside
from vfl_node.training.trees import costs, memory
from vfl_node.training.trees.computation import Grown, compute
from vfl_node.training.trees.config import MOST_ROWS, Trees
from vfl_node.training.trees.costs import TreesTrainingPlan
from vfl_node.training.trees.program import TreesProgram
from vfl_node.transport.generated.vfl.v1.shares_pb2 import DealingTerms

CASES: list[tuple[int, int, tuple[int, ...], dict[str, Any]]] = [
    (2, 100, (2, 1), {}),
    (2, 70_000, (9, 5), {"depth": 3}),
    (3, 9_000, (2, 1, 3), {"task": "regression", "reveal": "none", "metrics_by": "none"}),
    (2, 300_000, (1, 1), {"leaves": "none", "l2": 0.0, "trees": 1}),
    (2, 40_000, (2, 1), {"classes": 3, "row_fraction": 0.5, "leaves": "none"}),
    (2, 300, (1, 1), {"classes": 20, "depth": 5, "bins": 64, "trees": 2}),  # 8, 8 and 4 of them side by side
    (2, 70_000, (9, 5), {"epsilon": 1.0, "trees": 20}),
    (3, 9_000, (2, 1, 3), {"epsilon": 50.0, "leaves": "none"}),
    (2, 3_000, (100, 100), {"depth": 4, "bins": 64, "metrics_by": "none", "least_rows": 50}),
]


def counted(job: Any, rows: int, widths: tuple[int, ...]) -> tuple[int, int, int, int]:
    """The whole program over all rows."""
    terms = DealingTerms(rows=rows, widths=widths, schedule=bytes(32), batch_rows=rows, divisor=rows)
    counter = Counter(len(widths))

    async def skip(number: int, grown: Grown) -> None:
        pass

    with suppress(StopIteration):
        compute(counter, TreesProgram(job).plan(terms), None, None, 0, skip).send(None)
    opened = counter.cost.opened
    return counter.cost.rounds, opened[0], sum(opened.values()) - opened[0], sum(counter.cost.dealt.values())


@pytest.mark.parametrize(("parties", "rows", "columns", "train"), CASES, ids=str)
def test_an_estimate_is_what_the_program_sends(
    world: Any, attempt: Any, parties: int, rows: int, columns: tuple[int, ...], train: dict[str, Any]
) -> None:
    """But for words of 64 bits that are not full: some of each opening and part that is dealt."""
    job = attempt(train).job(world(parties))
    section = Trees.section_of(job)
    said = TreesTrainingPlan(section, parties - 1, Beside(columns=columns)).cost(job.evaluate, rows, "psu")
    rounds, active, passive, dealt = counted(job, rows, memory.widths(section, parties - 1, Beside(columns=columns)))
    assert said.steps == (rounds if parties > 2 else ceil(rounds / 2))
    found = said.active_bytes, said.passive_bytes, said.coordinator_bytes
    assert found == pytest.approx((active, passive, dealt), rel=1e-4, abs=8 * 2 * rounds)


@pytest.mark.parametrize("rows", [0, 1, MOST_ROWS, 10 * MOST_ROWS])
def test_estimates_of_no_rows_and_of_more_than_there_may_be(world: Any, attempt: Any, rows: int) -> None:
    job = attempt().job(world())
    said = TreesTrainingPlan(Trees.section_of(job), 1, Beside(columns=(2, 1))).cost(job.evaluate, rows, "psu")
    assert min(said.active_bytes, said.passive_bytes, said.coordinator_bytes) > 0


def test_rows_for_which_there_are_no_more_slots_and_rows_for_which_there_are() -> None:
    assert slots_of(costs._ROWS) == slots_of(costs._WITH_AS_MANY_SLOTS) < slots_of(2 * costs._ROWS)
