"""What a node does on the word of a peer: offers of jobs, and their cancellation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.node.nodes import accepting
from vfl_node.configuration.models import parse
from vfl_node.errors import PolicyError, UsageError
from vfl_node.gdp import mu_of
from vfl_node.job import Job
from vfl_node.node import predictions
from vfl_node.node import room as admission
from vfl_node.node.jobs import Jobs
from vfl_node.node.offers import Offers
from vfl_node.node.store import Store
from vfl_node.node.work import Work
from vfl_node.node.works import Works
from vfl_node.session.spent import Expense
from vfl_node.settings.node import Peer, Settings
from vfl_node.settings.resources import QueueSettings, Share
from vfl_node.settings.retention import Retention
from vfl_node.transport.bounds import MOST_JOB_BYTES
from vfl_node.transport.generated.vfl.v1.session_pb2 import Cancel, Notice, Offer

JOB = parse("name: trial\nparties: {active: clinic, passive: lab}\n", Job, source="test")
SERVICE = parse(
    "name: service\nparties: {active: clinic, passive: lab}\npredict: {model: trained, to: active}\n", Job, source="test"
)


class Lab:
    """What of a lab's node hears its two peers, from which it accepts jobs."""

    def __init__(self, folder: Path) -> None:
        self.store = Store(folder / "state")
        self.begun: list[str] = []
        self.configure()

    def configure(self, *, everyone: Any = None, **changes: Any) -> None:
        """Begin again with other settings, and other limits for everyone."""
        settings = Settings(
            name="lab",
            role="passive",
            peers={"clinic": {"address": "127.0.0.1:1"}, "bank": {"address": "127.0.0.1:1"}},  # type: ignore[dict-item]
            policy={"everyone": everyone or {}, "approve": accepting("clinic", "bank")},  # type: ignore[arg-type]
            insecure_loopback=True,
            **changes,
        )
        self.works = Works(settings, self.store)
        self.works.attach(SimpleNamespace())  # type: ignore[arg-type]
        self.jobs = Jobs(settings, self.store, self.works)
        self.offers = Offers(settings, self.store, self.works)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """A lab that begins no job: ``begun`` says which it would have."""
    lab = Lab(tmp_path)
    monkeypatch.setattr(Work, "start", lambda work: lab.begun.append(work.record.id))
    yield lab
    lab.store.close()


def offered(lab: Lab, text: str, job_id: str) -> Any:
    reply = lab.offers.hear("clinic", Notice(offer=Offer(job_id=job_id, submitter="clinic", job_json=text)))
    return reply.offer_reply


def test_an_offer_of_64_kib_is_read_and_one_byte_more_is_not(lab: Lab) -> None:
    assert MOST_JOB_BYTES == 1 << 16
    largest = JOB.canonical().ljust(MOST_JOB_BYTES)
    assert offered(lab, largest, "largest").accepted
    reply = offered(lab, largest + " ", "larger")
    assert (reply.accepted, reply.code, reply.reason) == (False, "E_POLICY", "the job's size or id is not usable")
    assert lab.begun == ["largest"]
    assert lab.store.get("larger") is None


@pytest.mark.parametrize("job_id", ["../x", "/etc/passwd", "C:x", "JOB", "a" * 64, "x\0", ""])
def test_an_offer_under_an_unusable_id_is_refused(lab: Lab, job_id: str) -> None:
    assert not offered(lab, JOB.canonical(), job_id).accepted
    assert lab.begun == []


@pytest.mark.parametrize(("peer", "state"), [("clinic", "cancelled"), ("bank", "failed")])
def test_only_a_party_of_a_job_that_waits_to_be_resumed_can_cancel_it(lab: Lab, peer: str, state: str) -> None:
    """One that has no part in it would destroy what the others resume from."""
    record = lab.store.add(JOB, submitter="clinic")
    lab.store.job_folder(record).seed()
    record = lab.store.update(record, state="failed", code="E_PEER_LOST", message="clinic was lost")
    assert record.resumable
    lab.offers.hear(peer, Notice(cancel=Cancel(job_id=record.id)))
    assert lab.store.get(record.id).state == state
    assert (lab.store.job_folder(record).path / "seed").exists() == (state == "failed")


@pytest.mark.parametrize(
    ("failed", "state", "said"), [(False, "cancelled", "clinic's owner"), (True, "failed", "clinic stopped: no data")]
)
def test_it_is_kept_by_whom_a_job_was_ended_and_how(lab: Lab, failed: bool, state: str, said: str) -> None:
    record = lab.store.update(lab.store.add(JOB, submitter="clinic"), state="failed", code="E_PEER_LOST", message="lost")
    lab.offers.hear("clinic", Notice(cancel=Cancel(job_id=record.id, failed=failed, reason="no data" if failed else "")))
    ended = lab.store.get(record.id)
    assert (ended.state, ended.over) == (state, True)
    assert said in ended.message
    reply = offered(lab, JOB.canonical(), record.id)  # another party, which has not heard, asks to go on
    assert (reply.accepted, reply.code) == (False, "E_JOB_ENDED" if failed else "E_CANCELLED")
    assert failed or said in reply.reason


