"""Running nodes while one of them gets a new authority, shows a card that must not be taken, or gives its keys up."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.node.nodes import GENEROUS_S, command
from tests.trust.test_kept import WORDS, Own
from tests.trust.test_succession import REFUSED
from tests.trust.test_two_nodes import OwnAuthorities
from vfl_node.node.peer_state import greeting
from vfl_node.transport.dialer import Dialer
from vfl_node.transport.generated.vfl.v1.session_pb2 import CardShown, Notice
from vfl_node.trust import pending
from vfl_node.trust.keys import shown_card

LONG = "train: {bottom: [4], active_bottom: [4], top: [4], epochs: 100000, batch_size: 2}\n"
SLOW = "updated=slow"
"""With many slow steps an epoch: what goes on until it is ended takes no core meanwhile."""


def clock_ahead(days: int) -> list[str]:
    """Variables of a process whose clock is ahead by so many days."""
    if shutil.which("faketime") is None:
        pytest.skip("faketime is not installed")
    lines = subprocess.run(["faketime", "-f", f"+{days}d", "env"], capture_output=True, text=True, check=True).stdout
    return [line for line in lines.splitlines() if line.startswith(("LD_PRELOAD=", "FAKETIME="))]


class Paired(OwnAuthorities):
    """The two are paired, by their files."""

    def own(self, name: str) -> Own:
        made = Own.__new__(Own)
        made.config = self.config(name)
        return made

    def start_both(self, **lab: Any) -> None:
        clinic, other = self.own("clinic"), self.own("lab")
        self.configure("clinic", listen="127.0.0.1:0")
        pending.accept(clinic.settings, pending.keep(clinic.settings, other.card, None, "passive", WORDS))
        self.start("clinic")
        address = self.running("clinic")["listen"]
        self.configure("clinic", listen=address)
        pending.accept(other.settings, pending.keep(other.settings, clinic.card, address, "active", WORDS))
        self.start("lab", accepts=["clinic"], **lab)
        self.wait_until(lambda: self.connected("lab") and self.connected("clinic"))

    def pinned(self) -> int:
        """The number of the clinic's card that lies at the lab."""
        return pending.card_of(self.own("lab").settings, "clinic").card.serial

    def restart_in(self, days: int) -> None:
        """Both, on machines whose clocks say that so much time has passed."""
        for name in self.roles:
            if self.processes[name].poll() is None:
                self.kill(name, 15)
        later = self.command("env", *clock_ahead(days), sys.executable, "-m", "vfl_node")
        self.programs = dict.fromkeys(self.roles, later if days else self._fork)
        for name in self.roles:
            self.start(name)


@pytest.fixture(scope="module")
def nodes(trial: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Paired]:
    federation = Paired(tmp_path_factory.mktemp("authority"), trial)
    federation.start_both()
    yield federation
    federation.end_all()


def test_the_doctor_finds_nothing_wrong_between_two_running_nodes(nodes: Paired) -> None:
    since = nodes.client("clinic").health()["peers"]["lab"]["since"]
    ended = command("doctor", "--config", nodes.config("lab"), "--json")
    found = {check["number"]: check for check in json.loads(ended.stdout)["checks"]}
    assert ended.returncode == 0, ended.stdout
    assert {check["status"] for number, check in found.items() if number in (9, 13, 14)} == {"ok"}  # these need the peer's node
    assert found[10]["figures"]["rtt_ms"] > 0
    assert found[8]["figures"]["code"] == "E_FENCED"  # the lab's own node has the link, and keeps it
    assert nodes.client("clinic").health()["peers"]["lab"]["since"] == since


def test_a_running_node_shows_no_card_that_does_not_follow(nodes: Paired, tmp_path: Any) -> None:
    """The lab's own keys, and another program in place of its node."""
    nodes.kill("lab", 15)
    lab, clinic = nodes.own("lab"), nodes.own("clinic").settings
    before = {path.name: path.read_bytes() for path in clinic.peers_dir.iterdir()}
    for attack, code in REFUSED.items():
        dialer = Dialer(
            nodes.running("clinic")["listen"], own="lab", peer="clinic", federation="trial", credentials=lab.credentials
        )
        link = dialer.link()
        link.send(greeting(lab.settings))
        link.send(Notice(card=CardShown(envelope=attack(lab, tmp_path))))
        while True:
            answer = link.receive(GENEROUS_S)
            assert answer
            if answer.HasField("card") and not answer.card.envelope:
                break
        assert answer.card.code == code
        link.close()
    assert {path.name: path.read_bytes() for path in clinic.peers_dir.iterdir()} == before
    assert "the card of a peer was refused" in nodes.log("clinic")
    nodes.failpoints["lab"] = SLOW
    nodes.start("lab")
    nodes.wait_until(lambda: nodes.connected("lab"))


