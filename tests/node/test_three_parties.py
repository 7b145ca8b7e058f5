"""Three real nodes, over mutual TLS and without: whatever happens to one of them, all three end the job, and know why."""

from __future__ import annotations

import json
import random
import signal
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.node.nodes import GENEROUS_S, NOBODY_ELSE, accepting
from tests.node.stage import Stage
from vfl_node.configuration.models import parse
from vfl_node.errors import PeerError, PolicyError, UsageError
from vfl_node.job import Job
from vfl_node.node.setup import certify, init
from vfl_node.settings.reading import load_settings
from vfl_node.transport.credentials import load_credentials
from vfl_node.transport.dialer import Dialer
from vfl_node.transport.generated.vfl.v1.session_pb2 import Cancel, Echo, Hello, Notice, Offer
from vfl_node.version import PROTOCOL_VERSION

ROLES = {"clinic": "active", "lab": "passive", "notary": "coordinator"}
JOB = """\
name: trial
parties: {active: clinic, passive: lab, coordinator: notary}
align: {protocol: psi}
train: {algorithm: logistic, flow: coordinator-open-scores}
"""
PLACES = (
    "when all are met",
    "in a round",
    "before its report",
    "with its report",
    "store",
    "confirm",
    "confirmed",
    "finished",
    "forget",
)


SOME = [
    ("clinic", "confirmed"),
    ("lab", "when all are met"),
    ("notary", "in a round"),
]


@pytest.fixture(scope="module")
def theatre(federations: Any, forked: Any, tmp_path_factory: pytest.TempPathFactory) -> Stage:
    import acting_node

    assert acting_node.PLACES == PLACES
    stage = Stage(federations(tmp_path_factory.mktemp("three"), ROLES), forked, JOB)
    stage.federation.start_three()
    return stage


@pytest.mark.parametrize("submitter", ["lab", pytest.param("clinic", marks=pytest.mark.slow)])
def test_a_job_of_three(stage: Stage, submitter: str) -> None:
    job_id = stage.submit(submitter)
    stage.in_a_round(job_id)
    for name in ROLES:
        view = stage.federation.view(name, job_id)
        assert view["parties"] == ["clinic", "lab", "notary"]
        assert (view["submitter"], view["state"], view["phase"]) == (submitter, "running", "act")
    notary = f"http://{stage.federation.running('notary')['http']}"
    token = (stage.federation.folder / "notary" / "state" / "token").read_text()

    def fetch(path: str) -> str:
        request = urllib.request.Request(notary + path, headers={"Authorization": f"Bearer {token}"})
        return urllib.request.urlopen(request, timeout=240).read().decode()

    shown = {path: fetch(path) for path in ("/", "/metrics", "/health")}
    assert "notary <small>coordinator</small>" in shown["/"]
    assert job_id in shown["/"]
    assert f'vfl_job_steps_done{{job="{job_id}",phase="act"}}' in shown["/metrics"]
    assert json.loads(shown["/health"])["role"] == "coordinator"
    stage.let_it_end()
    stage.all_done(job_id)
    assert fetch(f"/jobs/{job_id}") == "an act"  # its report


def test_a_job_of_three_on_loopback_without_tls(federations: Any, forked: Any, tmp_path: Path) -> None:
    stage = Stage(federations(tmp_path, ROLES), forked, JOB)
    stage.federation.start_three(tls=None, insecure_loopback=True)
    stage.let_it_end()
    stage.all_done(stage.submit())
    stage.federation.end_all()


@pytest.mark.parametrize(("victim", "place"), SOME)
def test_killed(stage: Stage, victim: str, place: str) -> None:
    stage.survives(victim, place, f"waiting for {victim}")


@pytest.mark.slow
@pytest.mark.parametrize(("victim", "place"), [(n, place) for n in ROLES for place in PLACES if (n, place) not in SOME])
def test_killed_anywhere(stage: Stage, victim: str, place: str) -> None:
    test_killed(stage, victim, place)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_killed_again_and_again(stage: Stage, seed: int) -> None:
    """One or two at a time, in the rounds or around their end, and again before all have found each other."""
    chance = random.Random(seed)
    job_id = stage.submit(chance.choice(["clinic", "lab"]))
    for _ in range(chance.randrange(1, 4)):
        time.sleep(1.2 * chance.random())
        if chance.random() < 0.6:
            stage.let_it_end()
            time.sleep(0.25 * chance.random())
        victims = chance.sample(sorted(ROLES), chance.choice([1, 1, 1, 2]))
        for name in victims:
            stage.federation.kill(name, chance.choice([signal.SIGKILL, signal.SIGTERM]))
        time.sleep(0.5 * chance.random())
        for name in victims:
            stage.federation.start(name)
    stage.let_it_end()
    for name in ROLES:
        stage.federation.wait_until(lambda name=name: stage.federation.view(name, job_id))
    stage.all_done(job_id)


