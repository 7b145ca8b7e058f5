"""Made-up ids in a union: rows that neither party owns take part in training, synthetic on both sides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vfl_node.alignment.alignment import Alignment
from vfl_node.crypto.randomness import Randomness
from vfl_node.execution import train
from vfl_node.execution.simulation import simulate
from vfl_node.report.envelope import Report

DUMMIES = 40
JOB = f"""\
align: {{protocol: psu, dummies: {DUMMIES}}}
train:
  bottom: [8]
  active_bottom: [4]
  top: [8]
  epochs: 4
  batch_size: 32
  learning_rate: 0.01
  missing: {{labels: random-pos, features: smoothed, calibration: train, shares: {{active: 0.6, passive: 0.6}}}}
evaluate: {{test_fraction: 0.3}}
"""


def test_rows_that_neither_owns_are_trained_on(
    trial: Any, tmp_path: Path, seeds: dict[str, Randomness], monkeypatch: pytest.MonkeyPatch
) -> None:
    views: dict[str, Alignment] = {}
    real = train.keep

    def keep(run: Any, *rest: Any, **named: Any) -> None:
        views[run.session.name] = named["aligned"].alignment
        real(run, *rest, **named)

    monkeypatch.setattr(train, "keep", keep)
    simulate(trial.job(JOB), trial.files, tmp_path, randomness=seeds)
    clinic, lab = views["clinic"], views["lab"]
    neither = ~clinic.owned & ~lab.owned
    union = 200
    assert len(clinic) == union + np.count_nonzero(neither)
    assert DUMMIES <= np.count_nonzero(neither) <= 4 * DUMMIES
    assert clinic.peer.intersection is lab.peer.intersection is None
    reports = [Report.model_validate_json((tmp_path / name).read_text()) for name in ("report.json", "lab/report.json")]
    for report in reports:
        assert report.alignment.rows == len(clinic)
        assert report.alignment.intersection is None
        assert report.training is not None
        assert all(epoch.attacks for epoch in report.training.epochs)
    assert 0 < reports[0].metrics.nll < 1
    assert reports[0].metrics.real_share is None  # hidden
