"""Two running nodes of parties with authorities of their own: paired by the commands, at work, and parted again."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.node.nodes import GENEROUS_S
from tests.node.nodes import Federation as SharedFederation
from tests.trust.nodes import Relay
from tests.trust.parties import FEDERATION, Party
from tests.trust.talks import Talk
from vfl_node.node.setup import init
from vfl_node.settings.reading import load_settings
from vfl_node.transport.credentials import load_credentials


class OwnAuthorities(SharedFederation):
    """A clinic that listens and a lab that dials, each its own authority, and not paired yet."""

    def __init__(self, folder: Path, trial: Any) -> None:
        self.folder, self.trial, self.roles = folder, trial, {"clinic": "active", "lab": "passive"}
        self.processes, self.failpoints = {}, {}
        self.programs = dict.fromkeys(self.roles, self._fork)
        for name, role in self.roles.items():
            init(name, role, folder / name)  # type: ignore[arg-type]
            self.configure(name, listen=None, data={"path": str(trial.files[name])})

    def config(self, name: str) -> Path:
        return self.folder / name / "node.yaml"

    def start_both(self, **lab: Any) -> None:
        self.start("clinic", listen="127.0.0.1:0")
        self.configure("clinic", listen=self.running("clinic")["listen"])
        self.start("lab", accepts=["clinic"], **lab)

    def say(self, *words: str) -> Talk:
        """A command whose owner has not answered yet."""
        return Talk(*words)

    def invite(self) -> tuple[Talk, str]:
        """A running `invite`, and what it has printed."""
        inviting = self.say("invite", "--config", str(self.config("clinic")))
        return inviting, inviting.stdout.readline().strip()

    def pair(self, at_clinic: str = "y", at_lab: str = "y") -> list[tuple[int, str, list[str]]]:
        """Both owners' answers; exit status, output and words at each side."""
        inviting, place = self.invite()
        joining = self.say("join", place, "--config", str(self.config("lab")))
        ended = []
        for command, answer in ((joining, at_lab), (inviting, at_clinic)):
            out, error = command.communicate(f"{answer}\n", timeout=GENEROUS_S)
            words = re.findall(r"Your words: (.+)", out)
            ended.append((command.returncode, out + error, words))
            assert place.rpartition("/")[2] not in out + error
        return ended

    def files(self, name: str) -> list[str]:
        """What pairing has left at a node."""
        places = (self.folder / name / "peers", self.folder / name / "state" / "pending")
        return sorted(path.name for place in places if place.exists() for path in place.iterdir())


@pytest.fixture(scope="module")
def nodes(trial: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnAuthorities]:
    federation = OwnAuthorities(tmp_path_factory.mktemp("pairing"), trial)
    federation.start_both()
    yield federation
    federation.end_all()


PAIRED = {"clinic": ["lab.card", "lab.crt", "lab.yaml"], "lab": ["clinic.card", "clinic.crt", "clinic.yaml"]}


def test_who_relays_fails_at_both_and_leaves_no_file(nodes: OwnAuthorities, bank: Party) -> None:
    inviting, place = nodes.invite()
    relay = Relay(bank, place.partition("/")[0])
    try:
        through = f"{relay.address}/{place.partition('/')[2]}"
        joining = nodes.say("join", through, "--config", str(nodes.config("lab")))
        out, error = joining.communicate("y\n", timeout=GENEROUS_S)
    finally:
        relay.stop()
    assert joining.returncode == 1
    assert "Your words" not in out
    assert len(relay.heard) == 2  # it saw all that there was to see
    assert "E_INVITE" in nodes.log("clinic")
    assert nodes.client("clinic").invite_status() == {"left": 4, "met": ""}
    inviting.kill()
    inviting.communicate()
    assert nodes.files("clinic") == nodes.files("lab") == []
    assert error


def test_an_owner_who_hears_other_words_says_no(nodes: OwnAuthorities) -> None:
    for status, said, words in nodes.pair("n", "n"):
        assert (status, len(words)) == (2, 1)
        assert "E_INVITE" in said
    assert nodes.files("clinic") == nodes.files("lab") == []


