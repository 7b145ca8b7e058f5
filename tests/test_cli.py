"""A person's mistakes end in one clear message with a hint and the right status; nothing half-written stays."""

from __future__ import annotations

import errno
import io
import json
import shutil
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

import vfl_node
from tests.node.nodes import command
from vfl_node import cli
from vfl_node.cli import jobs as jobs_commands
from vfl_node.cli import predictions, shared
from vfl_node.cli import trial as trial_commands
from vfl_node.errors import StateError, UsageError, VflError
from vfl_node.execution.live import AT_REST
from vfl_node.node.partners import Partner
from vfl_node.settings.reading import load_settings
from vfl_node.transport.generated.vfl.v1.session_pb2 import LedgerHead

TRAIN = "train: {bottom: [4], active_bottom: [4], top: [4], epochs: 1}\n"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text("name: trial\nparties: {active: clinic, passive: lab}\n" + TRAIN)
    return path


def refused(result: subprocess.CompletedProcess[str], status: int, *said: str) -> None:
    assert result.returncode == status, result.stderr
    assert "Traceback" not in result.stderr
    for text in said:
        assert text in result.stderr, result.stderr


def test_version_and_help() -> None:
    assert command("--version").stdout.strip() == vfl_node.__version__
    shown = command("--help")
    assert shown.returncode == 0
    for name in ("init", "certify", "check", "run", "submit", "predict", "jobs", "watch", "cancel"):
        assert name in shown.stdout


def test_usage_mistakes(job: Path, trial: Any, tmp_path: Path) -> None:
    refused(command(), 2, "hint:")
    refused(command("frobnicate"), 2, "frobnicate")
    refused(command("--role", "active", "--config", tmp_path / "none.yaml"), 2, "cannot read", "none.yaml")
    refused(command("run", job, "--data", "clinic.csv", "--out", tmp_path / "o"), 2, "PARTY=FILE")
    refused(
        command("run", job, "--data", f"nobody={trial.lab}", "--out", tmp_path / "o"), 2, "no party of this job", "clinic, lab"
    )
    refused(
        command("run", job, "--data", f"active={trial.clinic}", "--out", tmp_path / "o"),
        2,
        "no table for lab",
        "--data lab=FILE.csv",
    )
    refused(command("run", job, "--data", "active=/none.csv", "--out", tmp_path / "o"), 2, "no file /none.csv")
    none = ["--settings", "active=/none.yaml", "--out", tmp_path / "o"]
    refused(command("run", job, *none), 2, "no file /none.yaml (settings of clinic)")
    own = tmp_path / "own.yaml"
    own.write_text("policy: {everyone: {min_own_rows: 5}}\nlisten: 127.0.0.1:0\n")
    refused(command("run", job, "--settings", f"active={own}", "--out", tmp_path / "o"), 2, "own.yaml:2:1: 'listen' cannot be")
    refused(command("submit", job), 2, "name the node", "--config")
    refused(command("submit", job, "--node", "127.0.0.1:9"), 2, "no node answers")
    job.write_text("name: trial\nparties: {active: a, passive: b}\ntrian: {}\n")
    refused(command("run", job, "--data", f"a={trial.clinic}", "--out", tmp_path / "o"), 2, "unknown key 'trian'", "'train'")
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("id,x,label\n1,1,0\n1,2,1\n", ["E_DUP_IDS", "hint"]),
        ("id,x,label\n,1,0\n2,2,1\n", ["bad.csv:2"]),
        ("id,x,label\n1,1,0\n2,2,2\n", ["E_LABEL", "bad.csv:3"]),
        ("id,x,label\n", ["E_EMPTY"]),
        ("id,x,label\n" + "".join(f"{i},{i},{i % 2}\n" for i in range(40)) + "99,oops,1\n", ["E_NUMERIC", "bad.csv:42", "x"]),
        ("id,x,lable\n1,1,0\n2,1,1\n", ["E_COLUMN", "lable"]),
        ("id,x,label\n1,1,0\n2,1\n", ["E_CSV", "bad.csv:3"]),
    ],
)
def test_bad_tables(job: Path, trial: Any, tmp_path: Path, text: str, said: list[str]) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text(text)
    out = tmp_path / "out"
    words = ["run", job, "--data", f"active={bad}", "--data", f"passive={trial.lab}", "--out", out, "--in-process"]
    refused(command(*words), 1, *said)
    assert not list(out.glob("**/report.json"))


