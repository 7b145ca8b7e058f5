"""The same job in memory and over gRPC; what a spy on the wire sees; embeddings that do not invert."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from vfl_node.configuration.models import parse
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.reading import read_table
from vfl_node.execution import coordinator, train
from vfl_node.execution.conversations import conversations
from vfl_node.execution.folder import JobFolder
from vfl_node.execution.live import LiveProgress, Stop
from vfl_node.execution.run import Run, set_up
from vfl_node.execution.simulation import simulate
from vfl_node.job import Job
from vfl_node.session.memory import MemoryOfOneRun
from vfl_node.settings.node import Data, Settings
from vfl_node.transport.channel import Channel, run
from vfl_node.transport.dialer import Dialer
from vfl_node.transport.recorder import Recorder
from vfl_node.transport.server import NodeServer
from vfl_node.transport.streams import StreamPipe

ROLES = {"clinic": "active", "lab": "passive"}


def over_grpc(trial: Any, seeds: dict[str, Randomness], out: Path) -> None:
    """Both parties in threads of this process, joined by a real gRPC stream."""
    arrived: list[StreamPipe] = []
    here = threading.Event()

    def accept(party: str, job_id: str, pipe: StreamPipe) -> None:
        arrived.append(pipe)
        here.set()

    common = {"federation": "trial", "credentials": None}
    server = NodeServer(
        "127.0.0.1:0", own="clinic", peers=frozenset({"lab"}), on_converse=accept, on_link=lambda *_: None, **common
    )
    dialer = Dialer(server.start(), own="lab", peer="clinic", **common)
    failures: list[BaseException] = []

    def party(name: str, pipe: StreamPipe) -> None:
        try:
            job, role = trial.job(), ROLES[name]
            data = Data(path=trial.files[name], label="label" if role == "active" else None)
            settings = Settings(name=name, role=role, data=data, insecure_loopback=True, device="cpu")
            table = read_table(data, id_form="text", needs_label=role == "active", party=name)
            folder = JobFolder(out / name)
            progress = LiveProgress("trial", Stop())
            memory = MemoryOfOneRun(seeds[name].derive("memory of the peer"))
            peer = "lab" if name == "clinic" else "clinic"
            channel = Channel(pipe, peer=peer, job_id="trial")
            channels = {peer: channel}
            own = set_up(settings, job, "trial", table, seeds[name], folder, progress, 1, {peer: memory}, channels)
            (protocol,) = conversations(own)
            run(protocol)
            channel.close()
        except BaseException as error:
            failures.append(error)
            raise

    calling = dialer.converse("trial")
    assert here.wait(10)
    threads = [threading.Thread(target=party, args=pair) for pair in (("clinic", arrived[0]), ("lab", calling))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    dialer.close()
    server.stop()
    assert not failures


def test_grpc_and_memory_give_the_same_bits(trial: Any, seeds: dict[str, Randomness], tmp_path: Path) -> None:
    in_memory = simulate(trial.job(), trial.files, tmp_path / "memory", randomness=seeds)
    again = {"clinic": Randomness(b"c" * 32), "lab": Randomness(b"l" * 32)}
    over_grpc(trial, again, tmp_path / "grpc")
    for name, folder in in_memory.items():
        artefacts = JobFolder(tmp_path / "grpc" / name).artefacts
        assert (artefacts / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()
        ours, theirs = (json.loads((f / "report.json").read_text()) for f in (folder, artefacts))
        assert ours["metrics"] == theirs["metrics"]
        assert ours["phases"] == theirs["phases"]


def test_other_randomness_gives_another_model(trial: Any, seeds: dict[str, Randomness], tmp_path: Path) -> None:
    first = simulate(trial.job(), trial.files, tmp_path / "a", randomness=seeds)
    second = simulate(trial.job(), trial.files, tmp_path / "b")
    for name in first:
        assert (first[name] / "model.safetensors").read_bytes() != (second[name] / "model.safetensors").read_bytes()


def test_a_job_that_only_aligns_leaves_no_model(trial: Any, seeds: dict[str, Randomness], tmp_path: Path) -> None:
    simulate(trial.job(), trial.files, tmp_path / "a")
    folders = simulate(trial.job("align: {protocol: psu}"), trial.files, tmp_path / "a", randomness=seeds)
    report = json.loads((folders["clinic"] / "report.json").read_text())
    assert report["alignment"]["intersection"] == trial.shared
    assert report["training"] is None
    assert not (folders["clinic"] / "model.safetensors").exists()


def test_nothing_private_crosses_the_wire(trial: Any, tmp_path: Path) -> None:
    """No id, column name, path, or metric in any message (loss and metrics derive from labels)."""
    heard = Recorder()
    simulate(trial.job(), trial.files, tmp_path, wrap=heard.wrap)
    wire = b"".join(entry.frame.SerializeToString() for entry in heard.entries)
    assert len(wire) > 10_000
    for private in (*trial.ids, "measure-", str(trial.clinic), '"auc"'):
        assert private.encode() not in wire, private
    shared_figures = Recorder()
    shared = trial.job("train: {bottom: [4], epochs: 1}\nevaluate: {test_fraction: 0.3, share_with_passive: true}")
    folders = simulate(shared, trial.files, tmp_path / "shared", wrap=shared_figures.wrap)
    assert json.loads((folders["lab"] / "report.json").read_text())["metrics"]["auc"] is not None
    assert any(b'"auc"' in entry.frame.body for entry in shared_figures.entries)


@pytest.mark.parametrize("protocol", ["psu", pytest.param("psi", marks=pytest.mark.slow)])
def test_training_on_everything_owned(trial: Any, tmp_path: Path, protocol: str) -> None:
    text = f"align: {{protocol: {protocol}}}\ntrain: {{bottom: [8], epochs: 2}}\nevaluate: {{test_fraction: 0}}"
    report = json.loads((simulate(trial.job(text), trial.files, tmp_path)["clinic"] / "report.json").read_text())
    assert report["metrics"]["held_out"] is False
    assert report["metrics"]["rows"] == (160 if protocol == "psu" else 120)


THREE = """\
name: trial
parties: {active: clinic, passive: lab, coordinator: notary}
align: {protocol: psi}
train: {algorithm: logistic, flow: FLOW, iterations: 2, key_bits: 2048}
evaluate: {test_fraction: 0.3}
"""


@pytest.mark.parametrize("flow", ["coordinator-open-scores", pytest.param("coordinator, loss: taylor", marks=pytest.mark.slow)])
def test_three_parties_in_one_process(trial: Any, seeds: dict[str, Randomness], tmp_path: Path, flow: str) -> None:
    job = parse(THREE.replace("FLOW", flow), Job, source="job")
    views: list[dict[str, Any]] = []
    folders = simulate(job, trial.files, tmp_path / "a", randomness=seeds, on_view=views.append)
    assert list(folders) == ["clinic", "lab", "notary"]
    for name, folder in folders.items():
        assert json.loads((folder / "report.json").read_text())["party"] == name
        assert (folder / "model.safetensors").exists() == (name != "notary")
    assert folders["notary"] == tmp_path / "a" / "notary"
    assert views[0]["parties"] == ["clinic", "lab", "notary"]
    again = simulate(job, trial.files, tmp_path / "b", randomness=seeds)  # whatever key the notary draws
    for name in ("clinic", "lab"):
        assert (again[name] / "model.safetensors").read_bytes() == (folders[name] / "model.safetensors").read_bytes()


def test_nothing_private_crosses_the_wire_between_three(trial: Any, tmp_path: Path) -> None:
    heard = Recorder()
    job = parse(THREE.replace("FLOW", "coordinator-open-scores"), Job, source="job")
    simulate(job, trial.files, tmp_path, wrap=heard.wrap)
    assert {entry.sender for entry in heard.entries} == {"clinic", "lab", "notary"}
    wire = b"".join(entry.frame.SerializeToString() for entry in heard.entries)
    assert len(wire) > 10_000
    for private in (*trial.ids, "measure-", str(trial.clinic), '"auc"'):
        assert private.encode() not in wire, private


def test_a_report_is_written_once_also_by_a_coordinator(trial: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As soon as one of its conversations ends a data party may be done; a report half written anew would be none."""
    written: list[str] = []
    keep = train.keep

    def noted(own: Run, *rest: Any, **named: Any) -> None:
        written.append(own.session.role)
        keep(own, *rest, **named)

    for module in (train, coordinator):
        monkeypatch.setattr(module, "keep", noted)
    text = """\
name: trial
parties: {active: clinic, passive: lab, coordinator: notary}
align: {protocol: psi}
train: {algorithm: logistic, iterations: 1, key_bits: 2048, flow: coordinator-open-scores}
"""
    simulate(parse(text, Job, source="job"), trial.files, tmp_path)
    assert sorted(written) == ["active", "coordinator", "passive"]
