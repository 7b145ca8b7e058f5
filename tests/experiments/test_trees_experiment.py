"""Trees in shares beside scikit-learn: a small run of the whole, and what its page says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from experiments.trees.experiment import CONTROL, SHARES, Plan, attack, compare
from experiments.trees.run import MADE_UP, REAL, SCORING, page, present

ROOT = Path(__file__).parents[2]
STORED = ROOT / "docs" / "experiments" / "trees.json"
TOLD = {"criteo"}
"""Tables whose revealed model tells membership at an AUC of .55 or more: what the documents say of it must be right."""

APART = {("scoring", 0.25)}
"""Where trees in shares are more than .01 apart from scikit-learn's: of about 100 positive records, and with psi likewise."""

NOWHERE = Path("/nowhere")
"""The made-up table needs no data."""


@pytest.mark.slow
def test_trees_are_as_good_as_those_in_the_clear() -> None:
    found = compare(NOWHERE, data=MADE_UP, seed=0, share=0.5)
    assert found["auc"]["psu"] == pytest.approx(found["auc"]["psi"], abs=0.01)
    assert found["auc"]["psu"] == pytest.approx(found["auc"]["scikit-learn"], abs=0.02)
    assert found["auc"]["psu"] > 0.8
    assert found["MB"]["psu"] / found["MB"]["psi"] > 1.1  # rows that are not shared cost as much


@pytest.mark.slow
def test_leaves_of_single_records_tell_who_is_shared() -> None:
    """The positive control: an attack that cannot succeed would say nothing of default settings."""
    assert attack(NOWHERE, data=MADE_UP, seed=0, **CONTROL)["auc"] > 0.7


def test_absent_tables_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert present(NOWHERE) == [SCORING, MADE_UP]
    said = capsys.readouterr().out
    assert all(name in said for name in REAL)


def test_the_page_is_made_of_what_is_stored() -> None:
    kept = json.loads(STORED.read_text(encoding="utf-8"))
    plan, found = Plan([*REAL, SCORING, MADE_UP], kept["seeds"]), kept["trainings"]
    assert page(plan, found) == STORED.with_suffix(".md").read_text(encoding="utf-8")
    for data in plan.names:
        guesses = [found[work.name]["auc"] for work in plan.attacked(data) if work.name in found]
        assert not guesses or (np.mean(guesses) < 0.55) == (data not in TOLD), "the page names the tables that tell more"
        for share in SHARES:
            aucs = [found[work.name]["auc"] for work in plan.compared(data, share) if work.name in found]
            assert len(aucs) >= 2
            apart = abs(np.mean([each["psu"] - each["scikit-learn"] for each in aucs])) < 0.01
            assert apart == ((data, share) not in APART), "the page has the difference, and that it is ours that is better"
            assert abs(np.mean([each["psu"] - each["psi"] for each in aucs])) < 0.005
    control = [found[work.name]["auc"] for work in plan.attacked(MADE_UP, control=True)]
    assert len(control) >= 5
    assert np.mean(control) > 0.7
