"""FedSim's experiments: what the page says of outcomes, of made-up ones whose differences are known and of the stored ones."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from experiments.fedsim import figure_4, rates, sweeps, table_2
from experiments.fedsim.run import PARTS, page, pages, works
from experiments.fedsim.trials import EXACT, FEATURE, FEDSIM, MEAN, PERMUTED, RATES, SETTINGS, TOP1, Outcomes, Plan, subtract
from experiments.inference.experiment import Expectation, Found, Work, lower, mean

RESULTS = Path(__file__).parents[2] / "docs" / "experiments" / "fedsim.json"
NOWHERE = Path("/nowhere")

RMSE = {FEDSIM: 40.0, MEAN: 45.0, TOP1: 55.0, FEATURE: 58.0, EXACT: 78.0}
ACCURACY = {FEDSIM: 0.88, MEAN: 0.8, TOP1: 0.89, FEATURE: 0.76, EXACT: 0.74}


def made_up(work: Work) -> Any:
    """An outcome: with noise on keys `top1` loses, with noise on similarities too; other records' columns cost 2 k$."""
    of, name = work.arguments, work.function.__name__
    if name == "looked_into":
        return {"weights": [0.01 * x for x in range(25)], "spearman": 0.9, "importance": [0.01 * x for x in range(20)]}
    if name == "matched":
        shares = {"complete": 0.88, "differing": 0.9, "jaccard": 0.99}
        found = {measure: dict.fromkeys(("1", "5", "20"), share) for measure, share in shares.items()}
        sigmas = {"0": 0.9, "0.1": 0.9, "0.4": 0.8, "1": 0.5}
        return {**found, "first": sigmas, "tau": sigmas, "bits": 4_000, "pairs": 9}
    jitter, method, key = 0.001 * (of["seed"] % 5), of["method"], of["control"] == "key"
    noisy = 1 if method == TOP1 else 0
    accuracy = ACCURACY[method] + jitter - noisy * (0.3 * of.get("scatter", 0.0) + 0.1 * of["sigma"])
    rmse = RMSE[method] + 10 / of["candidates"] + noisy * 3 * of["sigma"] + 2 * (of["control"] == PERMUTED) + 100 * jitter
    rmse -= 34 if key else 0
    return {
        "metrics": {"accuracy": accuracy, "auc": accuracy, "rmse": rmse, "r2": 1 - rmse / 200},
        "alone": {"accuracy": 0.7, "auc": 0.7 + 0.2 * (of["control"] == "flag"), "rmse": 47.0 if key else 80.0, "r2": 0.6},
        "tree": {"accuracy": 0.7, "auc": 0.7, "rmse": 29.0 if key else 68.0, "r2": 0.7},
        "pairs": {"accuracy": 0.7, "auc": 0.7, "rmse": 60.0, "r2": 0.7},
        "epoch_s": 0.2 if method == TOP1 else 0.01 * of["candidates"],
        "best": 3,
        "validation": 0.5 if of["rate"] == RATES[of["table"]] else 0.6,
        "spearman": 0.9,
        "linkage": {"tau": 0.01, "reuse": 1_234, "bits": 5_678},
    }


@pytest.fixture(scope="module")
def plan() -> Plan:
    return Plan(5)


@pytest.fixture(scope="module")
def outcomes(plan: Plan) -> dict[str, Any]:
    return {work.name: made_up(work) for work in works(plan, list(PARTS))}


def expected(plan: Plan, found: Found) -> dict[str, Expectation]:
    every = [one for part in PARTS.values() for one in part.check(plan, found)]
    named = {one.what: one for one in every}
    assert len(named) == len(every)
    return named


def test_differences_have_the_right_sign_and_size(plan: Plan, outcomes: dict[str, Any]) -> None:
    found = {what: one.found for what, one in expected(plan, outcomes).items()}
    for what, value in {
        "`fedsim` − `top1` without noise on keys, σ = 0, mean": -0.01,
        "`fedsim` − `top1` at σ_cf = 0.3, σ = 0, mean": 0.08,
        "`fedsim` − `top1` at σ_cf = 0.3, σ = 0.4, mean": 0.12,
        "`top1`, σ = 0, falls from each σ_cf to the next: least fall": 0.03,
        "`fedsim` − Solo at σ_cf = 0.3, σ = 0, lower end of the 95 % interval": 0.182 - 2.776 * math.sqrt(2.5e-6 / 5),
        "hdb: RMSE of Solo − `feature`, the worst linked method": 80 - 58.7,
        "hdb: best linked method − `fedsim`, RMSE": 0,
        "hdb: `fedsim`: −(share by which permuted B differs from real B)": -2 / 40.7,
        "`hdb`: FedSim, K = 50 beside K = 20, relative gain": 0.3 / 40.6,
        "`made_up`: FedSim, K = 50 beside K = 20, relative gain": 0,
        "`hdb`: `feature`: exponent of time by K": 1,
        "hdb: −(RMSE of FedSim that σ = 0.4 changes, in deviations over seeds)": 0,
        "hdb: `top1` at σ = 3 − without noise, RMSE, lower end of the 95 % interval": 9,
        "games: `fedsim` − `top1`, accuracy": 0.03,
        "games: Solo + match flag − Solo, AUC": 0.2,
        "games: Solo + match flag − `fedsim`, AUC": 0.018,
        "`febrl`: pairs among 20 nearest, filters − groups that differ": -0.02,
        "`febrl`: precision@1, σ = 0 − σ = 1": 0.4,
    }.items():
        assert found[what] == pytest.approx(value, abs=1e-6 + 1e-3 * abs(value)), what


