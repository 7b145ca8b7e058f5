"""A report as tools that track experiments take it, and what those tools read of it."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vfl_node import log_to_mlflow, log_to_tensorboard
from vfl_node.errors import UsageError
from vfl_node.report import sinks
from vfl_node.report.sinks import parse_sink
from vfl_node.report.tracked import LONGEST, read_run, track

SMALL = "align: {protocol: psi}\ntrain: {bottom: [4], active_bottom: [4], top: [4], epochs: 1}\n"
EPOCHS = [
    {"loss": 0.7, "auc": 0.6, "validation_loss": None, "validation_auc": None, "seconds": 0.5, "bytes": 100},
    {"loss": 0.5, "auc": None, "validation_loss": None, "validation_auc": None, "seconds": 0.25, "bytes": 100},
]
REPORT: dict[str, Any] = {
    "job": {"id": "trial-1a2b", "spec": {"align": {"protocol": "psi", "keys": None}, "train": {"top": [4], "epochs": 2}}},
    "party": "clinic",
    "role": "active",
    "started": "2026-03-01T10:00:00+00:00",
    "finished": "2026-03-01T10:01:00+00:00",
    "versions": {"vfl_node": "0.10.0"},
    "metrics": {"auc": 0.9, "ace": 0.1, "rows": 50, "f1": None, "intervals": {"auc": {"low": 0.85, "high": 0.95, "mean": 0.9}}},
    "local_metrics": {"auc": 0.8, "rows": 50, "intervals": None},
    "boosted_tree_metrics": None,
    "gains": {"auc": {"mean": 0.1, "low": 0.05, "high": 0.15}},
    "training": {"epochs": EPOCHS},
    "meters": {
        "labels": {"level": "high", "value": 0.97},
        "columns": {"level": "not_measured", "value": None},
        "membership": None,
    },
    "verdict": {"words": "Yes: better than clinic alone."},
}
METRICS = {
    "federated/auc": 0.9,
    "federated/auc_low": 0.85,
    "federated/auc_high": 0.95,
    "federated/ace": 0.1,
    "federated/rows": 50,
    "alone/auc": 0.8,
    "alone/rows": 50,
    "gain/auc": 0.1,
    "gain/auc_low": 0.05,
    "gain/auc_high": 0.15,
    "leak/labels": 0.97,
}
PARAMS = {"align.protocol": "psi", "train.top": "[4]", "train.epochs": "2"}
TAGS = {
    "party": "clinic",
    "role": "active",
    "vfl-node": "0.10.0",
    "verdict": "Yes: better than clinic alone.",
    "leak.labels": "high",
    "leak.columns": "not_measured",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a report."""
    path = tmp_path / "report"
    path.mkdir()
    (path / "report.json").write_text(json.dumps(REPORT))
    (path / "report.html").write_text("<!doctype html>")
    return path


def test_a_report_is_parameters_metrics_curves_and_tags(folder: Path) -> None:
    run = read_run(folder)
    assert (run.name, run.finished - run.started) == ("trial-1a2b", 60_000)
    assert (run.params, run.metrics, run.tags) == (PARAMS, METRICS, TAGS)
    curves = {"epoch/loss": [0.7, 0.5], "epoch/auc": [0.6, None], "epoch/seconds": [0.5, 0.25], "epoch/bytes": [100, 100]}
    assert run.curves == curves
    assert [path.name for path in run.files] == ["report.html", "report.json"]


def test_a_report_without_training_or_metrics_is_tracked_too() -> None:
    run = track(
        REPORT | {"training": None, "metrics": None, "local_metrics": None, "gains": None, "verdict": None, "meters": {}}
    )
    assert (run.metrics, run.curves, run.params) == ({}, {}, PARAMS)
    long = track(REPORT | {"job": {"id": "x", "spec": {"tables": ["t" * LONGEST]}}})
    assert len(long.params["tables"]) == LONGEST


