"""What a linkage in shares sends is estimated to the byte."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import pytest

from tests.crypto.shares.together import counted
from tests.estimate.test_linkage_estimate import MACHINE, plan
from vfl_node.alignment.linkage.comparison import find_candidates
from vfl_node.alignment.linkage.plan import LinkagePlan
from vfl_node.estimate import totals, words
from vfl_node.estimate.plan import Plan as Asked
from vfl_node.estimate.shared_linkage import shared_cost
from vfl_node.job import Job


def asked(**changes: int) -> Asked:
    found = plan(**changes)
    said = found.job.model_dump()
    return replace(found, job=Job.model_validate(said | {"align": said["align"] | {"comparison": "shares"}}))


@pytest.mark.parametrize(("sizes", "sigma"), [((70, 21), 0.4), ((130, 64), 0.0), ((5, 20), 0.4)])
def test_it_is_what_the_program_does(sizes: tuple[int, int], sigma: float) -> None:
    align = asked().job.align
    align = align.model_copy(update={"noise": align.noise.model_copy(update={"sigma": sigma})})
    with (
        mock.patch("vfl_node.alignment.linkage.plan.BLOCK_PAIRS", 64 * sizes[1]),
        mock.patch("vfl_node.crypto.shares.sizes._BLOCK_NUMBERS", 1 << 14),
    ):
        cost = shared_cost(align, sizes)
        assert cost.plan == LinkagePlan(sizes, cost.plan.bits, 20, sigma)
        real = counted(lambda machine: find_candidates(machine, cost.plan))
    assert cost.sent == list(real.opened.values())
    assert cost.dealt == sum(real.dealt.values())
    assert cost.rounds == real.rounds


def test_the_table_and_its_notes() -> None:
    some = asked()
    cost = shared_cost(some.job.align, (1000, 4000))
    for party, place in (("clinic", 0), ("lab", 1)):
        found = totals.estimate(replace(some, party=party), MACHINE)["linkage"]
        assert found["sent_bytes"] == (cost.sent[place], cost.sent[place])
    said = " ".join(words.notes(some, MACHINE))
    assert f"{cost.sent[0] / 1e6:,.1f} and {cost.sent[1] / 1e6:,.1f} MB in {cost.rounds:,} rounds" in said
    assert "refused" not in said
    assert "refused" in " ".join(words.notes(asked(records={"clinic": 10_000, "lab": 10_001}), MACHINE))