def test_what_was_made_up_to_hold_holds_and_the_rest_does_not(plan: Plan, outcomes: dict[str, Any]) -> None:
    assert [what for what, one in expected(plan, outcomes).items() if not one.holds] == [
        "`fedsim` − `top1` without noise on keys, σ = 0, mean"
    ]


def test_the_page_has_the_outcomes(plan: Plan, outcomes: dict[str, Any]) -> None:
    text = page(plan, outcomes)
    tables = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert all(len({line.count("|") for line in table.splitlines()}) == 1 for table in tables)
    for line in (
        "| 0.742 ± 0.002 | +0.050 [+0.050, +0.050] | +0.080 [+0.080, +0.080] |",  # Figure 6
        "σ_cf = 0.3 and σ = 0: `fedsim` +0.140 [+0.140, +0.140], `top1` +0.060 [+0.060, +0.060], `mean` +0.060",
        "| Solo + key | 47.00 ± 0.00 | 0.600 ± 0.000 | -33.00 [-33.00, -33.00] |  |",
        "| own columns, boosted trees + key | 29.00 ± 0.00 |",
        "| `fedsim`, permuted B | 42.70 ± 0.16 |",
        "different places of flats",
        "One game of RAWG is a candidate of up to 1,234 different titles",
        "| exponent, 5 to 50 | 1.00 | 0.00 | 1.00 | 1.00 |",
        "| `febrl`, 9 pairs, 4,000 bits | filters | 0.880 ± 0.000 |",
        "|  | plain texts, groups that differ | 0.900 |",
        "of weight and similarity 0.90, 0.90, 0.90; of importance and rank 1.00, 1.00, 1.00.",
        "| `hdb` | 0.003 | 0.5000 | 0.5000 | used |",
    ):
        assert line in text
    assert "Less than the 20 k$" not in text
    weak = {
        name: {**one, "metrics": dict(one["metrics"], rmse=70.0)} if '"feature"' in name else one
        for name, one in outcomes.items()
    }
    assert "gained by `feature` 10.0." in page(plan, weak)
    assert rates.best(outcomes, "made_up") == RATES["made_up"]


def test_drawings_have_all_curves_and_no_text_outside(plan: Plan, outcomes: dict[str, Any]) -> None:
    drawn = {name: ET.fromstring(svg) for part in PARTS.values() for name, svg in part.drawings(plan, outcomes).items()}
    lines = {name: len(list(svg.findall(".//{*}polyline"))) for name, svg in drawn.items()}
    keys = {6: 4 + 2 + 2 * 2, 7: 2, 9: 2 * 4, 4: 2 * 3}  # in the key below, and as curves: the latter once for each panel
    panels = {6: 1, 7: 1, 9: 2, 4: 2}
    assert lines == {f"fedsim-figure-{number}.svg": count * (1 + panels[number]) for number, count in keys.items()}
    for svg in drawn.values():
        for text in svg.findall(".//{*}text"):
            room = float(svg.get("width", "")) - float(text.get("x", ""))
            assert text.get("text-anchor") != "start" or 7 * len(text.text or "") < room


def test_what_does_not_rise_at_all_is_no_rise(plan: Plan, outcomes: dict[str, Any]) -> None:
    flat = {"weights": [0.5] * 25, "spearman": None, "importance": [0.05] * 20}
    found = {name: flat if name.startswith("looked_into") else one for name, one in outcomes.items()}
    assert "of weight and similarity –, –, –; of importance and rank –, –, –." in page(plan, found)
    assert [one.holds for one in figure_4.check(plan, found)] == [False] * 4
    assert [one.holds for one in figure_4.check(plan, outcomes)] == [True] * 4


