"""Trials on one machine: a seed repeats them byte for byte, and nothing else ever takes one; predictions of all rows."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.node.nodes import FORKS, TrialNodes
from tests.node.several import make_several
from vfl_node.cli.shared import check_writable
from vfl_node.errors import StateError, UsageError
from vfl_node.execution.extras import Extras
from vfl_node.execution.folder import JobFolder
from vfl_node.execution.known_rows import check_predictable
from vfl_node.execution.private import trial_settings
from vfl_node.execution.simulation import simulate
from vfl_node.execution.trial import FILE, Trial, read_trial, write_trial
from vfl_node.metrics import classes as metrics
from vfl_node.node import federation
from vfl_node.node.federation import LocalFederation
from vfl_node.node.partners import Partner
from vfl_node.node.service import Node
from vfl_node.node.store import Store
from vfl_node.report.words import SEEDED
from vfl_node.settings.node import Settings

SPLIT = "train: {bottom: [8], active_bottom: [4], top: [8], epochs: 2, batch_size: 32}\nevaluate: {test_fraction: 0.3}"
LOGISTIC = "train: {algorithm: logistic, flow: two-party, iterations: 2, key_bits: 2048}\nevaluate: {test_fraction: 0.3}"


def outcome(folder: Path) -> tuple[bytes, ...]:
    """All that a seed repeats of what a run leaves: both halves, and the figures of the active party's report."""
    report = json.loads((folder / "report.json").read_text())
    figures = [report[key] for key in ("metrics", "local_metrics", "gains")]
    losses = [epoch["loss"] for epoch in report["training"]["epochs"]]
    halves = ((folder / name / "model.safetensors").read_bytes() for name in ("", "lab"))
    return (*halves, json.dumps([figures, losses]).encode())


# The seed.


