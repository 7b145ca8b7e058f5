"""Training in shares is estimated with what the coordinator deals, and with as many columns as are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.estimate.plans import ONLY_POWERS, exact
from vfl_node.cli import app
from vfl_node.configuration.models import parse
from vfl_node.estimate import totals, words
from vfl_node.estimate.plan import Plan
from vfl_node.job import Job
from vfl_node.settings.node import Obfuscation

JOB = """\
name: trial
parties: {active: clinic, passive: lab, coordinator: notary}
align: {protocol: psu}
train: {algorithm: hidden, epsilon: null, epochs: 4, batch_size: 100}
evaluate: {test_fraction: 0.2, metrics: [auc]}
"""


def plan(**changes: Any) -> Plan:
    known: dict[str, Any] = {
        "job": parse(JOB, Job, source="job"),
        "party": "clinic",
        "records": {"clinic": 1000, "lab": 3000},
        "shared": (500, 500),
        "rate_mbit_s": 1,
        "rtt_ms": 100,
        "obfuscation": Obfuscation(),
    }
    return Plan(**(known | changes))


def test_the_longer_of_both_streams_takes_the_time() -> None:
    cost = totals.estimate(plan(columns=(20, 30)), ONLY_POWERS)["psu"]
    dealt, sent = exact(cost, "dealt_bytes"), exact(cost, "train_bytes")
    assert dealt > sent
    steps = (exact(cost, "train_wire_s") - dealt * 8 / 1e6) / 0.1
    assert steps == pytest.approx(round(steps))
    assert steps > 4 * exact(cost, "batches") * 3  # six rounds a step, in which both send at the same time
    assert exact(cost, "batches") == 3500 * 0.8 // 715  # a seventh of the rows is shared, .14
    assert exact(cost, "coordinator_memory_bytes") > 2 * 3500 * 51 * 8


def test_a_table_of_the_coordinators_part_and_what_was_taken_for_granted() -> None:
    some = plan()
    titles = [line[0] for line in words.table(some, totals.estimate(some, ONLY_POWERS))]
    assert "  sent by notary, in all" in titles
    assert "  memory of notary" in titles
    assert "counted with 16 encoded columns a party" in " ".join(words.notes(some, ONLY_POWERS))
    assert "encoded columns" not in " ".join(words.notes(plan(columns=(20, 30)), ONLY_POWERS))
    (own, other) = words.describe_start(some.job, some.records, some.shared)
    assert "from notary (counted with 16 encoded columns a party)" in own
    assert "from notary" in other


def test_columns_on_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    common = ["estimate", str(path), "--active", "100", "--passive", "200"]
    said = CliRunner().invoke(app, [*common, "--columns", "clinic=3", "--columns", "lab=4"])
    assert said.exit_code == 0
    assert "encoded columns" not in said.output
    assert CliRunner().invoke(app, [*common, "--columns", "notary=3"]).exit_code


def test_what_the_job_spends_or_that_nothing_bounds_what_it_tells() -> None:
    def notes(train: str) -> str:
        job = parse(JOB.replace("epsilon: null, epochs: 4, batch_size: 100", train), Job, source="job")
        return " ".join(words.notes(plan(job=job), ONLY_POWERS))

    assert "it spends ε 1.0 with each other data party" in notes("epsilon: 1")
    assert "NO BOUND" not in notes("epsilon: 1")
    assert "WITH 400 SHARED RECORDS TRAINED ON, A PARTY WITH 13 COLUMNS OR MORE READS THEIR LABELS" in notes("epsilon: null")
