"""Two real node processes over mutual TLS on loopback, started as a user starts them."""

from __future__ import annotations

import ctypes
import http.client
import json
import os
import re
import signal
import stat
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.node.nodes import GENEROUS_S, NOBODY_ELSE, command
from vfl_node.node.setup import certify, init

SOME = [("lab", "keep"), ("clinic", "forget")]  # tests/node/test_end.py has more
MORE = [
    (name, place) for name in ("lab", "clinic") for place in ("keep", "kept", "finished", "forget") if (name, place) not in SOME
]

LONG = "train: {bottom: [8], epochs: 100, batch_size: 4}"
"""Goes on until it is ended, where each of its steps is slow."""

LEARNS = """\
train: {bottom: [8], active_bottom: [4], top: [8], epochs: 12, batch_size: 32, learning_rate: 0.01}
evaluate: {test_fraction: 0.3, repeats: 2}
"""


def check_trace(federation: Any, job_id: str, trial: Any) -> None:
    """The lab's owner sends its half, and the clinic's puts both on one time line."""
    half, whole = federation.folder / "lab-half.json", federation.folder / "whole.json"
    for name, words in (("lab", ["--out", half]), ("clinic", ["--with", half, "--out", whole])):
        told = command("trace", job_id, "--config", federation.folder / name / "node.yaml", *words)
        assert told.returncode == 0, told.stderr
    document = json.loads(whole.read_text())
    assert document["otherData"]["parties"] == ["clinic", "lab"]
    come = [event["args"] for event in document["traceEvents"] if event["cat"] == "message" and event["ph"] == "i"]
    assert {message["receiver"] for message in come} == {"clinic", "lab"}
    assert not any(canary in whole.read_text() for canary in (*trial.ids, "measure-"))


def test_two_jobs_and_an_orderly_end(federation: Any, trial: Any) -> None:
    federation.as_users_start_them()
    federation.start_both()
    for epochs in (12, 1):  # a second job works as the first
        job_id = federation.submit(LEARNS.replace("epochs: 12", f"epochs: {epochs}"))
        assert federation.end("clinic", job_id)["state"] == "done"
        assert federation.end("lab", job_id)["state"] == "done"
        ours, theirs = federation.report("clinic", job_id), federation.report("lab", job_id)
        sizes = {key: ours["alignment"][key] for key in ("ours", "theirs", "union", "intersection")}
        assert sizes == {"ours": 160, "theirs": 160, "union": 200, "intersection": 120}
        if epochs == 12:
            assert ours["metrics"]["auc"] > 0.85  # weights and splits are new each time: 0.93 to 0.99 in 25 runs
        assert ours["local_metrics"] is not None
        assert ours["metrics"]["population"] == "owned"
        assert ours["metrics"]["real_share"] == pytest.approx(120 / 160)
        assert theirs["metrics"] is None
        assert all(epoch["loss"] is None for epoch in theirs["training"]["epochs"])
        assert ours["manifest_digest"] == theirs["manifest_digest"]
        folder = federation.job_folder("lab", job_id)
        federation.wait_until(lambda folder=folder: federation.is_cleared(folder))  # no secrets
    check_trace(federation, job_id, trial)
    health = federation.client("clinic").health()
    assert health["peers"]["lab"]["online"] is True
    assert len(federation.client("lab").jobs()) == 2
    for name in ("clinic", "lab"):
        assert federation.kill(name, signal.SIGTERM) == 0
        assert (federation.folder / name / "state").stat().st_mode & 0o777 == 0o700
        state = [p for p in (federation.folder / name / "state").rglob("*") if p.is_file()]
        text = federation.log(name) + "".join(p.read_bytes().decode("latin-1") for p in state)
        assert not any(canary in text for canary in trial.ids)