def test_a_trial_is_tracked(trial: Any, tmp_path: Path) -> None:
    from vfl_node.execution.simulation import simulate

    simulate(trial.job(), trial.files, tmp_path / "out")
    run = read_run(tmp_path / "out")
    assert {"federated/auc", "alone/auc", "leak/labels"} <= run.metrics.keys()
    assert run.metrics["federated/auc_low"] <= run.metrics["federated/auc"] <= run.metrics["federated/auc_high"]
    assert len(run.curves["epoch/loss"]) == int(run.params["train.epochs"])
    assert run.tags["leak.labels"] in ("low", "some", "high")


def test_what_is_no_report_or_no_sink_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="there is no report in") as caught:
        log_to_mlflow(tmp_path, tmp_path / "runs")
    assert caught.value.code == "E_FILE"
    for option in ("mlflow", "mlflow=", "wandb=x", "=x"):
        with pytest.raises(UsageError, match="--sink is mlflow=URI"):
            parse_sink(option)
    monkeypatch.setattr(sinks, "find_spec", lambda name: None)
    for name in ("mlflow", "tensorboard"):
        with pytest.raises(UsageError, match=f"{name} is not installed") as caught:
            parse_sink(f"{name}=runs")
        assert (caught.value.code, caught.value.hint) == ("E_EXTENSION", f"pip install 'vfl-node[{name}]'")


def test_a_missing_library_is_said_from_python(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks, "find_spec", lambda name: None)
    for log in (log_to_mlflow, log_to_tensorboard):
        with pytest.raises(UsageError, match="is not installed"):
            log(folder, "runs")


def test_no_password_of_an_address_is_in_an_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise RuntimeError("cannot reach https://me:secret-word@example.org/api: refused\nmore secret-word")

    monkeypatch.setattr(sinks, "find_spec", lambda name: True)
    monkeypatch.setattr(sinks, "_write_to_mlflow", refuse)
    with pytest.raises(UsageError) as caught:
        log_to_mlflow(folder, "https://me:secret-word@example.org")
    assert caught.value.message == "MLflow did not take the run: cannot reach https://example.org/api: refused"
    assert caught.value.code == "E_SINK"


def test_mlflow_reads_what_was_logged(folder: Path, tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow", reason="pip install 'vfl-node[mlflow]'")
    store, half = tmp_path / "runs", tmp_path / "lab.onnx"
    half.write_bytes(b"a half")
    sinks.log_to_mlflow(folder, str(store), beside=[(half, "models/lab"), (half, "")])
    log_to_mlflow(folder, store, experiment="another")
    log_to_mlflow(folder, store)
    place = f"sqlite:///{store / 'mlflow.db'}"
    client = mlflow.MlflowClient(tracking_uri=place, registry_uri=place)
    numbers = {name: client.get_experiment_by_name(name).experiment_id for name in ("vfl-node", "another")}
    runs = client.search_runs([numbers["vfl-node"]])
    assert (len(runs), len(client.search_runs([numbers["another"]]))) == (2, 1)
    beside = min(runs, key=lambda run: len(client.list_artifacts(run.info.run_id, "models/lab")) == 0).info.run_id
    assert [item.path for item in client.list_artifacts(beside, "models/lab")] == ["models/lab/lab.onnx"]
    assert Path(client.download_artifacts(beside, "models/lab/lab.onnx", str(tmp_path))).read_bytes() == b"a half"
    (run,) = (run for run in runs if run.info.run_id != beside)
    assert (run.info.run_name, run.info.status) == ("trial-1a2b", "FINISHED")
    assert run.info.end_time - run.info.start_time == 60_000
    assert run.data.params == PARAMS
    assert {name: value for name, value in run.data.metrics.items() if not name.startswith("epoch/")} == METRICS
    assert TAGS.items() <= run.data.tags.items()
    history = client.get_metric_history(run.info.run_id, "epoch/loss")
    assert [(point.step, point.value) for point in history] == [(1, 0.7), (2, 0.5)]
    assert {item.path for item in client.list_artifacts(run.info.run_id)} == {"report.html", "report.json"}
    kept = Path(client.download_artifacts(run.info.run_id, "report.json", str(tmp_path)))
    assert json.loads(kept.read_text()) == REPORT


class _Client:
    """The part of MLflow's client that is used; it keeps what is logged."""

    logged: dict[str, Any] = {}

    def __init__(self, **_: str) -> None:
        self.logged.clear()

    def get_experiment_by_name(self, name: str) -> Any:
        return SimpleNamespace(experiment_id=name)

    def create_run(self, number: str, **_: Any) -> Any:
        return SimpleNamespace(info=SimpleNamespace(run_id=f"run of {number}"))

    def log_batch(self, run_id: str, **_: Any) -> None:
        assert run_id == "run of vfl-node"

    def log_artifact(self, run_id: str, path: str, place: str | None = None) -> None:
        self.logged[f"{place}/{Path(path).name}" if place else Path(path).name] = Path(path).read_bytes()

    def set_terminated(self, run_id: str, status: str = "FINISHED", **_: Any) -> None:
        assert status == "FINISHED"


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Artefacts that were logged to a client that stands for MLflow's, by their places."""
    entities = SimpleNamespace(**dict.fromkeys(("Metric", "Param", "RunTag"), lambda *_: None))
    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(MlflowClient=_Client, entities=entities))
    monkeypatch.setitem(sys.modules, "mlflow.entities", entities)
    monkeypatch.setattr(sinks, "find_spec", lambda name: True)
    return _Client.logged


