"""What training is said to send is what it sends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vfl_node.crypto.randomness import Randomness
from vfl_node.execution.simulation import simulate
from vfl_node.job import Evaluate
from vfl_node.report.envelope import Report
from vfl_node.training.split.config import Train
from vfl_node.training.split.costs import cost


@pytest.mark.parametrize(
    ("align", "train", "evaluate"),
    [
        ("psu", "epochs: 3, bottom: [64]", "{test_fraction: 0.3}"),
        ("psi", "epochs: 2, model: wide_deep, bottom: [24]", "{test_fraction: 0.3, repeats: 2}"),
        ("psu", "epochs: 2, bottom: [64]", "{test_fraction: 0}"),
        ("psu", "epochs: 3, bottom: [64]", "{test_fraction: 0.2, validation_fraction: 0.2, repeats: 2}"),
        ("psi", "epochs: 2, bottom: [64]", "{test_fraction: 0, validation_fraction: 0.3}"),
    ],
)
def test_bytes_and_batches_are_those_of_a_run(
    align: str, train: str, evaluate: str, trial: Any, tmp_path: Path, seeds: dict[str, Randomness]
) -> None:
    job = trial.job(
        f"align: {{protocol: {align}}}\ntrain: {{active_bottom: [4], top: [8], batch_size: 32, {train}}}\nevaluate: {evaluate}"
    )
    simulate(job, trial.files, tmp_path, randomness=seeds)
    report = Report.model_validate_json((tmp_path / "report.json").read_text())
    expected = cost(job.train, job.evaluate, report.alignment.rows, align)
    moved = report.phases["train"]
    assert moved.bytes_received == pytest.approx(expected.passive_bytes, rel=0.01)
    assert moved.bytes_sent == pytest.approx(expected.active_bytes, rel=0.01)
    decisions = job.train.epochs * job.evaluate.repeats if job.evaluate.validation_fraction else 0
    assert report.training.steps + decisions == expected.steps
    assert len(report.training.epochs) * expected.batches * job.evaluate.repeats == report.training.steps
    assert report.training.rows.training == expected.rows


def test_by_hand() -> None:
    train = Train(bottom=(10,), epochs=4, batch_size=50)
    found = cost(train, Evaluate(test_fraction=0.2), 1000, "psu")
    assert (found.rows, found.batches, found.steps) == (800, 16, 64)
    assert found.active_bytes == 4 * (800 * 40 + 16 * 74)
    assert found.passive_bytes == found.active_bytes + 200 * 40 + 4 * 74
    assert found.bytes == found.active_bytes + found.passive_bytes
    whole = cost(train, Evaluate(test_fraction=0), 1000, "psu")
    assert (whole.rows, whole.passive_bytes - whole.active_bytes) == (1000, 1000 * 40 + 20 * 74)
    several = cost(Train(bottom=(10,), model="wide_deep", classes=5, epochs=4, batch_size=50), Evaluate(), 1000, "psu")
    assert several.active_bytes == 4 * (800 * 60 + 16 * 74)


def test_validation_rows_are_embedded_in_every_epoch() -> None:
    train = Train(bottom=(10,), epochs=4, batch_size=50)
    found = cost(train, Evaluate(test_fraction=0.2, validation_fraction=0.1), 1000, "psu")
    assert (found.rows, found.batches, found.steps) == (700, 14, 60)
    assert found.active_bytes == 4 * (700 * 40 + 14 * 74 + 40)
    assert found.passive_bytes == 4 * (700 * 40 + 14 * 74) + 4 * (100 * 40 + 2 * 74) + 200 * 40 + 4 * 74
    assert cost(train, Evaluate(test_fraction=0.2, validation_fraction=0.1), 1, "psu").rows == 0


def test_matched_metrics_cost_a_ciphertext_a_row_of_a_union() -> None:
    train, evaluate = Train(epochs=1), Evaluate(test_fraction=0.2)
    matched = evaluate.model_copy(update={"matched": True})
    assert cost(train, matched, 5000, "psu").bytes - cost(train, evaluate, 5000, "psu").bytes == 1000 * 768
    assert cost(train, matched, 1000, "psu") == cost(train, evaluate, 1000, "psu")  # too few rows
    assert cost(train, matched, 1000, "psi") == cost(train, evaluate, 1000, "psi")


def test_nothing_shared_costs_nothing() -> None:
    assert cost(Train(), Evaluate(), 0, "psi").bytes == 0
