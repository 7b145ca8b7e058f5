"""A passive node's audit of its own columns: its owner sees it and may stop by it, and nobody else hears of it."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from canaries import Search, files_in

from tests.node.revealing import COLUMNS, FLAG, KIND, Revealing, make_revealing
from vfl_node.errors import VflError
from vfl_node.execution.private import PrivateSettings, trial_settings
from vfl_node.execution.simulation import simulate
from vfl_node.settings.protection import Compare
from vfl_node.transport.generated.vfl.v1 import training_pb2
from vfl_node.transport.recorder import Entry, Recorder

SPLIT = """\
align: {protocol: psi}
train: {bottom: [16], active_bottom: [4], top: [8], epochs: 2, batch_size: 32}
evaluate: {test_fraction: 0.2, validation_fraction: 0.2, share_with_passive: true}
"""
AUDIT = {"audit": {"features": {"columns": "all", "known_share": 0.2}}}
HIDDEN = {"defences": [{"name": "fbs", "columns": [FLAG, KIND], "rounds": 2}, {"name": "noise", "sigma": 0.0123456789}]}
WORDS = (
    "known_share",
    "0.0123456789",
    "fbs",
    'feature_audit": {',
    "E_LEAK",
    "rebuild one of",
    "simulated decoder",
)
"""Of settings, figures and errors that are this owner's business."""


@pytest.fixture
def nodes(federations: Callable[..., Any], tmp_path: Path) -> Iterator[Any]:
    made = federations(tmp_path, tables=make_revealing(tmp_path))
    yield made
    made.end_all()


def asked(nodes: Any, name: str, path: str) -> str:
    """What a node answers its owner over HTTP."""
    connection = http.client.HTTPConnection(nodes.client(name).address, timeout=60)
    token = (nodes.folder / name / "state" / "token").read_text()
    connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
    text = connection.getresponse().read().decode()
    connection.close()
    return text


def test_its_owner_sees_columns_while_it_trains_and_in_the_report(nodes: Any) -> None:
    nodes.start_both(**AUDIT, **HIDDEN, metrics={"columns": True})
    job_id = nodes.submit(SPLIT.replace("epochs: 2", "epochs: 400, patience: 400"))
    nodes.wait_until(lambda: nodes.view("lab", job_id).get("rebuilt"))
    view = nodes.view("lab", job_id)
    assert view["rebuilt"].keys() == set(COLUMNS)
    assert all(of.keys() == {"constant", "static", "adaptive", "stacked"} for of in view["rebuilt"].values())
    metrics = [line for line in asked(nodes, "lab", "/metrics").splitlines() if line.startswith("vfl_feature_attack{")]
    for column in COLUMNS:
        assert any(f'attack="static",column="{column}",job="{job_id}"' in line for line in metrics), metrics
    page = asked(nodes, "lab", f"/jobs/{job_id}")
    assert "Own columns rebuilt from what is sent" in page
    told = {path: asked(nodes, "clinic", path) for path in ("/metrics", f"/jobs/{job_id}", f"/api/jobs/{job_id}", "/")}
    assert "vfl_feature_attack{" not in told["/metrics"]
    assert json.loads(told[f"/api/jobs/{job_id}"])["rebuilt"] == {}
    for path, text in told.items():
        assert not any(word in text for word in (*COLUMNS, *WORDS)), path
    nodes.client("lab").cancel(job_id)
    for name in ("clinic", "lab"):
        assert nodes.end(name, job_id)["state"] == "cancelled"


def test_nothing_of_it_is_anywhere_at_the_peer(nodes: Any) -> None:
    nodes.start_both(**AUDIT, **HIDDEN)
    job_id = nodes.submit(SPLIT + "serve: {to: active}\n")
    assert {nodes.end(name, job_id)["state"] for name in ("clinic", "lab")} == {"done"}
    search = Search(COLUMNS, ["0.0123456789"])
    clinic = files_in(nodes.folder / "clinic" / "state") | {"log": nodes.log("clinic").encode()}
    clinic |= {path: asked(nodes, "clinic", path).encode() for path in ("/metrics", f"/jobs/{job_id}/report.html", "/health")}
    assert search.found_in(clinic) == {}
    report = json.dumps(nodes.report("clinic", job_id)) + nodes.log("clinic")
    assert not any(word in report for word in WORDS), [word for word in WORDS if word in report]
    assert search.found(nodes.log("lab").encode()) == []  # nor in the owner's own log
    own = search.found_in(files_in(nodes.folder / "lab" / "state"))
    assert {Path(place).name for place in own} == {"report.json", "report.html", "model.safetensors", "serving", "columns"}
    shown = nodes.report("lab", job_id)
    assert shown["training"]["feature_audit"].keys() == set(COLUMNS)
    assert shown["training"]["warnings"][0].startswith("No defence protects")


