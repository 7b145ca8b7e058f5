"""Intervals over rows held out that are the same in every training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from experiments.fedads.data import ACTIVE
from experiments.fedads.outside import RESAMPLED, RowsPlan, score_resamples, split, trial
from experiments.fedads.resampling import Said, half_width, resampled
from experiments.fedads.table_3 import Outcomes
from experiments.fedads.training import train
from tests.experiments.test_fedads_rows import NOWHERE
from vfl_node.metrics.classes import auc
from vfl_node.training.intervals import DRAWS, NORMAL, influence

ROWS = 2000


def made_up(noise: float, seed: int = 0) -> tuple[Any, Any, Any]:
    """Labels, what a model says, and what a worse one says that errs in the same rows."""
    rng = np.random.default_rng(seed)
    labels = (rng.random(ROWS) < 0.25).astype(np.float32)
    good = labels + rng.normal(0, 1.5, ROWS)
    return labels, good, good + rng.normal(0, noise, ROWS)


def test_the_interval_is_that_of_delong_and_pairing_makes_it_narrow() -> None:
    labels, good, worse = made_up(noise=0.5)
    one, two = (np.array(resampled(labels, of)) for of in (good, worse))
    assert len(one) == DRAWS
    parts = [influence(labels, of) for of in (good, worse)]
    assert parts[0] is not None
    assert parts[1] is not None
    theirs = NORMAL * float(np.linalg.norm(parts[0] - parts[1]))
    assert half_width(one, two) == pytest.approx(theirs, rel=0.15)  # 400 draws err by 3.5 %
    assert half_width(one, two) < 0.6 * half_width(one, np.full(DRAWS, 0.5))
    assert one.mean() == pytest.approx(auc(labels, good), abs=0.003)


def test_of_two_equal_models_nothing_is_left() -> None:
    labels, good, _ = made_up(noise=0)
    assert half_width(np.array(resampled(labels, good)), np.array(resampled(labels, 2 * good + 1))) == 0


def test_what_is_said_of_each_row_is_what_the_training_measured() -> None:
    cut, aligned = split(NOWHERE, "small", 0.5, 0)
    done = train(cut, 0, settings={"epochs": 1}, aligned=aligned, scored=True)
    said = done.said
    assert said is not None
    assert auc(said.labels, said.joint) == pytest.approx(done.auc)
    assert auc(said.labels, said.alone) == pytest.approx(done.alone)
    kept = score_resamples(cut, said, alone=True)
    assert np.mean(kept["auc"]) == pytest.approx(done.auc, abs=0.01)
    assert np.mean(kept["alone"]) == pytest.approx(done.alone, abs=0.01)
    assert set(score_resamples(cut, said, alone=False)) == {"auc"}


def test_rows_in_another_order_are_refused() -> None:
    cut, _ = split(NOWHERE, "small", 0.5, 0)
    labels = cut.tables[ACTIVE].labels
    assert labels is not None
    turned = labels[-cut.tested :][::-1]
    with pytest.raises(AssertionError):
        score_resamples(cut, Said(turned, turned, turned), alone=False)


@pytest.mark.parametrize(
    ("gain", "over_rows", "over_seeds", "claim"),
    [
        (0.05, 0.005, 0.005, "above Vanilla, above alone"),
        (-0.05, 0.005, 0.005, "below Vanilla, below alone"),
        (0.012, 0.001, 0.001, "–"),  # too little, however sure
        (0.05, 0.05, 0.005, "–"),  # other rows could undo it
        (0.05, 0.005, 0.06, "–"),  # other seeds could
    ],
)
def test_a_claim_needs_rows_and_seeds_and_a_size(gain: float, over_rows: float, over_seeds: float, claim: str) -> None:
    plan, (table,) = RowsPlan(), RESAMPLED
    noise, found = np.random.default_rng(0).normal(0, 1, DRAWS), {}
    for seed in range(plan.seeds):
        for method in ("none", "jpl", "diffusion"):
            moved = float(method == "diffusion")
            drawn = (0.7 + moved * (gain + over_rows * noise)).tolist()
            value = 0.7 + moved * (gain + over_seeds * (seed - 2))
            kept = {"auc": drawn, "alone": [0.7] * DRAWS}
            found[trial(table, 0.2, method, seed).name] = {"auc": value, "alone": 0.7, "resampled": kept}
    assert Outcomes(plan, found, table, 0.2).claimed("diffusion") == claim
