"""A schedule of a real node: its job comes once, is done with the lab, and does not come again after a death."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from tests.node.nodes import Federation, command
from vfl_node.node.schedule_states import FOLDER, INDEX, ScheduleState
from vfl_node.process.files import private_folder, write_checked

PLANNED = datetime.now(timezone.utc).replace(second=0, microsecond=0) - timedelta(minutes=3)
WEEKLY = f"weekly-{PLANNED:%Y%m%d}"
LINE = {"name": "weekly", "job": "job.yaml", "at": f"{PLANNED.minute} {PLANNED.hour} * * *", "skip_unchanged": True}
MISSED = ScheduleState((PLANNED - timedelta(hours=1)).isoformat())
"""How a schedule stands whose time has come while the node was down."""


@pytest.fixture(scope="module")
def nodes(federations: Any, tmp_path_factory: pytest.TempPathFactory) -> Federation:
    """A clinic that was down when its schedule's time came, and a lab."""
    folder: Path = tmp_path_factory.mktemp("schedules")
    federation: Federation = federations(folder)
    (folder / "clinic/job.yaml").write_text("name: trial\nparties: {active: clinic, passive: lab}\nalign: {protocol: psi}\n")
    federation.configure("clinic", schedules=[LINE])
    private_folder(folder / "clinic/state" / FOLDER)
    write_checked(folder / "clinic/state" / FOLDER / INDEX, json.dumps({"weekly": asdict(MISSED)}).encode())
    federation.start_both()
    return federation


def schedule(nodes: Federation, *words: str) -> str:
    """What the command says."""
    said = command("schedule", *words, "--config", nodes.folder / "clinic/node.yaml")
    assert said.returncode == 0, said.stderr
    return said.stdout


def shown(nodes: Federation, name: str) -> dict[str, Any]:
    return next(each for each in nodes.client("clinic").schedules() if each["name"] == name)


def test_its_job_is_done_once_and_is_skipped_while_the_table_is_the_same(nodes: Federation) -> None:
    nodes.wait_until(lambda: nodes.view("clinic", WEEKLY))
    assert nodes.end("clinic", WEEKLY)["state"] == "done", nodes.log("clinic")
    assert nodes.end("lab", WEEKLY)["state"] == "done"
    nodes.wait_until(lambda: shown(nodes, "weekly")["ended"] == "done")
    nodes.kill("clinic")
    state = nodes.folder / "clinic/state" / FOLDER
    assert (state / "weekly.marks").stat().st_size > 32 * 160
    shutil.copy(state / "weekly.marks", state / "again.marks")
    again = replace(MISSED, job=WEEKLY, ended="done")
    # As if the node had died before it wrote that the first was submitted; and another one that compares.
    write_checked(state / INDEX, json.dumps({"weekly": asdict(MISSED), "again": asdict(again)}).encode())
    nodes.start("clinic", schedules=[LINE, LINE | {"name": "again"}])
    nodes.wait_until(lambda: shown(nodes, "weekly")["ended"] == "done")
    nodes.wait_until(lambda: shown(nodes, "again")["became"] == "skipped: the own table is as the last job read it")
    assert [view["id"] for view in nodes.client("clinic").jobs()] == [WEEKLY]


def test_its_owner_looks_at_it_pauses_it_and_runs_it_by_hand(nodes: Federation) -> None:
    listed = schedule(nodes, "list")
    assert "again" in listed
    assert "lab can tell which shared records are new since the one before" in listed
    assert "stops on day" in listed
    assert "paused" in schedule(nodes, "pause", "again")
    assert shown(nodes, "again")["paused"] == "owner"
    assert nodes.client("clinic").health()["schedules"][1]["paused"] == "owner"
    assert b'vfl_schedules{state="owner"} 1.0' in nodes.client("clinic")._fetch("GET", "/metrics")
    job_id = schedule(nodes, "run", "again").strip()
    assert nodes.end("clinic", job_id)["state"] == "done"
    assert "next time" in schedule(nodes, "resume", "again")
    assert (shown(nodes, "again")["paused"], shown(nodes, "again")["last_job"]) == ("", job_id)
    wrong = command("schedule", "run", "other", "--config", nodes.folder / "clinic/node.yaml")
    assert (wrong.returncode, "E_SCHEDULE" in wrong.stderr) == (2, True)
    assert [each["name"] for each in json.loads(schedule(nodes, "list", "--json"))] == ["weekly", "again"]
    checked = command("check", "--config", nodes.folder / "clinic/node.yaml")
    assert "schedule again: with each job over a table that has grown, lab can tell which" in checked.stdout
    assert "again stops on day" in checked.stdout