def test_all_killed_at_once(stage: Stage) -> None:
    job_id = stage.submit()
    stage.in_a_round(job_id)
    for name in ROLES:
        stage.federation.processes[name].kill()
    for name in ROLES:
        assert stage.federation.processes[name].wait(240) == -signal.SIGKILL
    for name in ("lab", "notary", "clinic"):
        stage.federation.start(name)
    stage.let_it_end()
    stage.all_done(job_id)


def test_a_coordinator_that_stops_is_waited_for(stage: Stage) -> None:
    job_id = stage.submit()
    stage.in_a_round(job_id)
    assert stage.federation.kill("notary", signal.SIGTERM) == 0
    for name in ("clinic", "lab"):
        stage.federation.wait_until(lambda name=name: "waiting for notary" in stage.federation.view(name, job_id)["note"])
    stage.federation.start("notary")
    stage.let_it_end()
    stage.all_done(job_id)


def test_an_absent_coordinator_is_waited_for(stage: Stage) -> None:
    stage.federation.kill("notary", signal.SIGTERM)
    job_id = stage.submit()
    stage.federation.wait_until(lambda: "waiting for notary" in stage.federation.view("clinic", job_id)["note"])
    stage.federation.wait_until(lambda: "waiting for notary" in stage.federation.view("lab", job_id).get("note", ""))
    stage.federation.start("notary")
    stage.let_it_end()
    stage.all_done(job_id)


def test_an_absent_coordinator_is_named_and_the_job_can_be_resumed(stage: Stage) -> None:
    address = stage.federation.running("notary")["listen"]
    stage.federation.kill("notary", signal.SIGTERM)
    stage.federation.kill("clinic", signal.SIGTERM)
    stage.federation.start("clinic", peer_wait_s=2)
    stage.federation.wait_until(lambda: stage.federation.client("clinic").health()["peers"]["lab"]["online"])
    job_id = stage.submit()
    error = stage.ends(job_id, clinic="failed")["clinic"]
    assert error["code"] == "E_PEER_ABSENT"
    assert f"notary (at {address}), absent" in error["message"]
    stage.federation.start("notary")
    stage.federation.wait_until(lambda: all(map(stage.federation.connected, ROLES)))  # the clinic waits for 2 s only
    stage.federation.client("clinic").resume(job_id)
    stage.let_it_end()
    stage.all_done(job_id)
    stage.federation.kill("clinic", signal.SIGTERM)
    stage.federation.start("clinic", peer_wait_s=30)


def test_a_coordinator_that_refuses_is_named_at_both_others(stage: Stage) -> None:
    stage.federation.kill("notary", signal.SIGTERM)
    stage.federation.start("notary", policy={"approve": [*accepting("lab"), NOBODY_ELSE]})
    stage.federation.wait_until(lambda: stage.federation.connected("clinic"))
    job_id = stage.submit("clinic")
    errors = stage.ends(job_id, clinic="failed", lab="failed")
    assert errors["clinic"]["code"] == "E_REFUSED"
    assert "notary refused the job: its policy does not allow the job (partner)" in errors["clinic"]["message"]
    assert "clinic stopped" in errors["lab"]["message"]
    assert "notary refused the job" in errors["lab"]["message"]
    assert stage.federation.view("notary", job_id) == {}
    stage.federation.kill("notary", signal.SIGTERM)
    stage.federation.start("notary", accepts=["clinic", "lab"])


@pytest.mark.parametrize("owner", ["lab", "notary", pytest.param("clinic", marks=pytest.mark.slow)])
def test_cancelled_by_any_owner_it_ends_at_all(stage: Stage, owner: str) -> None:
    job_id = stage.submit()
    stage.in_a_round(job_id)
    stage.federation.client(owner).cancel(job_id)
    assert stage.federation.end(owner, job_id)["state"] == "cancelled"
    for name in ROLES.keys() - {owner}:
        error = stage.ends(job_id, **{name: "cancelled"})[name]
        assert error["code"] == "E_CANCELLED"
        assert "cancelled" in error["message"]
        assert owner in error["message"]
        folder = stage.federation.job_folder(name, job_id)
        stage.federation.wait_until(lambda folder=folder: not list(folder.iterdir()))


