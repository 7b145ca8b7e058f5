"""Real nodes of a job with several passive parties, who never talk to each other: all hear what happens to any of them."""

from __future__ import annotations

import re
import signal
import urllib.request
from typing import Any

import pytest

from tests.node.nodes import NOBODY_ELSE
from tests.node.several import SeveralTrial, job_text
from tests.node.stage import Stage
from vfl_node.errors import UsageError

ROLES = {"clinic": "active", "lab": "passive", "insurer": "passive"}
JOB = job_text("", ("lab", "insurer"))


def note(stage: Stage, name: str, job_id: str) -> str:
    return str(stage.federation.view(name, job_id).get("note", ""))


@pytest.mark.parametrize("submitter", ["lab", pytest.param("clinic", marks=pytest.mark.slow)])
def test_a_job_comes_to_all_wherever_it_was_submitted(stage: Stage, submitter: str) -> None:
    job_id = stage.submit(submitter)
    stage.in_a_round(job_id)
    views = {name: stage.federation.view(name, job_id) for name in ROLES}
    assert {name: view["parties"] for name, view in views.items()} == {name: list(ROLES) for name in ROLES}
    assert views["insurer"]["submitter"] == "clinic"  # who offered it there
    stage.let_it_end()
    stage.all_done(job_id)


def test_a_relayed_peer_is_shown_without_a_link_and_may_not_connect(stage: Stage) -> None:
    health = stage.federation.client("lab").health()["peers"]
    assert (health["clinic"]["online"], health["insurer"]["online"]) == (True, None)
    place = f"http://{stage.federation.running('lab')['http']}"
    token = (stage.federation.folder / "lab" / "state" / "token").read_text()
    request = {"headers": {"Authorization": f"Bearer {token}"}}
    page, metrics = (
        urllib.request.urlopen(urllib.request.Request(place + path, **request), timeout=60).read().decode()
        for path in ("/", "/metrics")
    )
    assert re.search(r"insurer</b><span[^>]*>relayed<", page)
    assert 'vfl_peer_up{peer="clinic"} 1.0' in metrics
    assert not re.search(r'vfl_peer_\w+{[^}]*peer="insurer"', metrics)  # but its budgets are there


@pytest.mark.parametrize(("victim", "other"), [("insurer", "lab"), pytest.param("lab", "insurer", marks=pytest.mark.slow)])
def test_a_lost_party_is_named_at_the_one_that_never_talks_to_it(stage: Stage, victim: str, other: str) -> None:
    job_id = stage.submit()
    stage.in_a_round(job_id)
    stage.federation.kill(victim)
    stage.federation.wait_until(lambda: f"waiting for {victim}" in note(stage, "clinic", job_id), 20)
    stage.federation.wait_until(lambda: f"it lost {victim}" in note(stage, other, job_id), 20)
    stage.federation.start(victim)
    stage.let_it_end()
    stage.all_done(job_id)


@pytest.mark.parametrize(("absent", "other"), [("insurer", "lab"), pytest.param("lab", "insurer", marks=pytest.mark.slow)])
def test_a_party_that_was_never_there_is_named_too(stage: Stage, absent: str, other: str) -> None:
    stage.federation.kill(absent, signal.SIGTERM)
    job_id = stage.submit()
    stage.federation.wait_until(lambda: f"which waits for {absent}" in note(stage, other, job_id), 20)
    stage.federation.start(absent)
    stage.let_it_end()
    stage.all_done(job_id)


@pytest.mark.parametrize("name", ["lab", pytest.param("clinic", marks=pytest.mark.slow)])
def test_a_party_that_fails_is_named_with_its_reason(stage: Stage, name: str) -> None:
    stage.tell(f"{name}-fails", "in a round")
    errors = stage.ends(stage.submit(), **dict.fromkeys(ROLES, "failed"))
    assert errors[name]["code"] == "E_DATA"
    for other in ROLES.keys() - {name}:
        assert f"{name} stopped in phase 'act': its data cannot be used for this job" in errors[other]["message"]


@pytest.mark.parametrize("submitter", ["lab", pytest.param("clinic", marks=pytest.mark.slow)])
def test_a_party_that_refuses_is_named_with_its_reason(stage: Stage, submitter: str) -> None:
    federation = stage.federation
    federation.kill("insurer", signal.SIGTERM)
    federation.start("insurer", policy={"approve": [NOBODY_ELSE]})
    federation.wait_until(lambda: federation.connected("clinic"))
    errors = stage.ends(stage.submit(submitter), clinic="failed", lab="failed")
    assert errors["clinic"]["code"] == "E_REFUSED"
    for error in errors.values():
        assert "insurer refused the job: its policy does not allow the job (partner)" in error["message"]
    federation.kill("insurer", signal.SIGTERM)
    federation.start("insurer", accepts=["clinic", "lab"])


