"""Training in shares beside FLORIST: a small run of the whole, and what its page asserts."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.florist.experiment import Drawn, Trial, randomness_of, records_of
from experiments.florist.experiment import run as florist
from experiments.hidden.cost import between_nodes
from experiments.hidden.experiment import Union, hidden, leaks, train_of
from experiments.hidden.page import AT_FEW, FIGURE, LEAST, Results, figure, page
from experiments.hidden.run import main, parser
from experiments.hidden.works import REAL, Plan

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "experiments" / "hidden.json"
NOWHERE = Path("/nowhere")
"""The made-up table needs no data."""


@cache
def stored() -> Results:
    kept = json.loads(RESULTS.read_text(encoding="utf-8"))
    return Results(Plan(kept["seeds"]), kept["trainings"])


@cache
def small() -> dict[str, Any]:
    return hidden(NOWHERE, data="made_up", seed=0, ratio=0.5)


@pytest.mark.slow
def test_the_model_is_that_of_the_intersection() -> None:
    found = small()
    auc = found["auc"]
    assert found["apart"] < 0.005
    assert auc["hidden"] == pytest.approx(auc["same batches"], abs=0.001)
    assert auc["hidden"] == pytest.approx(auc["psi"], abs=0.005)
    assert auc["hidden"] > 0.8
    assert found["beyond"] == 0


@pytest.mark.slow
def test_rows_are_those_of_florist() -> None:
    trial = Trial("made_up", 0, alpha=0.5, beta=0.5)
    outcome = florist(trial, NOWHERE)
    assert small()["shared"] == outcome["real"]
    randomness, records = randomness_of("made_up", 0), records_of("made_up", NOWHERE)
    union = Union.from_records(records, Drawn.draw(randomness, len(records), alpha=0.5, beta=0.5))
    assert small()["union"] == len(union.both) == pytest.approx(0.75 * 3000, abs=60)
    assert np.isfinite(union.values[union.both]).all()
    assert np.isnan(union.values[~union.both]).all()  # what only one has cannot be trained on in the clear
    assert all(view.common == outcome["real"] for view in union.views.values())


def test_few_shared_records_are_trained_on_for_longer() -> None:
    assert [train_of(common)["epochs"] for common in (23, 300, 600, 25_000)] == [100, 100, 50, 10]


@pytest.mark.slow
def test_open_training_tells_labels_and_membership() -> None:
    found = leaks(NOWHERE, data="made_up", seed=0, ratio=0.5)
    assert min(found["labels"].values()) > 0.99
    assert max(found["membership"].values()) > 0.65


@pytest.mark.slow
def test_it_costs_more_between_nodes() -> None:
    found = between_nodes(NOWHERE, data="made_up", seed=0, ratio=0.5)
    counted = small()["bytes"]
    assert found["hidden"]["MB"] == pytest.approx((counted["bank"] + counted["bureau"]) / 1e6, rel=0.01)
    assert found["hidden"]["MB dealt"] == counted["notary"] / 1e6
    assert found["FLORIST"]["MB"] > 2 * found["psi"]["MB"] > 0
    assert found["FLORIST"]["MB dealt"] == 0


@pytest.mark.slow  # the whole command
def test_a_small_run_writes_values_page_and_figure(tmp_path: Path) -> None:
    main(parser().parse_args(["--small", "--seeds", "1", "--out", str(tmp_path)]))
    kept = json.loads((tmp_path / "hidden.json").read_text(encoding="utf-8"))
    results = Results(Plan(1, small=True), kept["trainings"])
    assert (tmp_path / "hidden.md").read_text(encoding="utf-8") == page(results)
    assert "| made_up |" in page(results)
    assert (tmp_path / FIGURE).read_text(encoding="utf-8") == figure(results)


def test_the_page_and_the_figure_show_what_was_measured() -> None:
    assert RESULTS.with_suffix(".md").read_text(encoding="utf-8") == page(stored())
    assert RESULTS.with_name(FIGURE).read_text(encoding="utf-8") == figure(stored())


@pytest.mark.parametrize("data", REAL)
def test_nothing_is_lost_but_bits(data: str) -> None:
    ratios = stored().plan.ratios
    for ratio in ratios:
        auc = stored().auc(data, ratio)
        assert abs(np.mean(auc["hidden"] - auc["same batches"])) < (AT_FEW if ratio == max(ratios) else LEAST)


@pytest.mark.parametrize("data", REAL)
def test_florist_loses_more_the_fewer_records_are_shared(data: str) -> None:
    few, many = (stored().auc(data, ratio) for ratio in (0.65, 0.05))
    lost = [float(np.mean(of["partial"] - of["FLORIST"])) for of in (few, many)]
    assert lost[0] > max(0.01, lost[1])
