"""Real nodes count statistics, then train on weights of evidence and predict; one is killed (-9) on the way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.node.several import SeveralTrial
from tests.node.test_kill_hidden import KNOWN, TWO, TWO_WITH_DATA, Nodes, Predicting, ids, made, near
from vfl_node.execution.folder import JobFolder
from vfl_node.training.hidden.rows import RowEncoder

COUNT = """\
parties: {active: clinic, passive: [lab], coordinator: notary}
align: {protocol: psi}
statistics: {bins: 3, epsilon: 100, least_rows: 5}
evaluate: {test_fraction: 0.3}
"""
TRAIN = """\
parties: {active: clinic, passive: [lab], coordinator: notary}
align: {protocol: psi, reuse: %s}
train: {algorithm: hidden, epsilon: 100, transform: woe}
evaluate: {test_fraction: 0.3, metrics: [auc], epsilon: 100}
"""


class Counted:
    """Nodes that have counted statistics."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes, self.job_id = nodes, nodes.submit(COUNT)
        for name in nodes.names:
            assert nodes.federation.end(name, self.job_id)["state"] == "done", nodes.federation.log(name)[-3000:]
        self.text = TRAIN % self.job_id

    def folder(self, name: str) -> JobFolder:
        return JobFolder(Path(self.nodes.federation.job_folder(name, self.job_id)))


@pytest.fixture(scope="module")
def counted(federations: Any, forked: Any, several: SeveralTrial, tmp_path_factory: pytest.TempPathFactory) -> Counted:
    return Counted(made(federations, forked, several, tmp_path_factory.mktemp("evidence"), TWO))


@pytest.fixture(scope="module")
def predicting(counted: Counted) -> Predicting:
    return Predicting(counted.nodes, TRAIN % "auto")


def test_a_later_job_finds_the_alignment_and_the_weights(counted: Counted, predicting: Predicting) -> None:
    federation = counted.nodes.federation
    of_model, of_counted = (federation.report("clinic", job_id) for job_id in (predicting.model, counted.job_id))
    assert of_model["alignment"]["reused"] == counted.job_id
    assert of_model["training"]["split_digest"] == of_counted["training"]["split_digest"]
    assert of_model["metrics"]["auc"] is not None  # of some 30 records
    assert all(counted.folder(name).evidence.exists() for name in TWO_WITH_DATA)
    assert not counted.folder("notary").evidence.exists()


@pytest.mark.parametrize("name", TWO_WITH_DATA)
def test_records_are_predicted_by_the_weights_of_their_bins(
    predicting: Predicting, several: SeveralTrial, tmp_path: Path, name: str
) -> None:
    """Known ones, and the same in a file, whose columns are as the owner has them."""
    expected = predicting.together(tmp_path)
    _, *rows = predicting.known(name, tmp_path)
    assert [row[0] for row in rows] == ids(KNOWN[name])
    assert near([row[1] for row in rows], [expected[row[0]] for row in rows])
    predicting.cancel(name)
    head, *lines = several.files[name].read_text().splitlines()
    ended, (_, *rows) = predicting.ask(name, tmp_path, "\n".join([head, *lines[::-1]]), "--align")
    assert ended.returncode == 0, ended.stderr
    there = [row for row in rows if row[1]]
    assert len(there) > 50
    assert near([row[1] for row in there], [expected[row[0]] for row in there])
    encoder = predicting.federation.job_folder(name, predicting.model)
    predictor = JobFolder(Path(encoder)).predictor
    assert predictor is not None
    assert RowEncoder.from_json(predictor.encoder).evidence


SLOW = (("clinic", "epoch"), ("lab", "measure"))


@pytest.mark.parametrize(("victim", "phase"), [("lab", "setup"), *(pytest.param(*of, marks=pytest.mark.slow) for of in SLOW)])
def test_killed_in_a_phase(counted: Counted, victim: str, phase: str) -> None:
    counted.nodes.killed(counted.text, victim, counted.nodes.phase(counted.text, victim, phase))


def test_a_party_that_has_lost_its_weights_refuses_the_job(counted: Counted) -> None:
    """Its partner hears what is missing, before anything is exchanged."""
    path, federation = counted.folder("lab").evidence, counted.nodes.federation
    whole = path.read_bytes()
    path.unlink()
    try:
        view = federation.end("clinic", counted.nodes.submit(counted.text))
    finally:
        path.write_bytes(whole)
    assert (view["state"], view["error"]["code"]) == ("failed", "E_REFUSED")
    assert "lab refused the job: it has no weights of evidence (train.transform: woe)" in view["error"]["message"]
    assert "run a job with statistics of the same parties, tables and align first" in federation.log("lab")
