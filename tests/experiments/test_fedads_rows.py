"""Rows without a partner, Table 3 of FedAds: the tables, a small run, and what the stored outcomes bear."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.fedads import table_3
from experiments.fedads.data import ACTIVE
from experiments.fedads.outside import ORACLE, RESAMPLED, RowsPlan, learnt, split, works
from experiments.fedads.run import Rows, page
from experiments.fedads.table_3 import Outcomes, lower

RESULTS = Path(__file__).parents[2] / "docs" / "experiments" / "unaligned.json"
NOWHERE = Path("/nowhere")
SMALL = RowsPlan(seeds=1, small=True)


def test_rows_held_out_are_the_same_and_smaller_shares_are_parts_of_larger_ones() -> None:
    (cut, few), (_, more) = (split(NOWHERE, "small", share, 0) for share in (0.1, 0.5))
    tested = np.arange(len(cut) - cut.tested, len(cut))
    assert set(few) < set(more)
    assert len(few) == round(0.1 * (len(cut) - cut.tested)) + cut.tested
    assert set(tested) <= set(few)
    order = cut.tables[ACTIVE].order
    assert order is not None
    assert np.array_equal(np.flatnonzero(order), tested)


def test_a_method_of_the_alternating_framework_beats_both_lines_on_made_up_clicks() -> None:
    """A small form of what the stored outcomes say, which are of five seeds."""
    plain, filled, oracle = (
        learnt(NOWHERE, table="small", share=1.0 if method == ORACLE else 0.1, method=method, seed=0)
        for method in ("none", "heuristic", ORACLE)
    )
    assert filled["auc"] > plain["auc"] + 0.01
    assert filled["auc"] > filled["alone"] + 0.01
    assert plain["alone"] < plain["auc"]  # by aligned rows
    assert oracle["auc"] > plain["auc"]


@pytest.mark.slow
def test_a_small_run_of_all_methods() -> None:
    found = {work.name: work.run(NOWHERE) for work in works(SMALL)}
    text = page(Rows(SMALL), found, SMALL.seeds)
    assert all(f"`{name}`" in text for name in SMALL.methods("small"))
    assert all(svg.startswith("<svg") for svg in table_3.drawings(SMALL, found).values())


@pytest.fixture(scope="module")
def stored() -> dict[str, Any]:
    return dict(json.loads(RESULTS.read_text(encoding="utf-8")))


def test_the_page_shows_what_was_measured(stored: dict[str, Any]) -> None:
    plan, found = RowsPlan(stored["seeds"]), stored["trainings"]
    assert set(found) == {work.name for work in works(plan)}
    assert RESULTS.with_suffix(".md").read_text(encoding="utf-8") == page(Rows(plan), found, plan.seeds)
    for name, svg in table_3.drawings(plan, found).items():
        assert RESULTS.with_name(name).read_text(encoding="utf-8") == svg


@pytest.mark.parametrize(("data", "share"), [cell for cell in RowsPlan().cells if cell[0] in ("adult", "credit")])
def test_rows_outside_are_worth_something_and_pretraining_little(stored: dict[str, Any], data: str, share: float) -> None:
    of = Outcomes(RowsPlan(stored["seeds"]), stored["trainings"], data, share)
    for method in (*(name for name in of.methods if name in ALTERNATE), "fedcvt"):
        assert lower(of.over(method, of.of("none"))) > -0.002
        assert np.mean(of.over(method, of.of("none"))) > 0.005
        assert np.mean(of.over(method, of.local_all)) > 0.0
        assert np.mean(of.over(method, of.of(ORACLE))) < 0.005
    for method in ("ssl", "mpd", "fedhssl"):
        assert abs(np.mean(of.over(method, of.of("none")))) < 0.02
    assert np.mean(of.over("none", of.local_aligned)) > 0.03
