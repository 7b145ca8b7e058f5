"""The jobs of a node without peers: how they end, and what becomes of those that ended."""

from __future__ import annotations

import errno
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.node.nodes import accepting, at_least
from vfl_node.configuration.models import parse
from vfl_node.errors import Paused, PeerError, PeerLost, StateError, VflError
from vfl_node.execution.folder import JobFolder
from vfl_node.job import Job
from vfl_node.node import predictions, work
from vfl_node.node.jobs import Jobs
from vfl_node.node.offers import Offers
from vfl_node.node.record import Record
from vfl_node.node.store import Store
from vfl_node.node.works import Works
from vfl_node.settings.node import Data, Settings
from vfl_node.settings.policy import Policy
from vfl_node.settings.retention import Retention
from vfl_node.training.prediction.stored import FileTally, StoredPredictor
from vfl_node.training.predictor import ServiceCount
from vfl_node.transport.generated.vfl.v1.session_pb2 import Notice, Offer, OfferReply

ALIGN = "name: trial\nparties: {active: clinic, passive: lab}\n"
TRAIN = ALIGN + "train: {bottom: [4], epochs: 1}\nserve: {to: active}\n"


class Absent:
    """Peers that nobody reaches."""

    def __init__(self) -> None:
        self.asked = 0

    def ask(self, *_: Any, waiting: Any, **__: Any) -> Any:
        waiting.check()
        self.asked += 1
        raise PeerLost("no word from lab", code="E_PEER_ABSENT")

    def online(self, _: str) -> bool:
        return False

    def check_version(self, peer: str) -> None:
        """It is of the same version."""

    def status(self) -> dict[str, dict[str, Any]]:
        return {"lab": {"since": "2026-03-01T10:00:00+00:00"}}

    def describe(self, peer: str) -> str:
        return peer

    def tell(self, *_: Any) -> None:
        pass


class Node:
    """What of a clinic's node has jobs."""

    def __init__(self, folder: Path) -> None:
        table = folder / "table.csv"
        table.write_text("id,x,label\na,1,0\nb,2,1\n")
        self.settings = Settings(
            name="clinic",
            role="active",
            data=Data(path=table, label="label"),
            listen="127.0.0.1:0",
            peers={"lab": {}},  # type: ignore[dict-item]
            insecure_loopback=True,
            policy={"everyone": at_least(1)},  # type: ignore[arg-type]
        )
        self.store = Store(folder / "state")
        self.peers = Absent()
        self.restart()

    def restart(self) -> None:
        self.works = Works(self.settings, self.store)
        self.works.attach(self.peers)  # type: ignore[arg-type]
        self.jobs = Jobs(self.settings, self.store, self.works)
        self.offers = Offers(self.settings, self.store, self.works)

    def job(self, text: str = ALIGN) -> Job:
        return parse(text, Job, source="test")

    def state(self, job_id: str) -> str:
        record = self.store.get(job_id)
        assert record is not None
        return record.state

    def stored(self, job_id: str) -> Record:
        record = self.store.get(job_id)
        assert record is not None
        return record

    def trained(self) -> Record:
        """A job that says it has trained a model, of which something is missing."""
        record = self.store.update(self.store.add(self.job(TRAIN), submitter="clinic"), state="done")
        self.store.job_folder(record).keep_predictor(StoredPredictor(input="00" * 32, encoder="", serving=""))
        return record

    @staticmethod
    def wait_until(condition: Callable[[], bool]) -> None:
        limit = time.monotonic() + 240
        while not condition():
            assert time.monotonic() < limit, "did not happen in time"
            time.sleep(0.01)


