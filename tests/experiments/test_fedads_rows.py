"""Rows without a partner, Table 3 of FedAds: the tables, a small run, and what the stored outcomes bear."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.fedads import table_3
from experiments.fedads.data import ACTIVE
from experiments.fedads.outside import MORE_SEEDS, ORACLE, RowsPlan, learnt, split, works
from experiments.fedads.run import Rows, page
from experiments.fedads.table_3 import Outcomes, lower

RESULTS = Path(__file__).parents[2] / "docs" / "experiments" / "unaligned.json"
GUIDE = RESULTS.parents[1] / "guides" / "use-unaligned-rows.md"
NOWHERE = Path("/nowhere")
SMALL = RowsPlan(seeds=1, small=True)

OVER_VANILLA = "{} − none, lower end of the 95 % interval"
OVER_ALONE = "{} − label party alone with all rows, lower end"

FILLING, PRETRAINING = ("jpl", "diffusion", "fedcvt"), ("ssl", "mpd", "fedhssl")


def test_rows_held_out_are_the_same_and_smaller_shares_are_parts_of_larger_ones() -> None:
    (cut, few), (_, more) = (split(NOWHERE, "small", share, 0) for share in (0.1, 0.5))
    tested = np.arange(len(cut) - cut.tested, len(cut))
    assert set(few) < set(more)
    assert len(few) == round(0.1 * (len(cut) - cut.tested)) + cut.tested
    assert set(tested) <= set(few)
    order = cut.tables[ACTIVE].order
    assert order is not None
    assert np.array_equal(np.flatnonzero(order), tested)


@pytest.mark.slow
def test_the_label_party_alone_has_the_aligned_rows_beside_none_and_its_whole_pool_beside_others() -> None:
    """Local-aligned and local-all of each table. What methods gain: tests/training/unaligned/test_outside.py."""
    plain, filled, oracle = (
        learnt(NOWHERE, table="small", share=1.0 if method == ORACLE else 0.1, method=method, seed=0)
        for method in ("none", "heuristic", ORACLE)
    )
    assert filled["alone"] == oracle["alone"]
    assert plain["alone"] < filled["alone"] - 0.05
    assert len({plain["auc"], filled["auc"], oracle["auc"]}) == 3


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
    for name, text in Rows(plan).pages(found, plan.seeds).items():
        assert RESULTS.with_name(name).read_text(encoding="utf-8") == text
    assert Rows(plan).pages(found, plan.seeds).keys() == {path.name for path in RESULTS.parent.glob("unaligned*.md")}
    for name, svg in table_3.drawings(plan, found).items():
        assert RESULTS.with_name(name).read_text(encoding="utf-8") == svg


@pytest.mark.parametrize(("data", "share"), [cell for cell in RowsPlan().cells if cell[0] in ("adult", "credit")])
def test_rows_outside_are_worth_something_and_pretraining_little(stored: dict[str, Any], data: str, share: float) -> None:
    of = Outcomes(RowsPlan(stored["seeds"]), stored["trainings"], data, share)
    for method in FILLING:
        assert lower(of.differences(method, of.values("none"))) > -0.002
        assert np.mean(of.differences(method, of.values("none"))) > 0.005
        assert np.mean(of.differences(method, of.local_all)) > 0.0
        assert np.mean(of.differences(method, of.values(ORACLE))) < 0.005
    for method in PRETRAINING:
        assert abs(np.mean(of.differences(method, of.values("none")))) < 0.02
    assert np.mean(of.differences("none", of.local_aligned)) > 0.03


def test_where_the_page_says_no(stored: dict[str, Any]) -> None:
    """All that the published outcomes do not bear, so that words about them are read again when they change."""
    plan = RowsPlan(stored["seeds"])
    missed = {one.what for one in table_3.check(plan, stored["trainings"]) if not one.holds}
    over_vanilla = {"adult": ("diffusion", *PRETRAINING), "credit": PRETRAINING}
    over_alone = {"adult": ("fedhssl",), "credit": (*FILLING, *PRETRAINING)}
    expected = {f"`{data}`, 2% aligned: {OVER_VANILLA.format(name)}" for data, of in over_vanilla.items() for name in of}
    expected |= {f"`{data}`, 2% aligned: {OVER_ALONE.format(name)}" for data, of in over_alone.items() for name in of}
    clicks = "`generator`, 20% aligned: "
    expected |= {clicks + OVER_VANILLA.format(name) for name in ("heuristic", *FILLING, *PRETRAINING)}
    assert missed == {*expected, clicks + "Oracle − diffusion"}


def test_gains_that_words_rest_on_have_ten_seeds_and_hold_without_the_first_ones(stored: dict[str, Any]) -> None:
    plan = RowsPlan(stored["seeds"])
    for data, share in MORE_SEEDS:
        of = Outcomes(plan, stored["trainings"], data, share)
        assert len(of.seeds) >= 10
        for method in FILLING:
            assert lower(of.differences(method, of.values("none"))[plan.seeds :]) > 0


def test_five_seeds_said_too_little_of_how_far_a_gain_varies(stored: dict[str, Any]) -> None:
    of = Outcomes(RowsPlan(stored["seeds"]), stored["trainings"], "adult", 0.02)
    gain = of.differences("fedcvt", of.values("none"))
    assert np.std(gain, ddof=1) > 3.5 * np.std(gain[:5], ddof=1)


def test_the_guide_has_the_figures_of_the_page(stored: dict[str, Any]) -> None:
    """The table "When it helps": alone, ``none``, three gains with their intervals, a partner for every row."""
    rows = [line for line in GUIDE.read_text(encoding="utf-8").splitlines() if line.count("[") == 3 and line.startswith("| ")]
    plan = RowsPlan(stored["seeds"])
    for row, (data, share) in zip(rows, plan.cells, strict=True):
        of = Outcomes(plan, stored["trainings"], data, share)
        expected = [np.mean(of.local_all), np.mean(of.values("none"))]
        for method in FILLING:
            gain = of.differences(method, of.values("none"))
            expected += [np.mean(gain), lower(gain), 2 * np.mean(gain) - lower(gain)]
        found = [float(value) for value in re.findall(r"[+-]?\.\d{3}", row.replace("−", "-"))]
        assert found == pytest.approx([*expected, np.mean(of.values(ORACLE))], abs=0.0006), row


@pytest.mark.parametrize(("data", "share", "below"), [("credit", 0.02, (4, 5, 2)), ("criteo", 0.05, (1, 1, 4))])
def test_no_method_keeps_a_model_above_the_label_party_alone(
    stored: dict[str, Any], data: str, share: float, below: tuple[int, ...]
) -> None:
    of = Outcomes(RowsPlan(stored["seeds"]), stored["trainings"], data, share)
    assert tuple(sum(gain < 0 for gain in of.differences(method, of.local_all)) for method in FILLING) == below
    assert -lower(of.differences("none", of.local_all)) > 0.05


def test_pretraining_gained_nothing_that_can_be_told_from_0(stored: dict[str, Any]) -> None:
    plan = RowsPlan(stored["seeds"])
    for data, share in plan.cells:
        of = Outcomes(plan, stored["trainings"], data, share)
        assert all(lower(of.differences(method, of.values("none"))) < 0 for method in PRETRAINING)


def test_on_criteo_only_what_its_rows_held_out_bear_is_claimed(stored: dict[str, Any]) -> None:
    few, more = (Outcomes(RowsPlan(stored["seeds"]), stored["trainings"], "criteo", share) for share in (0.05, 0.2))
    for method in (*few.methods, ORACLE):
        for of in (few, more):
            (low, high), value = of.row_interval(method, table_3.ALONE), np.mean(of.differences(method, of.local_all))
            assert 0.003 < high - low < 0.08
            assert np.mean(of.resampled(method)) == pytest.approx(np.mean(of.values(method)), abs=0.003)
            assert low < value < high
    assert few.claimed("none") == "below alone"
    assert all(few.claimed(method).startswith("above Vanilla") for method in FILLING)
    assert all("Vanilla" not in few.claimed(method) + more.claimed(method) for method in PRETRAINING)
    assert all(more.claimed(method) == "above alone" for method in (*more.methods, ORACLE))
