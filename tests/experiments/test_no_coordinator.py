"""What two parties without a coordinator lose in accuracy: a small run, and what the page says."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.hidden.emulated import BATCHES, EPSILONS, PROTOCOLS, blocks, noise, order_of
from experiments.hidden.no_coordinator import NAME, Plan, areas_of_batches, figures_of_noise, main, page, parser
from experiments.trees.run import REAL, SCORING

STORED = Path(__file__).parents[2] / "docs" / "experiments" / f"{NAME}.json"
NOWHERE = Path("/nowhere")
"""Made-up tables need no data."""


@cache
def stored() -> tuple[Plan, dict[str, Any]]:
    kept = json.loads(STORED.read_text(encoding="utf-8"))
    return Plan([*REAL, SCORING], kept["seeds"]), kept["trainings"]


def test_batches_of_blocks_are_as_good() -> None:
    areas = blocks(NOWHERE, data="made_up", protocol="psi", seed=0)["512"]
    assert min(areas.values()) > 0.8
    assert len(set(areas.values())) == len(areas)
    assert areas["blocks"] == pytest.approx(areas["rows"], abs=0.01)


def test_more_noise_is_worse() -> None:
    """A control: twenty times the deviation is seen at once."""
    order = order_of(NOWHERE, "scoring", "psi", 0, bounded=True)
    plan = order.plan("toss", epsilon=4.0)
    areas = [order.rate(plan, order.descend(plan, draws))["auc"] for draws in (0, 1, 400)]
    assert areas[0] == pytest.approx(areas[1], abs=0.01)
    assert areas[2] < areas[0] - 0.05


def test_a_descent_planned_for_the_noise_leaves_less_of_it() -> None:
    order = order_of(NOWHERE, "made_up", "psu", 0, bounded=True)
    found = noise(NOWHERE, data="made_up", protocol="psu", seed=0)["1.0"]
    assert found["slower"]["descent"][:2] == found["dealer"]["descent"][:2]
    assert found["slower"]["descent"][2] == pytest.approx(found["dealer"]["descent"][2] / 2**0.5, rel=0.01)
    assert order.plan("toss", epsilon=1.0).descent.noise == pytest.approx(0.4, rel=0.01)


def test_a_small_run_says_which_tables_are_absent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(parser().parse_args(["--out", str(tmp_path), "--seeds", "1"]))
    said = capsys.readouterr().out
    assert all(f"left out: {name}" in said for name in REAL)
    assert "| scoring, psu | 4,096 |" in (tmp_path / f"{NAME}.md").read_text(encoding="utf-8")


def test_the_page_is_made_of_what_is_stored() -> None:
    plan, found = stored()
    assert plan.seeds >= 10
    assert page(plan, found) == STORED.with_suffix(".md").read_text(encoding="utf-8")


def test_blocks_are_within_a_thousandth_where_the_page_says_so() -> None:
    plan, found = stored()
    apart = set()
    for data, protocol, batch in (
        (data, protocol, batch) for data in plan.names for protocol in PROTOCOLS for batch in BATCHES
    ):
        areas = areas_of_batches(plan, found, data, protocol, batch)
        if abs(np.mean(areas["blocks"] - areas["rows"])) >= 0.001:
            apart.add((data, protocol, batch))
        for one, other in (("again", "rows"), ("blocks", "filled")):
            assert abs(np.mean(areas[one] - areas[other])) < 0.00045
    assert apart == {("adult", "psi", 4096), ("adult", "psu", 4096), ("scoring", "psu", 4096)}


def test_twice_the_variance_costs_little_where_there_are_many_records() -> None:
    plan, found = stored()
    gains = []
    for data, protocol, epsilon in (
        (data, protocol, level) for data in plan.names for protocol in PROTOCOLS for level in EPSILONS
    ):
        areas = figures_of_noise(plan, found, data, protocol, epsilon, "auc")
        lost = np.mean(areas["dealer"] - areas["parties"])
        many = protocol == "psi" and data in ("adult", "default_credit")
        assert 0 <= lost < (0.00045 if many else 0.0125)
        gains.append(np.mean(areas["known"] - areas["parties"]))
    assert min(gains) < -0.004, "the rule for steps stays as it is"


def test_the_noise_of_a_metric_is_wider_by_the_root_of_two() -> None:
    plan, found = stored()
    for data, protocol in ((data, protocol) for data in plan.names for protocol in PROTOCOLS):
        each = [found[work.name]["1.0"]["measured"] for _, work in plan.works(data, protocol)]
        dealt, parties = (np.mean([one[draws][0] for one in each if one[draws]]) for draws in "12")
        assert (parties / dealt) ** 0.5 == pytest.approx(2**0.5, rel=0.05)