def counters(federation: Any, name: str) -> dict[str, float]:
    """Series of a node, which is ready → its value."""
    ready = urllib.request.urlopen(f"http://{federation.client(name).address}/ready", timeout=60)  # without a token
    assert json.loads(ready.read()) == {"ready": True, "codes": []}
    connection = http.client.HTTPConnection(federation.client(name).address, timeout=60)
    token = (federation.folder / name / "state" / "token").read_text()
    connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {token}"})
    text = connection.getresponse().read().decode()
    connection.close()
    return {series: float(value) for series, value in re.findall(r"^(vfl_.*) (\S+)$", text, re.MULTILINE)}


def test_a_restarted_node_knows_its_jobs_and_counts_anew(federation: Any) -> None:
    federation.start_both()
    before = {name: counters(federation, name) for name in ("clinic", "lab")}
    job_id = federation.submit("align: {protocol: psi}")
    assert federation.end("clinic", job_id)["state"] == "done"
    assert federation.end("lab", job_id)["state"] == "done"
    done = 'vfl_jobs_ended_total{code="",protocol="psi",result="done",trainer=""}'
    after = {name: counters(federation, name) for name in ("clinic", "lab")}
    assert {name: after[name][done] - before[name].get(done, 0) for name in after} == {"clinic": 1, "lab": 1}
    for kind in ("Chunk", "Preflight", "PhaseEnd"):
        sent = f'vfl_peer_messages_total{{direction="sent",peer="lab",type="{kind}"}}'
        received = f'vfl_peer_messages_total{{direction="received",peer="clinic",type="{kind}"}}'
        ours, theirs = (after[a][b] - before[a].get(b, 0) for a, b in (("clinic", sent), ("lab", received)))
        assert ours == theirs > 0, kind
    federation.kill("lab", signal.SIGINT)
    federation.start("lab")
    assert counters(federation, "lab").get(done, 0) == before["lab"].get(done, 0)  # it was forked by this process
    assert federation.client("lab").job(job_id)["state"] == "done"
    again = federation.submit("align: {protocol: psi}")
    assert federation.end("clinic", again)["state"] == "done"
    assert federation.report("clinic", again)["alignment"]["intersection"] == 120
    assert federation.report("clinic", again)["training"] is None


@pytest.mark.parametrize("name", ["lab", pytest.param("clinic", marks=pytest.mark.slow)])
def test_a_node_killed_in_training_comes_back_and_the_job_ends_well(federation: Any, name: str) -> None:
    federation.failpoints[name] = "updated=kill@60"
    federation.start_both()
    job_id = federation.submit(
        "train: {bottom: [8], active_bottom: [4], top: [8], epochs: 18, batch_size: 32}\nevaluate: {test_fraction: 0.3}"
    )
    assert federation.processes[name].wait(240) == -signal.SIGKILL
    assert any((federation.job_folder(name, job_id) / "checkpoints").glob("*.checkpoint"))
    other = "lab" if name == "clinic" else "clinic"
    federation.wait_until(lambda: "waiting" in federation.client(other).job(job_id)["note"])
    federation.start(name)
    for party in ("clinic", "lab"):
        view = federation.end(party, job_id)
        assert view["state"] == "done", view
    assert len(federation.report("clinic", job_id)["training"]["epochs"]) == 18


@pytest.mark.parametrize(("victim", "place"), [*SOME, *(pytest.param(*of, marks=pytest.mark.slow) for of in MORE)])
def test_a_node_that_dies_at_the_very_end_loses_nothing(federation: Any, victim: str, place: str) -> None:
    federation.start_both()
    federation.kill(victim, signal.SIGTERM)
    federation.failpoints[victim] = f"{place}=kill"
    federation.start(victim)
    federation.wait_until(lambda: federation.client("clinic").health()["peers"]["lab"]["online"])
    job_id = federation.submit("train: {bottom: [8], epochs: 2}")
    assert federation.processes[victim].wait(240) == -signal.SIGKILL
    federation.start(victim)
    for party in ("clinic", "lab"):
        assert federation.end(party, job_id)["state"] == "done", federation.log(party)
        folder = federation.job_folder(party, job_id)
        federation.wait_until(lambda folder=folder: federation.is_cleared(folder))
        assert {path.name for path in (folder / "artefacts").iterdir()} >= {"model.safetensors", "report.json"}


