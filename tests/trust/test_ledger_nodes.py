"""Two paired nodes and their ledgers: signed at both ends of a job, verified offline, restored too old, killed meanwhile."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.node.nodes import command
from tests.trust.test_new_authority_nodes import LONG
from tests.trust.test_two_nodes import OwnAuthorities
from vfl_node.node.backup import last_backup

JOB = "align: {protocol: psi}\n"
HIDDEN = "align: {protocol: psu}\ntrain: {epochs: 1, bottom: [4], active_bottom: [4], top: [4]}\n"


@pytest.fixture(scope="module")
def nodes(trial: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnAuthorities]:
    federation = OwnAuthorities(tmp_path_factory.mktemp("ledgers"), trial)
    federation.start_both(everyone={"budgets": {"alignments": 99, "trainings": 99}})
    assert [status for status, _, _ in federation.pair()] == [0, 0]
    federation.wait_until(lambda: all(map(federation.connected, federation.roles)))
    yield federation
    federation.end_all()


def peer(name: str) -> str:
    return {"clinic": "lab", "lab": "clinic"}[name]


def lane_file(nodes: OwnAuthorities, name: str) -> Path:
    return nodes.folder / name / "state" / "partners" / peer(name) / "ledger.log"


def ledger(nodes: OwnAuthorities, name: str, *words: str) -> subprocess.CompletedProcess[str]:
    return command("ledger", *words, "--config", nodes.config(name))


def entries(nodes: OwnAuthorities, name: str) -> list[dict[str, Any]]:
    return [json.loads(line)["e"] for line in lane_file(nodes, name).read_text().splitlines()]


def run(nodes: OwnAuthorities, job: str = JOB) -> str:
    job_id = nodes.submit(job)
    assert [nodes.end(name, job_id)["state"] for name in nodes.roles] == ["done", "done"], nodes.log("lab")[-2000:]
    return str(job_id)


def restart(nodes: OwnAuthorities, name: str, failpoint: str = "") -> None:
    if nodes.processes[name].poll() is None:
        nodes.kill(name)
    nodes.failpoints[name] = failpoint
    nodes.start(name)
    nodes.wait_until(lambda: all(map(nodes.connected, nodes.roles)))


def test_a_job_stands_in_both_ledgers_and_each_head_is_signed_by_both(nodes: OwnAuthorities) -> None:
    job_id = run(nodes, HIDDEN)
    for name in nodes.roles:
        told = [entry["kind"] for entry in entries(nodes, name)]
        assert told == ["key", "reserve", "begin", "head", "count", "count", "learnt", "head"]
        assert all(entry["body"].get("job", job_id) == job_id for entry in entries(nodes, name))
        begun = next(entry["body"] for entry in entries(nodes, name) if entry["kind"] == "begin")
        assert len(begun["manifest"]) == len(begun["consents"]) == 64
        shown = ledger(nodes, name)
        assert (shown.returncode, job_id in shown.stdout) == (0, True)
        assert f"{peer(name)} has signed entry" in shown.stdout
        assert f"alignments 1 of {99 if name == 'lab' else 20}" in shown.stdout  # the lab's policy allows more
        assert "set size" in shown.stdout
        verified = ledger(nodes, name, "--verify")
        assert (verified.returncode, "are as they were written" in verified.stdout) == (0, True)
    (lane,) = json.loads(ledger(nodes, "lab", "--json").stdout)
    assert (lane["partner"], lane["seen"]["entry"], lane["budgets"]["trainings"]["used"]) == ("clinic", lane["entries"] - 1, 1)
    assert json.loads(ledger(nodes, "lab", "--json", "--since", "2999-01-01").stdout)[0]["listed"] == []


def test_an_auditor_verifies_an_exported_folder_without_our_code(nodes: OwnAuthorities, tmp_path: Path) -> None:
    folder = tmp_path / "for the auditor"
    assert ledger(nodes, "clinic", "--export", str(folder)).returncode == 0
    assert command("ledger", "--verify", "--folder", str(folder)).returncode == 0
    for line in (folder / "README.txt").read_text().splitlines():
        if "openssl" in line:
            done = subprocess.run(line.split(), cwd=folder, capture_output=True, text=True, check=False)
            assert (done.returncode, "Verified Successfully" in done.stdout) == (0, True), line
    head = json.loads((folder / "lab.log").read_text().splitlines()[-1])["l"]
    assert head in (folder / "lab-head.txt").read_text()
    shutil.copyfile(folder / "clinic.pem", folder / "lab.pem")  # a control: the partner's key is another one
    other = command("ledger", "--verify", "--folder", str(folder)).stdout
    assert "nobody else has signed" in other
    assert "not with the key on its card" in other
    again = ledger(nodes, "clinic", "--export", str(folder))
    assert (again.returncode, "E_EXISTS" in again.stderr) == (2, True)


def test_a_changed_byte_is_named_with_entry_and_partner(nodes: OwnAuthorities) -> None:
    path = lane_file(nodes, "lab")
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    lines[2] = lines[2].replace(b'"kind":"begin"', b'"kind":"bogin"')
    path.write_bytes(b"".join(lines))
    try:
        found = ledger(nodes, "lab", "--verify")
        assert (found.returncode, "clinic, entry 3: it is not what was written there" in found.stdout) == (3, True)
        shown = ledger(nodes, "lab")
        assert (shown.returncode, "E_STATE_CORRUPT" in shown.stderr) == (3, True)
        assert "Traceback" not in shown.stderr + found.stderr
    finally:
        path.write_bytes(whole)
    restart(nodes, "lab")


def test_a_restored_backup_is_older_at_both_until_its_owner_accepts_that(nodes: OwnAuthorities, tmp_path: Path) -> None:
    """It is made while a job trains, and that does not stop the job."""
    backup, state = tmp_path / "yesterday.tar", nodes.folder / "lab" / "state"
    asked = nodes.submit(LONG)
    nodes.wait_until(lambda: nodes.in_training("lab", asked))
    made = command("backup", str(backup), "--config", nodes.config("lab"))
    assert (made.returncode, "ledgers with clinic" in made.stdout) == (0, True), made.stderr
    step = nodes.view("lab", asked)["done"]
    nodes.wait_until(lambda: nodes.view("lab", asked)["done"] != step)
    nodes.client("clinic").cancel(asked)
    verified = command("backup", "verify", str(backup))
    assert (verified.returncode, "entries are as they were written" in verified.stdout) == (0, True), verified.stderr
    assert seeds(backup) == []
    refused = command("restore", str(backup), "--config", nodes.config("lab"))
    assert (refused.returncode, "E_EXISTS" in refused.stderr) == (2, True)  # that state is not empty
    run(nodes)
    nodes.kill("lab")
    policy, peers = nodes.folder / "lab" / "policy.yaml", nodes.folder / "lab" / "peers"
    before = {path: path.read_bytes() for path in (policy, *peers.iterdir())}
    for path in (state, peers):
        shutil.rmtree(path)
    policy.unlink()
    restored = command("restore", str(backup), "--config", nodes.config("lab"))
    assert (restored.returncode, asked in restored.stdout) == (0, True), restored.stderr
    assert {path: path.read_bytes() for path in before} == before
    assert last_backup(state)
    restart(nodes, "lab")
    assert nodes.view("lab", asked)["error"]["code"] == "E_RESTORED"
    assert "restored from a backup" in ledger(nodes, "lab").stdout
    for _ in range(2):
        job_id = nodes.submit(JOB)
        views = [nodes.end(name, job_id) for name in nodes.roles]
        assert views[1]["error"]["code"] == "E_STATE_OLDER"
        assert "E_STATE_OLDER" in views[0]["error"]["message"]
        assert "vfl-node accept-loss clinic" in views[1]["error"]["hint"]
        assert "its owner has to decide" in views[0]["error"]["message"]
    accepted = command("accept-loss", "clinic", "--config", nodes.config("lab"))
    assert accepted.returncode == 0, accepted.stderr
    job_id = nodes.submit(JOB)
    view = [nodes.end(name, job_id) for name in nodes.roles][1]
    assert "accept-loss lab --of-peer" in view["error"]["hint"]
    accepted = command("accept-loss", "lab", "--of-peer", "--config", nodes.config("clinic"))
    assert accepted.returncode == 0, accepted.stderr
    run(nodes)
    run(nodes)
    assert [entry["kind"] for entry in entries(nodes, "lab")].count("loss") == 1
    assert [entry["kind"] for entry in entries(nodes, "clinic")].count("peer-loss") == 1
    for name in nodes.roles:
        assert ledger(nodes, name, "--verify").returncode == 0


def seeds(backup: Path) -> list[str]:
    """The names of files of a backup that are secrets of a job under way, or keys."""
    with tarfile.open(backup) as archive:
        names = archive.getnames()
    assert "jobs.sqlite" in names
    return [name for name in names if re.search(r"seed|pins|checkpoint|lists|key|crt$", name.removesuffix("clinic.crt"))]


def test_a_ledger_with_nobody_and_a_strange_folder(nodes: OwnAuthorities, tmp_path: Path) -> None:
    assert "is no date" in ledger(nodes, "lab", "--since", "yesterday").stderr
    unknown = ledger(nodes, "lab", "--partner", "shop")
    assert (unknown.returncode, "it has ledgers with: clinic" in unknown.stderr) == (2, True)
    assert command("ledger", "--verify", "--folder", str(tmp_path)).returncode == 2
    assert "name the node" in command("ledger").stderr


KILLS = [(point, name) for point in ("lane", "laned", "head", "headed") for name in ("clinic", "lab")]
SOME = [("laned", "lab"), ("head", "clinic")]  # written at one only, and not shown yet


@pytest.mark.parametrize(
    ("point", "name"), [*SOME, *(pytest.param(*of, marks=pytest.mark.slow) for of in KILLS if of not in SOME)]
)
def test_a_kill_where_a_ledger_is_written_or_shown_loses_and_doubles_nothing(
    nodes: OwnAuthorities, point: str, name: str
) -> None:
    before = [len(entries(nodes, each)) for each in nodes.roles]
    restart(nodes, name, f"{point}=kill@2")
    job_id = nodes.submit(HIDDEN)
    nodes.wait_until(lambda: nodes.processes[name].poll() is not None)
    restart(nodes, name)
    assert [nodes.end(each, job_id)["state"] for each in nodes.roles] == ["done", "done"]
    for each, number in zip(nodes.roles, before, strict=True):
        fresh = entries(nodes, each)[number:]
        kinds = [entry["kind"] for entry in fresh]
        assert (kinds.count("begin"), kinds.count("learnt"), kinds.count("reserve")) == (1, 1, 1)
        of_kinds = [entry["body"]["lines"].items() for entry in fresh if entry["kind"] == "count"]
        counted = [(kind, line) for lines in of_kinds for kind, each in lines for line in each]
        assert len(counted) == len(set(counted)) >= 1
        counted = [line for kind, line in counted if kind != "clear"]
        assert sorted(line[0] for line in counted if job_id in line) == [
            "#",
            "@",
        ]  # the training, over its records and its table
        assert ledger(nodes, each, "--verify").returncode == 0
