"""``vfl-node budget``: what hidden trainings have spent, as the owner sees it, and a new count."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from vfl_node import cli
from vfl_node.errors import StateError, UsageError
from vfl_node.gdp import mu_of
from vfl_node.node.partners import Partner, accept_loss
from vfl_node.node.setup import init
from vfl_node.session.spent import Expense, auc_text
from vfl_node.transport.generated.vfl.v1.session_pb2 import LedgerHead

JOB = """\
name: trial
parties: {active: clinic, passive: lab, coordinator: notary}
train: {algorithm: hidden, epsilon: 2}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    init("clinic", "active", tmp_path / "clinic", federation="trial", mode="shared")
    path = tmp_path / "clinic" / "node.yaml"
    peers = {"peers": {name: {} for name in ("lab", "bank", "notary")}, "data": {"path": "table.csv"}}
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | peers))
    path.with_name("policy.yaml").write_text("everyone: {coordinators: [notary]}\n")
    return path


@pytest.fixture
def lab(config: Path) -> Partner:
    return Partner(config.parent / "state" / "partners", "lab")


def budget(config: Path, *words: object, answer: str = "") -> Result:
    return CliRunner().invoke(cli.app, ["budget", "--config", str(config), *map(str, words)], input=answer)


def shown(config: Path, *words: object) -> list[dict[str, object]]:
    return json.loads(budget(config, *words, "--json").stdout)


def test_it_shows_what_is_spent_and_left_with_each_partner_and_table(config: Path, lab: Partner) -> None:
    assert [(of["partner"], of["table"], of["fits"], of["spent"]) for of in shown(config)] == [
        ("bank", "default", 12, 0),
        ("lab", "default", 12, 0),
    ]
    for job_id, table in (("first", "default"), ("second", "default"), ("third", "loans")):
        lab.spend(Expense(table, job_id, mu_of(1), limit=4.0))
    (default, loans) = shown(config, "lab")
    assert default["jobs"] == {"first": 1.0, "second": 1.0}
    assert (default["allowed"], default["spent"], default["fits"]) == (4.0, 1.455, 10)
    assert loans["jobs"] == {"third": 1.0}
    job = config.parent / "job.yaml"
    job.write_text(JOB)
    assert [of["fits"] for of in shown(config, "lab", "--job", job)] == [2, 3]
    text = budget(config, "lab").stdout
    assert "jobs of ε 1.0 that fit" in text
    assert "tells whether one record is shared, or its label, at an AUC of at most .60" in text
    assert "bank" not in text


def test_jobs_about_different_things_have_no_bound_together(config: Path, lab: Partner) -> None:
    lab.spend(Expense("default", "first", mu_of(1), limit=4.0, about="psu-scaled"))
    assert "tells whether one record is shared at an AUC of at most .57" in budget(config, "lab").stdout
    lab.spend(Expense("default", "second", mu_of(1), limit=4.0, about="apsi"))
    assert shown(config, "lab")[0]["auc_bound"] is None
    assert "jobs over different alignments, or with targets that are not covered" in budget(config, "lab").stdout


def test_a_new_count_is_begun_knowingly(config: Path, lab: Partner) -> None:
    assert isinstance(budget(config, "--forget", "lab", "--yes").exception, UsageError)  # nothing is spent
    lab.spend(Expense("default", "first", mu_of(4), limit=4.0))
    refused = budget(config, "--forget", "lab", answer="n\n")
    assert refused.exit_code != 0
    assert [of["fits"] for of in shown(config, "lab")] == [0]
    assert budget(config, "--forget", "lab", answer="y\n").exit_code == 0
    (row,) = shown(config, "lab")
    assert (row["fits"], row["jobs"], row["forgotten"]) == (12, {}, {"first": 4.0})
    assert "no longer counted first (4.0)" in budget(config, "lab").stdout
    lab.spend(Expense("default", "second", mu_of(1), limit=4.0))  # the node that runs goes on
    assert budget(config, "--forget", "lab", "--yes").exit_code == 0
    assert shown(config, "lab")[0]["forgotten"] == {"first": 4.0, "second": 1.0}


def test_it_says_where_there_is_no_bound_and_where_the_count_is_lost(config: Path, lab: Partner) -> None:
    lab.spend(Expense("default", "first", mu_of(1), "networks", 4.0))
    assert "lab, default: NO BOUND for what 1 of its jobs opened" in budget(config).stdout
    with pytest.raises(StateError):
        lab.heads("job", {}).prove(LedgerHead(entries=9, link=b"l" * 32))
    accept_loss(lab)
    (row,) = shown(config, "lab")
    assert (row["lost"], row["fits"], row["left"]) == (True, 0, 0)
    assert "what was counted is lost, so nothing fits: vfl-node budget --forget lab" in budget(config).stdout
    config.with_name("policy.yaml").write_text("everyone: {coordinators: [notary], budgets: {epsilon: null}}\n")
    assert shown(config, "lab")[0]["fits"] is None
    assert "no limit" in budget(config).stdout


def test_mistakes_and_damage_are_said(config: Path, lab: Partner) -> None:
    for words in (["labb"], ["--forget", "../lab"]):
        stranger = budget(config, *words).exception
        assert isinstance(stranger, UsageError)
        assert stranger.code == "E_UNKNOWN_PEER"
    job = config.parent / "job.yaml"
    job.write_text("name: trial\nparties: {active: clinic, passive: lab}\n")
    assert isinstance(budget(config, "--job", job).exception, UsageError)
    lab.spend(Expense("default", "first", mu_of(1), limit=4.0))
    path = config.parent / "state" / "partners" / "lab" / "ledger.log"
    path.write_bytes(path.read_bytes().replace(b"first", b"worst"))
    assert isinstance(damaged := budget(config).exception, StateError)
    assert damaged.code == "E_STATE_CORRUPT"


@pytest.mark.parametrize(("auc", "text"), [(0.5, ".50"), (0.5664, ".57"), (0.62, ".62"), (0.6201, ".63"), (0.9999, "1.00")])
def test_a_bound_is_rounded_up(auc: float, text: str) -> None:
    assert auc_text(auc) == text