def test_a_lost_peer_ends_the_job_when_it_stays_away_and_it_can_be_resumed(federation: Any) -> None:
    federation.failpoints["lab"] = "updated=kill@9"
    federation.start_both()
    federation.kill("clinic", signal.SIGTERM)
    federation.start("clinic", peer_wait_s=3)
    job_id = federation.submit("train: {bottom: [8], epochs: 10, batch_size: 32}")
    view = federation.end("clinic", job_id)
    assert view["state"] == "failed"
    assert "lab" in view["error"]["message"]
    assert view["error"]["code"] == "E_PEER_LOST"
    assert (federation.job_folder("clinic", job_id) / "seed").exists()
    federation.start("lab")
    federation.wait_until(lambda: federation.connected("clinic"))  # which waits for 3 s only
    assert federation.client("clinic").resume(job_id)["state"] in ("waiting", "running")
    for party in ("clinic", "lab"):
        assert federation.end(party, job_id)["state"] == "done"


def test_another_table_is_refused_when_a_job_goes_on(federation: Any, tmp_path: Path) -> None:
    """Aligning again on a changed set would tell the peer's membership of the difference."""
    table = tmp_path / "lab.csv"
    table.write_text(federation.trial.lab.read_text())
    federation.failpoints["lab"] = "updated=kill@9"
    federation.start_both(data={"path": str(table)})
    job_id = federation.submit("train: {bottom: [8], epochs: 10, batch_size: 32}")
    assert federation.processes["lab"].wait(240) == -signal.SIGKILL
    table.write_text("".join(table.read_text().splitlines(keepends=True)[:-1]))
    federation.start("lab")
    ours, theirs = federation.end("clinic", job_id), federation.end("lab", job_id)
    assert (ours["state"], theirs["state"]) == ("failed", "failed")
    assert theirs["error"]["code"] == "E_INPUT_CHANGED"
    assert "changed since" in ours["error"]["message"]


def test_lost_state_is_said_and_not_silently_begun_anew(federation: Any) -> None:
    federation.failpoints["lab"] = "updated=kill@9"
    federation.start_both()
    job_id = federation.submit("train: {bottom: [8], epochs: 10, batch_size: 32}")
    assert federation.processes["lab"].wait(240) == -signal.SIGKILL
    seed = federation.job_folder("lab", job_id) / "seed"
    seed.rename(federation.folder / "seed")
    federation.start("lab")
    view = federation.end("lab", job_id)
    assert (view["error"]["code"], view["resumable"]) == ("E_STATE_LOST", True)
    federation.wait_until(lambda: "it has lost what it stored" in federation.view("clinic", job_id)["note"])
    federation.kill("lab", signal.SIGTERM)
    (federation.folder / "seed").rename(seed)  # the owner puts it back
    federation.start("lab")
    assert federation.end("clinic", job_id)["state"] == "done"
    assert federation.end("lab", job_id)["state"] == "done"


@pytest.mark.slow
def test_a_node_that_hangs_is_noticed_and_its_job_ends_well_when_it_goes_on(federation: Any) -> None:
    federation.start_both(peer_wait_s=120)
    job_id = federation.submit("train: {bottom: [8], epochs: 600, batch_size: 32}")
    federation.wait_until(lambda: federation.in_training("clinic", job_id))
    federation.processes["lab"].send_signal(signal.SIGSTOP)
    federation.wait_until(lambda: "not a word from lab" in federation.log("clinic"))
    federation.wait_until(lambda: "waiting" in federation.view("clinic", job_id)["note"])
    federation.processes["lab"].send_signal(signal.SIGCONT)
    for party in ("clinic", "lab"):
        assert federation.end(party, job_id)["state"] == "done"


