"""Two nodes run one job, and one of them computes on a Ray cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.node.nodes import Federation

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


def test_a_job_of_two_nodes_is_done_by_the_cluster_of_one(cluster, federation):
    before, engine = drivers(cluster), json.loads(cluster.settings.model_dump_json(exclude_defaults=True))
    federation.configure("clinic", engine=engine)
    federation.start_both()
    job = federation.submit("align: {protocol: psi}\n")
    for name in ("clinic", "lab"):
        assert federation.end(name, job)["state"] == "done", federation.log(name)[-3000:]
    mine, theirs = (federation.report(name, job)["alignment"] for name in ("clinic", "lab"))
    assert mine["intersection"] == theirs["intersection"] > 0
    assert drivers(cluster) == before + 1
