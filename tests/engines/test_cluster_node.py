"""Two nodes run one job, and one of them computes on a Ray cluster."""

from __future__ import annotations

import json
import os
import signal
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from tests.conftest import Trial
from tests.engines.ray_cluster import TestCluster, link_of, make_certificates, soon
from tests.node import forked_node
from tests.node.nodes import Child, Federation
from vfl_node.crypto.build import describe_build
from vfl_node.engines.ray.cluster import Cluster
from vfl_node.models import storage
from vfl_node.node.doctor.workers import check_workers

pytestmark = pytest.mark.ray


@pytest.fixture
def federation(tmp_path, trial):
    made = Federation(tmp_path, trial)
    made.as_users_start_them()
    yield made
    made.end_all()


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


ROWS = 70_000
TERMS = """
align: {protocol: psi}
train: {bottom: [2], epochs: 1, batch_size: 16384}
evaluate: {test_fraction: 0.3}
"""


def start_repeatable(name, arguments, log):
    """A node whose jobs all have the same seed, so that they can be compared."""
    return Child(forked_node.run, dict(os.environ), arguments, log, name)


@pytest.fixture
def repeatable(tmp_path):
    """Two nodes with enough rows for several blocks of a cluster; five sixths of them are in both tables."""
    for name, first, columns in (("clinic", 0, "a,label"), ("lab", ROWS // 6, "b,c")):
        rows = (f"patient-{n},{n % 97},{n % 2}" for n in range(first, first + ROWS))
        (tmp_path / f"{name}.csv").write_text("\n".join([f"id,{columns}", *rows]))
    made = Federation(tmp_path, Trial(tmp_path / "clinic.csv", tmp_path / "lab.csv", ROWS - ROWS // 6, ()))
    made.programs = {name: partial(start_repeatable, name) for name in made.roles}
    yield made
    made.end_all()


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


def test_a_job_whose_cluster_dies_goes_on_with_the_next_one(repeatable):
    repeatable.start_both()
    expected = outcome(repeatable, repeatable.submit(TERMS))  # on threads
    for kept in repeatable.folder.rglob("*.kept"):
        kept.unlink()  # else the next job would take this one's intersection
    repeatable.kill("clinic", signal.SIGTERM)
    with TestCluster(workers=1, slots=1) as cluster:
        repeatable.start("clinic", engine=engine_of(cluster))
        job = repeatable.submit(TERMS)
        repeatable.wait_until(lambda: repeatable.view("clinic", job).get("done"))
        for name, number in (("ray::", signal.SIGSTOP), ("gcs_server", signal.SIGKILL)):
            for process in cluster.processes(name):
                os.kill(process, number)
        view = repeatable.end("clinic", job)
        assert (view["state"], view["error"]["code"], view["resumable"]) == ("failed", "E_WORKER", True)
        cluster.kill()
        cluster.start()
        repeatable.client("clinic").resume(job)
        assert outcome(repeatable, job) == expected
        assert drivers(cluster) == 2


def test_the_doctor_has_a_worker_compute_or_says_why_none_does(cluster, tmp_path):
    found = check_workers(cluster.settings)
    assert found.status == "ok", found
    assert "runs this build" in found.text
    make_certificates(tmp_path)
    refused = check_workers(cluster.settings_with(ca=tmp_path / "ca.pem"))
    assert (refused.status, refused.number) == ("FAIL", 20)
    assert "do not fit" in refused.text
    assert "E_WORKER" in refused.text


def test_the_doctor_warns_where_no_core_is_free(cluster):
    with closing(Cluster(cluster.settings_with(workers=cluster.cpus), describe_build)) as busy:
        from vfl_node import tasks_for_tests as tasks

        work = busy.map(tasks.sleep, [600] * 2 * cluster.cpus, None)
        assert soon(lambda: link_of(busy) and len(link_of(busy).workers) == cluster.cpus)
        found = check_workers(cluster.settings)
        assert (found.status, found.hint.split(",")[0]) == ("warn", "wait until a core is free")
        assert "no worker started within 20 s" in found.text
        del work