def test_nobody_runs_jobs_here_unasked(federation: Any) -> None:
    federation.start_both(accepts=None, policy={"approve": [NOBODY_ELSE]})
    view = federation.end("clinic", federation.submit())
    assert view["state"] == "failed"
    assert view["error"]["code"] == "E_REFUSED"
    assert "its policy does not allow the job (partner)" in view["error"]["message"]
    assert federation.client("lab").jobs() == []


def test_a_model_of_the_owners_runs_where_both_have_declared_it(federation: Any) -> None:
    own = {"models": {"gated": "tests.models.own_models:Gated"}}
    federation.configure("clinic", **own)
    federation.start_both()
    job = "train: {model: gated, bottom: [8], active_bottom: [4], top: [8], epochs: 2, batch_size: 32}"
    refused = federation.end("clinic", federation.submit(job))
    assert (refused["state"], refused["error"]["code"]) == ("failed", "E_REFUSED")
    assert "no model named 'gated'" in refused["error"]["message"]
    federation.kill("lab", signal.SIGTERM)
    federation.start("lab", **own)
    job_id = federation.submit(job)
    for party in ("clinic", "lab"):
        assert federation.end(party, job_id)["state"] == "done"


def test_cancel_ends_the_job_at_both_sides(federation: Any) -> None:
    federation.failpoints["lab"] = "updated=slow"
    federation.start_both()
    job_id = federation.submit(LONG)
    federation.wait_until(lambda: federation.in_training("lab", job_id))
    federation.client("lab").cancel(job_id)
    assert federation.end("lab", job_id)["state"] == "cancelled"
    view = federation.end("clinic", job_id)
    assert (view["state"], view["error"]["code"]) == ("cancelled", "E_CANCELLED")
    assert "lab" in view["error"]["message"]
    assert "cancelled" in view["error"]["message"]


def test_a_party_whose_data_cannot_be_used_says_so_at_both_sides(federation: Any, tmp_path: Path) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text("id,x\ncanary-1,1\ncanary-1,2\n")
    federation.start_both(data={"path": str(bad)})
    job_id = federation.submit()
    ours, theirs = federation.end("clinic", job_id), federation.end("lab", job_id)
    assert (ours["state"], theirs["state"]) == ("failed", "failed")
    assert theirs["error"]["code"] == "E_DUP_IDS"
    assert str(bad) in theirs["error"]["message"]
    assert str(bad) not in ours["error"]["message"]
    assert "its data cannot be used" in ours["error"]["message"]
    assert "canary" not in federation.log("clinic") + federation.log("lab")


def test_sigterm_during_a_job_pauses_it(federation: Any) -> None:
    federation.failpoints["lab"] = "updated=slow"
    federation.start_both()
    job_id = federation.submit(LONG)
    federation.wait_until(lambda: federation.in_training("lab", job_id))
    assert federation.kill("lab", signal.SIGTERM) == 0
    federation.wait_until(lambda: "stopping" in federation.client("clinic").job(job_id)["note"])
    federation.start("lab")
    assert federation.client("lab").job(job_id)["state"] in ("waiting", "running", "paused", "done")
    federation.client("clinic").cancel(job_id)
    assert federation.end("clinic", job_id)["state"] == "cancelled"
    assert federation.end("lab", job_id)["state"] == "cancelled"


def test_another_partys_certificate_is_turned_away(federation: Any) -> None:
    init("mallory", "passive", federation.folder / "mallory", mode="shared")
    certify([federation.folder / "mallory"], federation.folder / "authority")
    federation.start("clinic", listen="127.0.0.1:0", peers={"lab": {}})
    address = federation.running("clinic")["listen"]
    peers = {"clinic": {"address": address}}
    config = federation.configure("mallory", listen=None, data={"path": str(federation.trial.lab)}, peers=peers)
    started = federation.programs["lab"](["--role", "passive", "--config", str(config)], federation.folder / "mallory.log")
    federation.processes["mallory"] = started
    federation.wait_until(lambda: "peer absent" in federation.log("mallory"))
    assert "spiffe://trial/party/mallory" in federation.log("mallory")
    assert federation.client("clinic").health()["peers"]["lab"]["online"] is False