@pytest.mark.parametrize("owner", ["lab", pytest.param("clinic", marks=pytest.mark.slow)])
def test_cancelled_while_the_coordinator_is_waited_for(stage: Stage, owner: str) -> None:
    stage.federation.kill("notary", signal.SIGTERM)
    job_id = stage.submit()
    stage.federation.wait_until(lambda: "waiting for notary" in stage.federation.view("lab", job_id).get("note", ""))
    stage.federation.client(owner).cancel(job_id)
    (other,) = {"clinic", "lab"} - {owner}
    stage.ends(job_id, **{owner: "cancelled", other: "cancelled"})


def test_a_job_cancelled_while_one_was_down_ends_there_too(stage: Stage) -> None:
    job_id = stage.submit()
    stage.in_a_round(job_id)
    stage.federation.kill("notary")
    stage.federation.client("clinic").cancel(job_id)
    stage.ends(job_id, clinic="cancelled", lab="cancelled")
    stage.federation.start("notary")
    error = stage.ends(job_id, notary="cancelled")["notary"]
    assert error["code"] == "E_CANCELLED"
    assert "clinic" in error["message"]


def test_cancelling_a_job_that_could_be_resumed_ends_it_everywhere(stage: Stage) -> None:
    """Nobody waits for it any more, so nobody keeps its secrets."""
    federation = stage.federation
    for name in ("notary", "clinic"):
        federation.kill(name, signal.SIGTERM)
        federation.start(name, peer_wait_s=2)
    federation.wait_until(lambda: all(federation.connected(name) for name in ROLES))
    job_id = stage.submit()
    stage.in_a_round(job_id)
    federation.kill("lab")
    stage.ends(job_id, clinic="failed", notary="failed")
    assert all(federation.view(name, job_id)["resumable"] for name in ("clinic", "notary"))
    federation.kill("notary", signal.SIGTERM)
    federation.client("clinic").cancel(job_id)
    federation.start("notary")  # it hears of it when it comes back
    federation.wait_until(lambda: federation.view("notary", job_id)["state"] == "cancelled")
    assert federation.view("notary", job_id)["error"]["message"] == "clinic's owner cancelled the job"
    federation.wait_until(lambda: not (federation.job_folder("notary", job_id) / "seed").exists())
    for name in ("notary", "clinic"):
        federation.kill(name, signal.SIGTERM)
        federation.start(name, peer_wait_s=30)


@pytest.mark.parametrize("name", ["clinic", "lab"])
def test_a_party_that_fails_says_so_at_both_others(stage: Stage, name: str) -> None:
    stage.tell(f"{name}-fails", "in a round")
    errors = stage.ends(stage.submit(), **dict.fromkeys(ROLES, "failed"))
    assert errors[name]["code"] == "E_DATA"
    for other in ROLES.keys() - {name}:
        assert f"{name} stopped in phase 'act': its data cannot be used for this job" in errors[other]["message"]
        assert "told to fail" not in errors[other]["message"]


@pytest.mark.parametrize("name", ["lab", pytest.param("clinic", marks=pytest.mark.slow)])
def test_a_table_that_cannot_be_used_is_told_to_both_others(stage: Stage, tmp_path: Path, name: str) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text("id,x,label\ncanary-1,1,0\ncanary-1,2,1\n")
    stage.federation.kill(name, signal.SIGTERM)
    stage.federation.start(name, data={"path": str(bad)})
    stage.federation.wait_until(lambda: all(stage.federation.connected(name) for name in ROLES))
    errors = stage.ends(stage.submit(), **dict.fromkeys(ROLES, "failed"))
    assert errors[name]["code"] == "E_DUP_IDS"
    for other in ROLES.keys() - {name}:
        assert f"{name} stopped in phase 'preflight': its data cannot be used for this job" in errors[other]["message"]
        assert "canary" not in stage.federation.log(other)
    stage.federation.kill(name, signal.SIGTERM)
    stage.federation.start(name, data={"path": str(stage.federation.trial.files[name])})


def test_nothing_is_submitted_at_a_coordinator(stage: Stage) -> None:
    with pytest.raises(UsageError) as caught:
        stage.submit("notary")
    assert caught.value.code == "E_ROLE"
    assert "a coordinator" in caught.value.message
    assert "clinic or lab" in caught.value.hint


