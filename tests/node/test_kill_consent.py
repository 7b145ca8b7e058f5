"""Real nodes whose owner is asked: the answer counts once, wherever a node is killed (-9) around question and answer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from tests.node.nodes import Federation, command
from tests.thorough import every
from vfl_node.errors import VflError

JOB = "align: {protocol: psi}\n"


class Asked(Federation):
    """A clinic that submits jobs, and a lab whose owner is asked about each."""

    def restart(self, name: str, failpoint: str = "") -> None:
        self.kill(name)
        self.failpoints[name] = failpoint
        self.start(name)

    def show(self, job_id: str) -> dict[str, Any]:
        return self.client("lab").manifest(job_id)

    def await_ask(self, job_id: str) -> str:
        """The digest that the owner sees."""
        self.wait_until(lambda: self.view("lab", job_id).get("state") == "asked")
        return str(self.show(job_id)["digits"])

    def words(self, *words: str) -> str:
        """What a command of the lab's owner prints."""
        ended = command(*words, "--config", self.folder / "lab" / "node.yaml")
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def both_done(self, job_id: str) -> None:
        for name in self.roles:
            assert self.end(name, job_id)["state"] == "done", self.log(name)[-3000:]


@pytest.fixture(scope="module")
def nodes(trial: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    federation = Asked(tmp_path_factory.mktemp("asked"), trial)
    federation.start_both(accepts=[], everyone={"budgets": {"alignments": 99}})
    yield federation
    federation.end_all()


@pytest.fixture(autouse=True)
def up(nodes: Asked) -> None:
    for name in nodes.roles:
        if nodes.processes[name].poll() is not None:
            nodes.start(name)
    nodes.wait_until(lambda: all(map(nodes.connected, nodes.roles)))


def test_the_owner_sees_the_job_and_lets_it_run_by_commands(nodes: Asked) -> None:
    assert "no job waits for you" in nodes.words("asks")
    job_id = nodes.submit(JOB)
    digits = nodes.await_ask(job_id)
    nodes.wait_until(lambda: nodes.view("clinic", job_id)["note"] == "waiting for lab: its owner is asked")
    assert list(nodes.job_folder("lab", job_id).iterdir()) == []  # no secret is drawn, no table looked at
    assert job_id in nodes.words("asks")
    shown = nodes.words("show", job_id)
    assert re.search(rf"to let it run: vfl-node approve {job_id} {digits}\b", shown)
    for line in ("clinic (active), lab (passive)", "private set intersection", "set size: how many records lab has"):
        assert line in shown
    assert "alignments with clinic: 0 → 1 (99 allowed)" in shown
    assert nodes.client("clinic").manifest(job_id)["digits"] == digits
    stale = command("approve", job_id, "00000000", "--config", nodes.folder / "lab" / "node.yaml")
    assert (stale.returncode, "E_STALE" in stale.stderr) == (2, True)
    nodes.words("approve", job_id, digits, "--note", "once a week")
    nodes.both_done(job_id)
    assert "approved by owner" in nodes.words("show", job_id)
    assert nodes.show(job_id)["decision"]["by"] == "persons"


def test_the_submitter_hears_the_reason_of_a_refusal(nodes: Asked) -> None:
    job_id = nodes.submit(JOB)
    nodes.await_ask(job_id)
    nodes.words("refuse", job_id, "--reason", "purpose", "--note", "they are rivals")
    view = nodes.end("clinic", job_id)
    assert (view["state"], view["error"]["code"]) == ("failed", "E_REFUSED")
    assert view["error"]["message"] == "lab refused the job: its owner's reason: purpose (E_REFUSED)"
    assert nodes.view("lab", job_id)["state"] == "cancelled"
    assert "rivals" not in nodes.log("clinic")


@pytest.mark.parametrize("point", ["ask", "asked"])
def test_a_node_that_dies_when_it_is_asked_asks_its_owner_once(nodes: Asked, point: str) -> None:
    nodes.restart("lab", f"{point}=kill")
    job_id = nodes.submit(JOB)
    nodes.dies_in("lab", job_id)
    nodes.start("lab")
    digits = nodes.await_ask(job_id)
    assert [ask["id"] for ask in nodes.client("lab").asks()] == [job_id]
    nodes.client("lab").approve(job_id, digits)
    nodes.both_done(job_id)


@pytest.mark.parametrize(
    ("point", "verdict"), every(3, [("decided", "approve"), ("decided", "refuse"), ("decide", "approve"), ("decide", "refuse")])
)
def test_an_answer_that_was_stored_stands_and_another_can_be_given_again(nodes: Asked, point: str, verdict: str) -> None:
    nodes.restart("lab", f"{point}=kill")
    nodes.wait_until(lambda: all(map(nodes.connected, nodes.roles)))
    job_id = nodes.submit(JOB)
    digits = nodes.await_ask(job_id)

    def answer() -> None:
        client = nodes.client("lab")
        client.approve(job_id, digits) if verdict == "approve" else client.refuse(job_id, "time")

    with suppress(VflError):  # the node dies before it has replied
        answer()
    nodes.dies_in("lab", job_id)
    nodes.start("lab")
    if point == "decide":
        assert nodes.await_ask(job_id) == digits
        answer()
    if verdict == "approve":
        nodes.both_done(job_id)
    else:
        assert nodes.end("clinic", job_id)["error"]["code"] == "E_REFUSED"
        assert nodes.end("lab", job_id)["state"] == "cancelled"
    decision = nodes.show(job_id)["decision"]
    assert (decision["verdict"], decision["by"]) == (verdict, "persons")


def test_the_submitter_may_die_while_the_owner_is_asked(nodes: Asked) -> None:
    job_id = nodes.submit(JOB)
    digits = nodes.await_ask(job_id)
    nodes.restart("clinic")
    nodes.wait_until(lambda: "its owner is asked" in nodes.view("clinic", job_id)["note"])
    nodes.kill("clinic")
    nodes.client("lab").approve(job_id, digits)
    nodes.start("clinic")
    nodes.both_done(job_id)


def test_a_job_that_was_resumed_asks_nobody_again(nodes: Asked) -> None:
    nodes.restart("lab", "aligned=kill")
    nodes.wait_until(lambda: all(map(nodes.connected, nodes.roles)))
    job_id = nodes.submit(JOB)
    nodes.client("lab").approve(job_id, nodes.await_ask(job_id))
    nodes.dies_in("lab", job_id)
    nodes.start("lab")
    nodes.both_done(job_id)
    assert nodes.show(job_id)["decision"]["verdict"] == "approve"