def test_port_in_use_and_second_node_on_the_same_state(federation: Any) -> None:
    federation.start("clinic", listen="127.0.0.1:0", peers={"lab": {}})
    config = federation.folder / "clinic" / "node.yaml"
    again = command("--role", "active", "--config", config)
    assert again.returncode == 2
    assert "E_STATE_LOCKED" in again.stderr
    assert f"process {federation.processes['clinic'].pid}" in again.stderr
    settings = yaml.safe_load(config.read_text()) | {"listen": federation.running("clinic")["listen"], "state_dir": "other"}
    (federation.folder / "clinic" / "second.yaml").write_text(yaml.safe_dump(settings))
    again = command("--role", "active", "--config", federation.folder / "clinic" / "second.yaml")
    assert again.returncode == 2
    assert "E_PORT" in again.stderr
    assert federation.running("clinic")["listen"].rpartition(":")[2] in again.stderr
    assert "Traceback" not in again.stderr


def test_commands_against_a_running_node(federation: Any, tmp_path: Path) -> None:
    federation.start_both()
    job = tmp_path / "job.yaml"
    job.write_text(federation.trial.job("align: {protocol: psu}").canonical())
    config = str(federation.folder / "clinic" / "node.yaml")

    submitted = command("submit", str(job), "--config", config, "--wait")
    assert submitted.returncode == 0, submitted.stderr
    job_id = submitted.stdout.split()[0]
    assert job_id.startswith("trial-")
    listed = command("jobs", "--config", config)
    assert job_id in listed.stdout
    assert "done" in listed.stdout
    at, state = federation.running("clinic")["http"], federation.folder / "clinic" / "state"
    watched = command("watch", job_id, "--node", at, "--token-file", str(state / "token"))
    assert watched.returncode == 0
    assert "E_TOKEN" in command("jobs", "--node", at).stderr
    assert stat.S_IMODE((state / "owner.sock").stat().st_mode) == 0o600
    opened = command("board", "--config", config, "--board", f"http://{at}/").stdout.strip()
    for link, page in ((submitted.stdout.split()[-1], f"/jobs/{job_id}"), (opened, "/")):
        assert link.startswith(f"http://{at}/login#ticket=")
        ticket, to = link.partition("ticket=")[2].split("&to=")
        assert to == page
        with urllib.request.urlopen(f"http://{at}/login", data=ticket.encode(), timeout=240) as entered:
            cookie = entered.headers["Set-Cookie"].partition(";")[0]
        asked = urllib.request.Request(f"http://{at}{page}", headers={"Cookie": cookie})
        assert job_id in urllib.request.urlopen(asked, timeout=240).read().decode()
        assert ticket not in federation.log("clinic")
    assert (state / "token").read_text() not in federation.log("clinic")
    assert command("cancel", job_id, "--config", config).returncode == 2
    assert "already ended" in command("cancel", job_id, "--config", config).stderr
    unknown = command("watch", "no-such-job", "--config", config)
    assert unknown.returncode == 2
    assert "Traceback" not in unknown.stderr
    federation.kill("clinic", signal.SIGTERM)
    gone = command("jobs", "--config", config)
    assert gone.returncode == 2
    assert "not running" in gone.stderr


def test_a_signal_to_stop_is_seen_whichever_thread_takes_it(federation: Any) -> None:
    federation.start("clinic", listen="127.0.0.1:0")
    process = federation.processes["clinic"]
    thread = next(int(task.name) for task in Path(f"/proc/{process.pid}/task").iterdir() if int(task.name) != process.pid)
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.tgkill(process.pid, thread, signal.SIGTERM) == 0, os.strerror(ctypes.get_errno())
    assert process.wait(GENEROUS_S) == 0