def offered(node: Node, record: Record) -> OfferReply:
    """What the node answers to the lab that offers it the job."""
    reply = node.offers.hear("lab", Notice(offer=Offer(job_id=record.id, submitter="lab", job_json=record.spec)))
    assert reply is not None
    return reply.offer_reply


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Jobs that run, in place of what else a job does, until they are stopped."""
    begun: list[str] = []

    def run(of: work.Work) -> None:
        of.record = of._store.update(of.record, state="running", attempt=1)
        begun.append(of.record.id)
        while True:
            of.stop.wait(1)

    monkeypatch.setattr(work.Work, "_run", run)
    return begun


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    made.works.stop(10)
    made.store.close()


def test_a_service_that_ends_at_once_says_why(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    start = work.Work.start

    def starts_and_ends(of: work.Work) -> None:
        start(of)
        of.join()

    monkeypatch.setattr(work.Work, "start", starts_and_ends)
    model = node.trained().id
    with pytest.raises(StateError, match=f"the alignment of job {model} is gone") as caught:
        node.jobs.predict(model, b"id\na\n")
    assert (caught.value.code, bool(caught.value.hint)) == ("E_STATE_LOST", True)


def test_a_job_that_is_resumed_while_it_ends_goes_on(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread has stored that it failed, and lives still."""
    may_end = threading.Event()
    slow = SimpleNamespace(error=lambda *_, **__: may_end.wait(10), info=work.log.info, warning=work.log.warning)
    monkeypatch.setattr(work, "log", slow)
    job_id = node.jobs.submit(node.job()).id
    node.wait_until(lambda: node.state(job_id) == "failed")
    resumes = threading.Thread(target=node.works.resume, args=[job_id])
    resumes.start()
    resumes.join(0.3)
    may_end.set()
    resumes.join()
    node.wait_until(lambda: node.peers.asked == 2 and node.state(job_id) == "failed")


def test_a_job_that_was_cancelled_before_its_node_was_killed_does_not_go_on(node: Node) -> None:
    record = node.store.add(node.job(), submitter="clinic")
    node.store.job_folder(record).cancel()
    node.works.start()
    node.wait_until(lambda: node.state(record.id) == "cancelled")
    node.wait_until(lambda: not node.store.job_folder(record).cancelled)
    assert node.peers.asked == 0


def test_what_a_service_has_disclosed_is_reported_however_it_ends(node: Node) -> None:
    """Where it waits to be resumed, there is no report before its owner gives it up; where nothing was, there is none."""
    job = predictions.job_for(node.store, node.trained().id, "clinic", new=False)
    for served in (ServiceCount(256, requests=3, batches=7), None):
        record = node.store.add(job, submitter="clinic")
        record = node.store.update(record, state="failed", code="E_PEER_ABSENT", message="no word from lab")
        folder = node.store.job_folder(record)
        if served:
            FileTally(folder.path).write(served)
        node.works.start()
        assert not folder.sealed
        assert node.jobs.cancel(record.id).state == "cancelled"
        assert folder.sealed == bool(served)
        if served:
            report = json.loads((folder.artefacts / "report.json").read_text())
            assert (report["predictions"]["requests"], report["predictions"]["batches"]) == (3, 7)
            assert report["learnt"]["lab"][0]["count"] == 7
            assert report["phases"] == {}
        assert {path.name for path in folder.path.iterdir()} == ({"artefacts"} if served else set())


def test_a_job_ends_though_its_report_cannot_be_written(node: Node) -> None:
    job = predictions.job_for(node.store, node.trained().id, "clinic", new=False)
    record = node.store.update(node.store.add(job, submitter="clinic"), state="failed", code="E_PEER_ABSENT")
    folder = node.store.job_folder(record)
    FileTally(folder.path).write(ServiceCount(256, batches=1))
    (folder.path / "served").write_text("{")
    assert node.jobs.cancel(record.id).state == "cancelled"
    with pytest.raises(VflError, match="has already ended"):
        node.jobs.cancel(record.id)


def test_a_job_in_which_the_process_died_twice_waits_for_its_owner(node: Node) -> None:
    record = node.store.update(node.store.add(node.job(), submitter="clinic"), state="running", attempt=1)
    node.works.start()
    node.wait_until(lambda: node.peers.asked == 1)  # once is not enough
    node.wait_until(lambda: node.state(record.id) == "failed")
    assert node.stored(record.id).deaths == 1
    node.store.update(node.stored(record.id), state="running")
    node.restart()
    node.works.start()
    aside = node.stored(record.id)
    assert (aside.state, aside.code, aside.resumable, aside.deaths) == ("failed", "E_QUARANTINED", True, 2)
    reply = offered(node, record)
    assert (reply.accepted, reply.code) == (False, "E_QUARANTINED")  # a peer does not begin it either
    assert node.peers.asked == 1
    node.works.resume(record.id)
    node.wait_until(lambda: node.peers.asked == 2)
    assert node.stored(record.id).deaths == 0