def test_a_terminal_that_lacks_letters_gets_escapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "wide.csv"
    path.write_text("id,Größe 年龄\n" + "".join(f"A{row},{row}\n" for row in range(60)))
    shown = {name: io.TextIOWrapper(io.BytesIO(), encoding="latin-1") for name in ("stdout", "stderr")}
    monkeypatch.setattr(cli.node, "configure_logs", lambda: None)
    for name, stream in shown.items():
        monkeypatch.setattr(sys, name, stream)
    for words, status in ((["check", str(path)], 0), (["check", str(path), "--label-column", "疾病"], 1)):
        monkeypatch.setattr(sys, "argv", ["vfl-node", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert ended.value.code == status
    said = {name: stream.buffer.getvalue() for name, stream in shown.items() if stream.flush() is None}
    assert b"Gr\xf6\xdfe \\u5e74\\u9f84" in said["stdout"]
    assert b"there is no column '\\u75be\\u75c5'" in said["stderr"]


def test_run_with_an_own_network(job: Path, trial: Any, tmp_path: Path) -> None:
    job.write_text(job.read_text().replace("train: {", "train: {model: gated, "))
    words = ["run", job, "--data", f"clinic={trial.clinic}", "--data", f"lab={trial.lab}", "--out", tmp_path / "out"]
    refused(command(*words), 2, "E_EXTENSION", "a model 'gated'", "models: {gated: module:Class}")
    refused(command(*words, "--model", "gated"), 2, "is not NAME=MODULE:CLASS", "--model gated=mymodels:Gated")
    assert not (tmp_path / "out").exists()
    result = command(*words, "--model", "gated=tests.models.own_models:Gated")
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "out" / "lab" / "report.json").exists()


def test_run_with_two_processes_and_other_column_names(job: Path, trial: Any, tmp_path: Path) -> None:
    clinic = tmp_path / "clinic.csv"
    head, rest = trial.clinic.read_text().split("\n", 1)
    clinic.write_text(head.replace("id,", "patient,").replace("label", "ill") + "\n" + rest)
    lab = tmp_path / "lab.csv"
    lab.write_text(trial.lab.read_text().replace("id,", "patient,", 1))
    job.write_text(job.read_text() + "serve: {to: active}\n")
    own = tmp_path / "lab.yaml"
    own.write_text("data: {path: lab.csv, id: patient}\ndefences: [{name: noise, sigma: 0.25}]\n")
    words = ["--data", f"clinic={clinic}", "--settings", f"lab={own}", "--id-column", "patient", "--label-column", "ill"]
    more = ["--seed", "3", "--predictions", str(tmp_path / "predicted.csv")]
    result = command("run", job, *words, *more, "--out", tmp_path / "out")
    assert result.returncode == 0, result.stderr
    assert "union 200, intersection 120" in result.stdout
    assert "nothing is kept for predictions (serve)" in result.stdout
    assert "seed 3: All secrets of this run follow from a seed (vfl-node run --seed)" in result.stdout
    assert "boosted tree alone: auc 0." in result.stdout
    assert f"predictions: {tmp_path / 'predicted.csv'}" in result.stdout
    head, *lines = (tmp_path / "predicted.csv").read_text().splitlines()
    assert head == "patient,rows,label,probability"
    assert len(lines) == 160
    assert "training on the union: 160 rows per epoch" in result.stderr
    assert "the intersection would take 96 rows per epoch" in result.stderr
    for name in ("clinic", "lab"):
        log = (tmp_path / "out" / "logs" / f"{name}.log").read_text()
        assert "this job trains on the union: at least 128 rows per epoch" in log  # of its own 160 records
        assert "training on the union: 160 rows per epoch" in log
        assert len(log) < 60_000
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["party"] == "clinic"
    (defence,) = json.loads((tmp_path / "out" / "lab" / "report.json").read_text())["training"]["split"]["defences"]
    assert (defence["name"], defence["sigma"]) == ("noise", 0.25)
    assert json.loads((tmp_path / "out" / "lab" / "report.json").read_text())["party"] == "lab"
    for folder in (tmp_path / "out", tmp_path / "out" / "lab"):
        assert (folder / "model.safetensors").exists()
        assert (folder / "report.html").exists()
    first, *rest = result.stderr.splitlines()
    assert first == "starting clinic (active) and lab (passive) on this machine …"
    assert all(line.startswith("trial: ") and len(line) < 250 for line in rest)  # not on a terminal: a short line a change
    assert len(rest) < 40


@pytest.mark.parametrize(
    ("about", "end"),
    [
        ({"rows": 103, "population": "owned"}, " on 103 owned rows"),
        ({"rows": 103, "population": None}, " on 103 rows"),
        ({"rows": None, "population": None}, ""),
    ],
)
def test_a_run_says_of_its_metrics_what_the_report_knows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], about: dict[str, Any], end: str
) -> None:
    sizes = {"protocol": "psi", "ours": 5, "theirs": 6, "rows": 4, "union": 7, "intersection": 4, "warnings": ["Few records."]}
    metrics, training = {"auc": 0.8438} | about, {"warnings": ["Few [rows]."]}
    report = {"alignment": sizes, "training": training, "metrics": metrics, "local_metrics": None}
    (tmp_path / "report.json").write_text(json.dumps(report))
    trial_commands._summarise(tmp_path / "report.json", 1.0)
    lines = capsys.readouterr().out.splitlines()
    assert f"federated: auc 0.8438{end}" in lines
    assert lines[-4:-2] == ["warning: Few records.", "warning: Few [rows]."]
    (tmp_path / "lab").mkdir()
    own = {"alignment": {"warnings": ["Few records."]}, "training": {"warnings": ["These changed nothing: fbs."]}}
    (tmp_path / "lab" / "report.json").write_text(json.dumps(own))
    trial_commands._summarise(tmp_path / "report.json", 1.0, ["lab"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[-5:-2] == ["warning: Few records.", "warning: Few [rows].", "warning, lab: These changed nothing: fbs."]


def test_a_run_says_both_models_of_the_active_party_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = {"protocol": "psi", "ours": 5, "theirs": 6, "rows": 4, "union": 7, "intersection": 4, "warnings": []}
    models = {
        name: {"auc": auc, "rows": 9, "population": "owned"}
        for name, auc in (("metrics", 0.9), ("local_metrics", 0.8), ("local_aligned_metrics", 0.7))
    }
    (tmp_path / "report.json").write_text(json.dumps({"alignment": sizes, "training": {"warnings": []}, **models}))
    trial_commands._summarise(tmp_path / "report.json", 1.0)
    assert capsys.readouterr().out.splitlines()[1:4] == [
        "federated: auc 0.9000 on 9 owned rows",
        "active party alone: auc 0.8000 on 9 owned rows",
        "active party alone, aligned rows: auc 0.7000 on 9 owned rows",
    ]


def test_a_run_ends_with_its_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    leaks = {
        "labels": {"level": "high", "words": "lab can read labels.", "evidence": "x", "advice": "Train hidden."},
        "columns": {"level": "not_measured", "words": "Nobody knows.", "evidence": "x", "advice": None},
    }
    verdict = {"helped": "yes", "words": "Yes: better.", "leaks": leaks}
    (tmp_path / "report.json").write_text(json.dumps({"alignment": None, "training": {"warnings": []}, "verdict": verdict}))
    trial_commands._summarise(tmp_path / "report.json", 1.0)
    *said, done, hint = capsys.readouterr().out.splitlines()
    assert said == ["Yes: better.", "high: lab can read labels. Train hidden.", "not measured: Nobody knows."]
    assert done.startswith("done in 1 s; report: ")
    assert hint.endswith(": vfl-node plan")


def test_a_run_says_the_sizes_of_several_sets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = {"protocol": "psu", "ours": 5, "theirs": {"lab": 6, "bank": None}, "rows": 9, "union": 9, "intersection": None}
    report = {"alignment": sizes | {"warnings": []}, "training": None, "metrics": None, "local_metrics": None}
    (tmp_path / "report.json").write_text(json.dumps(report))
    trial_commands._summarise(tmp_path / "report.json", 1.0)
    said = "aligned by PSU: ours 5, theirs (lab 6, bank hidden), rows 9, union 9, intersection hidden"
    assert said in capsys.readouterr().out.splitlines()


def test_a_run_for_a_program_ends_with_a_line_of_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    training, about = {"warnings": ["Few rows."]}, {"rows": 9, "population": "owned"}
    report = {"alignment": {"warnings": []}, "training": training, "metrics": {"auc": 0.9} | about, "local_metrics": None}
    (tmp_path / "report.json").write_text(json.dumps(report))
    trial_commands._print_outcome(tmp_path / "report.json", 1.26)
    assert json.loads(capsys.readouterr().out) == {
        "state": "done",
        "took_s": 1.3,
        "verdict": None,
        "metrics": {"federated": {"auc": 0.9}},
        "warnings": ["Few rows."],
        "report_path": str(tmp_path / "report.html"),
    }


@pytest.mark.parametrize(("option", "ending"), [("--data", "csv"), ("--settings", "yaml")])
def test_of_several_passive_parties_each_is_named(tmp_path: Path, option: str, ending: str) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("name: t\nparties: {active: clinic, passive: [lab, insurer]}\nalign: {protocol: psi}\n")
    said = command("run", job, option, "passive=x", "--out", tmp_path / "out")
    refused(
        said, 2, "'passive', and this job has 2 passive parties", f"{option} lab=lab.{ending} {option} insurer=insurer.{ending}"
    )


def test_a_run_says_errors_in_the_targets_unit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = {"protocol": "psi", "ours": 5, "theirs": 6, "rows": 4, "union": 7, "intersection": 4, "warnings": []}
    intervals = {"rmse": {"low": 11234.5, "high": 13001.0}, "r2": {"low": -0.1, "high": 0.3}}
    metrics = {"rmse": 12345.6789, "mae": 0.000123456, "r2": 0.1, "rows": 9, "population": None, "intervals": intervals}
    report = {"alignment": sizes, "training": {"warnings": []}, "metrics": metrics, "local_metrics": None}
    (tmp_path / "report.json").write_text(json.dumps(report))
    trial_commands._summarise(tmp_path / "report.json", 1.0)
    said = "federated: rmse 12,346 [11,234 to 13,001], mae 0.0001235, r2 0.1000 [-0.100, 0.300] on 9 rows"
    assert said in capsys.readouterr().out.splitlines()


def test_a_link_planted_where_a_run_or_predictions_go_is_not_followed(job: Path, trial: Any, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "elsewhere")
    data = ["--data", f"active={trial.clinic}", "--data", f"passive={trial.lab}"]
    refused(command("run", job, *data, "--out", tmp_path / "out"), 2, "E_FILE", "no symbolic link")
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_failing_run_names_the_party_and_leaves_no_process(
    job: Path, trial: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # where the nodes' folders lie, and so part of their command lines
    bad = tmp_path / "bad.csv"
    bad.write_text("id,x\n1,1\n1,2\n")
    data = ["--data", f"active={trial.clinic}", "--data", f"passive={bad}"]
    result = command("run", job, *data, "--out", tmp_path / "out", real_nodes=True)
    refused(result, 1, "lab", "E_DUP_IDS", "hint:")
    left = subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True, text=True)
    assert left.stdout == ""
    assert not list(tmp_path.glob("vfl-federation-*"))  # keys and seeds


def test_a_run_whose_nodes_do_not_start_says_why(
    job: Path, trial: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VFL_KERNEL", "abacus")
    data = ["--data", f"active={trial.clinic}", "--data", f"passive={trial.lab}"]
    result = command("run", job, *data, "--out", tmp_path / "out", real_nodes=True)
    refused(result, 2, "did not start: VFL_KERNEL is 'abacus'", "E_CONFIG", "hint: unset VFL_KERNEL")


THREE = """\
name: trial
parties: {active: clinic, passive: lab, coordinator: notary}
align: {protocol: psi}
train: {algorithm: logistic, flow: coordinator-open-scores, iterations: 2, key_bits: 2048}
evaluate: {test_fraction: 0.3}
"""


def test_run_with_a_coordinator(job: Path, trial: Any, tmp_path: Path) -> None:
    job.write_text(THREE)
    lab = trial.few_columns(tmp_path / "lab.csv")
    data = ["--data", f"active={trial.clinic}", "--data", f"passive={lab}"]
    for party in ("coordinator", "notary"):
        given = [*data, "--data", f"{party}={lab}"]
        refused(
            command("run", job, *given, "--out", tmp_path / "out"), 2, "notary is the job's coordinator", "no data", "hint:"
        )
    result = command("run", job, *data, "--out", tmp_path / "out")
    assert result.returncode == 0, result.stderr
    assert "kept for predictions" not in result.stdout
    for name in ("clinic", "lab", "notary"):
        folder = tmp_path / "out" / ("" if name == "clinic" else name)
        assert json.loads((folder / "report.json").read_text())["party"] == name
        assert (folder / "report.html").exists()
        assert (folder / "model.safetensors").exists() == (name != "notary")
        assert (tmp_path / "out" / "logs" / f"{name}.log").exists()


def test_a_coordinators_configuration_is_written_and_has_nothing_to_estimate(job: Path, tmp_path: Path) -> None:
    assert command("init", "notary", "--role", "coordinator", tmp_path / "notary").returncode == 0
    config = tmp_path / "notary" / "node.yaml"
    text = config.read_text()
    assert "role: coordinator" in text
    assert "data:" not in text
    assert "label" not in text
    refused(command("--role", "active", "--config", config), 2, "says role: coordinator")
    refused(command("estimate", job, "--config", config), 2, "this one is a coordinator", "hint:")


def test_init_makes_a_party_its_own_authority(tmp_path: Path) -> None:
    folder = tmp_path / "clinic"
    done = command("init", "clinic", "--role", "active", folder)
    assert (done.returncode, "pair: vfl-node invite" in done.stdout) == (0, True), done.stderr
    modes = {path.name: path.stat().st_mode & 0o777 for path in (folder / "keys").iterdir()}
    assert {name for name, mode in modes.items() if mode == 0o600} == {"authority.key", "node.key", "signing.key"}
    assert modes.keys() == {"authority.key", "authority.crt", "node.key", "node.crt", "signing.key", "card.json"}
    assert load_settings(folder / "node.yaml").pairs
    refused(command("init", "clinic", "--role", "active", folder), 2, "exists already")
    refused(command("init", "clinic", "--role", "active", "--shared", "--outside", tmp_path / "x"), 2, "exclude each other")
    shown = command("card", "--config", folder / "node.yaml").stdout
    assert "party:       clinic of federation trial" in shown
    refused(command("invite", "--config", folder / "node.yaml"), 2, "not running", "E_NOT_RUNNING")
    refused(command("join", "127.0.0.1:1/none", "--config", folder / "node.yaml"), 2, "no code of an invite", "E_INVITE")
    refused(command("join", "0000-0000", "--config", folder / "node.yaml"), 2, "the address is missing", "E_INVITE")
    refused(command("join", "127.0.0.1:1/0000-0000", "--config", folder / "node.yaml"), 1, "no node answers", "E_UNREACHABLE")
    refused(command("confirm", "lab", "--config", folder / "node.yaml"), 2, "has met no lab", "E_INVITE")
    refused(command("revoke", "lab", "--config", folder / "node.yaml"), 2, "not paired with lab", "E_UNKNOWN_PEER")


def test_init_for_an_authority_outside_leaves_a_request(tmp_path: Path) -> None:
    assert command("init", "clinic", "--role", "active", "--outside", tmp_path / "clinic").returncode == 0
    assert {path.name for path in (tmp_path / "clinic" / "keys").iterdir()} == {"node.key", "node.csr", "signing.key"}
    refused(command("renew", "--config", tmp_path / "clinic" / "node.yaml"), 2, "not its own", "E_CONFIG")


def test_init_and_certify(tmp_path: Path) -> None:
    assert command("init", "clinic", "--role", "active", "--shared", tmp_path / "clinic").returncode == 0
    assert (tmp_path / "clinic" / "node.key").stat().st_mode & 0o777 == 0o600
    refused(command("init", "clinic", "--role", "active", "--shared", tmp_path / "clinic"), 2, "exists already")
    refused(command("init", "../x", "--role", "active", tmp_path / "x"), 2, "cannot be a party's name")
    refused(command("certify", tmp_path / "none", "--authority", tmp_path / "ca"), 2, "vfl-node init")
    said = command("certify", tmp_path / "clinic", "--authority", tmp_path / "ca").stdout.splitlines()
    for line, (path, what) in zip(
        said,
        {
            "ca/ca.crt": "vfl-node authority of federation trial, valid until 20",
            "ca/ca.key": "its key: whoever has it can pose as every party",
            "clinic/node.crt": "clinic of federation trial, valid until 20",
            "clinic/ca.crt": "a copy of the authority's certificate",
        }.items(),
        strict=True,
    ):
        assert line.startswith(f"wrote {tmp_path / path}: {what}")
        assert (tmp_path / path).exists()
    refused(command("--role", "passive", "--config", tmp_path / "clinic" / "node.yaml"), 2, "says role: active")


@pytest.mark.parametrize(
    ("name", "role", "other"),
    [("clinic", "active", "--passive"), pytest.param("lab", "passive", "--active", marks=pytest.mark.slow)],
)
def test_an_estimate_counts_the_records_of_the_nodes_own_table(
    job: Path, trial: Any, tmp_path: Path, name: str, role: str, other: str
) -> None:
    from vfl_node.node.setup import init

    init(name, role, tmp_path / name)  # type: ignore[arg-type]
    shutil.copy(trial.files[name], tmp_path / name / f"{name}.csv")
    words = ["estimate", str(job), "--config", str(tmp_path / name / "node.yaml"), other, "1000", "--json"]
    records = json.loads(CliRunner().invoke(cli.app, words).stdout)["records"]
    assert records == {"active": 1000, "passive": 1000} | {role: 160}


def test_nodes_of_one_machine_get_different_ports(tmp_path: Path) -> None:
    from vfl_node.node.setup import OF_ROLE, init

    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "node.yaml").write_text("not: [ours\n")
    _, first, http, _ = OF_ROLE["passive"]
    with socket.socket() as used:
        used.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):  # somebody else's on this machine: all the same
            used.bind(("0.0.0.0", first))
            used.listen()
        for name in ("lab", "insurer", "bank"):
            init(name, "passive", tmp_path / name)
    settings = [load_settings(tmp_path / name / "node.yaml") for name in ("lab", "insurer", "bank")]
    ports = [int(str(address).rpartition(":")[2]) for of in settings for address in (of.listen, of.http)]
    assert len(set(ports)) == 6
    assert first not in ports
    assert all(port >= min(first, http) for port in ports)


def test_mistakes_in_predictions(job: Path, trial: Any, tmp_path: Path) -> None:
    assert command("init", "clinic", "--role", "active", tmp_path / "clinic").returncode == 0
    config = ("--config", tmp_path / "clinic" / "node.yaml")
    out = ("--out", tmp_path / "p.csv")
    refused(
        command("predict", "trial-1", "--data", tmp_path / "none.csv", *out, *config), 2, "cannot read", "none.csv", "E_FILE"
    )
    nowhere = ("--out", tmp_path / "none" / "p.csv")
    refused(command("predict", "trial-1", "--data", trial.clinic, *nowhere, *config), 2, "no folder", "hint:")
    for name, said in ((tmp_path / "clinic", "is not a file"), ("/proc/p.csv", "cannot write")):  # said before the work
        refused(command("predict", "trial-1", "--data", trial.clinic, "--out", name, *config), 2, said, "E_FILE", "hint:")
    refused(command("predict", "trial-1", "--data", trial.clinic, *out, *config), 2, "not running", "E_NOT_RUNNING")
    job.write_text(job.read_text().replace(TRAIN, "predict: {model: trial-1, to: active}\n"))
    data = ["--data", f"active={trial.clinic}", "--data", f"passive={trial.lab}"]
    refused(command("run", job, *data, "--out", tmp_path / "out"), 2, "a job that predicts", "vfl-node predict")
    assert not (tmp_path / "p.csv").exists()


TABLE = "id,age,ward,label\n" + "".join(f"Canary {row},{row},w{row % 3},{row % 2}\n" for row in range(60))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "patients.csv"
    path.write_text(TABLE)
    return path


def test_check_of_a_file(table: Path) -> None:
    seen = command("check", table)
    assert (seen.returncode, seen.stderr) == (0, "")
    for line in (
        f"{table}: csv, 60 rows, 4 columns",
        "labels in label: 0: 30, 1: 30; rate of 1: 0.5",
        "ids in id: 60 rows",
        "  as integer: 60 unusable, 0 that repeat an earlier one",
        "  0 integers, 60 with capitals, 0 with leading zeros, 60 with white space inside, 0 with invisible characters",
    ):
        assert line in seen.stdout.splitlines()
    lines = [line.split() for line in seen.stdout.splitlines()]
    assert ["ward", "categorical", "0", "3", "by", "its", "values"] in lines
    assert ["age", "numeric", "0", "60", "by", "its", "values"] in lines
    head = command("check", table, "--rows", "55")
    assert (head.returncode, head.stdout.splitlines()[0]) == (0, f"{table}: csv, the first 55 rows, 4 columns")
    for said in (seen, head):
        assert "Canary" not in said.stdout


def test_check_names_every_error_and_shows_no_cell(table: Path) -> None:
    table.write_text(TABLE + "Canary 1,canary,w1,canary\n")
    wrong = command("check", table, "--rows", "61")
    refused(
        wrong, 1, "62:id: 1 duplicate ids (lines 3 and 62)", "[E_DUP_IDS]", "62:label: the label is", "[E_NUMERIC]", "hint:"
    )
    assert "cannot be read: E_NUMERIC" in wrong.stdout
    assert "0: 30, 1: 30; something else: 1" in wrong.stdout
    assert "canary" not in (wrong.stdout + wrong.stderr).lower()
    refused(command("check", table, "--id-column", "patient"), 1, "there is no column 'patient'", "[E_COLUMN]", "columns: id,")
    table.write_text("canary-1,3\ncanary-2,4\n")  # the first line is a record
    for shown in (command("check", table), command("check", table, "--json")):
        refused(shown, 1, "[E_COLUMN]")
        assert "canary" not in shown.stdout + shown.stderr
    refused(command("check", "none.csv"), 1, "none.csv: cannot be read", "[E_FILE]")
    refused(command("check"), 2, "name a table", "--config FILE")


def test_check_for_a_job(table: Path, job: Path, tmp_path: Path) -> None:
    seen = command("check", table, "--job", job)
    assert (seen.returncode, seen.stderr) == (0, "")
    for line in (
        "job trial, here the active party: aligns 60 records by psu, ids as text",
        "  the fewest that this node allows: 50 (min_own_rows in the policy)",
        "  trains on 2 columns: age, ward",
        "  labels: label, 2 classes",
    ):
        assert line in seen.stdout.splitlines()
    job.write_text(job.read_text() + "align: {id_form: integer, at_most: 20}\n")
    refused(command("check", table, "--job", job), 1, "clinic: ", "2:id: the identifier is not an integer", "[E_TOO_FEW]")
    passive = command("check", table, "--job", job, "--party", "lab")
    refused(passive, 1, "lab: ", "[E_ID]")
    assert "here the passive party" in passive.stdout
    assert "trains on 2 columns: age, ward\n" in passive.stdout
    refused(command("check", table, "--job", job, "--party", "nobody"), 2, "not one party with data", "clinic or lab")
    unlabelled = table.with_name("lab.csv")
    unlabelled.write_text(TABLE.replace("label", "x"))
    assert "here the passive party" in command("check", unlabelled, "--job", job).stdout


def test_check_of_labels_by_name(table: Path) -> None:
    rows = [f"r{row},{row % 7},{'malignant' if row % 3 else 'benign'},code-{row % 3}\n" for row in range(300)]
    table.write_text("id,age,diagnosis,billing\n" + "".join(rows))
    seen = command("check", table, "--label-column", "diagnosis")
    assert (seen.returncode, seen.stderr) == (0, "")
    for line in (
        "labels in diagnosis: benign: 100, malignant: 200; rate of malignant: 0.6667",
        "  2 classes by name; positive is the last in order, set data.label.positive to choose",
        "warning: The labels are 2 classes by name, and the positive one is the last in their order. To choose the other one "
        "set data.label.positive.",
    ):
        assert line in seen.stdout.splitlines()
    assert (
        "warning: Column 'billing' alone predicts the label almost perfectly (AUC 1.0000 on 300 of your records)" in seen.stdout
    )
    chosen = command("check", table, "--label-column", "diagnosis=benign", "--json")
    told = json.loads(chosen.stdout)
    assert told["table"]["label"]["classes"] == ["malignant", "benign"]
    assert (told["table"]["label"]["counts"], told["table"]["label"]["positive_assumed"]) == ({"0": 200, "1": 100}, False)
    (leak, rare) = told["warnings"]
    assert "'billing'" in leak
    assert "About 20 of 60 rows measured on are positive" in rare
    other = command("check", table, "--label-column", "diagnosis=healthy")
    refused(other, 1, "no label in column 'diagnosis' is the positive one that the settings name", "[E_LABEL]")
    refused(command("check", table, "--label-column", "diagnosis="), 2, "neither COLUMN nor COLUMN=POSITIVE")


def test_check_of_a_configured_table(table: Path, job: Path, tmp_path: Path) -> None:
    assert command("init", "clinic", "--role", "active", tmp_path / "clinic").returncode == 0
    config = tmp_path / "clinic" / "node.yaml"
    refused(command("check", "--config", config), 1, "clinic.csv: cannot be read", "[E_FILE]")
    config.write_text(
        config.read_text().replace("path: clinic.csv", "path: ../patients.csv\n  columns: {ward: ignore, age: categorical}")
    )
    seen = command("check", "--config", config, "--json")
    assert seen.returncode == 0, seen.stderr
    told = json.loads(seen.stdout)
    assert (told["format"], told["errors"], told["job"]) == ("csv", [], None)
    shown = {column["name"]: (column["use"], column["declared"], column["missing"]) for column in told["table"]["columns"]}
    assert shown["ward"] == ("ignored", True, None)
    assert shown["age"] == ("categorical", True, 0)
    assert told["table"]["label"] == {
        "column": "label",
        "counts": {"0": 30, "1": 30},
        "other": 0,
        "rate": 0.5,
        "classes": [],
        "positive_assumed": False,
    }
    trained, measured, positives = told["warnings"]
    assert "about 48 labelled rows to train on" in trained
    assert "About 12 labelled rows are held out" in measured
    assert "About 6 of 12 rows measured on are positive" in positives
    assert told["table"]["ids"]["forms"]["integer"] == {"unusable": 60, "repeated": 0}
    with_job = command("check", "--config", config, "--job", job, "--json")
    refused(with_job, 1, "'lab', which is not among this node's peers", "[E_UNKNOWN_PEER]")
    told = json.loads(with_job.stdout)
    assert told["job"]["features"] == ["age"]
    assert [error["code"] for error in told["errors"]] == ["E_UNKNOWN_PEER"]
    other = table.with_name("other.csv")
    other.write_text(TABLE.replace("ward,", "site,"))
    refused(command("check", other, "--config", config), 1, "there is no column 'ward' (data.columns)", "other.csv")
    assert command("init", "notary", "--role", "coordinator", tmp_path / "notary").returncode == 0
    refused(command("check", "--config", tmp_path / "notary" / "node.yaml"), 2, "a coordinator has no data to check")


def test_check_of_several_tables(table: Path, job: Path, tmp_path: Path) -> None:
    config = tmp_path / "node.yaml"
    tables = (
        "data: {patients: {path: patients.csv}, visits: {path: visits.csv, label: ill}}\npolicy: {everyone: {tables: any}}\n"
    )
    config.write_text(
        f"name: clinic\nrole: active\ninsecure_loopback: true\nlisten: 127.0.0.1:0\npeers: {{lab: {{}}}}\n{tables}"
    )
    both = command("check", "--config", config, "--json")
    refused(both, 1, "table visits\nerror: clinic: ", "visits.csv: cannot be read", "[E_FILE]")
    assert {name: bool(told["errors"]) for name, told in json.loads(both.stdout)["tables"].items()} == {
        "patients": False,
        "visits": True,
    }
    (tmp_path / "visits.csv").write_text(TABLE.replace("label", "ill"))
    seen = command("check", "--config", config)
    assert (seen.returncode, seen.stderr) == (0, "")
    assert [line for line in seen.stdout.splitlines() if line.startswith(("table ", "labels "))] == [
        "table patients",
        "labels in label: 0: 30, 1: 30; rate of 1: 0.5",
        "table visits",
        "labels in ill: 0: 30, 1: 30; rate of 1: 0.5",
    ]
    one = command("check", "--config", config, "--table", "visits", "--json")
    assert json.loads(one.stdout)["path"].endswith("visits.csv")
    refused(command("check", "--config", config, "--table", "visit"), 2, "no table 'visit'", "its tables: patients, visits")
    refused(command("check", table, "--config", config), 2, "several tables", "--table patients or visits")
    copy = shutil.copy(table, tmp_path / "copy.csv")
    replaced = command("check", copy, "--config", config, "--table", "visits")
    refused(replaced, 1, "there is no column 'ill' (data.label)")
    refused(command("check", "--config", config, "--job", job), 1, "[E_TABLE]", "patients, visits")
    job.write_text(job.read_text() + "tables: {clinic: visits}\n")
    assert "labels: ill, 2 classes" in command("check", "--config", config, "--job", job).stdout


METRICS = {"metrics": 0.9, "local_metrics": 0.8}


class FakeNode:
    """What the command line asks of a node."""

    def __init__(self, views: list[dict[str, Any]], error: Exception | None = None) -> None:
        self.views = views
        self.error = error

    def jobs(self) -> list[dict[str, Any]]:
        return self.views

    def job(self, job_id: str) -> dict[str, Any]:
        return {"id": job_id}

    def submit(self, job_yaml: str, priority: int = 0) -> dict[str, Any]:
        self.priority = priority
        return self.views[0]

    def drain(self, *, on: bool) -> None:
        self.draining = on

    def health(self) -> dict[str, Any]:
        self.busy = max(0, getattr(self, "busy", 2) - 1)
        return {"places": {"busy": self.busy}}

    def watch(self, job_id: str) -> list[dict[str, Any]]:
        return self.views

    def report(self, job_id: str) -> dict[str, Any]:
        sizes = {"protocol": "psi", "ours": 5, "theirs": 6, "rows": 4, "union": 7, "intersection": 4, "warnings": ["Few."]}
        models = {name: {"auc": auc, "rows": 9, "population": None} for name, auc in METRICS.items()}
        return {"alignment": sizes, "training": None, **models}

    def report_path(self, job_id: str) -> Path:
        return Path("/state/jobs", job_id, "artefacts/report.html")

    def link(self, path: str, *, board: str) -> str:
        return f"http://127.0.0.1:8080{path}"

    def predict(self, model: str, request: bytes, waiting: Any) -> bytes:
        waiting()
        return b"id,probability\na,0.5\n"

    def predict_new(self, model: str, request: bytes) -> dict[str, Any]:
        assert self.error
        raise self.error


@pytest.fixture
def with_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a command at a node of these views, in this process; what it writes goes to no terminal of 80 columns."""
    from vfl_node.node.setup import init

    init("clinic", "active", tmp_path / "clinic", federation="trial")
    (tmp_path / "ids.csv").write_text("id\na\n")
    monkeypatch.setenv("COLUMNS", "80")

    def run(node: FakeNode, *words: str | Path) -> Result:
        for module in (shared, predictions):
            monkeypatch.setattr(module, "client_of", lambda settings: node)
        return CliRunner().invoke(cli.app, [*map(str, words), "--config", str(tmp_path / "clinic" / "node.yaml")])

    return run


def view(job_id: str, state: str, **changes: Any) -> dict[str, Any]:
    made = {"id": job_id, "state": state, "parties": ["clinic", "laboratory-of-the-north"], "submitted": "2025-01-01T00:00:00Z"}
    end = {"took_s": None, "error": None, "report": False, "metrics": {}, "resumable": False}
    return AT_REST | made | end | changes


def test_a_program_that_lists_jobs_gets_whole_ids(with_node: Any) -> None:
    names = [f"{'a-study-with-a-long-name-':a<55}-{number:07d}" for number in range(3)]
    result = with_node(FakeNode([view(name, "running", phase="train", done=100000, total=200000) for name in names]), "jobs")
    assert result.exit_code == 0
    head, *lines = [line.split() for line in result.stdout.splitlines()]
    assert head == ["job", "state", "phase", "with", "submitted", "took", "result"]
    rest = ["running", "train", "100000/200000", "clinic,", "laboratory-of-the-north", "2025-01-01T00:00:00Z"]
    assert lines == [[name, *rest] for name in names]
    assert all(line == line.rstrip() for line in result.stdout.splitlines())


DONE = {"took_s": 75.0, "report": True, "metrics": {"federated": {"auc": 0.97784}, "alone": {"auc": 0.896}}}
FAILED = {"took_s": 3.0, "error": {"code": "E_TOO_FEW", "message": "too few [records]", "hint": "more of them"}}


@pytest.mark.parametrize(
    ("health", "code", "said"),
    [
        ({"party": "clinic", "version": "0.9.0", "places": {}}, "E_VERSION", "clinic runs vfl-node 0.9.0, an earlier release"),
        ({"status": "ok"}, "E_FORBIDDEN", "--token-file"),
    ],
)
def test_a_node_that_does_not_tell_its_services_is_named(
    with_node: Any, monkeypatch: pytest.MonkeyPatch, health: dict[str, Any], code: str, said: str
) -> None:
    monkeypatch.setattr(FakeNode, "health", lambda _: health)
    error = with_node(FakeNode([]), "services").exception
    assert isinstance(error, UsageError)
    assert error.code == code
    assert said in f"{error.message} {error.hint}"


def test_a_list_of_jobs_says_what_came_of_each(with_node: Any) -> None:
    views = [view("new", "running"), view("good", "done", **DONE), view("bad", "failed", **FAILED)]
    _, new, good, bad, where = with_node(FakeNode(views), "jobs").stdout.splitlines()
    assert new.rstrip().endswith("00Z")
    assert good.split("00Z")[1].split() == ["75", "s", "auc", "0.9778", "(alone", "0.8960)"]
    assert bad.split("00Z")[1].split(None, 2)[2] == "E_TOO_FEW: too few [records]; more of them"
    assert where == "reports: /state/jobs/JOB/artefacts/report.html"
    told = json.loads(with_node(FakeNode(views), "jobs", "--json").stdout)
    assert [of["report_path"] for of in told] == ["", "/state/jobs/good/artefacts/report.html", ""]


def test_a_list_of_jobs_says_why_one_waits_and_how_long_one_still_takes(with_node: Any) -> None:
    queue = {"place": 3, "of": 5, "kind": "place", "reason": "place 3 of 5", "priority": 0}
    views = [view("later", "waiting", queue=queue), view("now", "running", phase="train", time_left_s=[40.0, 190.0])]
    _, later, now = with_node(FakeNode(views), "jobs").stdout.splitlines()
    assert "waiting  place 3 of 5" in later
    assert "train, 40 s to 3 min 10 s left" in now


def test_a_list_of_jobs_has_those_that_are_wanted(with_node: Any) -> None:
    views = [view("a", "running", name="weekly"), view("b", "done", name="weekly", parties=["clinic", "bank"], **DONE)]
    views += [view("c", "failed", name="monthly", **FAILED | {"resumable": True}), view("d", "asked", name="monthly")]
    views[0]["submitted"] = "2026-11-28T10:00:00+00:00"

    def wanted(*words: str) -> list[str]:
        return [each["id"] for each in json.loads(with_node(FakeNode(views), "jobs", "--json", *words).stdout)]

    assert wanted() == ["a", "b", "c", "d"]
    assert wanted("--state", "open") == ["a", "d"]
    assert wanted("--state", "done") == ["b"]
    assert wanted("--state", "resumable") == ["c"]
    assert wanted("--partner", "bank") == ["b"]
    assert wanted("--name", "monthly", "--limit", "1") == ["c"]
    assert wanted("--since", "2026-01-01") == ["a"]
    assert wanted("--since", "100000d") == ["a", "b", "c", "d"]
    assert with_node(FakeNode(views), "jobs", "--name", "daily").stdout == "no such jobs\n"
    for words in (["--state", "lost"], ["--since", "soon"]):
        assert isinstance(with_node(FakeNode(views), "jobs", *words).exception, UsageError)


def test_a_node_is_told_to_drain_and_waited_for(with_node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_commands, "DRAIN_LOOK_S", 0.0)
    node = FakeNode([])
    assert with_node(node, "drain").stdout == "the node begins no job; 1 still runs\n"
    assert node.draining
    node.busy = 9
    assert with_node(node, "drain", "--wait").stdout == "the node begins no job; none still runs\n"
    assert with_node(node, "drain", "--off").stdout == "the node begins jobs again\n"
    assert not node.draining
    assert isinstance(with_node(node, "drain", "--off", "--wait").exception, UsageError)


def test_a_priority_goes_to_the_node_beside_the_job(with_node: Any, job: Path) -> None:
    node = FakeNode([view("good", "done", **DONE)])
    assert with_node(node, "submit", job, "--priority", "-2").exit_code == 0
    assert node.priority == -2
    assert with_node(node, "submit", job, "--priority", "3").exit_code == 2


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_what_a_program_reads_is_json_whatever_letters_the_output_has(monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    written = io.BytesIO()
    output = io.TextIOWrapper(written, encoding=encoding, errors="backslashreplace", write_through=True)
    monkeypatch.setattr(shared, "out", Console(file=output, highlight=False, soft_wrap=True))
    shared.print_json(document := {"message": "Größe – ∞"})
    assert json.loads(written.getvalue().decode(encoding)) == document


@pytest.mark.parametrize("words", [["watch", "good"], ["submit", "job.yaml", "--wait"]])
def test_who_follows_a_job_to_its_end_reads_what_came_of_it(with_node: Any, job: Path, words: list[str]) -> None:
    views = [view("good", "running", phase="train", done=1, total=2, unit="batches"), view("good", "done", **DONE)]
    words = [str(job) if word == "job.yaml" else word for word in words]
    result = with_node(FakeNode(views), *words)
    assert result.exit_code == 0
    assert result.stderr.splitlines() == ["good: train 1 of 2 batches"]
    assert result.stdout.removeprefix("good\n").splitlines() == [
        "aligned by PSI: ours 5, theirs 6, rows 4, union 7, intersection 4",
        "federated: auc 0.9000 on 9 rows",
        "active party alone: auc 0.8000 on 9 rows",
        "warning: Few.",
        "good is done after 75 s",
        "report: /state/jobs/good/artefacts/report.html",
        "on the board: http://127.0.0.1:8080/jobs/good",
    ]
    result = with_node(FakeNode(views), *words, "--json")
    assert [json.loads(line)["state"] for line in result.stderr.splitlines()] == ["running", "done"]
    told = json.loads(result.stdout)
    assert (told["id"], told["metrics"]["alone"]["auc"], told["took_s"]) == ("good", 0.896, 75.0)
    assert told["report_path"] == "/state/jobs/good/artefacts/report.html"


def test_who_follows_a_job_that_fails_reads_where_and_why(with_node: Any) -> None:
    views = [view("bad", "running", phase="align", done=1, total=2, unit="rows"), view("bad", "failed", **FAILED)]
    result = with_node(FakeNode(views), "watch", "bad")
    assert result.stderr.splitlines() == ["bad: align 1 of 2 rows", "bad: failed after 3 s, in phase align"]
    error = result.exception
    assert isinstance(error, VflError)
    assert (error.code, error.message, error.hint) == ("E_TOO_FEW", "too few [records]", "more of them")
    assert json.loads(with_node(FakeNode(views), "watch", "bad", "--json").stdout)["error"]["code"] == "E_TOO_FEW"


def test_a_waiting_command_shows_the_service_that_runs_not_one_that_ended(with_node: Any, tmp_path: Path) -> None:
    known = {"model": "trial-1", "to": "active", "rows": "known"}
    others = [known | {"to": "passive"}, known | {"model": "trial-2"}, known | {"rows": "new"}, None]
    views = [view(f"other-{number}", "running", predict=predict) for number, predict in enumerate(others)]
    states = ("done", "failed", "cancelled", "running", "waiting")
    views += [view(state, state, predict=known, remark=f"the {state} one") for state in states]
    result = with_node(FakeNode(views), "predict", "trial-1", "--data", tmp_path / "ids.csv", "--out", tmp_path / "p.csv")
    assert result.exit_code == 0, result.exception
    assert result.stderr.splitlines() == ["trial-1: the running one"]
    assert (tmp_path / "p.csv").read_text() == "id,probability\na,0.5\n"


def test_an_answer_that_cannot_be_written_is_a_clear_message(
    with_node: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(predictions, "write_whole", full)
    result = with_node(FakeNode([]), "predict", "trial-1", "--data", tmp_path / "ids.csv", "--out", tmp_path / "p.csv")
    assert isinstance(result.exception, UsageError)
    assert result.exception.code == "E_FILE"
    assert "p.csv: No space left on device" in result.exception.message


def test_a_job_whose_submission_was_cut_off_is_not_submitted_again_blindly(with_node: Any, tmp_path: Path) -> None:
    lost = UsageError("no node answers", code="E_NOT_RUNNING", hint="is it running?")
    words = ["predict", "trial-1", "--align", "--data", tmp_path / "ids.csv", "--out", tmp_path / "p.csv"]
    result = with_node(FakeNode([], lost), *words)
    assert isinstance(result.exception, UsageError)
    assert "vfl-node jobs" in result.exception.hint
    other = with_node(FakeNode([], UsageError("no column", code="E_COLUMN", hint="add it")), *words)
    assert isinstance(other.exception, UsageError)
    assert other.exception.hint == "add it"


def test_a_loss_is_accepted_once_it_was_noticed(tmp_path: Path) -> None:
    from vfl_node.node.setup import init

    init("clinic", "active", tmp_path / "clinic", federation="trial", mode="shared")
    config = str(tmp_path / "clinic" / "node.yaml")
    written = tmp_path / "clinic" / "node.yaml"
    written.write_text(written.read_text().replace("\npeers: {}", "\npeers: {lab: {}}"))

    def accept(peer: str) -> Result:
        return CliRunner().invoke(cli.app, ["accept-loss", peer, "--config", config])

    partners = load_settings(Path(config)).state_dir / "partners"
    lab = Partner(partners, "lab")
    assert isinstance(accept("lab").exception, UsageError)  # nothing was noticed
    assert isinstance(accept("../lab").exception, UsageError)
    stranger = accept("labb").exception
    assert isinstance(stranger, UsageError)
    assert (stranger.code, stranger.hint) == ("E_UNKNOWN_PEER", "its peers: lab")
    seen = LedgerHead(entries=7, link=b"l" * 32)
    with pytest.raises(StateError):
        lab.heads("job", {}).prove(seen)
    said = accept("lab")
    assert said.exit_code == 0
    assert "lab has seen entry 7" in said.output
    with pytest.raises(StateError, match="accepted here"):  # the node that runs knows it
        lab.heads("job", {}).prove(seen)
