"""Two paired nodes whose owners agree on one training more, while one of them is killed between its ledger and its answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from tests.node.nodes import command
from tests.trust.test_ledger_nodes import HIDDEN, entries, ledger, peer, restart
from tests.trust.test_two_nodes import OwnAuthorities

UNTIL = (datetime.now(timezone.utc) + timedelta(days=20)).date().isoformat()


@pytest.fixture(scope="module")
def nodes(trial: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnAuthorities]:
    federation = OwnAuthorities(tmp_path_factory.mktemp("extensions"), trial)
    one = {"budgets": {"trainings": 1, "extend": True}}
    federation.configure("clinic", policy={"everyone": one})
    federation.start_both(everyone=one)
    assert [status for status, _, _ in federation.pair()] == [0, 0]
    federation.wait_until(lambda: all(map(federation.connected, federation.roles)))
    yield federation
    federation.end_all()


def train(nodes: OwnAuthorities) -> list[str]:
    """How it ends at both."""
    job_id = nodes.submit(HIDDEN)
    ends = [nodes.end(name, job_id) for name in nodes.roles]
    return [end["error"]["code"] if end["error"] else end["state"] for end in ends]


def agreed(nodes: OwnAuthorities, name: str) -> list[dict[str, Any]]:
    return [entry["body"] for entry in entries(nodes, name) if entry["kind"] == "extend"]


def test_one_training_more_is_agreed_on_through_a_kill(nodes: OwnAuthorities) -> None:
    assert train(nodes) == ["done", "done"]
    assert "E_BUDGET" in train(nodes)
    asked = ledger(nodes, "clinic", "extend", "lab", "trainings", "+1", "--until", UNTIL, "--reason", "a second cohort")
    assert asked.returncode == 0, asked.stderr
    request_id = asked.stdout.split()[1].rstrip(":")
    nodes.wait_until(lambda: nodes.client("lab").extensions())
    listed = command("asks", "--config", nodes.config("lab")).stdout
    assert "clinic asks you for 1 more of trainings: a second cohort" in listed
    assert "E_BUDGET" in train(nodes)  # nobody has agreed yet

    restart(nodes, "lab", f"laned=kill@{1}")
    assert ledger(nodes, "lab", "approve", request_id).returncode != 0
    nodes.processes["lab"].wait()
    assert (len(agreed(nodes, "lab")), agreed(nodes, "clinic")) == (1, [])
    restart(nodes, "lab")
    nodes.wait_until(lambda: agreed(nodes, "clinic"))
    assert agreed(nodes, "clinic") == agreed(nodes, "lab")
    assert [nodes.client(name).extensions()[0]["state"] for name in nodes.roles] == ["agreed", "agreed"]
    again = ledger(nodes, "lab", "approve", request_id)
    assert (again.returncode, "E_NOT_ASKED" in again.stderr) == (2, True)

    assert train(nodes) == ["done", "done"]
    assert "E_BUDGET" in train(nodes)
    for name in nodes.roles:
        shown = ledger(nodes, name).stdout
        assert "trainings 2 of 2" in shown
        assert f"clinic has asked for 1 more of trainings until {UNTIL}, and lab has agreed: a second cohort" in shown
        assert ledger(nodes, name, "--verify").returncode == 0
        assert len(agreed(nodes, name)) == 1


def test_a_refusal_and_what_is_taken_back_are_said_at_the_other_node(nodes: OwnAuthorities) -> None:
    def ask() -> str:
        said = ledger(nodes, "lab", "extend", "clinic", "alignments", "5", "--until", UNTIL, "--reason", "b")
        assert said.returncode == 0, said.stderr
        return said.stdout.split()[1].rstrip(":")

    def states(name: str) -> list[str]:
        found = json.loads(ledger(nodes, name, "asks", "--json").stdout)
        return [each["state"] for each in found if each["budget"] == "alignments"]

    first = ask()
    nodes.wait_until(lambda: states("clinic") == ["asked"])
    assert "is refused" in ledger(nodes, "clinic", "refuse", first).stdout
    nodes.wait_until(lambda: states("lab") == ["refused"])
    second = ask()
    nodes.wait_until(lambda: states("clinic") == ["asked"])
    assert "is taken back" in ledger(nodes, "lab", "refuse", second).stdout
    nodes.wait_until(lambda: states("lab") == ["withdrawn"])
    nodes.wait_until(lambda: states("clinic") == ["withdrawn"])
    assert len(agreed(nodes, "clinic")) == 1
    assert peer("lab") == "clinic"
