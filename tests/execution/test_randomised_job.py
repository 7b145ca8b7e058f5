"""A whole job under ``randomised-labels``: what its reports say, with the node's settings alone to ask for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vfl_node.configuration.models import parse
from vfl_node.errors import UsageError
from vfl_node.execution.extras import Extras
from vfl_node.execution.private import private_settings, trial_settings
from vfl_node.execution.simulation import simulate
from vfl_node.job import Job

JOB = """\
name: answers
parties: {active: clinic, passive: [lab]}
align: {protocol: psi}
evaluate: {test_fraction: 0.2%s}
train: {bottom: [6, 4], active_bottom: [5], top: [6], epochs: 2, batch_size: 40}
"""


def simulated(folder: Path, *, defences: list[dict[str, Any]], also: str = "") -> dict[str, Any]:
    """Party → its report, and the active party's page as ``page``."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(400, 4)).round(3)
    labels = (values.sum(axis=1) + rng.normal(size=400) > 0.5).astype(int)
    files = {}
    for name, columns in (("clinic", (0, 1)), ("lab", (2, 3))):
        head = ["id", *(f"c{column}" for column in columns), *(["label"] if name == "clinic" else [])]
        rows = [[row, *of[list(columns)], *([labels[row]] if name == "clinic" else [])] for row, of in enumerate(values)]
        files[name] = folder / f"{name}.csv"
        files[name].write_text("\n".join(",".join(map(str, row)) for row in [head, *rows]) + "\n")
    job = parse(JOB % also, Job, source="job.yaml")
    given = {"clinic": private_settings({"defences": defences}, source="clinic.yaml", base=folder)}
    settings = trial_settings(job, files, given=given, columns={"id": "id", "label": "label"})
    simulate(job, files, folder / "out", settings=settings, extras=Extras(seed=1))
    reports = {"clinic": folder / "out" / "report.json", "lab": folder / "out" / "lab" / "report.json"}
    found = {name: json.loads(path.read_text()) for name, path in reports.items()}
    return {**found, "page": (folder / "out" / "report.html").read_text()}


def test_report_and_ledger_say_what_is_bounded_and_the_peer_knows_of_nothing(tmp_path: Path) -> None:
    found = simulated(tmp_path, defences=[{"name": "randomised-labels", "epsilon": 1.5}])
    privacy = found["clinic"]["training"]["split"]["label_privacy"]
    assert privacy == {"epsilon": 1.5, "delta": 0.0, "releases": 1, "epsilon_together": 1.5}
    ledger = {entry["what"]: entry["text"] for entry in found["clinic"]["learnt"]["lab"]}
    assert "ε = 1.5" in ledger["randomised labels"]
    assert "no more than ε = 1.5 allows" in ledger["gradients"]
    assert "tells of a label no more than ε = 1.5, as differential privacy counts it" in found["page"]
    assert "randomised-labels (epsilon 1.5)" in found["page"]
    assert found["lab"]["training"]["split"]["label_privacy"] is None
    assert "randomised" not in json.dumps(found["lab"])
    assert not [text for text in found["clinic"]["training"]["warnings"] if "changed nothing" in text]


def test_without_it_nothing_of_this_is_said(tmp_path: Path) -> None:
    found = simulated(tmp_path, defences=[])
    assert found["clinic"]["training"]["split"]["label_privacy"] is None
    assert "randomised" not in json.dumps(found["clinic"])
    assert "No defence changed the gradients" in found["page"]


def test_a_job_that_tells_figures_of_labels_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="share_with_passive"):
        simulated(tmp_path, defences=[{"name": "randomised-labels", "epsilon": 1}], also=", share_with_passive: true")
