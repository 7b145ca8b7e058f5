"""What a training of trees reports of itself, and when it warns."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest

from vfl_node.crypto.shares.machine import Party, ShareMachine
from vfl_node.crypto.shares.masked import slots_of
from vfl_node.training.shares.measuring import OutputTally
from vfl_node.training.shares.metric_noise import MetricNoise, sums_text
from vfl_node.training.shares.results import Measured, count_beyond, warnings
from vfl_node.training.trees.config import Trees
from vfl_node.training.words import ReportedTraining


@pytest.mark.parametrize("parties", [2, 3])
def test_how_much_was_exchanged(world: Any, attempt: Any, silent: None, parties: int) -> None:
    over, of, sent = world(parties), attempt(), dict[int, int]()
    begin = ShareMachine.begin

    def noted(machine: ShareMachine, section: str) -> None:
        if isinstance(machine, Party) and section == "both":
            sent[machine.place] = machine._wire.sent  # type: ignore[attr-defined]
        begin(machine, section)

    with mock.patch.object(ShareMachine, "begin", noted):
        results = of(over)
    plan = of.plan(over).plan
    for place, result in enumerate(results):
        section = result.section
        assert (section.trees, section.depth, section.bins) == (plan.trees, plan.depth, 4)
        assert (section.cells, section.slots) == (len(over) * sum(plan.widths), slots_of(len(over)))
        assert 0 < section.once_bytes == sent[place] < section.bytes
        assert section.beyond == (0 if place == 0 else None)
    hub = of.coordination.result().section
    assert (hub.bins, hub.cells, hub.slots, hub.once_bytes, hub.beyond) == (None,) * 5
    assert hub.dealer_bytes == sum(result.section.dealer_bytes for result in results)
    train = Trees.section_of(of.job(over))
    words = results[1].section.words(ReportedTraining(train, "lab", "passive", "clinic", "clinic", "lab", "hub", 3, 9, 1))
    terms = {term.title: term.values for term in words.panel.terms}
    assert terms["Of that cells, sent once"] == ((results[1].section.once_bytes, " bytes"),)
    assert len(terms["Own gains"]) == np.count_nonzero(list(results[1].section.gains.values())) > 0


def test_without_metrics_nothing_is_said_of_scores(world: Any, attempt: Any) -> None:
    results = attempt({"metrics_by": "none"})(world())
    assert [result.section.beyond for result in results] == [None, None]


@pytest.mark.parametrize(("algorithm", "far", "steps"), [("hidden", 28, "epochs"), ("trees", 13, "trees")])
def test_the_warning_is_of_the_sines_that_were_used(world: Any, attempt: Any, algorithm: str, far: int, steps: str) -> None:
    job = attempt().job(world())
    if algorithm == "hidden":
        job = job.model_validate(job.model_dump() | {"train": {"algorithm": "hidden", "epsilon": None}})
    sd = MetricNoise.from_job(job).sums["beyond"]

    def said(beyond: float) -> tuple[str, ...]:
        return warnings(job, None, [OutputTally((1000, 1000), 0, 2000, {"beyond": beyond})], Measured({}, {}, ()))

    assert said(4.9 * sd) == ()
    (text,) = said(5.1 * sd)
    assert f"about {5.1 * sd:,.0f} have scores beyond ±{far}," in text
    assert text.endswith(f"Lower train.learning_rate or train.{steps}.")
    assert f"how many have scores beyond ±{far} " in sums_text(job)


def test_noise_takes_no_number_of_records_below_none() -> None:
    tallies = [OutputTally((5, 5), 0, 10, {"beyond": beyond}) for beyond in (-7.2, -0.4)]
    assert count_beyond(tallies) == 0
    assert count_beyond([*tallies, OutputTally((5, 5), 0, 10, {"beyond": 2.6})]) == 3
    assert count_beyond([]) is None
