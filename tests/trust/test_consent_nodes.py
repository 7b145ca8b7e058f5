"""Two paired nodes, each with a signing key: a job begins when both hold both owners' signed consents, and not before."""

from __future__ import annotations

import base64
import json
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.trust.test_two_nodes import OwnAuthorities
from vfl_node.configuration.models import parse
from vfl_node.job import Job
from vfl_node.node.setup import init
from vfl_node.settings.reading import load_settings
from vfl_node.transport.credentials import load_credentials
from vfl_node.trust import pending
from vfl_node.trust.cards import read_card
from vfl_node.trust.keys import own_card

JOB = "align: {protocol: psi}\n"
RUNBOOK = Path(__file__).parents[2] / "docs/guides/runbook.md"


@pytest.fixture(scope="module")
def nodes(trial: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnAuthorities]:
    federation = OwnAuthorities(tmp_path_factory.mktemp("signed"), trial)
    federation.start_both()
    assert [status for status, _, _ in federation.pair()] == [0, 0]
    federation.wait_until(lambda: all(map(federation.connected, federation.roles)))
    yield federation
    federation.end_all()


def restart(nodes: OwnAuthorities, name: str, failpoint: str = "", **settings: Any) -> None:
    if nodes.processes[name].poll() is None:
        nodes.kill(name)
    nodes.failpoints[name] = failpoint
    nodes.start(name, **settings)
    nodes.wait_until(lambda: all(map(nodes.connected, nodes.roles)))


def envelopes(nodes: OwnAuthorities, name: str, job_id: str) -> dict[str, bytes]:
    """The consents that a node has stored, by party."""
    with sqlite3.connect(nodes.folder / name / "state" / "jobs.sqlite") as db:
        rows = db.execute("SELECT name, body FROM documents WHERE job = ? AND name LIKE 'consent %'", [job_id]).fetchall()
    return {key.split()[1]: body for key, body in rows}


def check_signed(nodes: OwnAuthorities, job_id: str, by: dict[str, str]) -> None:
    """Both nodes have both consents, which the cards' keys verify without our code."""
    kept = [envelopes(nodes, name, job_id) for name in nodes.roles]
    assert kept[0] == kept[1]
    assert set(kept[0]) == {"clinic", "lab"}
    for name, data in kept[0].items():
        settings = load_settings(nodes.config(name))
        assert settings.tls
        card = own_card(load_credentials(settings.tls, name=name, federation=settings.federation)).card
        envelope = json.loads(data)
        payload, kind = base64.b64decode(envelope["payload"]), envelope["payloadType"]
        signed = b"DSSEv1 %d %s %d %s" % (len(kind), kind.encode(), len(payload), payload)
        card.verifying_key.verify(base64.b64decode(envelope["signatures"][0]["sig"]), signed)
        said = json.loads(payload)
        assert (said["party"], said["job_id"], said["verdict"], said["by"]) == (name, job_id, "approve", by[name])
        assert said["manifest_sha256"] == nodes.client(name).manifest(job_id)["digest"]


def both_done(nodes: OwnAuthorities, job_id: str) -> None:
    for name in nodes.roles:
        assert nodes.end(name, job_id)["state"] == "done", nodes.log(name)[-3000:]


def test_a_rule_signs_too(nodes: OwnAuthorities) -> None:
    job_id = nodes.submit(JOB)
    both_done(nodes, job_id)
    check_signed(nodes, job_id, {"clinic": "persons", "lab": "rule"})
    assert nodes.client("lab").manifest(job_id)["signed"] is True


def test_an_owner_that_approves_signs(nodes: OwnAuthorities) -> None:
    restart(nodes, "lab", accepts=[])
    job_id = nodes.submit(JOB)
    nodes.wait_until(lambda: nodes.view("lab", job_id).get("state") == "asked")
    assert set(envelopes(nodes, "lab", job_id)) == {"clinic"}
    digits = nodes.client("lab").manifest(job_id)["digits"]
    assert nodes.client("clinic").manifest(job_id)["digits"] == digits
    nodes.client("lab").approve(job_id, digits)
    both_done(nodes, job_id)
    check_signed(nodes, job_id, {"clinic": "persons", "lab": "persons"})


@pytest.mark.parametrize(("reason", "hint"), [("purpose", "submit JOB.yaml --purpose TEXT"), ("data", "ask the owner")])
def test_who_is_refused_for_a_reason_is_told_what_to_do(nodes: OwnAuthorities, reason: str, hint: str) -> None:
    job_id = nodes.submit(JOB)
    nodes.wait_until(lambda: nodes.view("lab", job_id).get("state") == "asked")
    nodes.client("lab").refuse(job_id, reason)
    error = nodes.end("clinic", job_id)["error"]
    assert (error["code"], hint in error["hint"]) == ("E_REFUSED", True), error


