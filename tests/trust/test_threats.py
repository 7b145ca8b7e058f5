"""Threats to two paired nodes that run: guesses, rogue partners, answers that are said again, text that acts, wrong clocks."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.node.nodes import Child, command
from tests.trust import harmful_node, rogue
from tests.trust.nodes import Host, failure, join
from tests.trust.parties import Party
from tests.trust.test_consent_nodes import JOB, both_done, envelopes
from tests.trust.test_kept import WORDS
from tests.trust.test_two_nodes import OwnAuthorities
from vfl_node.errors import PeerError, UsageError
from vfl_node.settings.reading import load_settings
from vfl_node.trust import pending
from vfl_node.trust.invites import TRIES, parse_code


@pytest.fixture(scope="module")
def nodes(trial: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnAuthorities]:
    federation = OwnAuthorities(tmp_path_factory.mktemp("threats"), trial)
    federation.start_both()
    assert [status for status, _, _ in federation.pair()] == [0, 0]
    federation.wait_until(lambda: all(map(federation.connected, federation.roles)))
    yield federation
    federation.end_all()


@pytest.fixture(scope="module")
def earlier(nodes: OwnAuthorities) -> str:
    """A job that is done."""
    job_id = nodes.submit(JOB)
    both_done(nodes, job_id)
    return str(job_id)


def meet_again(nodes: OwnAuthorities, *names: str, **lab: Any) -> None:
    for name in names:
        if nodes.processes[name].poll() is None:
            nodes.kill(name, 15)
    for name in names:
        nodes.start(name, **(lab if name == "lab" else {}))
    nodes.wait_until(lambda: all(map(nodes.connected, nodes.roles)))


def exchange(nodes: OwnAuthorities, job_id: str, name: str, body: bytes) -> None:
    """Have the clinic's node keep something else with a job, as one that means harm would."""
    with closing(sqlite3.connect(nodes.folder / "clinic" / "state" / "jobs.sqlite")) as db, db:
        digest = hashlib.sha256(body).hexdigest()
        done = db.execute("UPDATE documents SET body = ?, sha256 = ? WHERE job = ? AND name = ?", [body, digest, job_id, name])
        assert done.rowcount == 1


def stored(nodes: OwnAuthorities, job_id: str, name: str) -> bytes:
    with closing(sqlite3.connect(nodes.folder / "clinic" / "state" / "jobs.sqlite")) as db:
        (body,) = db.execute("SELECT body FROM documents WHERE job = ? AND name = ?", [job_id, name]).fetchone()
        return bytes(body)


def of_an_earlier_job(nodes: OwnAuthorities, job_id: str, earlier: str) -> None:
    exchange(nodes, job_id, "consent clinic", envelopes(nodes, "clinic", earlier)["clinic"])


def of_the_other_party(nodes: OwnAuthorities, job_id: str, earlier: str) -> None:
    exchange(nodes, job_id, "consent clinic", envelopes(nodes, "clinic", earlier)["lab"])


def with_the_earlier_manifest(nodes: OwnAuthorities, job_id: str, earlier: str) -> None:
    exchange(nodes, job_id, "manifest", stored(nodes, earlier, "manifest"))


def with_another_purpose(nodes: OwnAuthorities, job_id: str, earlier: str) -> None:
    manifest = json.loads(stored(nodes, job_id, "manifest")) | {"purpose": "another one"}
    exchange(nodes, job_id, "manifest", json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode())


def unchanged(nodes: OwnAuthorities, job_id: str, earlier: str) -> None:
    """The control: what was submitted is what is offered."""


@pytest.mark.parametrize(
    ("forge", "code"),
    [
        (of_an_earlier_job, "E_CONSENT"),
        pytest.param(of_the_other_party, "E_CONSENT", marks=pytest.mark.slow),
        pytest.param(with_the_earlier_manifest, "E_MANIFEST", marks=pytest.mark.slow),
        (with_another_purpose, "E_MANIFEST"),
        (unchanged, ""),
    ],
)
def test_an_answer_to_one_job_is_none_to_another(nodes: OwnAuthorities, earlier: str, forge: Any, code: str) -> None:
    nodes.kill("lab", 15)
    job_id = nodes.submit(JOB)
    nodes.kill("clinic", 15)
    forge(nodes, job_id, earlier)
    meet_again(nodes, "clinic", "lab")
    if not code:
        both_done(nodes, job_id)
        return
    view = nodes.end("clinic", job_id)
    assert view["state"] == "failed"
    assert code in (view["error"]["code"], view["error"]["message"].rpartition("(")[2].rstrip(")")), view["error"]
    assert nodes.view("lab", job_id).get("state") in (None, "failed")
    assert not (nodes.job_folder("lab", job_id) / "artefacts").exists()