@pytest.mark.slow
def test_a_job_with_a_party_that_the_owner_does_not_list_is_refused(stage: Stage) -> None:
    federation = stage.federation
    peers = {"clinic": {"address": federation.running("clinic")["listen"]}}
    federation.kill("insurer", signal.SIGTERM)
    federation.start("insurer", peers=peers)
    federation.wait_until(lambda: federation.connected("clinic"))
    errors = stage.ends(stage.submit(), clinic="failed")
    assert "insurer refused the job: the job names a party that it does not know" in errors["clinic"]["message"]
    with pytest.raises(UsageError) as caught:
        stage.submit("insurer")
    assert caught.value.code == "E_UNKNOWN_PEER"
    assert "lab: {relayed: true}" in caught.value.hint
    federation.kill("insurer", signal.SIGTERM)
    federation.start("insurer", peers=peers | {"lab": {"relayed": True}})


@pytest.mark.slow
def test_a_small_part_of_the_overlap_stops_all_and_no_text_says_which(
    federations: Any, several: SeveralTrial, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Nodes that align, not on the stage: two parts are empty."""
    federation = federations(tmp_path_factory.mktemp("overlap"), ROLES, several)
    federation.start_several(everyone={"min_overlap": 7})
    job_id = federation.client("clinic").submit(several.job(passive=("lab", "insurer")).canonical())["id"]
    said = {name: federation.end(name, job_id)["error"]["message"] for name in ROLES}
    text = "a part of the overlap has fewer records than the 7 that the parties demand (min_overlap)"
    assert said.pop("clinic") == text
    assert set(said.values()) == {f"clinic stopped in phase 'align': {text} (E_OVERLAP)"}
    assert not any("clinic + " in federation.log(name) for name in ROLES)


@pytest.mark.parametrize(
    "owner", ["lab", pytest.param("clinic", marks=pytest.mark.slow), pytest.param("insurer", marks=pytest.mark.slow)]
)
def test_cancelled_by_any_owner_it_ends_at_all(stage: Stage, owner: str) -> None:
    job_id = stage.submit()
    stage.in_a_round(job_id)
    stage.federation.client(owner).cancel(job_id)
    for name in ROLES.keys() - {owner}:
        error = stage.ends(job_id, **{name: "cancelled"})[name]
        assert error["code"] == "E_CANCELLED"
        assert f"{owner}'s owner cancelled" in error["message"] or f"{owner} stopped" in error["message"]


def test_cancelled_while_one_was_down_it_ends_there_when_it_comes_back(stage: Stage) -> None:
    """The insurer hears it from the clinic, which is told of it by the lab: the two have no link."""
    federation = stage.federation
    job_id = stage.submit()
    stage.in_a_round(job_id)
    federation.kill("insurer")
    federation.client("lab").cancel(job_id)
    stage.ends(job_id, clinic="cancelled", lab="cancelled")
    federation.start("insurer")
    error = stage.ends(job_id, insurer="cancelled")["insurer"]
    assert "lab's owner cancelled the job" in error["message"] or "lab stopped" in error["message"]


@pytest.mark.slow
def test_a_party_that_stays_away_is_named_by_all_that_give_up(stage: Stage) -> None:
    federation = stage.federation
    for name in ("clinic", "insurer"):
        federation.kill(name, signal.SIGTERM)
        federation.start(name, peer_wait_s=2)
    federation.wait_until(lambda: all(map(federation.connected, ROLES)))
    job_id = stage.submit()
    stage.in_a_round(job_id)
    federation.kill("lab")
    errors = stage.ends(job_id, clinic="failed", insurer="failed")
    assert "lab" in errors["clinic"]["message"]
    assert "it lost lab" in errors["insurer"]["message"]
    assert all(federation.view(name, job_id)["resumable"] for name in errors)
    never_met = stage.ends(stage.submit(), clinic="failed", insurer="failed")["insurer"]
    assert never_met["message"].endswith("which waits for lab")
    assert "ask the owner of lab" in never_met["hint"]
    federation.start("lab")
    federation.wait_until(lambda: all(map(federation.connected, ROLES)))
    federation.client("clinic").resume(job_id)
    stage.let_it_end()
    stage.all_done(job_id)
    for name in ("clinic", "insurer"):
        federation.kill(name, signal.SIGTERM)
        federation.start(name, peer_wait_s=240)


@pytest.mark.slow
def test_a_job_waits_in_a_queue_and_all_go_on(stage: Stage) -> None:
    """One place at each: two jobs, submitted at different parties, end both."""
    federation = stage.federation
    for name in ROLES:
        federation.kill(name, signal.SIGTERM)
        federation.start(name, queue={"max_running": 1})
    federation.wait_until(lambda: all(map(federation.connected, ROLES)))
    jobs = [stage.submit(at) for at in ("lab", "clinic", "insurer")]
    stage.let_it_end()
    for job_id in jobs:
        stage.all_done(job_id)