def test_paired_nodes_train_without_a_restart(nodes: OwnAuthorities) -> None:
    (first, _, at_lab), (second, _, at_clinic) = nodes.pair()
    assert (first, second, at_lab) == (0, 0, at_clinic)
    assert {name: nodes.files(name) for name in nodes.roles} == PAIRED
    nodes.wait_until(lambda: nodes.connected("clinic") and nodes.client("clinic").health()["peers"])
    written = yaml.safe_load((nodes.folder / "lab" / "peers" / "clinic.yaml").read_text())
    assert written["address"] == nodes.running("clinic")["listen"]
    assert written["words_compared"] is True
    assert nodes.client("clinic").health()["peers"]["lab"]["online"]
    job = nodes.submit()
    assert nodes.end("clinic", job)["state"] == nodes.end("lab", job)["state"] == "done"
    log = nodes.log("clinic") + nodes.log("lab")
    assert not re.search(r"\b[0-9A-HJKMNP-TV-Z]{4}-[0-9A-HJKMNP-TV-Z]{4}\b", log)


def test_a_second_pairing_under_a_name_that_is_taken_is_refused_at_both(nodes: OwnAuthorities) -> None:
    inviting, place = nodes.invite()
    done = nodes.say("join", place, "--config", str(nodes.config("lab"))).communicate(timeout=GENEROUS_S)
    assert "E_EXISTS" in done[1]
    inviting.kill()
    inviting.communicate()
    assert {name: nodes.files(name) for name in nodes.roles} == PAIRED


def test_a_renewed_certificate_is_used_without_a_restart(nodes: OwnAuthorities) -> None:
    settings = load_settings(nodes.config("clinic"))
    assert settings.tls
    before = settings.tls.certificate.read_bytes()
    done = nodes.say("renew", "--config", str(nodes.config("clinic")))
    _, error = done.communicate(timeout=GENEROUS_S)
    assert done.returncode == 0, error
    assert settings.tls.certificate.read_bytes() != before
    assert load_credentials(settings.tls, name="clinic", federation=FEDERATION).validity
    verified = subprocess.run(
        ["openssl", "verify", "-x509_strict", "-CAfile", nodes.folder / "lab/peers/clinic.crt", settings.tls.certificate],
        capture_output=True,
        text=True,
        check=False,
    )
    assert verified.returncode == 0, verified.stderr
    nodes.kill("lab", 15)
    nodes.failpoints["lab"] = "updated=slow"  # what the next test ends takes no core meanwhile
    nodes.start("lab")
    nodes.wait_until(lambda: nodes.connected("lab"))


def test_a_revoked_peer_is_told_and_gone_within_seconds(nodes: OwnAuthorities) -> None:
    job = nodes.submit("train: {bottom: [4], active_bottom: [4], top: [4], epochs: 100000, batch_size: 2}\n")
    nodes.wait_until(lambda: nodes.in_training("clinic", job))
    nodes.client("clinic").admit("lab")  # an owner may say yes in two terminals: it begins anew
    nodes.wait_until(lambda: nodes.connected("clinic") and nodes.in_training("clinic", job))
    assert nodes.client("clinic").revoke("lab", "laptop lost") == [job]
    assert nodes.files("clinic") == []
    assert "lab" not in nodes.client("clinic").health()["peers"]
    nodes.wait_until(lambda: not nodes.client("lab").health()["peers"]["clinic"]["online"])
    assert "clinic has revoked lab: laptop lost" in nodes.client("lab").health()["peers"]["clinic"]["cause"]
    nodes.wait_until(lambda: nodes.view("clinic", job)["state"] not in ("waiting", "running"))
    assert (nodes.view("clinic", job)["state"], nodes.view("clinic", job)["error"]["code"]) == ("paused", "E_REVOKED")
    nodes.client("lab").cancel(job)


def test_after_both_revoke_each_other_they_may_pair_again(nodes: OwnAuthorities) -> None:
    nodes.client("lab").revoke("clinic", "")
    assert [status for status, _, _ in nodes.pair()] == [0, 0]
    nodes.wait_until(lambda: nodes.connected("clinic") and nodes.client("clinic").health()["peers"])
    for process in nodes.processes.values():
        assert process.poll() is None
