"""A job of a peer that no rule accepts waits for this node's owner, who sees what it asks for and answers once."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.node.nodes import NOBODY_ELSE, accepting
from vfl_node.configuration.models import parse
from vfl_node.errors import PolicyError, UsageError
from vfl_node.job import Job
from vfl_node.node.approvals import Approvals
from vfl_node.node.asked_words import _list_steps
from vfl_node.node.jobs import Jobs
from vfl_node.node.offers import Offers
from vfl_node.node.record import MANIFEST
from vfl_node.node.store import Store
from vfl_node.node.work import Work
from vfl_node.node.works import Works
from vfl_node.settings.node import Settings
from vfl_node.transport.generated.vfl.v1.session_pb2 import Cancel, Notice, Offer, OfferReply
from vfl_node.trust.manifest import Manifest, make_manifest
from vfl_node.trust.tokens import Tokens

JOB = parse("name: weekly\npurpose: churn\nparties: {active: clinic, passive: lab}\ntrain: {epochs: 3}\n", Job, source="test")

JOB_OF_A_SWEEP = """
name: weekly
parties: {active: clinic, passive: lab}
train: {epochs: 1}
evaluate: {validation_fraction: 0.1}
sweep: {over: {epochs: [200, 400], learning_rate: [0.1, 0.01]}}
"""


class Lab:
    """A lab that accepts jobs of the bank without asking, and is asked about those of the clinic."""

    def __init__(self, folder: Path) -> None:
        self.store = Store(folder / "state")
        self.begun: list[str] = []
        self.configure()

    def configure(self, **changes: Any) -> None:
        """Begin again, perhaps with other settings."""
        settings: dict[str, Any] = {
            "name": "lab",
            "role": "passive",
            "data": {"path": "lab.csv"},
            "peers": {"clinic": {"address": "127.0.0.1:1"}, "bank": {"address": "127.0.0.1:1"}},
            "policy": {"approve": accepting("bank")},
            "insecure_loopback": True,
            "state_dir": str(self.store.folder),
        }
        self.settings = Settings.model_validate(settings | changes)
        self.works = Works(self.settings, self.store)
        self.works.attach(SimpleNamespace(online=lambda name: False, tell=lambda *told: False, check_version=lambda name: None))  # type: ignore[arg-type]
        self.jobs = Jobs(self.settings, self.store, self.works)
        self.offers = Offers(self.settings, self.store, self.works)
        self.approvals = Approvals(self.settings, self.store, self.works, Tokens(self.store.folder))

    def offered(self, about: Manifest, *, job: Job = JOB, by: str = "clinic", **changes: Any) -> OfferReply:
        offer: dict[str, Any] = {
            "job_id": about.id,
            "submitter": by,
            "job_json": job.canonical(),
            "manifest": about.to_bytes(),
        }
        reply = self.offers.hear(by, Notice(offer=Offer(**(offer | changes))))
        assert reply
        return reply.offer_reply

    def state(self, job_id: str = "weekly-1") -> str | None:
        record = self.store.get(job_id)
        return record and record.state

    def documents(self, job_id: str = "weekly-1") -> dict[str, Any]:
        return {name: json.loads(body) for name, body in self.store.documents(job_id).items() if name not in ("note", "terms")}


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    lab = Lab(tmp_path)
    monkeypatch.setattr(Work, "start", lambda work: lab.begun.append(work.record.id))
    yield lab
    lab.store.close()


def manifest(job: Job = JOB, job_id: str = "weekly-1", *, by: str = "clinic", days_ago: float = 0) -> Manifest:
    now = datetime.now(timezone.utc) - timedelta(days=days_ago)
    return make_manifest(job, job_id, federation="trial", submitter=by, cards={}, trained=None, now=now)


def test_a_job_that_no_rule_accepts_waits_and_nothing_is_told(lab: Lab) -> None:
    one = manifest()
    for _ in range(2):  # it is offered again and again
        reply = lab.offered(one)
        assert (reply.accepted, list(reply.asked), reply.waits, reply.code) == (True, ["lab"], False, "")
    assert (lab.state(), lab.begun) == ("asked", [])
    assert not lab.works.expects("clinic", "weekly-1")
    assert lab.documents() == {MANIFEST: json.loads(one.to_bytes())}
    (ask,) = lab.approvals.asks()
    assert (ask["id"], ask["submitter"], ask["purpose"], ask["digest"]) == ("weekly-1", "clinic", "churn", one.digest)
    view = lab.jobs.view("weekly-1")
    assert view
    assert (view["state"], view["error"]) == ("asked", None)


def test_a_rule_approves_without_asking(lab: Lab) -> None:
    job = JOB.model_copy(update={"parties": JOB.parties.model_copy(update={"active": "bank"})})
    reply = lab.offered(manifest(job, by="bank"), job=job, by="bank")
    assert (reply.accepted, list(reply.asked), lab.begun) == (True, [], ["weekly-1"])
    assert lab.documents()["consent lab"]["by"] == "rule"


def test_an_owner_that_is_not_to_be_asked_refuses_as_before(lab: Lab) -> None:
    lab.configure(policy={"approve": [*accepting("bank"), NOBODY_ELSE]})
    reply = lab.offered(manifest())
    assert (reply.accepted, reply.code, lab.state()) == (False, "E_POLICY", None)
    assert reply.reason == "its policy does not allow the job (partner)"


def test_what_the_settings_forbid_is_refused_at_once(lab: Lab) -> None:
    lab.configure(policy={"everyone": {"protocols": ["psi"]}})
    assert (lab.offered(manifest()).code, lab.state()) == ("E_POLICY", None)


def test_the_owner_approves_what_it_has_seen_once(lab: Lab) -> None:
    one = manifest()
    lab.offered(one)
    for wrong in ("", one.digest[:7], "0" * 8, one.digest[:8] + "x", one.digest.upper()):
        with pytest.raises(UsageError) as caught:
            lab.approvals.approve("weekly-1", wrong)
        assert (caught.value.code, lab.state(), lab.begun) == ("E_STALE", "asked", [])
    lab.approvals.approve("weekly-1", one.digest[:8], "as every week")
    assert (lab.state(), lab.begun) == ("waiting", ["weekly-1"])
    consent = lab.documents()["consent lab"]
    told = (consent["manifest_sha256"], consent["job_id"], consent["party"], consent["verdict"], consent["by"])
    assert told == (one.digest, "weekly-1", "lab", "approve", "persons")
    assert "as every week" not in json.dumps(consent)  # which the others will see
    assert lab.approvals.show("weekly-1")["decision"]["note"] == "as every week"
    for answer in (lambda: lab.approvals.approve("weekly-1", one.digest[:8]), lambda: lab.approvals.refuse("weekly-1", "data")):
        with pytest.raises(UsageError) as caught:
            answer()
        assert caught.value.code == "E_NOT_ASKED"
    assert list(lab.offered(one).asked) == []


def test_the_others_hear_the_reason_of_a_refusal_and_not_the_note(lab: Lab) -> None:
    lab.offered(manifest())
    with pytest.raises(UsageError, match="one of data, purpose"):
        lab.approvals.refuse("weekly-1", "they are rivals")
    lab.approvals.refuse("weekly-1", "budget", "they are rivals")
    record = lab.store.record("weekly-1")
    assert (record.state, record.over, record.code) == ("cancelled", True, "E_REFUSED")
    reply = lab.offered(manifest(), manifest=lab.store.documents("weekly-1")[MANIFEST])
    assert (reply.accepted, reply.code, reply.reason) == (False, "E_REFUSED", "its owner's reason: budget")
    assert lab.documents()["consent lab"]["verdict"] == "refuse"
    assert lab.approvals.show("weekly-1")["decision"]["note"] == "they are rivals"


def test_a_decision_survives_a_restart(lab: Lab, tmp_path: Path) -> None:
    one = manifest()
    lab.offered(one)
    lab.store.close()
    lab.store = Store(tmp_path / "state")
    lab.configure()
    assert [ask["id"] for ask in lab.approvals.asks()] == ["weekly-1"]
    lab.works.start()
    assert lab.begun == []  # it does not go on by itself
    lab.works.stop(1)
    lab.configure()
    lab.approvals.approve("weekly-1", one.digest[:12])
    lab.store.close()
    lab.store = Store(tmp_path / "state")
    lab.configure()
    lab.works.start()
    assert lab.begun == ["weekly-1"] * 2
    assert lab.approvals.show("weekly-1")["decision"]["verdict"] == "approve"
    lab.works.stop(1)


def test_it_is_too_late_after_a_week_unless_the_job_has_begun(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lab.offered(manifest(days_ago=8)).code == "E_CONSENT"
    one, other = manifest(), manifest(job_id="weekly-2")
    lab.offered(one)
    lab.offered(other)
    lab.approvals.approve("weekly-2", other.digest[:8])
    monkeypatch.setattr(Manifest, "has_expired", lambda manifest: True)
    with pytest.raises(UsageError) as caught:
        lab.approvals.approve("weekly-1", one.digest[:8])
    assert (caught.value.code, lab.state()) == ("E_CONSENT", "cancelled")
    lab.approvals.expire()
    assert lab.state("weekly-2") == "waiting"
    assert lab.offered(other).accepted


def test_the_watch_ends_what_nobody_has_answered(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.offered(manifest())
    lab.approvals.expire()
    assert lab.state() == "asked"
    monkeypatch.setattr(Manifest, "has_expired", lambda manifest: True)
    lab.approvals.expire()
    assert lab.state() == "cancelled"
    assert lab.store.record("weekly-1").message == "its owner's reason: time"


def test_a_damaged_manifest_stands_in_no_other_jobs_way(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.offered(manifest())
    lab.offered(manifest(job_id="weekly-2"))
    with closing(sqlite3.connect(tmp_path / "state" / "jobs.sqlite")) as index:
        index.execute("UPDATE documents SET body = x'00' WHERE job = 'weekly-1'")
        index.commit()
    asks = {ask["id"]: ask["error"] for ask in lab.approvals.asks()}
    assert asks == {"weekly-1": "what is kept with job weekly-1 is damaged", "weekly-2": None}
    monkeypatch.setattr(Manifest, "has_expired", lambda manifest: True)
    lab.approvals.expire()
    assert (lab.state("weekly-1"), lab.state("weekly-2")) == ("asked", "cancelled")
    lab.jobs.cancel("weekly-1")
    assert lab.state("weekly-1") == "cancelled"


def test_one_id_has_one_manifest(lab: Lab) -> None:
    lab.offered(manifest())
    reply = lab.offered(manifest())  # another nonce
    assert (reply.accepted, reply.code) == (False, "E_MANIFEST")
    assert lab.offered(manifest(job_id="weekly-2"), manifest=b"").code == "E_MANIFEST"
    assert lab.offered(manifest(job_id="weekly-2"), manifest=manifest().to_bytes()).code == "E_MANIFEST"
    assert lab.state("weekly-2") is None


def test_the_submitter_may_withdraw_a_job_that_waits(lab: Lab) -> None:
    lab.offered(manifest())
    lab.offers.hear("bank", Notice(cancel=Cancel(job_id="weekly-1")))
    assert lab.state() == "asked"
    lab.offers.hear("clinic", Notice(cancel=Cancel(job_id="weekly-1")))
    assert lab.state() == "cancelled"
    assert lab.approvals.asks() == []


def test_a_peer_has_a_bounded_number_of_jobs_that_wait(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.configure(queue={"partners": {"*": {"waiting": 2}}})
    assert [lab.offered(manifest(job_id=f"weekly-{number}")).code for number in range(3)] == ["", "", "E_BUSY"]
    lab.approvals.refuse("weekly-0", "other")
    assert lab.offered(manifest(job_id="weekly-3")).accepted
    lab.configure(queue={"partners": {"*": {"stored": 3}}})
    assert lab.offered(manifest(job_id="weekly-4")).code == "E_BUSY"


def test_settings_of_today_decide_when_the_owner_approves(lab: Lab) -> None:
    one = manifest()
    lab.offered(one)
    lab.configure(policy={"everyone": {"protocols": ["psi"]}})
    with pytest.raises(PolicyError):
        lab.approvals.approve("weekly-1", one.digest[:8])
    assert lab.state() == "asked"


def test_what_is_shown_is_of_the_job_and_not_of_the_peer(lab: Lab) -> None:
    first = manifest(job_id="weekly-0")
    lab.offered(first)
    lab.approvals.approve("weekly-0", first.digest[:8])
    lab.store.update(lab.store.record("weekly-0"), state="done", attempt=1)
    job = parse(
        "name: weekly\nparties: {active: clinic, passive: lab}\ntrain: {epochs: 5}\nevaluate: {share_with_passive: true}\n"
        "align: {protocol: psi}\n",
        Job,
        source="test",
    )
    document = json.loads(manifest(job).to_bytes())
    for each in document["reveals"]:
        each["bound"] = "nothing at all"
    sent = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    assert lab.offered(manifest(job), job=job, manifest=sent).accepted
    shown = lab.approvals.show("weekly-1")
    assert all("nothing at all" not in each["bound"] for each in shown["reveals"])
    assert {(each["to"], each["what"]) for each in shown["reveals"] if each["new"]} == {
        ("clinic", "intersection"),
        ("lab", "intersection"),
    }
    assert shown["previous"] == "weekly-0"
    changed = {each["key"]: (each["before"], each["now"]) for each in shown["differences"]}
    assert changed["train.epochs"] == ("3", "5")
    assert changed["align.protocol"] == ("psu", "psi")
    assert any("private set intersection" in step for step in shown["steps"])
    assert {each["limit"]: (each["used"], each["after"]) for each in shown["budgets"]} == {
        "alignments": (0, 1),
        "trainings": (0, 1),
        "trainings_in_clear": (0, 1),
    }


def test_a_sweep_is_told_with_all_its_trainings(lab: Lab) -> None:
    job = parse(JOB_OF_A_SWEEP, Job, source="test")
    assert lab.offered(manifest(job), job=job).accepted
    shown = lab.approvals.show("weekly-1")
    assert shown["steps"][1:3] == [
        "A model (split) learns to predict the label of clinic, at most 400 epochs.",
        "That is done in 4 trainings with different settings, with 1,200 epochs at most. Validation rows choose one model.",
    ]
    (embeddings,) = (each["bound"] for each in shown["reveals"] if each["what"] == "embeddings")
    assert "1,200 times at most" in embeddings


def test_a_job_over_an_alignment_of_before_is_told_as_one() -> None:
    words = "train: {epochs: 1, start_from: first}\nalign: {protocol: psi, reuse: first}\n"
    job = parse("name: weekly\nparties: {active: clinic, passive: lab}\n" + words, Job, source="test")
    assert list(_list_steps(job))[:3] == [
        "Nothing is aligned anew: the records are those of clinic and lab that job first matched by private set intersection; "
        "the shared order is the intersection.",
        "A model (split) learns to predict the label of clinic, at most 1 epoch.",
        "Training goes on from the model of job first.",
    ]


def test_of_a_job_that_comes_again_it_is_said_what_that_tells(lab: Lab) -> None:
    first = manifest(job_id="weekly-0")
    lab.offered(first)
    assert not any("submitted on" in step for step in lab.approvals.show("weekly-0")["steps"])
    lab.approvals.approve("weekly-0", first.digest[:8])
    day = lab.store.update(lab.store.record("weekly-0"), state="done", attempt=1).submitted[:10]
    lab.offered(manifest())
    shown = lab.approvals.show("weekly-1")
    assert shown["same"]
    assert shown["steps"][-1].startswith(
        f"The same was submitted on {day}. Of a table that has grown since, the others can tell"
    )


def test_a_job_from_before_there_were_manifests_has_none_to_show(lab: Lab) -> None:
    record = lab.store.add(JOB, submitter="clinic")
    with pytest.raises(UsageError) as caught:
        lab.approvals.show(record.id)
    assert caught.value.code == "E_NO_MANIFEST"
