"""Two paired nodes whose policies change while they run: who says yes, when jobs begin, and what a partner hears."""

from __future__ import annotations

import hashlib
import json
import signal
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.crypto.lattice.variants import compiled
from tests.node.nodes import at_least
from tests.trust.test_consent_nodes import JOB, both_done, envelopes, restart
from tests.trust.test_two_nodes import OwnAuthorities
from vfl_node.errors import UsageError, VflError
from vfl_node.node.client import Client
from vfl_node.trust import dsse
from vfl_node.trust.audit_log import AuditLog
from vfl_node.trust.consents import KIND

LIMITS = {"everyone": at_least(1)}
PREPARED = """\
align: {protocol: psi}
train: {algorithm: hidden, randomness: parties, epochs: 3}
evaluate: {test_fraction: 0.3}
"""


@pytest.fixture(scope="module")
def nodes(trial: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnAuthorities]:
    federation = OwnAuthorities(tmp_path_factory.mktemp("policies"), trial)
    federation.start_both()
    assert [status for status, _, _ in federation.pair()] == [0, 0]
    federation.wait_until(lambda: all(map(federation.connected, federation.roles)))
    for name, roles in (("anna", ["approver"]), ("bert", ["admin"]), ("carl", ["admin"])):
        TOKENS[name] = federation.client("lab").create_token(name, roles, 30)
    yield federation
    federation.end_all()


TOKENS: dict[str, str] = {}


def person(nodes: OwnAuthorities, name: str) -> Client:
    return Client(nodes.running("lab")["http"], TOKENS[name])


def apply(nodes: OwnAuthorities, at: Client | None = None, **policy: Any) -> dict[str, Any]:
    return (at or nodes.client("lab")).apply_policy(yaml.safe_dump(LIMITS | policy))


def asked(nodes: OwnAuthorities, job_id: str) -> str:
    """Wait until the lab's owner is asked; the digits of the job."""
    nodes.wait_until(lambda: nodes.view("lab", job_id).get("state") == "asked")
    return str(nodes.client("lab").manifest(job_id)["digits"])


def test_another_policy_holds_for_the_next_job_without_a_restart(nodes: OwnAuthorities) -> None:
    apply(nodes)
    job_id = nodes.submit(JOB)
    digits = asked(nodes, job_id)
    shown = apply(nodes, preset="trial")
    assert (shown["applied"], shown["preset"], nodes.client("lab").policy()["preset"]) == (True, "trial", "trial")
    assert nodes.view("lab", job_id)["state"] == "asked"  # whoever was asked answers
    nodes.client("lab").approve(job_id, digits)
    both_done(nodes, job_id)
    later = nodes.submit(JOB)
    both_done(nodes, later)
    assert [_said(nodes, each)["by"] for each in (job_id, later)] == ["persons", "rule"]
    file = nodes.folder / "lab" / "policy.yaml"
    assert yaml.safe_load(file.read_text()) == LIMITS | {"preset": "trial"}  # which holds after a restart, too
    (line, *_) = [line for line in AuditLog(nodes.folder / "lab" / "state").newest(9) if line["route"] == "/api/policy"]
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert (line["method"], line["route"], line["object"], line["result"]) == ("POST", "/api/policy", digest, 200)


def _said(nodes: OwnAuthorities, job_id: str) -> dict[str, Any]:
    """The lab's consent as the clinic has it."""
    return dict(json.loads(dsse.parse(envelopes(nodes, "clinic", job_id)["lab"], KIND)))


def test_a_signal_has_the_file_read_again_and_a_mistake_changes_nothing(nodes: OwnAuthorities) -> None:
    file = nodes.folder / "lab" / "policy.yaml"
    apply(nodes)
    file.write_text("preset: lax\n")
    nodes.processes["lab"].send_signal(signal.SIGHUP)
    nodes.wait_until(lambda: "the policy is not changed" in nodes.log("lab"))
    assert nodes.client("lab").policy()["preset"] == "careful"
    file.write_text("preset: trial\n")
    nodes.processes["lab"].send_signal(signal.SIGHUP)
    nodes.wait_until(lambda: nodes.client("lab").policy()["preset"] == "trial")
    with pytest.raises(UsageError, match="cannot be 'lax'"):
        nodes.client("lab").apply_policy("preset: lax")


def test_a_job_waits_for_the_hours_of_the_policy_and_begins_in_them(nodes: OwnAuthorities) -> None:
    begin = datetime.now(timezone.utc) + timedelta(hours=2)
    closed = f"daily {begin:%H:%M}-{begin + timedelta(hours=1):%H:%M}"
    apply(nodes, preset="trial", partners={"clinic": {"hours": [closed]}})
    job_id = nodes.submit(JOB)
    nodes.wait_until(lambda: "the hours" in nodes.view("lab", job_id).get("note", ""))
    day = "" if begin.date() == datetime.now(timezone.utc).date() else f"{begin:%a} ".lower()
    assert nodes.view("lab", job_id)["queue"]["reason"] == f"hours from {day}{begin:%H:%M}"
    nodes.wait_until(lambda: nodes.view("clinic", job_id)["queue"]["reason"] == "lab has no place")
    assert nodes.view("clinic", job_id)["state"] == "waiting"
    apply(nodes, preset="trial")
    both_done(nodes, job_id)