@pytest.mark.parametrize("role", ["active", "passive"])
def test_the_active_party_passes_a_cancellation_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: Any) -> None:
    """Passive parties do not tell each other. It says whose owner it was, at once and when the link of one is up again."""
    several = parse("name: t\nparties: {active: clinic, passive: [lab, insurer]}\nalign: {protocol: psi}", Job, source="test")
    own, others = ("clinic", ("lab", "insurer")) if role == "active" else ("lab", ("clinic", "insurer"))
    told: list[tuple[str, Cancel]] = []
    store = Store(tmp_path / "state")
    peers = {name: {"address": "127.0.0.1:1"} for name in others}
    settings = Settings.model_validate({"name": own, "role": role, "peers": peers, "insecure_loopback": True})
    works = Works(settings, store)
    works.attach(SimpleNamespace(tell=lambda peer, notice: told.append((peer, notice.cancel))))  # type: ignore[arg-type]
    offers = Offers(settings, store, works)
    record = store.update(store.add(several, submitter=own), state="failed", code="E_PEER_LOST", message="lost")
    canceller, other = others
    offers.hear(canceller, Notice(cancel=Cancel(job_id=record.id)))
    assert store.get(record.id).state == "cancelled"
    offers.link_up(other)
    passed_on = Cancel(job_id=record.id, reason=f"{canceller}'s owner cancelled the job")
    # The one that asked, too: if it has stored its part, it waits for the active party's word.
    assert told == ([(name, passed_on) for name in (*others, other)] if role == "active" else [])
    if role == "active":  # what the other one makes of it
        theirs = Store(tmp_path / "theirs")
        heard = theirs.update(theirs.add(several, submitter=own, job_id=record.id), state="failed", code="E_PEER_LOST")
        far = settings.model_copy(update={"name": "insurer", "role": "passive"})
        Offers(far, theirs, Works(far, theirs)).hear(own, Notice(cancel=told[0][1]))
        assert theirs.get(heard.id).message == "lab's owner cancelled the job (clinic says)"
        theirs.close()
    store.close()


def test_a_peer_that_comes_back_is_told_what_this_owner_cancelled_and_nothing_else(lab: Lab) -> None:
    told: list[tuple[str, str]] = []
    peers: Any = SimpleNamespace(tell=lambda peer, notice: told.append((peer, notice.cancel.job_id)))
    lab.works.attach(peers)
    ours, theirs, third = (lab.store.add(JOB, submitter="clinic") for _ in range(3))
    lab.store.update(ours, state="cancelled", code="E_CANCELLED", message="cancelled by this node's owner")
    lab.store.update(theirs, state="cancelled", code="E_CANCELLED", message="clinic's owner cancelled the job")
    lab.store.update(third, state="failed", code="E_DATA", message="no")
    for peer in ("clinic", "bank"):
        lab.offers.link_up(peer)
    assert told == [("clinic", ours.id)]  # the bank has no part in it


@pytest.mark.parametrize(("later", "goes_on"), [("there", True), ("away again", False), ("no room", True), ("done", False)])
def test_a_link_that_comes_while_a_job_still_waits_counts_once_it_has_waited_too_long(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, later: str, goes_on: bool
) -> None:
    """It came a moment before the wait was over, which nobody else would tell the job. Control: the link is away again."""
    links = {"clinic"}
    lab.works.attach(SimpleNamespace(tell=lambda *_: True, online=links.__contains__))  # type: ignore[arg-type]
    monkeypatch.setattr(lab.store, "has_report", lambda _: True)
    record = lab.store.update(lab.store.add(JOB, submitter="clinic"), state="running")
    lab.offers.link_up("clinic")
    assert lab.begun == []  # the work on it is under way
    record = lab.store.update(record, state="done" if later == "done" else "unconfirmed", code="E_UNCONFIRMED")
    if later == "away again":
        links.clear()
    if later == "no room":
        with monkeypatch.context() as patch:
            patch.setattr(Settings, "waiting_of", lambda *_: 0)
            lab.works.go_on_with_unconfirmed()
        assert lab.begun == []
    lab.works.go_on_with_unconfirmed()
    assert lab.begun == [record.id] * goes_on
    lab.works.go_on_with_unconfirmed()
    assert lab.begun == [record.id] * goes_on  # once for each time that a link comes