def test_a_pause_is_no_death(node: Node) -> None:
    record = node.store.update(node.store.add(node.job(), submitter="clinic"), state="paused", attempt=1, deaths=1)
    node.works.start()
    node.wait_until(lambda: node.peers.asked == 1)
    assert node.stored(record.id).deaths == 1


def test_a_job_that_a_peer_has_had_go_on_is_left_to_run_when_the_node_starts(node: Node, runs: list[str]) -> None:
    """Links are up before the node looks at what was unfinished."""
    node.settings = node.settings.model_copy(update={"quarantine_after": 1})
    node.restart()
    record = node.store.update(node.store.add(node.job(), submitter="clinic"), state="paused", attempt=1)
    assert offered(node, record).accepted
    node.wait_until(lambda: runs == [record.id])
    starts = threading.Thread(target=node.works.start, daemon=True)
    starts.start()
    starts.join(20)
    assert not starts.is_alive()
    assert (node.state(record.id), node.stored(record.id).deaths, runs) == ("running", 0, [record.id])
    assert offered(node, record).accepted
    node.jobs.cancel(record.id)
    node.wait_until(lambda: node.state(record.id) == "cancelled")


def test_a_job_that_ends_while_the_node_starts_is_not_begun_again(
    node: Node, runs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    record = node.store.update(node.store.add(node.job(), submitter="clinic"), state="paused", attempt=1)
    node.store.update(record, state="done")
    monkeypatch.setattr(node.store, "standing", lambda *_: [record])
    node.works.start()
    assert (node.state(record.id), node.works._works, runs) == ("done", {}, [])


def test_a_stop_that_does_not_wait_for_long_work_is_no_death(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job has its end all the same where its work comes to it before the process does."""
    works, may_end = threading.Event(), threading.Event()

    def compute(of: work.Work) -> None:
        of.record = of._store.update(of.record, state="running", attempt=1)
        works.set()
        may_end.wait(240)

    monkeypatch.setattr(work.Work, "_run", compute)
    job_id = node.jobs.submit(node.job()).id
    works.wait(240)
    node.works.stop(0.05)
    assert (node.state(job_id), node.stored(job_id).deaths) == ("paused", 0)
    may_end.set()
    node.wait_until(lambda: node.state(job_id) == "done")
    node.works.stop(0.05)
    assert node.state(job_id) == "done"


def test_a_node_that_stops_begins_nothing_and_says_that_it_comes_back(node: Node, runs: list[str]) -> None:
    node.settings.in_force.policy = Policy(everyone=at_least(1), approve=accepting("lab"))
    job_id = node.jobs.submit(node.job()).id
    node.wait_until(lambda: runs == [job_id])
    known = node.stored(job_id)
    node.works.stop(10)
    for record in (known, replace(known, id="new")):
        reply = offered(node, record)
        assert (reply.accepted, reply.code) == (False, "E_PAUSED")
        assert reply.reason == "its node is stopping and will come back"
    for act in (lambda: node.works.resume(job_id), lambda: node.jobs.submit(node.job())):
        with pytest.raises(Paused):
            act()
    assert {record.id: record.state for record in node.store.records()} == {job_id: "paused"}
    assert runs == [job_id]


@pytest.mark.parametrize("code", ["E_PAUSED", "E_GAVE_WAY", "E_DISK_FULL"])
def test_a_peer_that_cannot_take_part_now_is_waited_for(node: Node, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    asked: list[str] = []

    def refuse(peer: str, *_: Any, **__: Any) -> Notice:
        asked.append(peer)
        return Notice(offer_reply=OfferReply(accepted=False, code=code, reason="its node is stopping"))

    monkeypatch.setattr(node.peers, "online", lambda _: True)
    monkeypatch.setattr(node.peers, "ask", refuse)
    job_id = node.jobs.submit(node.job()).id
    node.wait_until(lambda: len(asked) > 3)
    assert node.state(job_id) == "waiting"


def test_no_job_is_submitted_with_a_peer_of_another_version(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def other(peer: str) -> None:
        raise PeerError(f"{peer} speaks protocol version 3", code="E_VERSION")

    monkeypatch.setattr(node.peers, "check_version", other)
    with pytest.raises(PeerError) as caught:
        node.jobs.submit(node.job())
    assert (caught.value.code, node.store.records()) == ("E_VERSION", [])


def test_a_job_that_waits_fails_at_once_and_may_go_on_after_an_upgrade(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def other(*_: Any, **__: Any) -> None:
        raise PeerError("lab speaks protocol version 3", code="E_VERSION")

    monkeypatch.setattr(node.peers, "ask", other)
    job_id = node.jobs.submit(node.job()).id
    node.wait_until(lambda: node.state(job_id) == "failed")
    assert (node.stored(job_id).code, node.stored(job_id).resumable) == ("E_VERSION", True)


def test_a_job_that_cannot_be_begun_takes_no_turn(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else all later ones would wait for it."""

    def fail(_: JobFolder) -> bool:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(JobFolder, "cancelled", property(fail))
    with pytest.raises(StateError):
        node.jobs.submit(node.job())
    assert node.works._turns._waiting == []


@pytest.mark.parametrize("online", [True, False])
def test_a_party_that_has_kept_its_report_is_done_where_another_is(
    node: Node, monkeypatch: pytest.MonkeyPatch, online: bool
) -> None:
    """Whether it hears so when it tells of the job, or when it meets the others."""
    ended = OfferReply(accepted=False, code="E_JOB_DONE", reason="the job has already ended there (done)")
    monkeypatch.setattr(node.peers, "online", lambda _: online)
    monkeypatch.setattr(node.peers, "ask", lambda *_, **__: Notice(offer_reply=ended))
    record = node.store.update(node.store.add(node.job(TRAIN), submitter="clinic"), state="paused", attempt=1)
    folder = node.store.job_folder(record)
    folder.artefacts.mkdir()
    (folder.artefacts / "report.json").write_text("{}")
    folder.seal()
    folder.keep_predictor(StoredPredictor(input="00" * 32, encoder="", serving=""))
    node.works.start()
    node.wait_until(lambda: node.stored(record.id).over)
    assert (node.state(record.id), node.stored(record.id).message) == ("done", None)
    assert folder.keeps_predictor(folder.path)


def test_a_damaged_row_is_listed_and_the_others_can_be_used(node: Node) -> None:
    damaged, sound = (node.store.add(node.job(), submitter="clinic") for _ in range(2))
    node.store._index._db.execute("UPDATE jobs SET spec = '{' WHERE id = ?", [damaged.id])
    views = {view["id"]: view for view in node.jobs.views()}
    assert views[damaged.id]["error"]["code"] == "E_STATE_CORRUPT"
    assert views[sound.id]["state"] == "waiting"
    for act in (node.works.resume, node.jobs.cancel):
        with pytest.raises(VflError):
            act(damaged.id)
    node.works.start()
    node.wait_until(lambda: node.peers.asked == 1)


def test_a_pruned_job_is_not_begun_anew_by_a_peer(node: Node) -> None:
    record = node.store.update(node.store.add(node.job(), submitter="clinic"), state="done")
    assert node.works.prune(Retention(jobs_keep=0), models=False, dry=False) == [record.id]
    assert node.jobs.views() == []
    reply = offered(node, record)
    assert (reply.accepted, reply.code) == (False, "E_JOB_DONE")


def test_a_confirmed_job_is_done_however_often_the_process_died_in_it(node: Node) -> None:
    node.settings = node.settings.model_copy(update={"quarantine_after": 1})
    node.restart()
    record = node.store.update(node.store.add(node.job(), submitter="clinic"), state="running", attempt=2, deaths=1)
    node.store.job_folder(record).confirm()
    node.works.start()
    node.wait_until(lambda: node.stored(record.id).over)
    assert (node.state(record.id), node.stored(record.id).code) == ("done", None)
