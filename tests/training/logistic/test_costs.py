"""What a regression is said to send is what it sends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.training.logistic.several import PASSIVE, among, attempt_of
from vfl_node.configuration.models import parse
from vfl_node.execution.simulation import simulate
from vfl_node.job import Evaluate, Job
from vfl_node.report.envelope import Report
from vfl_node.training.logistic.config import Logistic
from vfl_node.transport.generated.vfl.v1 import training_pb2

JOB = """\
name: trial
parties: {{active: clinic, passive: lab{third}}}
align: {{protocol: psi}}
train: {{algorithm: logistic, iterations: 2, key_bits: 2048, {train}}}
evaluate: {{test_fraction: {held_out}}}
"""


def job(train: str, held_out: float = 0.3) -> Job:
    third = ", coordinator: notary" if "coordinator" in train else ""
    return parse(JOB.format(third=third, train=train, held_out=held_out), Job, source="job")


@pytest.mark.parametrize(
    ("train", "held_out", "beside"),
    [
        pytest.param("flow: coordinator, loss: taylor", 0.3, 1200, marks=pytest.mark.slow),
        ("flow: coordinator, loss: taylor, tolerance: 1.0e-9, batch_size: 60", 0.3, 1200),  # frames: 60 bytes or so a message
        pytest.param("flow: coordinator, loss: taylor, labels: passive", 0, 1200, marks=pytest.mark.slow),
        pytest.param("flow: coordinator-open-scores", 0.3, 1200, marks=pytest.mark.slow),
        ("flow: two-party", 0.3, 4000),  # a key, and a gradient of 26 columns, in two ciphertexts, twice
    ],
)
def test_bytes_are_those_of_a_run(train: str, held_out: float, beside: int, trial: Any, tmp_path: Path) -> None:
    asked, files = job(train, held_out), trial.files
    if "labels: passive" in train:
        header, *rows = trial.lab.read_text().splitlines()
        labelled = [f"{header},label", *(f"{row},{place % 2}" for place, row in enumerate(rows))]
        files = {**files, "lab": tmp_path / "lab.csv"}
        files["lab"].write_text("\n".join(labelled))
    simulate(asked, files, tmp_path / "out")
    report = Report.model_validate_json((tmp_path / "out" / "report.json").read_text())
    assert asked.train
    assert report.alignment
    assert report.training
    expected, moved = asked.train.make_plan().cost(asked.evaluate, report.alignment.rows, "psi"), report.phases["train"]
    assert expected
    assert 0 <= moved.bytes_sent - expected.active_bytes <= beside
    assert 0 <= moved.bytes_received - expected.passive_bytes <= beside
    assert len(report.training.epochs) * 2 == expected.steps


def test_by_hand() -> None:
    train = Logistic(algorithm="logistic", iterations=10, key_bits=2048, classes=10)
    cost = train.make_plan().cost(Evaluate(test_fraction=0.2), 1000, "apsi")
    assert cost
    assert (cost.rows, cost.batches, cost.steps) == (800, 1, 20)
    assert cost.active_bytes == 10 * 800 * 512  # ten residuals share a ciphertext
    assert cost.passive_bytes == 10 * 800 * 10 * 8 + 200 * 10 * 8
    batches = train.model_copy(update={"batch_size": 50}).make_plan().cost(Evaluate(test_fraction=0), 1000, "psi")
    assert batches
    assert (batches.rows, batches.active_bytes, batches.passive_bytes) == (50, 10 * 50 * 512, 10 * 50 * 80 + 1000 * 80)


@pytest.mark.parametrize(
    "given",
    [{"flow": "coordinator-open-scores", "classes": 4}, {"flow": "coordinator", "loss": "taylor", "tolerance": 1e-9}],
    ids=str,
)
def test_every_passive_party_has_a_conversation_of_its_own(shared: Any, logistic: Any, given: Any) -> None:
    over = among(shared(genuine=40, lab=6, protocol="psi", classes=given.get("classes", 2)), *PASSIVE)
    made = attempt_of(over, logistic(**given), evaluate=Evaluate(test_fraction=0.25))
    made(over)
    moved = {"active": 0, "passive": 0}
    for receiver in over.data:
        for column in made.columns(receiver):
            if isinstance(column.head, training_pb2.Encrypted):
                moved["active" if column.sender == "clinic" else "passive"] += column.rows.nbytes
    scores = [sent.message for sent in made.transcript if isinstance(sent.message, training_pb2.Scores)]
    moved["passive"] += sum(len(message.tensor.data) for message in scores)
    cost = made.train.make_plan(len(PASSIVE)).cost(made.evaluate, len(over), "psi")
    assert cost
    assert moved == {"active": cost.active_bytes, "passive": cost.passive_bytes}
    assert cost.steps == 6


def test_nothing_shared_costs_nothing_and_no_union_is_trained_on() -> None:
    train = Logistic(algorithm="logistic")
    empty = train.make_plan().cost(Evaluate(), 0, "psi")
    assert empty
    assert (empty.rows, empty.batches, empty.bytes) == (0, 0, 0)
    assert train.make_plan().cost(Evaluate(), 1000, "psu") is None
