"""With all shares in one place a trial predicts what was measured in shares."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import log_loss, roc_auc_score

from vfl_node.configuration.models import parse
from vfl_node.execution.extras import Extras
from vfl_node.execution.simulation import simulate
from vfl_node.job import Job
from vfl_node.report.envelope import Report
from vfl_node.training.shares.prediction import answers

pytestmark = pytest.mark.usefixtures("silent")

JOB = """\
name: trial
parties: {{active: clinic, passive: lab, coordinator: notary}}
align: {{protocol: {align}}}
train: {{algorithm: hidden, epsilon: null, {train}}}
evaluate: {{test_fraction: 0.4, metrics: [{metrics}]}}
"""


def predicted(trial: Any, folder: Path, align: str, train: str, metrics: str) -> tuple[Report, np.ndarray, np.ndarray]:
    """The report; labels and predictions of the records held out that both have."""
    job = parse(JOB.format(align=align, train=train, metrics=metrics), Job, source="job")
    simulate(job, trial.files, folder / "out", extras=Extras(predictions=folder / "said.csv", seed=3))
    with (folder / "said.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == (160 if align == "psu" else 120)
    both = {row["id"] for row in csv.DictReader(trial.lab.open())}
    held = [row for row in rows if row["rows"] == "held_out" and row["id"] in both]
    said = [float(row.get("probability", row.get("prediction", ""))) for row in held]
    report = Report.model_validate_json((folder / "out" / "report.json").read_text())
    return report, np.array([float(row["label"]) for row in held]), np.array(said)


@pytest.mark.parametrize(
    ("align", "train"), [("psu", "bins: 1024"), pytest.param("psi", "layers: [5, 3], bins: 1024", marks=pytest.mark.slow)]
)
def test_predictions_are_of_the_model_that_was_measured(trial: Any, tmp_path: Path, align: str, train: str) -> None:
    more = "epochs: 20, batch_size: 30, learning_rate: 0.1, momentum: 0.5, "
    report, labels, said = predicted(trial, tmp_path, align, more + train, "auc, nll")
    assert report.metrics.auc == pytest.approx(roc_auc_score(labels, said), abs=0.005)
    assert report.metrics.nll == pytest.approx(log_loss(labels, said), abs=0.01)
    assert report.metrics.auc > 0.9


def test_large_scores_are_measured_and_told(trial: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """26 correlated columns at too large a rate: metrics are those of the scores that the weights make, unrounded."""
    monkeypatch.setattr(answers, "round_scores", lambda z, form: z)
    train = "epochs: 10, batch_size: 30, learning_rate: 0.3, momentum: 0.9"
    report, labels, said = predicted(trial, tmp_path, "psu", train, "auc, nll, accuracy")
    scores = np.clip(np.log(said) - np.log1p(-np.minimum(said, 1 - 1e-16)), -36, 36)  # a double has no larger ones
    assert np.mean(np.abs(scores) > 28) > 0.1
    assert report.metrics.auc == pytest.approx(roc_auc_score(labels, scores), abs=0.01)
    assert report.metrics.nll == pytest.approx(np.minimum(np.logaddexp(0, scores * (1 - 2 * labels)), 4).mean(), rel=0.03)
    assert report.metrics.accuracy == np.mean((said > 0.5) == labels)
    (warning,) = report.training.warnings
    count, of = (int(number.replace(",", "")) for number in re.findall(r"[\d,]+", warning)[1::-1])
    assert of == report.metrics.rows
    assert (np.abs(scores) > 32).sum() <= count <= (np.abs(scores) > 24).sum()


def test_numbers_are_in_the_targets_unit(trial: Any, tmp_path: Path) -> None:
    train = "task: regression, epochs: 20, batch_size: 30, learning_rate: 0.01, bins: 1024"
    report, labels, said = predicted(trial, tmp_path, "psi", train, "rmse")
    assert report.metrics.rmse == pytest.approx(np.sqrt(np.mean((labels - said) ** 2)), abs=8e-3)  # coins: sd .002


def test_weights_that_stay_in_shares_predict_as_opened_ones(trial: Any, tmp_path: Path) -> None:
    said = {}
    for reveal in ("owners", "none"):
        (folder := tmp_path / reveal).mkdir()
        *_, said[reveal] = predicted(trial, folder, "psi", f"reveal: {reveal}, epochs: 5, batch_size: 30", "auc")
    assert np.abs(said["owners"] - said["none"]).max() < 0.02  # other draws of masks round other bits in training
    assert np.ptp(said["none"]) > 0.5
