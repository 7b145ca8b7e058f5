"""Alerts, their runbook and the dashboard: they name metrics that exist, alerts have cases and entries, and promtool agrees."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from tests.node.test_metrics import documented
from tests.test_docs import headings
from vfl_node.cli import app
from vfl_node.node.reasons import KINDS

ROOT = Path(__file__).parents[1]
RULES = ROOT / "deploy/prometheus"
RUNBOOK = ROOT / "docs/guides/runbook.md"
SHARED = {"VflCertificateExpiresSoon": "VflCertificateExpires"}
"""Alert → the one with whose entry it shares the runbook."""

needs_promtool = pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not installed (Debian: prometheus)")


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((RULES / "vfl.rules.yml").read_text())["groups"]
    return list(group["rules"])


def panels() -> list[dict[str, Any]]:
    return list(json.loads((ROOT / "deploy/grafana/vfl-node.json").read_text())["panels"])


def metrics_in(expression: str) -> set[str]:
    """The metrics that an expression names, without what a histogram adds to its name."""
    found = re.findall(r"\b((?:vfl|process)_\w+|up)\b", re.sub(r'"[^"]*"', "", expression))
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in found}


def test_each_alert_names_metrics_that_exist() -> None:
    known = {*documented(), "up"}
    for rule in rules():
        named = metrics_in(rule["expr"])
        assert named, rule["alert"]
        assert named <= known, rule["alert"]


def test_each_alert_has_an_entry_and_each_entry_an_alert() -> None:
    names = {rule["alert"] for rule in rules()}
    for rule in rules():
        page, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert anchor in headings(ROOT / page)
        assert anchor == SHARED.get(rule["alert"], rule["alert"]).lower()
        assert rule["labels"]["severity"] in ("page", "ticket")
    entries = re.split(r"^## ", RUNBOOK.read_text(), flags=re.MULTILINE)[1:]
    assert [entry.partition("\n")[0] for entry in entries] == [rule["alert"] for rule in rules() if rule["alert"] not in SHARED]
    for entry in entries:
        assert re.findall(r"^\*\*(\w+)\.\*\*", entry, re.MULTILINE) == ["Means", "Look", "Do"], entry[:40]
    assert SHARED.keys() <= names


def test_each_alert_has_a_case_in_which_it_is_silent_and_one_in_which_it_fires() -> None:
    cases: dict[str, set[bool]] = {}
    for test in yaml.safe_load((RULES / "vfl.rules.test.yml").read_text())["tests"]:
        for case in test.get("alert_rule_test", []):
            cases.setdefault(case["alertname"], set()).add(bool(case["exp_alerts"]))
    both = {rule["alert"] for rule in rules()} - {"VflCertificateExpires"}  # silent for one of its two certificates
    assert {name for name, seen in cases.items() if seen == {True, False}} >= both
    assert True in cases["VflCertificateExpires"]


def test_the_runbook_has_a_row_for_each_reason_why_a_job_waits() -> None:
    entry = RUNBOOK.read_text().partition("## VflQueueOld\n")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", entry, re.MULTILINE) == list(KINDS)


def test_the_runbook_says_what_to_do_about_any_code_of_a_node_that_is_not_ready() -> None:
    entry = RUNBOOK.read_text().partition("## VflNotReady\n")[2].partition("\n## ")[0]
    assert "\n| any other code | " in entry


def test_commands_of_the_runbook_exist() -> None:
    command = get_command(app)
    lines = re.findall(r"vfl-node ((?:[a-z-]+|[A-Z]+|--[a-z-]+|[a-z.]+|\d+| )+)", RUNBOOK.read_text())
    used = set()
    for line in lines:
        words, at = line.split(), command
        while words and hasattr(at, "commands") and words[0] in at.commands:
            at = at.commands[words.pop(0)]
        assert at is not command, line
        known = {option for parameter in at.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known, line
        used.add(at.name)
    assert len(used) > 10


def test_the_dashboard_is_what_its_script_writes() -> None:
    script = ROOT / "deploy/grafana/make_dashboard.py"
    spec = importlib.util.spec_from_file_location("make_dashboard", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    written = json.loads((ROOT / "deploy/grafana/vfl-node.json").read_text())
    assert written == module.make_dashboard(), f"run: python {script.relative_to(ROOT)} > deploy/grafana/vfl-node.json"


def test_each_panel_names_metrics_and_labels_that_exist() -> None:
    known, shown = documented(), panels()
    assert len(shown) == 12
    assert len({(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in shown}) == 12
    for panel in shown:
        for target in panel["targets"]:
            named = metrics_in(target["expr"])
            assert named <= known.keys(), panel["title"]
            assert named, panel["title"]
            labels = {label for name in named for label in known[name][0]} | {"instance"}
            told = {label.removeprefix("exported_") for label in re.findall(r"{{(\w+)}}", target["legendFormat"])}
            assert told <= labels, panel["title"]


def promtool(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["promtool", *words], capture_output=True, text=True, timeout=240, check=False)


@needs_promtool
def test_expressions_of_the_dashboard_can_be_read(tmp_path: Path) -> None:
    expressions = [target["expr"] for panel in panels() for target in panel["targets"]]
    asked = [{"record": f"panel:{number}", "expr": expression} for number, expression in enumerate(expressions)]
    (tmp_path / "panels.yml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": asked}]}))
    assert promtool("check", "rules", tmp_path / "panels.yml").returncode == 0
    asked[0]["expr"] += " by ("
    (tmp_path / "panels.yml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": asked}]}))
    assert promtool("check", "rules", tmp_path / "panels.yml").returncode != 0


def deploy_check(folder: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"RULES": str(folder), "PYTHON": sys.executable}
    return subprocess.run(
        [RULES / "check.sh"], env=environment, capture_output=True, text=True, timeout=240, cwd=ROOT, check=False
    )


@needs_promtool
def test_rules_cases_and_metrics_hold() -> None:
    said = deploy_check(RULES)
    assert said.returncode == 0, said.stdout + said.stderr
    assert "metrics: ok" in said.stdout


UNLESS_MORE = ' unless on (job, instance) vfl_not_ready{code!="E_DRAINING"}'
"""Of VflNotReady: a node that drains and has another cause is not one that only drains."""


@needs_promtool
@pytest.mark.parametrize(
    ("file", "right", "wrong"),
    [
        pytest.param("vfl.rules.yml", "expr: vfl_ready == 0", "expr: vfl_ready = 0", marks=pytest.mark.slow),
        pytest.param(
            "vfl.rules.yml",
            f' unless on (job, instance) (vfl_not_ready{{code="E_DRAINING"}}{UNLESS_MORE})',
            "",
            marks=pytest.mark.slow,
        ),
        pytest.param("vfl.rules.yml", UNLESS_MORE, "", marks=pytest.mark.slow),
        ("vfl.rules.yml", "expr: vfl_peer_up == 0\n        for: 15m", "expr: vfl_peer_up == 0\n        for: 30m"),
        pytest.param("vfl.rules.yml", ">= 0.8", ">= 0.9", marks=pytest.mark.slow),
        ("vfl.rules.test.yml", '{table="default"}\', values: "1x580"', '{table="default"}\', values: "0x580"'),
    ],
    ids=["no expression", "pages while it drains", "silent while it drains", "too late", "too much", "not well"],
)
def test_a_broken_twin_is_found(tmp_path: Path, file: str, right: str, wrong: str) -> None:
    for name in ("vfl.rules.yml", "vfl.rules.test.yml"):
        text = (RULES / name).read_text()
        assert name != file or text.count(right) == 1
        (tmp_path / name).write_text(text.replace(right, wrong) if name == file else text)
    said = deploy_check(tmp_path)
    assert said.returncode != 0
    assert "metrics: ok" not in said.stdout


def test_without_promtool_it_says_that_it_is_skipped(tmp_path: Path) -> None:
    for name in ("dirname", "sh"):
        (tmp_path / name).symlink_to(shutil.which(name) or "")
    environment = {"PATH": str(tmp_path)}
    said = subprocess.run([RULES / "check.sh"], env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (said.returncode, said.stdout) == (0, "-- skipped: no promtool here (Debian: prometheus)\n")