def test_a_seed_repeats_a_run_in_whatever_processes_and_another_does_not(
    trial: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(federation, "subprocess", TrialNodes(context=FORKS))
    job = trial.job("align: {protocol: psu, dummies: 5}\n" + SPLIT.replace("}", ", missing: {calibration: none}}", 1))
    for name, seed in (("a", 7), ("again", 7), ("other", 8)):
        simulate(job, trial.files, tmp_path / name, extras=Extras(seed=seed, predictions=tmp_path / f"{name}.csv"))
    first = outcome(tmp_path / "a")
    assert outcome(tmp_path / "again") == first
    assert all(ours != theirs for ours, theirs in zip(outcome(tmp_path / "other"), first, strict=True))
    extras = Extras(seed=7, predictions=tmp_path / "processes.csv")
    with LocalFederation(job, trial_settings(job, trial.files), logs=tmp_path / "logs", extras=extras) as nodes:
        nodes.run(tmp_path / "processes", lambda _: None)
    assert outcome(tmp_path / "processes") == first
    assert (tmp_path / "processes.csv").read_bytes() == (tmp_path / "a.csv").read_bytes()
    assert (tmp_path / "other.csv").read_bytes() != (tmp_path / "a.csv").read_bytes()
    for party in ("", "lab"):
        folder = tmp_path / "processes" / party
        assert json.loads((folder / "report.json").read_text())["seeded"] is True
        assert SEEDED in (folder / "report.html").read_text()
        assert SEEDED in (tmp_path / "logs" / f"{party or 'clinic'}.log").read_text()


def test_without_a_seed_runs_differ_and_reports_do_not_speak_of_one(trial: Any, tmp_path: Path) -> None:
    for name in ("a", "b"):
        simulate(trial.job("align: {protocol: psi}\n" + SPLIT), trial.files, tmp_path / name)
        assert json.loads((tmp_path / name / "report.json").read_text())["seeded"] is False
        assert "--seed" not in (tmp_path / name / "report.html").read_text()
    assert outcome(tmp_path / "a") != outcome(tmp_path / "b")


def test_all_that_is_drawn_differs_between_parties_jobs_peers_and_seeds() -> None:
    trials = [Trial.from_number(number, party) for number in (0, 1) for party in ("clinic", "lab")]
    drawn = [
        bytes_ for of in trials for bytes_ in (of.seed, of.job_seed("a"), of.job_seed("b"), of.memory_secret("a"))
    ]  # fmt: skip
    assert len(set(drawn)) == len(drawn)
    assert {len(of) for of in drawn} == {32}
    assert trials[0] == Trial.from_number(0, "clinic")
    nothing = Trial.from_number(None, "clinic", keeps=True)
    assert nothing.job_seed("a") is nothing.memory_secret("lab") is nothing.job_id("a") is None
    assert "seed" not in repr(trials[0])


def test_no_setting_and_no_key_of_a_job_gives_a_seed(trial: Any) -> None:
    """The keys called seed salt the public schedule; a trial is no setting."""
    assert not {name for name in Settings.model_fields if "seed" in name or "trial" in name or "random" in name}
    for text in ("seed: 7", "trial: {seed: 7}", "evaluate: {seed: 7}", "align: {seed: 7}"):
        with pytest.raises(UsageError, match="unknown key"):
            trial.job(f"{text}\n")


def settings(folder: Path, **changes: Any) -> Settings:
    here: dict[str, Any] = {"name": "clinic", "role": "active", "insecure_loopback": True, "listen": "127.0.0.1:0"}
    return Settings.model_validate(here | {"state_dir": folder / "state"} | changes)


def test_a_node_of_a_trial_talks_with_its_own_machine_only(tmp_path: Path) -> None:
    assert read_trial(settings(tmp_path)) == Trial()
    asked = Trial.from_number(7, "clinic", keeps=True)
    write_trial(tmp_path / "state", asked)
    assert (tmp_path / "state" / FILE).stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    assert read_trial(settings(tmp_path)) == asked
    tls = {name: tmp_path / name for name in ("ca", "certificate", "key")}
    peers = {"lab": {"address": "lab.example:7443"}}
    for changes in ({"peers": peers}, {"listen": "0.0.0.0:7443"}):
        with pytest.raises(UsageError, match="talk with other machines") as caught:
            read_trial(settings(tmp_path, tls=tls, **changes))
        assert caught.value.code == "E_CONFIG"
        assert "secrets of a trial are not secret" in caught.value.hint
    with pytest.raises(UsageError, match="talk with other machines"):
        Node(settings(tmp_path, tls=tls, insecure_loopback=False, peers=peers).model_copy(update={"tls": None}))
    (tmp_path / "state" / FILE).write_bytes(b"{}")
    with pytest.raises(StateError, match="E_STATE_CORRUPT"):
        read_trial(settings(tmp_path))


def test_a_seeded_trial_runs_a_job_of_one_name_once(trial: Any, tmp_path: Path) -> None:
    asked = Trial.from_number(7, "clinic")
    store = Store(tmp_path / "s", asked)
    record = store.add(trial.job(), submitter="clinic")
    assert record.id == asked.job_id("trial")
    assert store.job_folder(record).seed() == asked.job_seed(record.id)
    with pytest.raises(UsageError, match="E_JOB_ENDED"):
        store.add(trial.job(), submitter="clinic")
    store.close()
    plain = Store(tmp_path / "plain")
    first, second = (plain.add(trial.job(), submitter="clinic") for _ in range(2))
    assert plain.job_folder(first).seed() != plain.job_folder(second).seed()
    plain.close()
    assert Partner(tmp_path / "p", "lab", asked.memory_secret("lab")).secret.bytes(8) == Partner(
        tmp_path / "q", "lab", asked.memory_secret("lab")
    ).secret.bytes(8)


def test_a_seed_that_a_job_has_stays(tmp_path: Path) -> None:
    """What a state folder says later changes no secret of a job that has begun."""
    before = JobFolder(tmp_path / "job").seed()
    assert JobFolder(tmp_path / "job", Trial.from_number(7, "clinic")).seed() == before


# Predictions of all rows.


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(
    ("text", "count"),
    [
        pytest.param("align: {protocol: psi}\n" + SPLIT, 120, marks=pytest.mark.slow),
        ("align: {protocol: psu}\n" + SPLIT.replace("}", ", missing: {calibration: test}}", 1), 160),
        ("align: {protocol: psu}\n" + SPLIT.replace("}", ", missing: {features: smoothed, calibration: train}}", 1), 160),
        ("align: {protocol: psi, at_most: 150}\n" + SPLIT, None),
        pytest.param("align: {protocol: apsi, obfuscation: {fraction: 1}}\n" + SPLIT, 120, marks=pytest.mark.slow),
        ("align: {protocol: apsi, obfuscation: {fraction: 1}}\n" + LOGISTIC, 120),
        pytest.param("align: {protocol: psi}\n" + LOGISTIC, 120, marks=pytest.mark.slow),
    ],
    ids=["intersection", "union", "calibrated in the loss", "a part", "asymmetric", "logistic, asymmetric", "logistic"],
)
def test_held_out_rows_are_predicted_as_they_were_measured(trial: Any, tmp_path: Path, text: str, count: int | None) -> None:
    out = tmp_path / "p.csv"
    simulate(trial.job(text), trial.files, tmp_path / "out", extras=Extras(predictions=out))
    found, report = rows_of(out), json.loads((tmp_path / "out" / "report.json").read_text())
    assert out.stat().st_mode & 0o777 == 0o600
    table = {row["id"]: row for row in rows_of(trial.clinic)}
    assert count is None or len(found) == count
    assert list(found[0]) == ["id", "rows", "label", "probability"]
    assert [row["id"] for row in found] == [id_ for id_ in table if id_ in {row["id"] for row in found}]
    assert all(row["label"] == table[row["id"]]["label"] for row in found)
    held_out = [row for row in found if row["rows"] == "held_out"]
    assert {row["rows"] for row in found} == {"held_out", "trained"}
    assert len(held_out) == report["metrics"]["rows"]
    labels, said = (np.array([float(row[name]) for row in held_out]) for name in ("label", "probability"))
    assert metrics.auc(labels, said) == pytest.approx(report["metrics"]["auc"], abs=1e-6)
    assert metrics.nll(labels, said) == pytest.approx(report["metrics"]["nll"], abs=1e-5)
    trained = [row for row in found if row["rows"] == "trained"]
    assert all(0 <= float(row["probability"]) <= 1 for row in trained)


@pytest.mark.parametrize(("protocol", "count"), [("psu", 120), pytest.param("psi", 100, marks=pytest.mark.slow)])
def test_held_out_rows_of_three_parties_are_predicted_as_they_were_measured(tmp_path: Path, protocol: str, count: int) -> None:
    several, out = make_several(tmp_path), tmp_path / "p.csv"
    job = several.job(f"align: {{protocol: {protocol}}}\n" + SPLIT, ("lab", "insurer"))
    simulate(job, {name: several.files[name] for name in job.parties.data}, tmp_path / "out", extras=Extras(predictions=out))
    found, report = rows_of(out), json.loads((tmp_path / "out" / "report.json").read_text())
    assert len(found) == count
    held_out = [row for row in found if row["rows"] == "held_out"]
    assert len(held_out) == report["metrics"]["rows"]
    labels, said = (np.array([float(row[name]) for row in held_out]) for name in ("label", "probability"))
    assert metrics.auc(labels, said) == pytest.approx(report["metrics"]["auc"], abs=1e-6)
    assert metrics.nll(labels, said) == pytest.approx(report["metrics"]["nll"], abs=1e-5)


def test_rows_that_chose_the_epoch_are_named_and_targets_are_spelled_as_the_table_has_them(trial: Any, tmp_path: Path) -> None:
    table = rows_of(trial.clinic)
    for number, row in enumerate(table):
        row["label"] = f"{number / 100 + 0.01:g}"
    clinic = tmp_path / "clinic.csv"
    clinic.write_text("\n".join(",".join(line) for line in [list(table[0]), *(list(row.values()) for row in table)]) + "\n")
    job = trial.job(
        "align: {protocol: psi}\ntrain: {task: regression, bottom: [8], active_bottom: [4], top: [8], epochs: 2}\n"
        "evaluate: {test_fraction: 0.3, validation_fraction: 0.2}"
    )
    simulate(job, trial.files | {"clinic": clinic}, tmp_path / "out", extras=Extras(seed=3, predictions=tmp_path / "p.csv"))
    found, report = rows_of(tmp_path / "p.csv"), json.loads((tmp_path / "out" / "report.json").read_text())
    assert list(found[0]) == ["id", "rows", "label", "prediction"]
    uses = [row["rows"] for row in found]
    rows = report["training"]["rows"]
    counts = {"held_out": rows["test"], "validated": rows["validation"], "trained": rows["training"]}
    assert {use: uses.count(use) for use in counts} == counts
    spelled = {row["id"]: row["label"] for row in table}
    assert all(row["label"] == spelled[row["id"]] for row in found)
    errors = [(float(row["label"]) - float(row["prediction"])) ** 2 for row in found if row["rows"] == "held_out"]
    assert np.sqrt(np.mean(errors)) == pytest.approx(report["metrics"]["rmse"], rel=1e-5)


def test_of_several_classes_each_has_a_column_and_without_held_out_rows_all_are_trained(trial: Any, tmp_path: Path) -> None:
    text = "align: {protocol: psi}\n" + SPLIT.replace("{bottom", "{classes: 3, bottom", 1).replace("0.3", "0")
    simulate(trial.job(text), trial.files, tmp_path / "out", extras=Extras(predictions=tmp_path / "p.csv"))
    found = rows_of(tmp_path / "p.csv")
    assert list(found[0]) == ["id", "rows", "label", "probability_0", "probability_1", "probability_2"]
    assert {row["rows"] for row in found} == {"trained"}
    assert all(abs(sum(float(row[f"probability_{k}"]) for k in range(3)) - 1) < 1e-6 for row in found)


def test_targets_of_a_regression_stand_beside_the_prediction_as_they_were_written(trial: Any, tmp_path: Path) -> None:
    clinic = tmp_path / "clinic.csv"
    table = [row | {"label": f"{140.27 + 0.01 * place:.2f}"} for place, row in enumerate(rows_of(trial.clinic))]
    with clinic.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(table[0]))
        writer.writeheader()
        writer.writerows(table)
    job = trial.job("align: {protocol: psi}\n" + SPLIT.replace("{bottom", "{task: regression, bottom", 1))
    simulate(job, trial.files | {"clinic": clinic}, tmp_path / "out", extras=Extras(predictions=tmp_path / "p.csv"))
    found, written = rows_of(tmp_path / "p.csv"), {row["id"]: float(row["label"]) for row in table}
    assert list(found[0]) == ["id", "rows", "label", "prediction"]
    assert all(float(row["label"]) == written[row["id"]] and len(row["label"]) <= 6 for row in found)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("align: {protocol: psi}", "this job only aligns"),
        (
            "align: {protocol: psi}\ntrain: {algorithm: logistic, flow: coordinator, loss: taylor, labels: passive}\n"
            "evaluate: {test_fraction: 0}",
            "the passive party has the labels",
        ),
    ],
)
def test_where_there_is_nothing_to_write_the_run_does_not_start(trial: Any, text: str, message: str) -> None:
    job = trial.job(text) if "logistic" not in text else parse_three(text)
    with pytest.raises(UsageError, match=message) as caught:
        check_predictable(job)
    assert "leave --predictions out" in caught.value.hint


def parse_three(text: str) -> Any:
    from vfl_node.configuration.models import parse
    from vfl_node.job import Job

    return parse(f"name: t\nparties: {{active: clinic, passive: lab, coordinator: notary}}\n{text}", Job, source="job")


def test_a_file_that_cannot_be_written_is_refused_before_the_run(tmp_path: Path) -> None:
    check_writable(tmp_path / "p.csv", "--predictions")
    for out, message in ((tmp_path, "is not a file"), (tmp_path / "nowhere" / "p.csv", "there is no folder")):
        with pytest.raises(UsageError, match=message) as caught:
            check_writable(out, "--predictions")
        assert caught.value.code == "E_FILE"
        assert "--predictions" in caught.value.hint


def test_a_run_keeps_no_half_of_the_model_unless_predictions_need_it(trial: Any, tmp_path: Path) -> None:
    assert not Trial().keeps
    simulate(trial.job("align: {protocol: psi}\n" + SPLIT), trial.files, tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "lab",
        "model.safetensors",
        "report.html",
        "report.json",
        "trace.json",
    }