def test_a_new_authority_reaches_a_peer_at_work_and_takes_over_when_the_old_one_ends(nodes: Paired) -> None:
    job = nodes.submit(LONG)
    nodes.wait_until(lambda: nodes.in_training("clinic", job))
    since = nodes.client("lab").health()["peers"]["clinic"]["since"]
    done = command("renew", "--authority", "--config", nodes.config("clinic"))
    assert done.returncode == 0, done.stderr
    assert "card 2" in done.stdout
    nodes.wait_until(lambda: nodes.pinned() == 2)
    nodes.wait_until(lambda: "a peer has a newer card" in nodes.log("lab"))
    before = nodes.view("clinic", job)["done"]
    nodes.wait_until(lambda: nodes.view("clinic", job)["done"] != before)
    assert nodes.view("lab", job)["state"] == "running"
    assert nodes.client("lab").health()["peers"]["clinic"]["since"] == since  # the link is the same
    nodes.client("lab").cancel(job)
    nodes.end("clinic", job)
    again = nodes.submit("align: {protocol: psu}")  # the manifest names the new authority
    assert nodes.end("clinic", again)["state"] == "done"
    assert re.search(r"until \d{4}-\d\d-\d\d: SHA-256", command("card", "clinic", "--config", nodes.config("lab")).stdout)
    nodes.restart_in(32)
    nodes.wait_until(lambda: nodes.connected("lab"))
    assert not (nodes.folder / "clinic" / "keys" / "next.crt").exists()


@pytest.mark.slow
def test_a_peer_that_was_away_too_long_is_told_to_pair_again(nodes: Paired) -> None:
    """The clinic's next authority, and the switch to it, both happen without the lab."""
    nodes.restart_in(0)
    pinned = nodes.pinned()
    nodes.kill("lab", 15)
    assert command("renew", "--authority", "--config", nodes.config("clinic")).returncode == 0
    nodes.restart_in(32)

    def cause() -> str:
        return str(nodes.client("lab").health()["peers"]["clinic"]["cause"])

    nodes.wait_until(lambda: "pair again" in cause())
    assert "if clinic has a new authority" in cause()
    assert nodes.pinned() == pinned


def test_a_peer_dies_with_a_newer_card_and_takes_it_again_and_a_party_gives_its_keys_up(trial: Any, tmp_path: Any) -> None:
    nodes = Paired(tmp_path, trial)
    try:
        nodes.start_both()
        nodes.kill("lab")
        nodes.failpoints["lab"] = "card=kill@1"
        nodes.start("lab")
        assert command("renew", "--authority", "--config", nodes.config("clinic")).returncode == 0
        assert nodes.processes["lab"].wait(60) == -9
        assert nodes.pinned() == 1
        nodes.failpoints["lab"] = SLOW
        nodes.start("lab")
        nodes.wait_until(lambda: nodes.pinned() == 2, 60)
        nodes.wait_until(lambda: nodes.connected("lab") and nodes.connected("clinic"), 60)
        job = nodes.submit(LONG)
        nodes.wait_until(lambda: nodes.in_training("clinic", job))
        revoking = nodes.say("revoke", "clinic", "--config", str(nodes.config("clinic")))
        said = revoking.communicate("y\n")
        assert revoking.returncode == 0, said
        nodes.wait_until(lambda: nodes.files("lab") == [])
        nodes.wait_until(lambda: "its own card says" in nodes.log("clinic"), 60)  # which hears what the lab made of it
        nodes.wait_until(lambda: nodes.view("lab", job)["state"] == "paused")
        assert yaml.safe_load((nodes.folder / "clinic" / "peers" / "lab.yaml").read_text())["words_compared"]
        assert shown_card(nodes.own("clinic").credentials).card.revoked
        refused = nodes.say("invite", "--config", str(nodes.config("clinic"))).communicate(timeout=GENEROUS_S)
        assert "E_REVOKED" in refused[1]
    finally:
        nodes.end_all()