def test_a_job_that_waits_is_held_against_the_policy_of_the_moment_when_it_begins(nodes: OwnAuthorities) -> None:
    begin = datetime.now(timezone.utc) + timedelta(hours=2)
    apply(nodes, preset="trial", partners={"clinic": {"hours": [f"daily {begin:%H:%M}-{begin + timedelta(hours=1):%H:%M}"]}})
    job_id = nodes.submit(JOB)
    nodes.wait_until(lambda: "the hours" in nodes.view("lab", job_id).get("note", ""))
    apply(nodes, preset="trial", never=[{"name": "not any more", "when": {"protocols": ["psi"]}}])
    assert nodes.end("lab", job_id)["error"]["code"] == "E_POLICY"
    assert "never: not any more" in nodes.view("lab", job_id)["error"]["message"]
    assert nodes.end("clinic", job_id)["state"] == "failed"


def test_a_job_that_waits_for_its_hours_can_be_cancelled(nodes: OwnAuthorities) -> None:
    begin = datetime.now(timezone.utc) + timedelta(hours=2)
    apply(nodes, preset="trial", everyone=at_least(1) | {"hours": [f"daily {begin:%H:%M}-{begin + timedelta(hours=1):%H:%M}"]})
    job_id = nodes.submit(JOB)
    nodes.wait_until(lambda: "the hours" in nodes.view("lab", job_id).get("note", ""))
    nodes.client("lab").cancel(job_id)
    assert {nodes.end(name, job_id)["state"] for name in nodes.roles} == {"cancelled"}


def later() -> list[str]:
    """Hours of a policy that begin in two hours."""
    begin = datetime.now(timezone.utc) + timedelta(hours=2)
    return [f"daily {begin:%H:%M}-{begin + timedelta(hours=1):%H:%M}"]


def folder_of(nodes: OwnAuthorities, name: str, job_id: str) -> Path:
    return nodes.folder / name / "state" / "jobs" / job_id


def is_prepared(nodes: OwnAuthorities, name: str, job_id: str) -> bool:
    mark = folder_of(nodes, name, job_id) / "early"
    return mark.exists() and mark.read_bytes() == b"prepared"


@compiled
def test_all_is_made_ahead_before_the_hours_in_which_a_training_begins(nodes: OwnAuthorities) -> None:
    apply(nodes, preset="trial", everyone=at_least(1) | {"hours": later(), "allow_preparation": True})
    job_id = nodes.submit(PREPARED)
    nodes.wait_until(lambda: is_prepared(nodes, "lab", job_id))
    nodes.kill("lab")
    nodes.start("lab")  # reads the policy that was applied
    nodes.wait_until(lambda: "the hours" in nodes.view("lab", job_id).get("note", ""))
    view = nodes.view("lab", job_id)
    assert (view["state"], view["queue"]["kind"]) == ("waiting", "hours")
    assert all(list((folder_of(nodes, name, job_id) / "ahead").iterdir()) for name in nodes.roles)
    apply(nodes, preset="trial")
    both_done(nodes, job_id)
    again = nodes.submit(PREPARED)
    both_done(nodes, again)
    prepared, whole = (nodes.report("lab", each)["training"]["hidden"]["phases"] for each in (job_id, again))
    assert prepared["offline"]["bytes"] == 0 < whole["offline"]["bytes"]
    assert prepared["setup"]["bytes"] < whole["setup"]["bytes"]
    assert prepared["online"]["bytes"] == whole["online"]["bytes"]


@compiled
def test_both_parties_wait_for_their_hours_without_a_place(nodes: OwnAuthorities) -> None:
    closed = {"preset": "trial", "everyone": at_least(1) | {"hours": later(), "allow_preparation": True}}
    for name in nodes.roles:
        apply(nodes, nodes.client(name), **closed)
    job_id = nodes.submit(PREPARED)
    for name in nodes.roles:
        nodes.wait_until(lambda name=name: is_prepared(nodes, name, job_id))
        nodes.wait_until(lambda name=name: (nodes.view(name, job_id)["queue"] or {}).get("kind") == "hours")
        assert nodes.view(name, job_id)["state"] == "waiting"
        assert nodes.client(name).health()["places"]["busy"] == 0
    cancelled = nodes.submit(PREPARED)
    nodes.wait_until(lambda: is_prepared(nodes, "lab", cancelled))
    nodes.client("lab").cancel(cancelled)
    assert {nodes.end(name, cancelled)["state"] for name in nodes.roles} == {"cancelled"}
    nodes.wait_until(lambda: not any((folder_of(nodes, name, cancelled) / "ahead").exists() for name in nodes.roles))
    apply(nodes, preset="trial", everyone=at_least(1) | {"hours": later()})  # what was begun early is held all the same
    apply(nodes, nodes.client("clinic"), preset="trial")
    time.sleep(2)
    assert not any((folder_of(nodes, name, job_id) / "artefacts").exists() for name in nodes.roles)
    assert nodes.view("lab", job_id)["queue"]["kind"] == "hours"
    apply(nodes, preset="trial")
    both_done(nodes, job_id)
    apply(nodes, nodes.client("clinic"))


