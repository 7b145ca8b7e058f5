"""Two nodes train; each exports its own half, or one of them gets both: both files together say what the nodes predict."""

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
JOINT = JOB + "export: {joint: active}\n"


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
    says_what_nodes_predict(federation, trial, job_id, tmp_path, [f"{name}/{name}.onnx" for name in ("clinic", "lab")])


@needs_onnx
def test_a_job_brings_both_halves_to_one_node_if_both_owners_allow_it(federation: Any, trial: Any, tmp_path: Path) -> None:
    tmp_path = tmp_path / "taken"
    federation.configure("clinic", everyone={"allow_joint_export": True})
    federation.start_both()
    refused = federation.submit(JOINT)
    view = federation.end("clinic", refused)
    assert view["state"] == "failed"
    assert view["error"]["code"] == "E_REFUSED"
    assert "lab" in view["error"]["message"]
    assert "its policy does not allow the job (kind)" in view["error"]["message"]
    assert "to clinic, which the policy of lab does not allow" in federation.log("lab")
    assert "allow_joint_export" in federation.log("lab")
    for name in ("clinic", "lab"):  # nothing was aligned, so nothing counts
        assert not (federation.job_folder(name, refused) / "alignment").exists()
    federation.kill("lab")
    federation.configure("lab", everyone={"allow_joint_export": True, "budgets": {"trainings": 1}})
    federation.start("lab")
    job_id = federation.submit(JOINT)
    for name in ("clinic", "lab"):
        assert federation.end(name, job_id)["state"] == "done", federation.log(name)[-3000:]
        learnt = federation.report(name, job_id)["learnt"]
        assert [entry["what"] for entry in learnt["clinic"]].count("half") == 1
    again = federation.submit(JOINT)  # halves that are handed over count, and a training over psi does not
    assert federation.end("lab", again)["error"]["code"] == "E_BUDGET"
    assert federation.end("clinic", federation.submit(JOB.replace("epochs: 2", "epochs: 1")))["state"] == "done"
    at_lab = CliRunner().invoke(app, export(federation, "lab", job_id, tmp_path))
    assert isinstance(at_lab.exception, PolicyError)  # it gets none, and allow_export is another word
    at_clinic = CliRunner().invoke(app, export(federation, "clinic", job_id, tmp_path))
    assert at_clinic.exit_code == 0, f"{at_clinic.output}{at_clinic.exception}"
    files = ["clinic/clinic.onnx", "clinic/lab/lab.onnx"]
    says_what_nodes_predict(federation, trial, job_id, tmp_path, files)
    federation.configure("lab", everyone={"allow_export": True})
    assert CliRunner().invoke(app, export(federation, "lab", job_id, tmp_path)).exit_code == 0
    assert (tmp_path / "lab" / "lab.onnx").read_bytes() == (tmp_path / files[1]).read_bytes()


def says_what_nodes_predict(federation: Any, trial: Any, job_id: str, folder: Path, files: list[str]) -> None:
    tables = [text for name in ("clinic", "lab") for text in ("--data", f"{name}={trial.files[name]}")]
    done = CliRunner().invoke(app, ["score", *(str(folder / name) for name in files), *tables, "--out", str(folder / "scores")])
    assert done.exit_code == 0, f"{done.output}{done.exception}"
    scored = {id_: float(said) for id_, said in read(folder / "scores") if said}
    asked = "id\n" + "".join(f"{id_}\n" for id_ in scored)
    (folder / "answer.csv").write_bytes(federation.client("clinic").predict(job_id, asked.encode(), lambda: None))
    predicted = {id_: float(said) for id_, said in read(folder / "answer.csv")}
    assert len(predicted) == len(scored) > 50
    np.testing.assert_allclose([scored[id_] for id_ in predicted], list(predicted.values()), rtol=0, atol=1e-6)


def export(federation: Any, name: str, job_id: str, target: Path) -> list[str]:
    return ["export", job_id, str(target / name), "--config", str(federation.folder / name / "node.yaml")]


def read(path: Path) -> list[list[str]]:
    with path.open(newline="") as file:
        return list(csv.reader(file))[1:]
