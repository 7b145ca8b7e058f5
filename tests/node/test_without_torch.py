"""Nodes that only align do without torch, which takes two seconds and 200 MiB; the first training loads it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vfl_node.execution.private import trial_settings
from vfl_node.node.federation import LocalFederation

HEAVY = ("/torch/", "/scipy/", "/sklearn/")


def loaded(federation: LocalFederation) -> set[tuple[str, str]]:
    """(party, library) of the heavy libraries that the processes have in their memory."""
    maps = {name: Path(f"/proc/{process.pid}/maps").read_text() for name, process in federation._processes.items()}
    return {(name, library) for name, text in maps.items() for library in HEAVY if library in text}


@pytest.fixture
def federation(trial: Any, tmp_path: Path) -> Iterator[tuple[LocalFederation, Any]]:
    """Two nodes, each a process that was started as a user starts it, and a job that only aligns."""
    job = trial.job("align: {protocol: psi}")
    with LocalFederation(job, trial_settings(job, trial.files), logs=tmp_path / "logs") as nodes:
        yield nodes, job


def test_an_alignment_loads_no_torch_and_the_first_training_does(
    federation: tuple[LocalFederation, Any], trial: Any, tmp_path: Path
) -> None:
    nodes, job = federation
    out = nodes.run(tmp_path / "out", lambda _: None)
    assert (out[job.parties.active] / "report.html").exists()
    for client in nodes._clients.values():  # what a person looks at
        client.jobs()
    assert loaded(nodes) == set()
    active = nodes._clients[job.parties.active]
    train = "align: {protocol: psi}\ntrain: {bottom: [4], active_bottom: [4], top: [4], epochs: 1}"
    *_, ended = active.watch(active.submit(trial.job(train).canonical())["id"])
    assert ended["state"] == "done", ended["error"]
    assert {(name, "/torch/") for name in nodes._processes} <= loaded(nodes)