def test_a_node_that_dies_before_it_has_stored_the_others_consent_gets_it_again(nodes: OwnAuthorities) -> None:
    restart(nodes, "clinic", "consents=kill")
    job_id = nodes.submit(JOB)
    nodes.wait_until(lambda: nodes.view("lab", job_id).get("state") == "asked")
    nodes.client("lab").approve(job_id, nodes.client("lab").manifest(job_id)["digits"])
    nodes.dies_in("clinic", job_id)
    restart(nodes, "clinic")
    both_done(nodes, job_id)
    check_signed(nodes, job_id, {"clinic": "persons", "lab": "persons"})


def test_a_job_that_an_away_party_must_approve_waits_for_it(nodes: OwnAuthorities) -> None:
    nodes.kill("lab")
    job_id = nodes.submit(JOB)
    nodes.wait_until(lambda: "waiting for lab" in nodes.view("clinic", job_id)["note"])
    restart(nodes, "lab", accepts=["clinic"])
    both_done(nodes, job_id)
    check_signed(nodes, job_id, {"clinic": "persons", "lab": "rule"})


def test_a_job_that_the_other_party_has_no_room_to_store_says_so(nodes: OwnAuthorities) -> None:
    restart(nodes, "lab", "index=enospc")
    job_id = nodes.submit(JOB)
    nodes.wait_until(lambda: nodes.view("clinic", job_id)["queue"]["kind"] == "unable")
    assert nodes.view("clinic", job_id)["queue"]["reason"] == "lab cannot take part now (E_DISK_FULL)"
    restart(nodes, "lab")
    both_done(nodes, job_id)


def test_the_runbook_names_all_that_lies_in_a_state_folder(nodes: OwnAuthorities) -> None:
    entry = RUNBOOK.read_text().partition("## VflDiskLow\n")[2].partition("\n## ")[0]
    known = set(re.findall(r"`([\w.-]+)`", entry.partition("has these names in `state`:")[2].partition("**Do.**")[0]))
    lying = {path.name for name in nodes.roles for path in (nodes.folder / name / "state").iterdir()}
    assert lying - known == set()
    assert {"jobs.sqlite", "partners", "owner.sock"} <= lying


class SeveralAuthorities(OwnAuthorities):
    """A clinic with two passive parties, which meet through it alone. Each has its own authority, and the clinic's card."""

    def __init__(self, folder: Path, trial: Any) -> None:
        super().__init__(folder, trial)
        self.roles["insurer"] = "passive"
        self.programs["insurer"] = self._fork
        init("insurer", "passive", folder / "insurer")
        self.configure("insurer", listen=None, data={"path": str(trial.files["lab"])})

    def start_all(self) -> None:
        self.configure("clinic", listen="127.0.0.1:0")
        for name in ("lab", "insurer"):
            self._pin("clinic", name)
        self.start("clinic", listen="127.0.0.1:0")
        address = self.running("clinic")["listen"]
        for name, other in (("lab", "insurer"), ("insurer", "lab")):
            self._pin(name, "clinic", address)
            self.start(name, accepts=["clinic", other], peers={other: {"relayed": True}})
        self.wait_until(lambda: all(map(self.connected, self.roles)))

    def _pin(self, name: str, other: str, address: str | None = None) -> None:
        card = read_card((self.folder / other / "keys" / "card.json").read_bytes(), federation="trial")
        settings = load_settings(self.config(name))
        pending.accept(settings, pending.keep(settings, card, address, "active", ("a", "b", "c", "d")))


@pytest.mark.parametrize("submitter", ["lab", pytest.param("clinic", marks=pytest.mark.slow)])
def test_the_active_party_relays_the_consents_of_passive_ones(
    trial: Any, tmp_path_factory: pytest.TempPathFactory, submitter: str
) -> None:
    nodes = SeveralAuthorities(tmp_path_factory.mktemp("several"), trial)
    try:
        if submitter == "lab":
            nodes.configure("clinic", accepts=["lab"])
        nodes.start_all()
        job = parse(f"name: three\nparties: {{active: clinic, passive: [lab, insurer]}}\n{JOB}", Job, source="test")
        job_id = nodes.client(submitter).submit(job.canonical())["id"]
        both_done(nodes, job_id)
        kept = [envelopes(nodes, name, job_id) for name in nodes.roles]
        known = {"clinic", "lab"} | ({"insurer"} if submitter == "clinic" else set())  # the lab has no card of the insurer
        for name, stored in zip(nodes.roles, kept, strict=True):
            assert known <= set(stored) <= known | {name}
            assert all(stored[party] == kept[0][party] for party in known)
    finally:
        nodes.end_all()


def test_another_signing_key_is_refused_at_both(nodes: OwnAuthorities) -> None:
    """The key was exchanged, and the card that the clinic has pinned is the old one."""
    path = nodes.folder / "lab" / "keys" / "signing.key"
    before = path.read_bytes()
    other = Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(other)
    try:
        job_id = nodes.submit(JOB)
        view = nodes.end("clinic", job_id)
        assert (view["state"], view["error"]["code"]) == ("failed", "E_CONSENT")
        assert "not signed by the key of its card" in view["error"]["message"]
        assert nodes.end("lab", job_id)["state"] == "failed"
    finally:
        path.write_bytes(before)
