"""A trainer of an installed package serves its models as a split network does: by the contract alone."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

ENTRY_POINTS = """\
[vfl_node.trainers]
constant = tests.node.constant.config:Constant

[vfl_node.alignments]
other_psi = tests.node.constant.config:OTHER_PSI
"""

JOB = """\
name: trial
parties: {active: clinic, passive: lab}
align: {protocol: other_psi}
train: {algorithm: constant}
serve: {to: both}
"""


@pytest.fixture(scope="module")
def nodes(federations: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A clinic and a lab with the package. The lab would add noise, if there were something to add it to."""
    installed = tmp_path_factory.mktemp("installed")
    facts = installed / "constant-1.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: constant\nVersion: 1\n")
    (facts / "entry_points.txt").write_text(ENTRY_POINTS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(installed), str(ROOT)]))
        federation = federations(tmp_path_factory.mktemp("served"))
        federation.as_users_start_them()
        allowed = {"everyone": {"reveal": ["matched"]}}
        federation.configure("clinic", accepts=["lab"], **allowed)
        federation.start_both(defences=[{"name": "noise", "sigma": 1}], **allowed)
        yield federation


@pytest.fixture(scope="module")
def model(nodes: Any) -> str:
    job_id: str = nodes.client("clinic").submit(JOB)["id"]
    for name in ("clinic", "lab"):
        assert nodes.end(name, job_id)["state"] == "done", nodes.log(name)[-3000:]
    return job_id


def probabilities(answer: bytes) -> list[str]:
    return [row[-1] for row in csv.reader(io.StringIO(answer.decode()))][1:]


@pytest.mark.parametrize("name", ["lab", pytest.param("clinic", marks=pytest.mark.slow)])
def test_known_records_are_predicted(nodes: Any, model: str, name: str) -> None:
    ids = nodes.trial.ids[50:53]
    answer = nodes.client(name).predict(model, "\n".join(["id", *ids, ""]).encode(), lambda: None)
    (share,) = set(probabilities(answer))
    assert 0 < float(share) < 1
    service = next(view["id"] for view in nodes.client(name).jobs() if view["predict"] and view["state"] == "running")
    nodes.client(name).cancel(service)
    for party in ("clinic", "lab"):
        assert nodes.end(party, service)["state"] == "done", nodes.log(party)[-3000:]
    clinic, lab = (nodes.report(party, service) for party in ("clinic", "lab"))
    assert clinic["predictions"]["batches"] == lab["predictions"]["batches"] == 1
    assert [entry["what"] for entry in clinic["learnt"]["lab"]] == (["predictions"] if name == "lab" else [])
    assert any("changed nothing that it sent in predictions: noise" in text for text in lab["predictions"]["warnings"])


def test_new_records_are_aligned_as_the_training_was_since_it_shares_every_row(nodes: Any, model: str) -> None:
    job_id = nodes.client("clinic").predict_new(model, nodes.trial.files["clinic"].read_bytes())["id"]
    for name in ("clinic", "lab"):
        assert nodes.end(name, job_id)["state"] == "done", nodes.log(name)[-3000:]
        assert nodes.report(name, job_id)["alignment"]["protocol"] == "other_psi"
    shared = [share for share in probabilities(nodes.client("clinic").predictions(job_id)) if share]
    assert len(shared) == nodes.report("clinic", job_id)["alignment"]["rows"]
    assert len(set(shared)) == 1


def test_a_model_whose_trainer_measures_no_matched_rows_is_said_to_have_none(nodes: Any) -> None:
    job_id = nodes.client("clinic").submit(JOB.replace("other_psi", "psu") + "evaluate: {matched: true}\n")["id"]
    assert nodes.end("clinic", job_id)["state"] == "done", nodes.log("clinic")[-3000:]
    assert any("evaluate.matched" in warning for warning in nodes.report("clinic", job_id)["training"]["warnings"])