@pytest.mark.parametrize("allowed", [True, False])
def test_matched_rows_are_counted_only_where_the_owner_allows_it(lab: Lab, allowed: bool) -> None:
    """Refused when it is offered, before the job has begun, and when it is submitted; the words tell of settings alone."""
    train = {"train": {"bottom": [4], "epochs": 1}, "evaluate": {"matched": True}, "align": {"protocol": "psu"}}
    job = Job.model_validate(JOB.model_dump(exclude_unset=True) | train)
    if allowed:
        lab.configure(everyone={"reveal": ["matched"]})
    with capture_logs() as lines:
        reply = offered(lab, job.canonical(), "counted")
    assert reply.accepted == allowed
    assert lab.begun == (["counted"] if allowed else [])
    if not allowed:
        assert (reply.code, reply.reason) == ("E_POLICY", "its policy does not allow the job (kind)")
        (line,) = [line for line in lines if line["event"] == "job refused"]
        assert (line["log_level"], "reveal: [matched]" in line["hint"]) == ("info", True)
        with pytest.raises(PolicyError, match="which this node's policy does not allow") as caught:
            lab.jobs.submit(job)
        assert "reveal: [matched]" in caught.value.hint


@pytest.mark.parametrize("declared", [True, False])
def test_a_model_that_this_node_does_not_have_is_refused_when_it_is_offered(lab: Lab, declared: bool) -> None:
    job = Job.model_validate(JOB.model_dump(exclude_unset=True) | {"train": {"model": "gated"}})
    if declared:
        lab.configure(models={"gated": "tests.models.own_models:Gated"})
    reply = offered(lab, job.canonical(), "own")
    assert reply.accepted == declared
    assert lab.begun == (["own"] if declared else [])
    if not declared:
        said = "it has no model named 'gated'; its owner can declare one in the node's settings"
        assert (reply.code, reply.reason) == ("E_EXTENSION", said)
        with pytest.raises(UsageError, match="this node has none of that name") as caught:
            lab.jobs.submit(job)
        assert "models: {gated: module:Class}" in caught.value.hint


@pytest.mark.parametrize("job", [JOB, SERVICE], ids=["training", "service"])
def test_jobs_of_one_peer_are_kept_up_to_a_number_ended_ones_included(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, job: Job
) -> None:
    """A peer that offers and cancels for ever would fill the disk."""
    monkeypatch.setattr(predictions, "check", lambda *_: None)
    lab.configure(queue={"partners": {"*": {"stored": 2}}})
    lab.store.add(JOB, submitter="bank")
    for name in ("first", "second"):
        assert offered(lab, job.canonical(), name).accepted
        lab.store.update(lab.store.get(name), state="cancelled", finished="2000-01-01T00:00:00+00:00")
    reply = offered(lab, job.canonical(), "third")
    assert (reply.accepted, reply.code, reply.reason) == (False, "E_BUSY", "there are 2 jobs of clinic already")
    lab.store.prune(Retention(jobs_days=1))
    assert offered(lab, job.canonical(), "third").accepted


def test_peers_share_the_queue_and_never_fill_it_for_the_owner() -> None:
    def busy(own: str, peers: int, jobs: dict[str, int], submitter: str, *, services: int = 0) -> bool:
        names = {f"p{number}": Peer() for number in range(peers)}
        settings = Settings(name=own, role="active", listen="127.0.0.1:0", peers=names, insecure_loopback=True)
        works: Any = [
            SimpleNamespace(turn=turn, place=1, record=SimpleNamespace(submitter=of))
            for turn, each in ((object(), jobs), (None, {"p0": services}))
            for of, many in each.items()
            for _ in range(many)
        ]
        try:
            admission.check_room(settings, works, 0, submitter, serves=bool(services))
        except PolicyError as error:
            return error.code == "E_BUSY"
        return False

    full = {f"p{number}": 64 for number in range(4)}
    assert not busy("clinic", 4, full, "clinic")
    assert busy("clinic", 4, full, "p1")
    assert [busy("clinic", 8, {"p0": jobs}, "p0") for jobs in (31, 32)] == [False, True]
    assert busy("clinic", 1, {"clinic": 256}, "clinic")
    assert [busy("clinic", 1, {}, name, services=15) for name in ("p0", "clinic")] == [True, False]


