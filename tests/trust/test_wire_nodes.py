"""What an owner sees of a job's messages: by type, the same at both ends, searched; and, as root, from outside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.node.nodes import Child, command
from tests.trust import skipping_node
from tests.trust.test_new_authority_nodes import Paired
from vfl_node.execution.outcome import JobOutcome
from vfl_node.node.wire import read_wire

JOB = "align: {protocol: psi}\ntrain: {bottom: [4], active_bottom: [4], top: [4], epochs: 2}\n"


@pytest.fixture(scope="module")
def nodes(trial: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Paired]:
    made = Paired(tmp_path_factory.mktemp("wire"), trial)
    made.configure("clinic", audit={"wire": True})
    made.start_both(audit={"wire": True})
    yield made
    made.end_all()


def job_file(nodes: Paired) -> Path:
    path = nodes.folder / "job.yaml"
    path.write_text(f"name: wire\nparties: {{active: clinic, passive: [lab]}}\n{JOB}")
    return path


def flows(nodes: Paired, name: str, job_id: str) -> dict[tuple[str, str, str], tuple[int, int, str]]:
    """Way, phase and type → messages, bytes and digest."""
    (run,) = read_wire(JobOutcome(nodes.folder / name / "state/jobs" / job_id))
    return {
        (flow["way"], flow["phase"], flow["type"]): (flow["messages"], flow["bytes"], flow["sha256"]) for flow in run["flows"]
    }


def test_both_ends_have_the_same_and_nothing_of_the_table_is_found(nodes: Paired) -> None:
    done = command("audit-wire", job_file(nodes), "--config", nodes.config("clinic"), "--json", "--control")
    assert done.returncode == 0, done.stderr
    assert "control: a planted value in a message: found" in done.stderr
    told = json.loads(done.stdout)
    nodes.wait_until(lambda: nodes.view("lab", told["job"])["state"] == "done")
    nodes.wait_until(lambda: read_wire(JobOutcome(nodes.folder / "lab" / "state/jobs" / told["job"])))
    at_clinic, at_lab = (flows(nodes, name, told["job"]) for name in nodes.roles)
    other = {"sent": "received", "received": "sent"}
    assert {(other[way], phase, kind): flow for (way, phase, kind), flow in at_clinic.items()} == at_lab
    assert {kind for _, _, kind in at_clinic} >= {"Preflight", "Chunk", "Embedding", "Gradient"}
    (run,) = told["runs"]
    assert run["searched"]["values"] > 100
    moved = nodes.client("clinic").report(told["job"])["phases"]
    for way, key in (("sent", "bytes_sent"), ("received", "bytes_received")):
        trained = sum(flow[1] for (of, phase, _), flow in at_clinic.items() if (of, phase) == (way, "train"))
        assert trained == moved["train"][key]
    again = command("audit-wire", told["job"], "--config", nodes.config("clinic"))
    assert (again.returncode, "searched for" in again.stdout) == (0, True)


def count_bytes(nodes: Paired, name: str) -> int:
    """``vfl_peer_bytes_total``, over all its series, as Prometheus reads it."""
    families = text_string_to_metric_families(nodes.client(name)._fetch("GET", "/metrics").decode())
    (family,) = (family for family in families if family.name == "vfl_peer_bytes")
    return int(sum(sample.value for sample in family.samples))


def test_the_bytes_are_those_of_the_metric_also_of_a_job_that_is_cancelled(nodes: Paired) -> None:
    before = {name: count_bytes(nodes, name) for name in nodes.roles}
    job_id = nodes.submit(JOB.replace("epochs: 2", "epochs: 100000"))
    nodes.wait_until(lambda: nodes.in_training("clinic", job_id))
    nodes.client("lab").cancel(job_id)
    for name in nodes.roles:
        assert nodes.end(name, job_id)["state"] == "cancelled"
        nodes.wait_until(lambda name=name: read_wire(JobOutcome(nodes.folder / name / "state/jobs" / job_id)))
        told = command("audit-wire", job_id, "--config", nodes.config(name), "--json")
        assert told.returncode == 0, told.stdout
        (run,) = json.loads(told.stdout)["runs"]
        inner = sum(flow["bytes"] for flow in run["flows"])
        assert run["metric"]["bytes"] == inner + sum(run["metric"]["others"].values())
        assert run["metric"]["others"]["Notice"] > 0
        assert inner < run["metric"]["bytes"] <= count_bytes(nodes, name) - before[name]
        assert "equal to the byte" in command("audit-wire", job_id, "--config", nodes.config(name)).stdout


def test_a_message_that_was_not_looked_at_is_missed(nodes: Paired) -> None:
    nodes.kill("clinic", 15)
    nodes.programs["clinic"] = lambda arguments, log: Child(skipping_node.run, dict(os.environ), arguments, log)
    nodes.start("clinic")
    try:
        missed = command("audit-wire", job_file(nodes), "--config", nodes.config("clinic"), "--json")
        told = json.loads(missed.stdout)
        assert missed.returncode == 1
        nodes.wait_until(lambda: read_wire(JobOutcome(nodes.folder / "lab" / "state/jobs" / told["job"])))
        at_lab = flows(nodes, "lab", told["job"])["received", "train", "Gradient"]
        at_clinic = flows(nodes, "clinic", told["job"])["sent", "train", "Gradient"]
        assert at_lab[0] - at_clinic[0] == 1
        assert told["uncounted"] == [at_lab[1] - at_clinic[1]]
        said = command("audit-wire", told["job"], "--config", nodes.config("clinic"))
        assert (said.returncode, f"+{told['uncounted'][0]:,} bytes" in said.stdout) == (1, True)
    finally:
        nodes.kill("clinic", 15)
        nodes.programs["clinic"] = nodes.programs["lab"]
        nodes.start("clinic")


def test_a_job_that_was_not_looked_at_and_a_node_that_does_not_look_are_said(nodes: Paired, tmp_path: Path) -> None:
    unknown = command("audit-wire", "no-job", "--config", nodes.config("clinic"))
    assert (unknown.returncode, "E_UNKNOWN_JOB" in unknown.stderr) == (2, True)
    blind = tmp_path / "node.yaml"
    blind.write_text("name: n\nrole: passive\ninsecure_loopback: true\nhttp: null\n")
    refused = command("audit-wire", "no-job", "--config", blind)
    assert (refused.returncode, "audit: {wire: true}" in refused.stderr) == (2, True)


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may look at packets")
def test_from_outside_there_is_tls_1_3_and_no_value(nodes: Paired) -> None:
    pcap = nodes.folder / "seen.pcap"
    words = ("audit-wire", str(job_file(nodes)), "--config", str(nodes.config("clinic")), "--pcap", str(pcap))
    auditing = subprocess.Popen(
        [sys.executable, "-m", "vfl_node", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert auditing.stderr
    assert "restart the node now" in auditing.stderr.readline()
    nodes.kill("clinic", 15)
    nodes.start("clinic")
    said, error = auditing.communicate(timeout=240)
    assert auditing.returncode == 0, said + error
    assert "bytes of TLS 1.3, and no value of this node's table" in said
    assert "equal to the byte" in said
    assert pcap.stat().st_mode & 0o777 == 0o600
