"""More jobs than a node has places for: they wait in order, at all parties, and all end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.node.stage import Stage
from tests.node.test_three_parties import JOB, ROLES
from vfl_node.configuration.models import parse
from vfl_node.errors import PeerLost, VflError
from vfl_node.estimate.memory import need
from vfl_node.job import Job
from vfl_node.job.costs import TableShape
from vfl_node.node import room as admission
from vfl_node.node.store import Store
from vfl_node.settings.resources import QueueSettings, Resources


@pytest.fixture(scope="module")
def theatre(federations: Any, forked: Any, tmp_path_factory: pytest.TempPathFactory) -> Stage:
    stage = Stage(federations(tmp_path_factory.mktemp("queue"), ROLES), forked, JOB)
    stage.federation.start_three(queue={"max_running": 1})
    return stage


@pytest.fixture
def stage(theatre: Stage) -> Iterator[Stage]:
    for told in theatre.shared.iterdir():
        told.unlink()
    yield theatre
    theatre.let_it_end()


def places(stage: Stage, name: str) -> dict[str, int]:
    return {view["id"]: view["place"] for view in stage.federation.client(name).jobs() if view["state"] == "waiting"}


def test_jobs_wait_in_order_also_after_a_restart_and_a_cancelled_one_makes_room(stage: Stage) -> None:
    federation = stage.federation
    first, *waiting = [stage.submit() for _ in range(4)]
    stage.in_a_round(first)
    federation.wait_until(lambda: places(stage, "clinic") == {job: place + 1 for place, job in enumerate(waiting)})
    federation.wait_until(lambda: places(stage, "lab").keys() == set(waiting))
    federation.wait_until(lambda: "waiting for its turn, 2 in the queue" in federation.view("clinic", waiting[1])["note"])
    federation.kill("clinic", 15)
    federation.start("clinic")
    federation.wait_until(lambda: places(stage, "clinic") == {job: place + 1 for place, job in enumerate(waiting)}, 60)
    federation.client("lab").cancel(waiting[0])
    stage.ends(waiting[0], clinic="cancelled", lab="cancelled", notary="cancelled")
    assert places(stage, "clinic") == {waiting[1]: 1, waiting[2]: 2}
    stage.let_it_end()
    for job_id in (first, *waiting[1:]):
        stage.all_done(job_id)


@pytest.mark.parametrize("each", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_jobs_submitted_at_two_ends_in_opposite_orders_all_end(stage: Stage, each: int) -> None:
    """Each end has its own first. One place a node: each would hold it for a job that waits for the other."""
    stage.let_it_end()
    submitted: list[str] = []
    threads = [
        threading.Thread(target=lambda at=at: submitted.extend(stage.submit(at) for _ in range(each)))
        for at in ("clinic", "lab")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(submitted) == 2 * each
    for job_id in submitted:
        for name in ROLES:
            assert stage.federation.end(name, job_id)["state"] == "done"


def test_a_node_that_drains_begins_nothing_and_what_runs_ends(stage: Stage) -> None:
    federation = stage.federation

    def reason(name: str) -> str:
        return (federation.view(name, waiting).get("queue") or {}).get("reason", "")

    running = stage.submit()
    stage.in_a_round(running)
    federation.client("lab").drain(on=True)
    waiting = stage.submit()
    federation.wait_until(lambda: (reason("clinic"), reason("lab")) == ("place 1 of 1", "this node is draining"))
    stage.let_it_end()
    assert federation.end("lab", running)["state"] == "done"
    federation.wait_until(lambda: reason("clinic") == "lab is draining")
    federation.kill("lab", 15)
    federation.start("lab")
    federation.wait_until(lambda: reason("lab") == "this node is draining")
    health = federation.client("lab").health()
    assert (health["draining"], health["places"]["busy"]) == (True, 0)
    federation.client("lab").drain(on=False)
    stage.all_done(waiting)


def test_a_job_whose_party_is_away_keeps_no_place_from_others(stage: Stage) -> None:
    """Two parties are enough for some jobs: those go on while another waits for the third."""
    federation = stage.federation
    federation.kill("notary")
    stuck = stage.submit()
    federation.wait_until(lambda: "waiting for notary" in federation.view("clinic", stuck).get("note", ""))
    align = parse("name: pair\nparties: {active: clinic, passive: lab}\nalign: {protocol: psi}\n", Job, source="job")
    pair = federation.client("clinic").submit(align.canonical())["id"]
    federation.wait_until(lambda: federation.view("clinic", pair)["state"] in ("running", "done", "failed"), 60)
    federation.wait_until(lambda: federation.view("lab", pair).get("state") in ("running", "done", "failed"), 60)
    assert federation.view("clinic", stuck)["state"] == "waiting"
    assert federation.view("clinic", stuck)["queue"]["reason"].startswith("notary away since ")
    federation.start("notary")
    stage.let_it_end()
    stage.all_done(stuck)


def test_the_queue_is_bounded_for_a_peer_and_in_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.node.test_jobs import Node

    monkeypatch.setattr(admission, "MOST_WAITING", 2)
    node = Node(tmp_path)
    try:
        node.settings = node.settings.model_copy(update={"queue": QueueSettings(max_running=1)})
        node.restart()
        node.peers.wait = threading.Event()  # type: ignore[attr-defined]

        def ask(*_: Any, waiting: Any, **__: Any) -> Any:
            while not node.peers.wait.wait(0.02):  # type: ignore[attr-defined]
                waiting.check()
            raise VflError("ended")

        node.peers.ask = ask  # type: ignore[method-assign]
        running = node.jobs.submit(node.job())
        node.wait_until(lambda: node.jobs.view(running.id)["place"] == 0)  # type: ignore[index]
        queued = [node.jobs.submit(node.job()) for _ in range(2)]
        with pytest.raises(VflError) as caught:
            node.jobs.submit(node.job())
        assert caught.value.code == "E_BUSY"
        assert isinstance(node.store, Store)
        node.jobs.cancel(queued[0].id)
        node.wait_until(lambda: node.state(queued[0].id) == "cancelled")
        node.jobs.submit(node.job())
        node.peers.wait.set()  # type: ignore[attr-defined]
    finally:
        node.works.stop(10)
        node.store.close()


def test_a_job_waits_for_the_memory_of_another_and_goes_on_with_it(tmp_path: Path) -> None:
    from tests.node.test_jobs import Node

    node, asked, over = Node(tmp_path), list[str](), threading.Event()
    needed = need(node.job(), "active", TableShape()).bytes >> 20

    def ask(*_: Any, key: str, waiting: Any, **__: Any) -> Any:
        asked.append(key)
        while asked.count(key) > 1 and not over.wait(0.02):  # not when the job is announced
            waiting.check()
        raise VflError("ended") if over.is_set() else PeerLost("no word", code="E_PEER_ABSENT")

    try:
        resources = Resources(memory_mib=needed * 3 // 2)
        node.settings = node.settings.model_copy(update={"queue": QueueSettings(max_running=2), "resources": resources})
        node.restart()
        node.peers.online, node.peers.ask = lambda _: True, ask  # type: ignore[method-assign]
        first = node.jobs.submit(node.job())
        node.wait_until(lambda: asked.count(first.id) > 1)  # it has memory, and waits for the lab
        second = node.jobs.submit(node.job())
        node.wait_until(lambda: (node.jobs.view(second.id)["queue"] or {}).get("kind") == "memory")  # type: ignore[index]
        assert node.works.waits() == {"start": 1, "memory": 1}
        assert node.jobs.view(second.id)["queue"]["reason"].endswith(" GiB")  # type: ignore[index]
        assert asked.count(second.id) == 1
        over.set()
        node.wait_until(lambda: asked.count(second.id) > 1)
    finally:
        node.works.stop(10)
        node.store.close()
