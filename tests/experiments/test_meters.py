"""The experiment that holds the meters of labels against an attacker outside of the product."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from experiments.meters.attacker import Floats, Taken, blind, figure, informed, score_together
from experiments.meters.run import NAME, WITHIN, meters, page, works
from tests.thorough import examples

DOCS = Path(__file__).parents[2] / "docs" / "experiments"
ROWS, EPOCHS, WIDTH = 600, 4, 5


def stored() -> dict[str, dict[str, dict[str, float]]]:
    return json.loads((DOCS / f"{NAME}.json").read_text())["trainings"]


def test_the_page_is_that_of_the_stored_outcomes_and_the_meter_keeps_up() -> None:
    found, seeds = stored(), 3
    text = "\n".join(page(found, seeds, small=False))
    assert (DOCS / f"{NAME}.md").read_text() == text
    assert all(work.name in found for work in works(seeds, small=False))
    by_cell: dict[str, list[float]] = {}
    for name, of in found.items():
        arguments = json.loads(name.removeprefix("meters "))
        for kind in ("blind", "informed", "together"):
            cell = f"{arguments['data']} {arguments['defence']} {kind}"
            by_cell.setdefault(cell, []).append(of["attacker"][kind] - of["meter"][kind])
    gaps = {cell: float(np.mean(values)) for cell, values in by_cell.items()}
    assert max(gaps.values()) <= WITHIN, gaps


def taken(labels: Floats, classes: int, seed: int) -> Taken:
    """What an attacker has of gradients that tell ``labels``, under noise."""
    rng = np.random.default_rng(seed)
    told = np.eye(4)[labels.astype(int)] if classes > 2 else labels[:, None] - labels.mean()
    signal = 2 * np.pad(told, ((0, 0), (0, WIDTH - told.shape[1])))
    gradients = signal + rng.normal(size=(EPOCHS, ROWS, WIDTH))
    steps = np.tile(np.arange(ROWS) // 100, (EPOCHS, 1))
    return Taken(np.arange(ROWS), gradients, rng.normal(size=(EPOCHS, ROWS, WIDTH)), steps)


@pytest.mark.parametrize("classes", [2, pytest.param(4, marks=pytest.mark.slow), 0])
def test_the_attacker_reads_what_is_told_and_nothing_else(classes: int) -> None:
    """At chance the best of seven scores of 600 rows is .03 above .5 (deviation of an AUC: .024)."""
    rng = np.random.default_rng(1)
    labels = rng.normal(size=ROWS) if classes == 0 else rng.integers(classes, size=ROWS).astype(float)
    columns, other = rng.normal(size=(ROWS, 3)), rng.permutation(labels)
    trainings = [taken(labels, classes, seed) for seed in range(examples(4, fewer=3))]
    scores = [blind(of, columns, classes) for of in trainings]
    rows = [of.rows for of in trainings]
    read = max(figure(labels, score, classes) for score in scores[0].values())
    assert read > 0.75
    assert score_together(scores, rows, labels, classes) > read - 0.01
    assert informed(trainings[0], columns, labels, classes, 0) > 0.75
    assert max(figure(other, score, classes) for score in scores[0].values()) < 0.6
    assert score_together(scores, rows, other, classes) < 0.6
    assert informed(trainings[0], columns, other, classes, 0) < 0.58


@pytest.mark.slow
def test_a_small_trial_runs() -> None:
    found = meters(Path("nowhere"), data="four classes", defence="dp 1.2", seed=0, repeats=2)
    assert set(found) == {"metric", "attacker", "meter"}
    for kind in ("blind", "informed", "together"):
        assert found["meter"][kind] > found["attacker"][kind] - 0.05
        assert found["attacker"][kind] > 0.7