def test_the_card_is_logged_and_the_halves_only_where_they_are_asked_for(
    trial: Any, tmp_path: Path, logged: dict[str, bytes]
) -> None:
    from vfl_node import run

    result = run(trial.job(SMALL), active=trial.files["clinic"], passive=trial.files["lab"], out=tmp_path / "out")
    log_to_mlflow(result, tmp_path / "runs")
    assert logged.keys() == {"report.html", "report.json", "card.json", "card.md"}
    card = json.loads(logged["card.json"])
    assert (card["party"], card["files"]) == ("clinic", {})
    assert card["metrics"]
    log_to_mlflow(result.folder, tmp_path / "runs")
    assert logged.keys() == {"report.html", "report.json", "card.json", "card.md"}
    pytest.importorskip("onnxruntime", reason="pip install 'vfl-node[onnx]'")
    log_to_mlflow(result, tmp_path / "runs", models=True)
    halves = {f"models/{party}/{name}" for party in ("clinic", "lab") for name in (f"{party}.onnx", "card.json", "card.md")}
    assert logged.keys() == {"report.html", "report.json", "card.json", "card.md"} | halves
    log_to_mlflow(result.folder / "lab", tmp_path / "runs", models=True)
    assert {name for name in logged if name.endswith(".onnx")} == {"models/lab/lab.onnx"}


def test_a_job_without_a_model_has_no_card(trial: Any, tmp_path: Path, logged: dict[str, bytes]) -> None:
    from vfl_node import run

    result = run(
        trial.job("align: {protocol: psi}\n"), active=trial.files["clinic"], passive=trial.files["lab"], out=tmp_path / "out"
    )
    log_to_mlflow(result, tmp_path / "runs", models=True)
    assert logged.keys() == {"report.html", "report.json"}


def test_a_store_that_mlflow_cannot_use_is_said(folder: Path) -> None:
    pytest.importorskip("mlflow", reason="pip install 'vfl-node[mlflow]'")
    with pytest.raises(UsageError, match="MLflow did not take the run"):
        log_to_mlflow(folder, "nonsense://me:word@nowhere")


def test_tensorboard_reads_what_was_logged(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="pip install 'vfl-node[tensorboard]'")
    reader = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")
    log_to_tensorboard(folder, tmp_path / "runs")
    events = reader.EventAccumulator(str(tmp_path / "runs" / "trial-1a2b"))
    events.Reload()
    scalars = {name: [(point.step, point.value) for point in events.Scalars(name)] for name in events.Tags()["scalars"]}
    assert {name for name in scalars if not name.startswith("epoch/")} == METRICS.keys()
    for name, value in METRICS.items():
        assert scalars[name] == [(0, pytest.approx(value))]
    assert scalars["epoch/loss"] == [(1, pytest.approx(0.7)), (2, 0.5)]
    text = events.Tensors("params/text_summary")[0].tensor_proto.string_val[0].decode()
    assert "train.epochs: 2" in text
    assert sys.modules.get("tensorflow") is None