def test_wrong_guesses_of_a_stranger_end_an_invite_and_the_node_serves_on(nodes: OwnAuthorities, bank: Party) -> None:
    clinic, address = nodes.client("clinic"), nodes.running("clinic")["listen"]
    since = clinic.health()["peers"]["lab"]["since"]
    code = parse_code(clinic.invite(5, "")["code"])
    for left in range(TRIES)[::-1]:
        assert failure(bank, address, bytes([code[0] ^ 1 + left]) + code[1:]) == "E_INVITE"
        assert clinic.invite_status() == {"left": left, "met": ""}
    assert failure(bank, address, code) == "E_INVITE"  # the right one, and too late
    said = [json.loads(line) for line in nodes.log("clinic").splitlines() if "a guest did not pair" in line]
    assert [(line["code"], line["left"]) for line in said] == [("E_INVITE", left) for left in range(TRIES)[::-1]]
    assert all(re.fullmatch(r"ipv4:127\.0\.0\.1:\d+", line["caller"]) and line["caller"] != f"ipv4:{address}" for line in said)
    both_done(nodes, nodes.submit(JOB))
    assert clinic.health()["peers"]["lab"]["since"] == since
    later = parse_code(clinic.invite(5, "")["code"])
    assert failure(bank, address, code) == "E_INVITE"
    assert join(bank, address, later).card.card.name == "clinic"  # control: one guess ends none
    assert clinic.invite_status() == {"left": 0, "met": "bank"}


@pytest.fixture
def admit(nodes: OwnAuthorities) -> Iterator[Callable[..., None]]:
    """Has the clinic take up a party of this process, at an address if it has one, until the test ends."""
    admitted: list[str] = []

    def take_up(party: Party, role: Any = "passive", address: str | None = None) -> None:
        settings = load_settings(nodes.config("clinic"))
        pending.accept(settings, pending.keep(settings, party.card, address, role, WORDS))
        nodes.client("clinic").admit(party.name)
        admitted.append(party.name)

    yield take_up
    for name in admitted:
        nodes.client("clinic").revoke(name, "")


def test_a_partners_authority_names_no_other_party_who_calls_or_is_called(
    nodes: OwnAuthorities, bank: Party, admit: Callable[..., None], tmp_path: Path
) -> None:
    """Control: what the bank has signed for its own name is taken, and differs in nothing else."""
    shown = {name: rogue.show(bank, name, tmp_path, nodes.folder / "clinic") for name in ("lab", "notary", "bank")}
    servers = {name: Host(shown[name]) for name in ("notary", "bank")}
    for server in servers.values():
        server.known.add("clinic")
    try:
        admit(bank, "passive", servers["bank"].address)  # from now on its authority is trusted, for the bank
        admit(Party("notary", tmp_path / "notary"), "coordinator", servers["notary"].address)
        nodes.wait_until(lambda: nodes.client("clinic").health()["peers"]["notary"]["cause"] and servers["bank"].took)
        assert "not signed by an authority that this node trusts" in nodes.client("clinic").health()["peers"]["notary"]["cause"]
        assert (servers["notary"].took, set(servers["bank"].took)) == ([], {"clinic"})
    finally:
        for server in servers.values():
            server.stop()
    for name in ("lab", "notary"):
        with pytest.raises(PeerError, match=f"{name} is not signed by the authority that clinic has for {name}") as caught:
            rogue.Talk(shown[name], nodes.running("clinic")["listen"])
        assert caught.value.code == "E_IDENTITY"
    rogue.Talk(shown["bank"], nodes.running("clinic")["listen"]).close()


