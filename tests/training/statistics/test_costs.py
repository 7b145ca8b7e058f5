"""What statistics take is known before they run: what is sent by counting few rows, memory from shapes."""

from __future__ import annotations

import tracemalloc
from contextlib import suppress
from typing import Any
from unittest import mock

import numpy as np
import pytest

from vfl_node.crypto.shares.machine import Counter
from vfl_node.errors import ProtocolError, StateError, UsageError
from vfl_node.job.costs import Beside
from vfl_node.job.evaluate import Evaluate
from vfl_node.training.statistics import costs, inputs, program, trainer
from vfl_node.training.statistics.computation import Sums, compute
from vfl_node.training.statistics.config import Statistics
from vfl_node.transport.generated.vfl.v1.shares_pb2 import DealingTerms
from vfl_node.transport.recorder import Recorder

JOBS: list[dict[str, Any]] = [{}, {"correlations": True}, {"epsilon": None}, {"epsilon": None, "worth": True}]


def section_of(job: dict[str, Any]) -> Statistics:
    return Statistics.model_validate({"algorithm": "statistics", **job})


def count_all(section: Statistics, columns: tuple[int, ...], rows: int, held_out: int) -> tuple[int, ...]:
    """Rounds and bytes of a whole job, all of whose rows and blocks are counted."""
    groups = np.split(np.arange(rows), [rows - held_out])[: 1 + (held_out > 0)]
    counter = Counter(len(columns))

    async def skip(number: int, sums: Sums) -> None:
        pass

    with suppress(StopIteration):
        compute(counter, costs.plan_of(section, rows, columns, groups), None, (), 0, skip).send(None)
    opened = counter.cost.opened
    return counter.cost.rounds, opened[0], sum(opened.values()) - opened[0], sum(counter.cost.dealt.values())


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize(("columns", "rows"), [((3, 4), 2_500), ((12, 30), 200_000), ((5, 6, 7), 70_001)])
def test_costs_of_many_rows_are_those_of_the_whole_job(job: dict[str, Any], columns: tuple[int, ...], rows: int) -> None:
    """To a word for each block, which bits of rows that are no multiple of 64 may leave."""
    section = section_of(job)
    found = section.make_plan(len(columns) - 1, Beside(columns=columns)).cost(Evaluate(test_fraction=0.25), rows, "psi")
    held_out = -(-rows // 4)
    rounds, *sent = count_all(section, columns, rows, held_out)
    slack = 8 * len(costs.plan_of(section, rows, columns).blocks)
    assert found.steps == (rounds if len(columns) > 2 else -(-rounds // 2))
    assert [found.active_bytes, found.passive_bytes, found.coordinator_bytes] == pytest.approx(sent, rel=0, abs=slack)
    assert rows % 64 or [found.active_bytes, found.passive_bytes, found.coordinator_bytes] == sent


def test_a_large_job_is_counted_by_blocks_of_all_its_rows() -> None:
    """A block has 6 columns of 1,000,000 rows, and 61 of 100,000."""
    section = section_of({})
    cost = section.make_plan(1, Beside(columns=(100, 100))).cost(Evaluate(test_fraction=0.0), 1_000_000, "psi")
    assert cost.batches == 2 * 17
    assert (cost.active_bytes, cost.passive_bytes) == count_all(section, (100, 100), 1_000_000, 0)[1:3]


@pytest.mark.parametrize("job", JOBS)
def test_memory_grows_no_faster_than_is_said(world: Any, attempt: Any, job: dict[str, Any], monkeypatch: Any) -> None:
    """All roles in one process take a part of what all of them say together, which is no wild guess."""
    monkeypatch.setattr(Recorder, "wrap", lambda recorder, name, channel: channel)  # nothing is kept
    taken, said = [], []
    for people in (4_000, 12_000):
        over, of = world(2, "psi", people=people, share=1.0), attempt({**job, "bins": 10, "least_rows": 20})
        section, columns = Statistics.section_of(of.job(over)), (3, 4)
        tracemalloc.start()
        of(over)
        taken.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        parties = 2 * costs.party_bytes(section, people, columns)
        said.append(parties + costs.dealer_bytes(section, people, columns))
    assert 0.2 < (taken[1] - taken[0]) / (said[1] - said[0]) < 1


def test_a_job_without_memory_is_refused_before_any_is_taken(world: Any, attempt: Any) -> None:
    over = world(2, "psu")
    with mock.patch.object(trainer, "prepare", wraps=inputs.prepare) as prepared, pytest.raises(StateError) as caught:
        attempt({"correlations": True}, memory_mib=100)(over)
    assert caught.value.code == "E_MEMORY"
    assert not prepared.called


def test_too_many_rows_are_refused_before_any_memory_is_taken(world: Any, attempt: Any, monkeypatch: Any) -> None:
    over = world(2, "psu")
    monkeypatch.setattr(trainer, "MOST_ROWS", len(over) - 1)
    with mock.patch.object(trainer, "prepare", wraps=inputs.prepare) as prepared, pytest.raises(UsageError) as caught:
        attempt()(over)
    assert (caught.value.code, prepared.called) == ("E_SIZE", False)
    assert "align.at_most" in caught.value.hint


def test_more_columns_than_can_be_compared_are_refused(world: Any, attempt: Any, monkeypatch: Any) -> None:
    """At all parties, and by the dealer; without comparisons they are counted."""
    over = world(2, "psu")
    for where in (trainer, program):
        monkeypatch.setattr(where, "MOST_COMPARED", 6)
    attempt()(over)
    of = attempt({"correlations": True})
    results = of.raw(over)
    assert [result.code for result in results[:2]] == ["E_SIZE", "E_SIZE"]
    assert "6 columns of all parties with correlations at most, not 7" in str(results[0])
    assert "statistics.correlations: false" in results[0].hint
    assert not of.sent(DealingTerms)
    monkeypatch.setattr(trainer, "MOST_COMPARED", 7)
    with pytest.raises(ProtocolError, match="shapes that this job cannot have"):
        attempt({"correlations": True})(over)
    monkeypatch.setattr(program, "MOST_COMPARED", 7)
    attempt({"correlations": True})(over)
