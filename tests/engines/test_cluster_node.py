"""Two nodes run one job, and one of them computes on a Ray cluster."""

from __future__ import annotations

import json
import os
import signal
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import Trial
from tests.engines.ray_cluster import TestCluster
from tests.node.nodes import Federation
from vfl_node.models import storage

pytestmark = pytest.mark.ray


@contextmanager
def nodes(folder, trial):
    """Two nodes, which end with the block."""
    made = Federation(folder, trial)
    made.as_users_start_them()
    try:
        yield made
    finally:
        made.end_all()


@pytest.fixture
def federation(tmp_path, trial):
    with nodes(tmp_path, trial) as made:
        yield made


def drivers(cluster):
    """How many have been connected, by the logs that each leaves."""
    return len(list(Path(cluster.folder).rglob("python-core-driver-*.log")))


def engine_of(cluster):
    """The settings of a node that uses it."""
    return json.loads(cluster.settings.model_dump_json(exclude_defaults=True))


def test_a_job_of_two_nodes_is_done_by_the_cluster_of_one(cluster, federation):
    before = drivers(cluster)
    federation.configure("clinic", engine=engine_of(cluster))
    federation.start_both()
    job = federation.submit("align: {protocol: psi}\n")
    for name in ("clinic", "lab"):
        assert federation.end(name, job)["state"] == "done", federation.log(name)[-3000:]
    mine, theirs = (federation.report(name, job)["alignment"] for name in ("clinic", "lab"))
    assert mine["intersection"] == theirs["intersection"] > 0
    assert drivers(cluster) == before + 1


ROWS = 90_000
TERMS = """
align: {protocol: psi}
train: {bottom: [2], epochs: 1, batch_size: 16384}
evaluate: {test_fraction: 0.3}
"""


@pytest.fixture
def many(tmp_path):
    """Two tables with enough rows for several blocks of a cluster; five sixths of them are in both."""
    for name, first, columns in (("clinic", 0, "a,label"), ("lab", ROWS // 6, "b,c")):
        rows = (f"patient-{n},{n % 97},{n % 2}" for n in range(first, first + ROWS))
        (tmp_path / f"{name}.csv").write_text("\n".join([f"id,{columns}", *rows]))
    return Trial(tmp_path / "clinic.csv", tmp_path / "lab.csv", ROWS - ROWS // 6, ())


def outcome(federation, job):
    """What does not depend on where a job was computed: alignment, metrics, and the models."""
    found = []
    for name in ("clinic", "lab"):
        assert federation.end(name, job)["state"] == "done", federation.log(name)[-3000:]
        report = federation.report(name, job)
        for figure in ("seconds", "bytes_sent", "bytes_received"):
            del report["alignment"][figure]
        weights, _ = storage.load(federation.job_folder(name, job) / "artefacts" / "model.safetensors")
        found.append((report["alignment"], report["metrics"], {key: of.numpy().tobytes() for key, of in weights.items()}))
    return found


def test_a_job_whose_cluster_dies_goes_on_with_the_next_one(tmp_path, many):
    with nodes(tmp_path / "threads", many) as federation:
        federation.start_both()
        expected = outcome(federation, federation.submit(TERMS))
    with nodes(tmp_path / "cluster", many) as federation, TestCluster(workers=1, slots=1) as cluster:
        federation.configure("clinic", engine=engine_of(cluster))
        federation.start_both()
        job = federation.submit(TERMS)
        federation.wait_until(lambda: federation.view("clinic", job).get("done"))
        for name, number in (("ray::", signal.SIGSTOP), ("gcs_server", signal.SIGKILL)):
            for process in cluster.processes(name):
                os.kill(process, number)
        import time; t=time.monotonic(); view = federation.end("clinic", job); print("END", time.monotonic()-t, view["error"])
        assert (view["state"], view["error"]["code"], view["resumable"]) == ("failed", "E_WORKER", True)
        cluster.kill()
        cluster.start()
        federation.client("clinic").resume(job)
        assert outcome(federation, job) == expected
        assert drivers(cluster) == 2