@pytest.fixture
def limits(nodes: OwnAuthorities) -> Iterator[Callable[..., Any]]:
    """Gives the clinic's policy other limits for everyone, until the test ends."""
    clinic, before = nodes.client("clinic"), (nodes.folder / "clinic" / "policy.yaml").read_text()
    yield lambda **everyone: clinic.apply_policy(json.dumps({"everyone": everyone}))
    clinic.apply_policy(before)


@pytest.mark.parametrize(
    ("listed", "exchanged", "code"), [([], False, "E_POLICY"), (["notary"], True, "E_CONSENT"), (["notary"], False, "")]
)
def test_a_coordinator_that_is_not_listed_or_has_other_keys_is_refused_and_nothing_told(
    nodes: OwnAuthorities, bank: Party, admit: Any, limits: Any, tmp_path: Path, listed: list[str], exchanged: bool, code: str
) -> None:
    """The bank, which submits the job, hears all that the clinic says. Control: the clinic's owner is asked."""
    notary, address, job_id = Party("notary", tmp_path / "notary"), nodes.running("clinic")["listen"], f"rogue-{len(code)}"
    admit(notary, "coordinator")
    admit(bank)
    limits(coordinators=listed)
    own = rogue.show(bank, "bank", tmp_path, nodes.folder / "clinic")
    talk = rogue.Talk(own, address)
    coordinator = Party("notary", tmp_path / "other") if exchanged else notary
    (answer,) = talk.hear(rogue.offer(bank, job_id, nodes.folder / "clinic", coordinator))
    reply = answer.offer_reply
    assert (reply.accepted, reply.code) == (not code, code), reply
    if code:
        assert {field.name for field, _ in reply.ListFields()} == {"job_id", "code", "reason"}  # no size, and nothing else
        assert nodes.view("clinic", job_id) == {}
        with pytest.raises(PeerError) as caught:
            rogue.dial(own, address).converse(job_id)
        assert caught.value.code == "E_NOT_WAITING"
    else:
        assert nodes.view("clinic", job_id)["state"] == "asked"
        nodes.client("clinic").refuse(job_id, "purpose")
    talk.close()


DAY_S = 24 * 3600

HOSTILE = "<script>alert(1)</script> [red]x[/red] [/x] :skull: <img src=x onerror=alert(1)> {{ 7*7 }}"


def test_a_purpose_that_acts_is_text_in_a_terminal(nodes: OwnAuthorities) -> None:
    meet_again(nodes, "lab", accepts=[])
    job_id = nodes.submit(f"{JOB}purpose: {json.dumps(HOSTILE)}\n")
    nodes.wait_until(lambda: nodes.view("lab", job_id).get("state") == "asked")
    for words in (("show", job_id), ("asks",), ("jobs",)):
        shown = command(*words, "--config", nodes.config("lab"), COLUMNS="200")
        assert shown.returncode == 0, shown.stderr
        if words[0] != "jobs":
            assert HOSTILE in " ".join(shown.stdout.split())
        assert "\x1b" not in shown.stdout
    nodes.client("lab").refuse(job_id, "purpose")


@pytest.fixture
def harmful(nodes: OwnAuthorities) -> Iterator[Path]:
    """The purpose that the clinic's node, which was changed, writes into what it offers; in a file."""
    file = nodes.folder / "purpose"
    nodes.programs["clinic"] = lambda arguments, log: Child(harmful_node.run, file, dict(os.environ), arguments, log)
    meet_again(nodes, "clinic", "lab", accepts=[])
    yield file
    nodes.programs["clinic"] = nodes._fork
    meet_again(nodes, "clinic", "lab", accepts=["clinic"])