def test_a_column_rebuilt_too_well_stops_the_training_and_a_restart_does_not_get_around_it(nodes: Any) -> None:
    nodes.failpoints["lab"] = "rebuilt=kill@1"
    nodes.start_both(**AUDIT, everyone={"attacks": {"columns": 0.2}})
    job_id = nodes.submit(SPLIT)
    nodes.dies_in("lab", job_id)  # after its attacks, before it looks at the limit
    nodes.start("lab")
    stopped, told = nodes.end("lab", job_id), nodes.end("clinic", job_id)
    assert stopped["state"] == told["state"] == "failed"
    assert stopped["error"]["code"] == "E_LEAK"
    assert "own attacks rebuild one of its columns from what it sends" in stopped["error"]["message"]
    assert any(f"the column is '{column}'" in stopped["error"]["hint"] for column in COLUMNS)
    assert told["error"]["code"] == "E_PEER"
    assert "stopped by lab's policy (E_STOPPED)" in told["error"]["message"]
    said = json.dumps(told) + nodes.log("clinic")
    assert not any(word in said for word in (*COLUMNS, *WORDS, "attacks.columns"))
    assert not any(column in nodes.log("lab") for column in COLUMNS)
    for name in ("lab", "clinic"):
        with pytest.raises(VflError):
            nodes.client(name).resume(job_id)
    nodes.kill("lab")
    nodes.start("lab", everyone={})
    assert nodes.view("lab", job_id)["state"] == "failed"
    assert not (nodes.job_folder("lab", job_id) / "artefacts" / "model.safetensors").exists()


def test_below_the_limit_training_goes_on(nodes: Any) -> None:
    nodes.start_both(**AUDIT, everyone={"attacks": {"columns": 1.0}})
    job_id = nodes.submit(SPLIT.replace("epochs: 2", "epochs: 1"))
    assert nodes.end("lab", job_id)["state"] == nodes.end("clinic", job_id)["state"] == "done"
    found = nodes.report("lab", job_id)["training"]
    assert found["max_feature_gain"] == 1.0
    assert max(of["worst"] - of["constant"] for of in found["feature_audit"].values()) > 0.2  # where the other one stopped


def heard(folder: Path, tables: Revealing, text: str, **own: Any) -> list[Entry]:
    """All messages of a job whose passive parties have these settings."""
    recorder, job = Recorder(), tables.job(text)
    given = dict.fromkeys(job.parties.passive, PrivateSettings(own))
    settings = trial_settings(job, tables.files, given=given, columns={}, threads=1, models={}, compare=Compare())
    simulate(job, tables.files, folder, settings=settings, wrap=recorder.wrap)
    return recorder.entries


def sizes(entries: list[Entry]) -> list[tuple[str, int]]:
    """Kind and bytes of each message. Whether an epoch improved is left out: it depends on the drawn noise."""

    def size(entry: Entry) -> int:
        if entry.kind == "EpochEnd":
            end = training_pb2.EpochEnd.FromString(entry.frame.body)
            end.ClearField("improved")
            return end.ByteSize()
        return len(entry.frame.body)

    return [(entry.kind, size(entry)) for entry in entries]


def test_messages_are_as_without_and_have_nothing_of_it(tmp_path: Path) -> None:
    """Of two passive parties; neither sends the other anything."""
    tables = make_revealing(tmp_path, ("lab", "insurer"), rows=480)
    text = SPLIT.replace("epochs: 2", "epochs: 2, patience: 2").replace("share_with_passive: true", "metrics: [nll]")
    plain, hidden = heard(tmp_path / "plain", tables, text), heard(tmp_path / "hidden", tables, text, **AUDIT, **HIDDEN)
    pairs = {("clinic", "lab"), ("lab", "clinic"), ("clinic", "insurer"), ("insurer", "clinic")}
    assert {(entry.sender, entry.receiver) for entry in hidden} == pairs
    for pair in pairs:  # those of several pairs are sent side by side
        sent = [sizes([entry for entry in entries if (entry.sender, entry.receiver) == pair]) for entries in (plain, hidden)]
        assert sent[0] == sent[1], pair
    wire = b"".join(entry.frame.SerializeToString() for entry in hidden)
    assert len(wire) > 100_000
    assert Search(COLUMNS, ["0.0123456789"]).found(wire) == []
    assert not any(word.encode() in wire for word in ("known_share", "columns", "rebuilt"))