@pytest.mark.slow
def test_a_small_run_of_all_parts() -> None:
    plan = Plan(seeds=1, small=True)
    found = {work.name: work.run(NOWHERE) for work in works(plan, list(PARTS))}
    text = page(plan, found)
    assert all(f"## {part.TITLE}" in text for part in PARTS.values())
    assert all(svg.startswith("<svg") for part in PARTS.values() for svg in part.drawings(plan, found).values())


@pytest.fixture(scope="module")
def stored() -> dict[str, Any]:
    return dict(json.loads(RESULTS.read_text(encoding="utf-8")))


def test_the_stored_page_shows_the_stored_outcomes(stored: dict[str, Any]) -> None:
    plan, found = Plan(stored["seeds"], stored["small"]), stored["trainings"]
    assert stored["settings"] == json.loads(json.dumps(SETTINGS))
    assert set(found) == {work.name for work in works(plan, list(PARTS))}
    for name, text in pages(plan, found).items():
        assert RESULTS.with_name(name).read_text(encoding="utf-8") == text
    assert pages(plan, found).keys() == {path.name for path in RESULTS.parent.glob("fedsim*.md")}
    for part in PARTS.values():
        for name, svg in part.drawings(plan, found).items():
            assert RESULTS.with_name(name).read_text(encoding="utf-8") == svg
    assert {name: rates.best(found, name) for name in rates.tables(plan)} == {name: RATES[name] for name in rates.tables(plan)}


NOT_SO = [
    "`fedsim` − `top1` at σ_cf = 0.3, σ = 0, mean",
    "`fedsim` − `top1` at σ_cf = 0.3, σ = 0.4, mean",
    "`top1`, σ = 0, falls from each σ_cf to the next: least fall",
    "hdb: RMSE of Solo − `top1`, the worst linked method",
    *(f"`{data}`: `{method}`: exponent of time by K" for data in ("made_up", "hdb") for method in (FEDSIM, MEAN, FEATURE)),
    "games: Solo + match flag − Solo, AUC",
]
"""What was expected and is not so in the stored outcomes; all else is."""


def test_what_was_expected_and_is_not_so(stored: dict[str, Any]) -> None:
    every = expected(Plan(stored["seeds"]), stored["trainings"])
    assert {what for what, one in every.items() if not one.holds} == set(NOT_SO)


def test_the_page_begins_with_what_the_stored_outcomes_bear(stored: dict[str, Any]) -> None:
    plan, found = Plan(stored["seeds"]), stored["trainings"]
    of = Outcomes(found, plan.few(5))

    def gain(method: str, scatter: float) -> list[float]:
        one, other = (of.values("made_up", name, "accuracy", scatter=scatter, sigma=0.0) for name in (FEDSIM, method))
        return subtract(one, other)

    assert lower(gain(TOP1, 0.0)) < 0 < upper(gain(TOP1, 0.0))  # as good
    assert min(lower(gain(TOP1, scatter)) for scatter in (0.2, 0.3)) > 0
    assert lower(gain(MEAN, 0.1)) > 0
    assert all(lower(gain(MEAN, scatter)) < 0 < upper(gain(MEAN, scatter)) for scatter in (0.2, 0.3))
    rmse = table_2.columns(plan, found, "rmse")
    for method in (FEDSIM, MEAN):
        assert mean(subtract(rmse["Solo"], rmse[method])) > 28
        assert mean(subtract(rmse[f"{method}, permuted B"], rmse[method])) < 3
        assert lower(subtract(rmse[method], rmse["own columns, boosted trees + key"])) > 10
    assert {method for method, won in table_2.gains(plan, found).items() if won < table_2.FALL} == {TOP1, FEATURE}
    one = {method: mean(of_first(found, method)) for method in (FEDSIM, MEAN, TOP1, FEATURE)}
    assert min(one.values()) > 60  # with one candidate all of them gain less than 20
    assert "No interval is above 0" in page(plan, found)
    gaps = [one.found for what, one in expected(plan, found).items() if "groups that differ" in what]
    assert min(gaps) > -0.001
    times = {data: sweeps_exponent(found, data) for data in ("made_up", "hdb")}
    assert times["made_up"] > 0.3
    assert times["hdb"] < 0.2


def upper(values: list[float]) -> float:
    return -lower([-value for value in values])


def of_first(found: Found, method: str) -> list[float]:
    return Outcomes(found, range(sweeps.SEEDS)).values("hdb", method, "rmse", candidates=1)


def sweeps_exponent(found: Found, data: str) -> float:
    """Of `top1`, whose passive party embeds all candidates."""
    return sweeps.exponent(Outcomes(found, range(sweeps.SEEDS)), data, sweeps.tables(Plan())[data][1], TOP1)
