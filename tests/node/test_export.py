"""Two nodes train; each exports its own half beside the running node, and both files together say what the nodes predict."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
from typer.testing import CliRunner

from tests.export.needs import needs_onnx
from vfl_node.cli import app
from vfl_node.errors import PolicyError

JOB = """\
align: {protocol: psi}
train: {bottom: [8], active_bottom: [4], top: [8], epochs: 2, batch_size: 64, learning_rate: 0.01}
serve: {to: active}
"""


@needs_onnx
def test_halves_of_two_nodes(federation: Any, trial: Any, tmp_path: Path) -> None:
    tmp_path = tmp_path / "taken"
    federation.start_both()
    job_id = federation.submit(JOB)
    for name in ("clinic", "lab"):
        assert federation.end(name, job_id)["state"] == "done", federation.log(name)[-3000:]
    refused = CliRunner().invoke(app, export(federation, "lab", job_id, tmp_path))
    assert isinstance(refused.exception, PolicyError)
    for name in ("clinic", "lab"):
        federation.configure(name, everyone={"allow_export": True})
        done = CliRunner().invoke(app, export(federation, name, job_id, tmp_path))
        assert done.exit_code == 0, f"{done.output}{done.exception}"
        assert sorted(path.name for path in (tmp_path / name).iterdir()) == ["card.json", "card.md", f"{name}.onnx"]
    halves = [str(tmp_path / name / f"{name}.onnx") for name in ("clinic", "lab")]
    tables = [text for name in ("clinic", "lab") for text in ("--data", f"{name}={trial.files[name]}")]
    done = CliRunner().invoke(app, ["score", *halves, *tables, "--out", str(tmp_path / "scores.csv")])
    assert done.exit_code == 0, f"{done.output}{done.exception}"
    scored = {id_: float(said) for id_, said in read(tmp_path / "scores.csv") if said}
    asked = "id\n" + "".join(f"{id_}\n" for id_ in scored)
    (tmp_path / "answer.csv").write_bytes(federation.client("clinic").predict(job_id, asked.encode(), lambda: None))
    predicted = {id_: float(said) for id_, said in read(tmp_path / "answer.csv")}
    assert len(predicted) == len(scored) > 50
    np.testing.assert_allclose([scored[id_] for id_ in predicted], list(predicted.values()), rtol=0, atol=1e-6)


def export(federation: Any, name: str, job_id: str, target: Path) -> list[str]:
    return ["export", job_id, str(target / name), "--config", str(federation.folder / name / "node.yaml")]


def read(path: Path) -> list[list[str]]:
    with path.open(newline="") as file:
        return list(csv.reader(file))[1:]
