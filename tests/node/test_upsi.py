"""Two real nodes that align by upsi: they train on it, a later job needs no list, and new records are asked about."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.node.test_predictions import new_records

JOB = """\
align: {protocol: %s}
train: {bottom: [4], epochs: 1, batch_size: 64}
evaluate: {test_fraction: 0.3}
serve: {to: both, align: upsi}
"""
ALLOWED = {"protocols": ["psi", "upsi"], "queries_per_peer": {"per_day": 600}}


@pytest.fixture(scope="module")
def nodes(federations: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    federation = federations(tmp_path_factory.mktemp("upsi"))
    for name in ("clinic", "lab"):
        federation.configure(name, everyone=ALLOWED, accepts=("clinic", "lab"))
    federation.start_both()
    federation.wait_until(lambda: federation.client("clinic").health()["peers"]["lab"]["online"])
    return federation


def run(nodes: Any, protocol: str) -> dict[str, Any]:
    job_id = nodes.submit(JOB % protocol)
    for name in ("clinic", "lab"):
        view = nodes.end(name, job_id)
        assert view["state"] == "done", (view, nodes.log(name)[-3000:])
    return {"id": job_id, **{name: nodes.report(name, job_id) for name in ("clinic", "lab")}}


def test_it_trains_as_psi_does_and_later_jobs_send_no_list(nodes: Any, trial: Any) -> None:
    psi, first, second = (run(nodes, protocol) for protocol in ("psi", "upsi", "upsi"))
    for name in ("clinic", "lab"):
        for job in (first, second):
            assert job[name]["alignment"]["rows"] == psi[name]["alignment"]["rows"] == 120
            assert job[name]["alignment"]["protocol"] == "upsi"
        learnt = [entry["what"] for entry in first[name]["learnt"]["clinic"]]
        assert learnt[:3] == ["set size", "intersection", "tag list"]
    sent = [job["lab"]["alignment"]["bytes_sent"] for job in (first, second)]
    assert sent[0] - sent[1] > 1_172  # the size of the list
    state = nodes.folder / "clinic" / "state"
    (kept,) = (path for path in (state / "cached").iterdir() if path.is_file())
    assert kept.name.startswith("lab-1-")
    assert kept.stat().st_mode & 0o777 == 0o600

    # New records: whoever wants predictions asks about them. The lab served in training, and asks now.
    for asker, rows, model in (("clinic", range(20, 150), psi), ("lab", range(10, 145), first)):
        job_id = nodes.client(asker).predict_new(model["id"], new_records(trial, asker, rows))["id"]
        view = nodes.end(asker, job_id)
        assert view["state"] == "done", (view, nodes.log(asker)[-3000:])
        report = nodes.report(asker, job_id)
        assert report["alignment"]["protocol"] == "upsi"
        assert "tag list" in [entry["what"] for entry in report["learnt"][asker]]
    for name in ("clinic", "lab"):
        assert "Traceback" not in nodes.log(name)

    held = nodes.client("lab").health()["budgets"]["peers"]["clinic"]
    used = {limit: held[limit]["used"] for limit in held if "_per_" in limit}
    assert used == {"asked_per_day": 135, "asked_per_epoch": 135, "answered_per_day": 450, "answered_per_epoch": 450}
    assert (held["answered_per_day"]["allowed"], held["answered_per_epoch"]["allowed"]) == (600, 50_000)

    # The lab has answered 160 + 160 + 130 ids; with 160 more it would be 610 of 600. What it has asked is another count.
    job_id = nodes.submit(JOB % "upsi")
    for name in ("clinic", "lab"):
        view = nodes.end(name, job_id)
        assert view["state"] == "failed"
    codes = {nodes.view(name, job_id)["error"]["code"] for name in ("clinic", "lab")}
    assert "E_BUDGET" in codes


def test_a_table_that_has_grown_sends_only_what_came(federations: Any, trial: Any, tmp_path: Path) -> None:
    """Which its owner allows. Nodes that are killed go on: when the grown list is written, has come, and is kept."""
    federation = federations(tmp_path)
    head, *rows = trial.files["lab"].read_text().splitlines(keepends=True)
    table = tmp_path / "growing.csv"
    table.write_text("".join([head, *rows[:-24]]))
    queries = {"per_day": 1000, "deltas": True}
    for name, data in (("clinic", {}), ("lab", {"data": {"path": str(table)}})):
        federation.configure(name, everyone=ALLOWED | {"queries_per_peer": queries}, accepts=("clinic", "lab"), **data)
    federation.start_both()
    federation.wait_until(lambda: federation.client("clinic").health()["peers"]["lab"]["online"])
    align = "align: {protocol: upsi}\n"

    def learnt(job_id: str) -> list[dict[str, Any]]:
        for name in ("clinic", "lab"):
            assert federation.end(name, job_id)["state"] == "done", federation.log(name)[-3000:]
        reports = [federation.report(name, job_id)["learnt"]["clinic"] for name in ("clinic", "lab")]
        assert reports[0] == reports[1]
        return [entry for entry in reports[0] if entry["what"] == "added tags"]

    state = tmp_path / "clinic" / "state" / "cached"
    assert learnt(federation.submit(align)) == []
    (kept,) = (path for path in state.iterdir() if path.is_file())
    before = kept.read_bytes()
    for victim, place, left in (("lab", "align-list", 16), ("clinic", "align-synced", 8), ("clinic", "align-list", 0)):
        table.write_text("".join([head, *rows[: len(rows) - left]]))
        federation.kill(victim)
        federation.failpoints[victim] = f"{place}=kill"
        federation.start(victim)
        job_id = federation.submit(align)
        assert federation.processes[victim].wait(60) == -signal.SIGKILL, federation.log(victim)[-3000:]
        assert (kept.read_bytes() == before) == ((victim, place) != ("clinic", "align-list"))
        federation.start(victim)
        (told,) = learnt(job_id)
        assert told["count"] == 8
        assert "8 records have come to lab" in told["text"]
        assert kept.read_bytes() != before
        before = kept.read_bytes()
        assert [path for path in state.iterdir() if path.is_file()] == [kept]
    for name in ("clinic", "lab"):
        assert "Traceback" not in federation.log(name)
