"""Defended experiments on what embeddings tell: what the page says, that checks can fail, and small runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from experiments.inference import cost, digits, figure_3, figure_4, tables_3_4
from experiments.inference.defended import FBS, JUDGES, NONE, Defence, Results, defended
from experiments.inference.experiment import Plan, Work
from experiments.inference.run import EXPERIMENTS, results

RESULTS = Path(__file__).parents[2] / "docs" / "experiments" / "inference.json"

OURS = ("figure-3", "figure-4", "tables-3-4", "images", "cost")

SMALL = Plan(seeds=1, small=True)
NOWHERE = Path("/nowhere")


@pytest.mark.parametrize("name", OURS)
def test_the_page_says_of_each_expectation_whether_it_holds(name: str) -> None:
    stored = json.loads(RESULTS.read_text(encoding="utf-8"))
    plan, page = Plan(stored["seeds"]), RESULTS.with_suffix(".md").read_text(encoding="utf-8")
    found, _ = results(stored["experiments"][name])
    expected = EXPERIMENTS[name].check(plan, found)
    assert expected
    for one in expected:
        assert f"| {one.what} | {one.least:+.3f} | {one.found:+.3f} | {'yes' if one.holds else '**no**'} |" in page
    for drawing, svg in EXPERIMENTS[name].drawings(plan, found).items():
        assert RESULTS.with_name(drawing).read_text(encoding="utf-8") == svg


def outcome(auc: float, attack: float, losses: list[float] | None = None) -> dict[str, Any]:
    """As of a training, with imputation at .2."""
    success = {"success": attack, "error": 1 - attack}
    lines = dict.fromkeys((*JUDGES, "worst"), success)
    guesses = {line: {"success": at, "error": 1 - at} for line, at in (("constant", 0.1), ("imputation", 0.2))}
    test = {"auc": auc, "accuracy": auc}
    return {
        "test": test,
        "alone": {"auc": 0.8, "accuracy": 0.8},
        "losses": losses or [0.5, 0.4, 0.3, 0.25, 0.2, 0.2],
        "victims": {"victim": {"0.05": {**guesses, **lines}}},
    }


def made_up_results(values: Mapping[str, tuple[float, float]]) -> dict[str, Any]:
    """Figure 3's outcomes in a small run: defence → (AUC, attack); the rest tells all and costs nothing."""
    found = {work.name: outcome(0.9, 0.8) for work in figure_3.works(SMALL)}
    for name, (auc, attack) in values.items():
        (entry,) = figure_3.strengths(SMALL, name).values()
        found[defended(SMALL, "adult", 0, entry).name] = outcome(auc, attack)
    return found


@pytest.mark.parametrize(
    ("fbs", "basic", "holds"),
    [
        ((0.895, 0.45), (0.87, 0.45), [True, True, True]),
        ((0.885, 0.45), (0.87, 0.45), [True, False, False]),  # fbs costs more than .01
        ((0.895, 0.45), (0.89, 0.45), [True, True, False]),  # basic costs only twice as much
        ((0.895, 0.55), (0.87, 0.45), [False]),  # fbs leaves more than half
    ],
)
def test_the_trade_off_is_checked(fbs: tuple[float, float], basic: tuple[float, float], holds: list[bool]) -> None:
    found = made_up_results({"fbs": fbs, "basic": basic})
    assert [one.holds for one in figure_3.check(SMALL, found)] == holds


def test_the_weakest_strength_that_halves_is_taken() -> None:
    plan = Plan(seeds=1)
    found = {work.name: outcome(0.9, 0.8) for work in figure_3.works(plan)}
    weak, middle, strong = figure_3.STRENGTHS["fbs"].values()
    for entry, attack in ((weak, 0.7), (middle, 0.5), (strong, 0.2)):
        found[defended(plan, "adult", 0, entry).name] = outcome(0.9, attack)
    of = Results(plan, found, "adult", [0])
    assert figure_3.halving(plan, of, "fbs") == middle
    assert figure_3.halving(plan, of, "basic") is None
    (row,) = [line for line in figure_3.page(plan, found) if line.startswith("| fbs | rate 0.0003 |") and "100%" not in line]
    assert row.endswith("0.300 | 50% |")


def test_the_picture_has_a_curve_for_each_defence() -> None:
    (svg,) = figure_3.drawings(SMALL, made_up_results({"fbs": (0.89, 0.3)})).values()
    for name in figure_3.STRENGTHS:
        assert f">{name}</text>" in svg


def test_a_rough_loss_is_told_from_a_smooth_one() -> None:
    found = {work.name: outcome(0.9, 0.8) for work in figure_4.works(SMALL)}
    assert not all(one.holds and one.found > 0 for one in figure_4.check(SMALL, found))
    for name in ("naive", "basic"):
        found[defended(SMALL, "adult", 0, figure_4.SHOWN[name]).name] = outcome(0.9, 0.8, [0.5, 0.6, 0.2, 0.4, 0.1, 0.3])
    assert all(one.found > 0.1 for one in figure_4.check(SMALL, found))


def test_the_cost_of_some_batches_only_is_the_mean_over_all() -> None:
    times = {"plain": 0.002, "minimax": 0.02, "between": 0.002}
    assert cost.ratio(times, 1) == pytest.approx(10)
    assert cost.ratio(times, 5) == pytest.approx((10 + 4) / 5)


def test_steps_are_timed_over_the_slow_link_too() -> None:
    found = cost.timed(NOWHERE, data="made_up", defence={**FBS, "rounds": 1}, steps=1)
    assert found["far"]["plain"] >= cost.ROUND_TRIP_S
    assert all(seconds > 0 for link in found.values() for seconds in link.values())


def ran(defence: Defence) -> dict[str, Any]:
    work = defended(SMALL, "adult", 0, defence)
    return {work.name: work.run(NOWHERE)}


def test_fresh_decoders_judge_a_defence() -> None:
    """A small run; the control is the training without a defence."""
    found = ran(NONE) | ran({**FBS, "rounds": 3})
    of = Results(SMALL, found, "adult", [0])
    assert of.leakage(NONE)[0] > 0.3
    assert of.leakage({**FBS, "rounds": 3})[0] < of.leakage(NONE)[0] / 2
    assert of.gain({**FBS, "rounds": 3})[0] > of.alone()[0]


@pytest.mark.slow
def test_a_defence_that_changes_nothing_is_judged_as_none() -> None:
    least: Defence = {"name": "noise", "sigma": 1e-6}
    of = Results(SMALL, ran(NONE) | ran(least), "adult", [0])
    assert of.leakage(least) == pytest.approx(of.leakage(NONE), abs=0.05)


@pytest.mark.slow
def test_only_the_first_columns_are_protected_and_attacked() -> None:
    def attack(protected: int) -> float:
        return float(
            tables_3_4.first_columns(
                NOWHERE, data="made_up_flags", seed=0, defence=FBS, protected=protected, attacked=4, looks=[6]
            )["attack"]
        )

    assert attack(4) < attack(0) - 0.05


@pytest.mark.slow
def test_a_small_run_of_all() -> None:
    works: dict[str, Work] = {work.name: work for name in OURS for work in EXPERIMENTS[name].works(SMALL)}
    found = {name: work.run(NOWHERE) for name, work in works.items()}
    for name in OURS:
        experiment = EXPERIMENTS[name]
        assert experiment.page(SMALL, found)
        assert experiment.check(SMALL, found)
        assert all(svg.startswith("<svg") for svg in experiment.drawings(SMALL, found).values())
    assert digits.gain_beyond(SMALL, found, "none")[0] > digits.gain_beyond(SMALL, found, "fbs")[0]