@compiled
def test_a_job_that_was_begun_early_is_held_by_a_stricter_policy(nodes: OwnAuthorities) -> None:
    """And one that was begun in the hours goes on after them."""
    for early in (True, False):
        hours = {"hours": later()} if early else {}
        apply(nodes, preset="trial", everyone=at_least(1) | hours | {"allow_preparation": True})
        restart(nodes, "lab", "made-ahead=kill@1")
        job_id = nodes.submit(PREPARED)
        nodes.dies_in("lab", job_id)
        assert (folder_of(nodes, "lab", job_id) / "early").exists() == early
        stricter = LIMITS | {"preset": "trial", "everyone": at_least(1) | {"hours": later()}}
        (nodes.folder / "lab" / "policy.yaml").write_text(yaml.safe_dump(stricter))
        restart(nodes, "lab")
        if early:
            nodes.wait_until(lambda: (nodes.view("lab", job_id)["queue"] or {}).get("kind") == "hours")  # noqa: B023
            apply(nodes, preset="trial")
        both_done(nodes, job_id)
    apply(nodes, preset="trial")


def test_two_persons_say_yes_over_the_port_and_the_partner_gets_pseudonyms(nodes: OwnAuthorities) -> None:
    apply(nodes, approve=[{"name": "both", "by": "two"}])
    job_id = nodes.submit(JOB)
    digits = asked(nodes, job_id)
    with pytest.raises(VflError) as raised:
        nodes.client("lab").approve(job_id, digits)  # the owner names nobody
    assert raised.value.code == "E_PERSON"
    assert person(nodes, "anna").approve(job_id, digits)["state"] == "asked"
    with pytest.raises(VflError) as raised:
        person(nodes, "anna").approve(job_id, digits)
    assert raised.value.code == "E_PERSON"
    assert nodes.client("clinic").manifest(job_id)["state"] == "waiting"
    person(nodes, "bert").approve(job_id, digits)
    both_done(nodes, job_id)
    said = _said(nodes, job_id)
    assert (said["by"], len(said["persons"])) == ("persons", 2)
    assert "anna" not in json.dumps(said)
    assert nodes.client("lab").manifest(job_id)["decision"]["persons"] == ["anna", "bert"]


@pytest.mark.parametrize(
    ("preset", "code", "heard"),
    [
        ("careful", "E_POLICY", "its policy does not allow the job (kind)"),
        ("strict", "E_POLICY", "its policy does not allow the job"),
    ],
)
def test_a_partner_hears_one_word_and_of_a_strict_policy_none(
    nodes: OwnAuthorities, preset: str, code: str, heard: str
) -> None:
    open_hours = {"everyone": {"hours": "any", "attacks": {"columns": None}}}
    apply(nodes, preset=preset, **open_hours, never=[{"name": "secret project", "when": {}}])
    try:
        view = nodes.end("clinic", nodes.submit(JOB))
        assert (view["state"], view["error"]["code"]) == ("failed", "E_REFUSED")
        assert view["error"]["message"] == f"lab refused the job: {heard} ({code})"
        assert "secret project" in nodes.log("lab")
    finally:
        if preset == "strict":  # which two persons change
            with pytest.raises(VflError) as raised:
                apply(nodes)
            assert raised.value.code == "E_PERSON"
            assert apply(nodes, person(nodes, "bert"))["applied"] is False
            assert apply(nodes, person(nodes, "bert"))["applied"] is False
            assert apply(nodes, person(nodes, "carl"), preset="trial")["applied"] is False  # another policy
            nodes.client("lab").revoke_token("carl")  # whose wish then counts no more
            assert apply(nodes, person(nodes, "bert"), preset="trial")["applied"] is False
            TOKENS["carl"] = nodes.client("lab").create_token("carl", ["admin"], 30)
            assert nodes.client("lab").policy()["proposed_by"] == "bert"
            assert nodes.client("lab").policy()["preset"] == "strict"
            assert apply(nodes, person(nodes, "carl"), preset="trial")["applied"] is True


def test_past_jobs_are_decided_anew(nodes: OwnAuthorities) -> None:
    client = nodes.client("lab")
    found = client.check_policy(yaml.safe_dump(LIMITS | {"never": [{"name": "no more", "when": {"protocols": ["psi"]}}]}))
    assert found["differences"]
    ran = [job for job in found["jobs"] if job["ran"]]
    assert len(ran) >= 3
    assert {(job["by"], job["submitter"]) for job in ran} == {("nobody", "clinic")}
    assert all("never: no more" in job["why"] for job in ran)
    kept = client.check_policy(yaml.safe_dump(LIMITS | {"preset": "trial"}))
    assert {(job["by"], job["why"]) for job in kept["jobs"]} == {("rule", "preset: trial")}