@pytest.mark.parametrize(("places", "peers", "share"), [(16, 1, 15), (16, 2, 7), (2, 1, 1), (1, 1, 1), (4, 9, 1), (16, 0, 15)])
def test_a_peers_share_of_the_places_follows_from_how_many_may_submit_jobs(places: int, peers: int, share: int) -> None:
    """A coordinator and those that are met through others submit none."""
    names = {f"p{number}": Peer() for number in range(peers)}
    settings: dict[str, Any] = {
        "name": "lab",
        "role": "passive",
        "listen": "127.0.0.1:0",
        "peers": names | {"notary": Peer(), "insurer": Peer(relayed=True)},
        "insecure_loopback": True,
        "queue": {"max_running": places},
        "policy": {"everyone": {"coordinators": ["notary"]}},
    }
    assert Settings(**settings).running_of("p0") == share
    allowed = Settings(
        **settings | {"queue": QueueSettings(partners={"*": Share(running=3, waiting=5), "p1": Share(running=2)})}
    )
    assert (allowed.running_of("p0"), allowed.running_of("p1")) == (3, 2)
    assert (allowed.waiting_of("p0"), allowed.waiting_of("p1")) == (5, min(64, 256 // (peers or 1)))


def test_a_job_that_goes_on_finds_room_as_a_new_one_does_and_waits_for_it(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has so many refused would have them all go on at once else; a refusal for good would destroy what they kept."""
    lab.configure(queue={"partners": {"*": {"stored": 1}}})
    record = lab.store.update(lab.store.add(JOB, submitter="clinic"), state="failed", code="E_PEER_LOST", message="lost")
    with monkeypatch.context() as patch:
        patch.setattr(Settings, "waiting_of", lambda *_: 0)
        reply = offered(lab, JOB.canonical(), record.id)
        assert (reply.accepted, reply.code, reply.reason) == (False, "E_GAVE_WAY", "there are 0 jobs of clinic already")
        with pytest.raises(PolicyError) as caught:
            lab.works.resume(record.id)
        assert (caught.value.code, lab.store.get(record.id), lab.begun) == ("E_BUSY", record, [])
    assert offered(lab, JOB.canonical(), record.id).accepted
    assert lab.begun == [record.id]


def test_offers_that_are_refused_again_and_again_fill_no_log(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(200):
        assert not offered(lab, "{}", f"job-{number % 2}").accepted
    said = capsys.readouterr()
    assert (said.out + said.err).count("job refused") == 2
    for number in range(200):
        assert not offered(lab, "{}", f"job-{number}").accepted
    said = capsys.readouterr()
    assert (said.out + said.err).count("job refused") == 18


def test_who_goes_on_with_a_job_that_failed_here_hears_why(lab: Lab) -> None:
    """It may ask in the moment between the end and the word of it; after a restart the reason is gone."""
    assert offered(lab, JOB.canonical(), "job").accepted
    lab.store.update(lab.store.get("job"), state="failed", code="E_REFUSED", message="of this owner alone")
    for why, said in ("notary refused the job", "notary refused the job"), ("", "the job has already ended there (failed)"):
        lab.works._works = {"job": SimpleNamespace(for_peer=why, alive=False)}
        reply = offered(lab, JOB.canonical(), "job")
        assert (reply.accepted, reply.code, reply.reason) == (False, "E_JOB_ENDED", said)


def test_only_the_owner_has_deaths_counted_anew(lab: Lab) -> None:
    """A peer asks again and again, and a job that kills the process would never be put aside."""
    assert offered(lab, JOB.canonical(), "job").accepted
    for resume, deaths in (lambda: offered(lab, JOB.canonical(), "job"), 1), (lambda: lab.works.resume("job"), 0):
        lab.store.update(lab.store.get("job"), state="failed", code="E_PEER_LOST", deaths=1)
        resume()
        assert (lab.store.get("job").state, lab.store.get("job").deaths) == ("waiting", deaths)


def test_a_peers_job_with_a_coordinator_or_beyond_the_budget_is_refused_before_it_is_stored(lab: Lab) -> None:
    text = "name: t\nparties: {active: clinic, passive: lab, coordinator: bank}\ntrain: {algorithm: hidden, epsilon: 1}"
    job = parse(text, Job, source="job").canonical()
    lab.configure(state_dir=lab.store.folder)
    reply = offered(lab, job, "first")
    assert (reply.accepted, reply.code) == (False, "E_POLICY")
    assert reply.reason == "its policy does not allow the job (partner)"

    lab.configure(state_dir=lab.store.folder, everyone={"coordinators": ["bank"]})
    memory = lab.store.partner("clinic")
    for number in range(12):
        memory.spend(Expense("default", f"job-{number}", mu_of(1), limit=4.0))
    reply = offered(lab, job, "second")
    assert (reply.accepted, reply.code) == (False, "E_BUDGET")
    assert reply.reason == "its policy does not allow the job (budget)"
    for job_id in ("first", "second"):
        assert lab.store.get(job_id) is None
    memory.forget()
    assert offered(lab, job, "third").accepted
    assert memory.account().total("default").mu == 0  # it counts when it begins