def test_a_job_that_names_another_coordinator_is_refused(stage: Stage) -> None:
    text = JOB.replace("coordinator: notary", "coordinator: clinic").replace("active: clinic", "active: bank")
    other = parse(text, Job, source="job")
    with pytest.raises(UsageError) as caught:
        stage.federation.client("clinic").submit(other.canonical())
    assert caught.value.code == "E_ROLE"
    assert "active: bank, passive: lab, coordinator: clinic" in caught.value.hint


def test_another_version_of_the_protocol_ends_the_job_at_all_three(stage: Stage) -> None:
    stage.federation.kill("notary", signal.SIGTERM)
    stage.tell("notary-other-version")
    stage.federation.start("notary")
    errors = stage.ends(stage.submit(), **dict.fromkeys(ROLES, "failed"))
    assert {error["code"] for error in errors.values()} == {"E_VERSION"}  # found by itself, or told
    assert all("protocol version" in error["message"] for error in errors.values())
    stage.federation.kill("notary", signal.SIGTERM)


class Mallory:
    """A peer of all three, with a good certificate, that has no part in the job."""

    def __init__(self, stage: Stage) -> None:
        folder = stage.federation.folder / "mallory"
        if not folder.exists():
            init("mallory", "passive", folder, mode="shared")
            certify([folder], stage.federation.folder / "authority")
        settings = load_settings(folder / "node.yaml")
        assert settings.tls
        self._stage = stage
        self._credentials = load_credentials(settings.tls, name="mallory", federation="trial")
        for name in ("notary", "clinic"):
            peers = yaml.safe_load((stage.federation.folder / name / "node.yaml").read_text())["peers"]
            stage.federation.kill(name, signal.SIGTERM)
            accepted = [*sorted(ROLES.keys() - {name}), "mallory"]
            stage.federation.start(name, peers=peers | {"mallory": {}}, accepts=accepted)

    def dialer(self, name: str) -> Dialer:
        address = self._stage.federation.running(name)["listen"]
        return Dialer(address, own="mallory", peer=name, federation="trial", credentials=self._credentials)

    def told(self, name: str, notice: Notice) -> Notice | None:
        """What ``name`` answers to a notice over a link; None if it has answered a later question, and nothing to this."""
        link = self.dialer(name).link()
        hello = Hello(party="mallory", role="passive", protocol_version=PROTOCOL_VERSION)
        link.send(Notice(hello=hello))
        assert link.receive(10)
        link.send(notice)
        link.send(Notice(echo=Echo(number=1)))
        reply = None
        while not (heard := link.receive(GENEROUS_S)) or not heard.echo.answer:
            assert heard, f"{name} says nothing"
            reply = heard if heard.WhichOneof("body") == "offer_reply" else reply
        link.close()
        return reply


@pytest.fixture
def mallory(stage: Stage) -> Mallory:
    made = Mallory(stage)
    stage.federation.wait_until(lambda: stage.federation.connected("lab"))
    return made


def test_a_peer_that_has_no_part_in_a_job_cannot_touch_it(stage: Stage, mallory: Mallory) -> None:
    stage.federation.kill("lab", signal.SIGTERM)  # the others wait for a conversation meanwhile
    job_id = stage.submit()
    stage.federation.wait_until(lambda: "waiting for lab" in stage.federation.view("clinic", job_id)["note"])
    with pytest.raises(PeerError) as caught:
        mallory.dialer("clinic").converse(job_id)
    assert caught.value.code == "E_NOT_WAITING"
    stage.federation.start("lab")
    stage.in_a_round(job_id)
    spec = parse(JOB, Job, source="job").canonical()
    for name in ("clinic", "notary"):
        with pytest.raises(PeerError) as caught:
            mallory.dialer(name).converse(job_id)
        assert caught.value.code == "E_NOT_WAITING"
        assert mallory.told(name, Notice(cancel=Cancel(job_id=job_id))) is None
        reply = mallory.told(name, Notice(offer=Offer(job_id=job_id, submitter="mallory", job_json=spec)))
        assert reply is not None
        assert (reply.offer_reply.accepted, reply.offer_reply.code) == (False, PolicyError.default_code)
        reply = mallory.told(name, Notice(offer=Offer(job_id="another", submitter="clinic", job_json=spec)))
        assert reply is not None
        assert not reply.offer_reply.accepted
    stage.let_it_end()
    stage.all_done(job_id)