def test_a_purpose_that_is_not_one_line_of_text_is_refused_by_who_is_asked(nodes: OwnAuthorities, harmful: Path) -> None:
    for text in ("\x1b[2J\x1b]0;x\x07", "\u202egnitnuoc", "two\nlines", "\u2066x\u2069", "x" * 65536, "\x00"):
        with pytest.raises(UsageError):  # no job file says it
            nodes.submit(f"{JOB}purpose: {json.dumps(text)}\n")
        harmful.write_text(json.dumps(text))
        view = nodes.end("clinic", nodes.submit(JOB))
        assert (view["state"], view["error"]["code"]) == ("failed", "E_REFUSED"), view["error"]
        assert nodes.view("lab", view["id"]) == {}
        assert text not in nodes.log("lab")
        assert text not in view["error"]["message"]
    harmful.write_text(json.dumps("good"))
    assert "(E_CONSENT)" in nodes.end("clinic", nodes.submit(JOB))["error"]["message"]  # what was signed said another one
    harmful.unlink()
    job_id = nodes.submit(JOB)  # the control
    nodes.wait_until(lambda: nodes.view("lab", job_id).get("state") == "asked")
    nodes.client("lab").refuse(job_id, "purpose")


@pytest.fixture
def clocks(nodes: OwnAuthorities) -> Iterator[Callable[..., None]]:
    """Starts both nodes again, those that are named with clocks that are so many seconds ahead."""
    library, compiler = nodes.folder / "clock.so", shutil.which("cc")
    if not compiler:
        pytest.skip("needs a compiler of C")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, Path(__file__).with_name("clock.c")], check=True)

    def start(**ahead_s: int) -> None:
        for name in nodes.roles:
            if nodes.processes[name].poll() is None:
                nodes.kill(name, 15)
            clock = "env", f"LD_PRELOAD={library}", f"CLOCK_AHEAD_S={ahead_s.get(name)}"
            of_its_own = nodes.command(*clock, sys.executable, "-m", "vfl_node")
            nodes.programs[name] = of_its_own if name in ahead_s else nodes._fork
            (nodes.folder / f"{name}.log").write_text("")
        meet_again(nodes, *nodes.roles, accepts=["clinic"])

    yield start
    for name in nodes.roles:
        nodes.programs[name] = nodes._fork
    meet_again(nodes, *nodes.roles)


@pytest.mark.parametrize("ahead_s", [2 * DAY_S, *(pytest.param(of, marks=pytest.mark.slow) for of in (0, 600, -600))])
def test_a_clock_that_is_wrong_is_named_at_both_and_jobs_run(
    nodes: OwnAuthorities, clocks: Callable[..., None], ahead_s: int
) -> None:
    clocks(lab=ahead_s)
    for name, other, sign in (("clinic", "lab", 1), ("lab", "clinic", -1)):
        peer = nodes.client(name).health()["peers"][other]
        assert abs(peer["clock_ahead_s"] - sign * ahead_s) < 60
        said = re.findall(rf"the clock of {other} says (.{{16}}) UTC, and this node's says (.{{16}})", nodes.log(name))
        assert len(said) == (1 if ahead_s else 0)
        for theirs, ours in said:
            apart = datetime.fromisoformat(theirs) - datetime.fromisoformat(ours)
            assert abs(apart.total_seconds() - sign * ahead_s) <= 60
    both_done(nodes, nodes.submit(JOB))


def test_a_clock_from_before_the_certificate_is_named_at_the_start(nodes: OwnAuthorities, clocks: Callable[..., None]) -> None:
    with pytest.raises(
        AssertionError, match=r"node\.crt is valid only from .* UTC \[E_CERTIFICATE\]\s+hint: check this machine's clock"
    ):
        clocks(lab=-2 * DAY_S)


@pytest.mark.slow
def test_nobody_says_yes_after_eight_days(nodes: OwnAuthorities, clocks: Callable[..., None]) -> None:
    meet_again(nodes, "lab", accepts=[])
    job_id = nodes.submit(JOB)
    nodes.wait_until(lambda: nodes.view("lab", job_id).get("state") == "asked")
    digits = nodes.client("lab").manifest(job_id)["digits"]
    clocks(clinic=8 * DAY_S, lab=8 * DAY_S)
    with pytest.raises(UsageError) as caught:
        nodes.client("lab").approve(job_id, digits)
    assert caught.value.code in ("E_CONSENT", "E_NOT_ASKED")  # the node looks itself, too
    for name in nodes.roles:
        assert nodes.end(name, job_id)["state"] in ("failed", "cancelled")
    assert not (nodes.job_folder("lab", job_id) / "artefacts").exists()
