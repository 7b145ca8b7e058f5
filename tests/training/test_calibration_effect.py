"""Majority labels lower every probability; either shift puts it back.

Over four seeds without active features the ACE was .13 to .15 with half the labels synthetic
and .03 to .06 after a shift; about .03 is the noise of 15 bins of 60 rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from vfl_node.job import Evaluate
from vfl_node.training.split.config import Train
from vfl_node.training.split.missing.section import Missing


@pytest.mark.parametrize(
    ("owned", "active_features"),
    [
        ((0.5, 1.0), False),
        pytest.param((0.5, 0.7), True, marks=pytest.mark.slow),
        pytest.param((0.5, 1.0), True, marks=pytest.mark.slow),
        pytest.param((0.5, 0.7), False, marks=pytest.mark.slow),
    ],
)
def test_majority_labels_raise_ace_and_each_shift_repairs_it(
    synthetic: Callable[..., Any], run: Any, owned: tuple[float, float], active_features: bool
) -> None:
    parties = synthetic(6000, owned, active_features=active_features, independent=True, seed=1)
    metrics = {}
    for calibration in ("none", "test", "train"):
        train = Train(
            bottom=(32, 16),
            active_bottom=(16,),
            top=(16,),
            epochs=6,
            batch_size=128,
            learning_rate=3e-3,
            missing=Missing(calibration=calibration),  # type: ignore[arg-type]
        )
        metrics[calibration] = run(train=train, evaluate=Evaluate(test_fraction=0.3))(parties)[0].results.metrics
    lacking = 1 - parties.clinic_view.owned.mean()
    raised = metrics["none"]["ace"]
    assert raised == pytest.approx(lacking * parties.clinic.labels.mean(), abs=0.035)
    for calibration in ("test", "train"):
        assert metrics[calibration]["ace"] < 0.5 * raised
    assert metrics["train"]["nll"] < metrics["none"]["nll"]  # not so for test: a score clipped to 0 or 1 may be wrong
    if not active_features:
        assert metrics["test"]["auc"] == pytest.approx(metrics["none"]["auc"], abs=1e-12)
    assert metrics["train"]["auc"] == pytest.approx(metrics["none"]["auc"], abs=0.03)
