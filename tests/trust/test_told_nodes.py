"""A clinic with two passive parties, three real nodes: each of these gets the other's card from the clinic, and compares it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.node.nodes import GENEROUS_S, at_least
from tests.trust.test_consent_nodes import JOB, SeveralAuthorities, envelopes
from vfl_node.configuration.models import parse
from vfl_node.job import Job
from vfl_node.node.setup import init

THREE = parse(f"name: three\nparties: {{active: clinic, passive: [lab, insurer]}}\n{JOB}", Job, source="test").canonical()
STRICT: dict[str, Any] = {
    "preset": "strict",
    "everyone": at_least(1)
    | {"protocols": "any", "min_overlap": 0, "hours": "any", "attacks": {"columns": None, "rows": None}},
    "approve": [{"name": "strict about cards alone", "by": "rule"}],
}
TRUSTING: dict[str, Any] = {"preset": "trial", "everyone": at_least(1), "approve": [{"name": "all", "by": "rule"}]}


class Relayed(SeveralAuthorities):
    """Beside the insurer, another party of that name, whom the clinic may put in its place."""

    def __init__(self, folder: Path, trial: Any) -> None:
        super().__init__(folder, trial)
        init("insurer", "passive", folder / "impostor" / "insurer")

    def card(self, at: str, name: str, *options: str, answer: str = "") -> str:
        """What ``vfl-node card`` prints at a node of one party of another one."""
        said = self.say("card", name, "--config", str(self.config(at)), *options)
        out, error = said.communicate(answer, timeout=GENEROUS_S)
        return out + error

    def words(self, at: str, name: str) -> list[str]:
        """The words that two owners compare, of both cards."""
        return re.findall(r"words of \w+: .+", self.card(at, name))

    def swap(self) -> None:
        """The clinic puts the other insurer in the place of the one that is there: what it has pinned, and who is there."""
        for name in ("insurer", "clinic"):
            self.kill(name)
        other, keys = self.folder / "impostor" / "insurer" / "keys", self.folder / "insurer" / "keys"
        aside = keys.with_name("aside")
        keys.rename(aside)
        other.rename(keys)
        aside.rename(other)
        for path in (self.folder / "clinic" / "peers").glob("insurer.*"):
            path.unlink()
        shutil.rmtree(self.folder / "insurer" / "state" / "partners", ignore_errors=True)
        shutil.rmtree(self.folder / "clinic" / "state" / "partners" / "insurer", ignore_errors=True)
        self._pin("clinic", "insurer")
        for name in ("clinic", "insurer"):
            self.start(name)
        self.wait_until(lambda: all(map(self.connected, self.roles)))

    def run(self, at: str = "clinic") -> dict[str, Any]:
        """The job from its start to its end: how it ended at ``at``."""
        self.last = self.client(at).submit(THREE)["id"]
        return self.end(at, self.last)


@pytest.fixture(scope="module")
def nodes(trial: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Relayed]:
    federation = Relayed(tmp_path_factory.mktemp("told"), trial)
    for name in federation.roles:
        federation.configure(name, policy=TRUSTING)
    federation.start_all()
    federation.configure("clinic", listen=federation.running("clinic")["listen"])  # found there again after a restart
    yield federation
    federation.end_all()


def refused(view: dict[str, Any], code: str) -> str:
    """What the submitter hears of a refusal with this code."""
    assert view["state"] == "failed"
    message = str(view["error"]["message"])
    assert f"({code})" in message, message
    return message


def test_a_strict_owner_compares_the_card_that_was_told_and_then_takes_the_job(nodes: Relayed) -> None:
    """The lab has paired with the clinic alone."""
    nodes.kill("lab")
    nodes.configure("lab", policy=STRICT)
    nodes.start("lab")
    nodes.wait_until(lambda: all(map(nodes.connected, nodes.roles)))
    assert "nobody has told this node a card of insurer" in nodes.card("lab", "insurer")
    assert "that was compared" in refused(nodes.run(), "E_CONSENT")
    shown = nodes.card("lab", "insurer")
    assert "party:       insurer of federation trial" in shown
    assert re.search(r"told: +by clinic on .+, not compared", shown)
    assert "is not compared" in nodes.card("lab", "insurer", "--compared", answer="n\n")
    assert "not compared" in nodes.card("lab", "insurer")
    assert "from now on" in nodes.card("lab", "insurer", "--compared", answer="y\n")
    assert re.search(r"told: +by clinic on .+, compared on", nodes.card("lab", "insurer"))
    view = nodes.run()
    assert view["state"] == "done", view["error"]
    assert set(envelopes(nodes, "lab", nodes.last)) == {"clinic", "lab", "insurer"}
    assert nodes.client("lab").manifest(nodes.last)["told"] == []


def test_both_owners_see_the_same_words_and_the_insurers_node_says_that_nobody_has_compared(nodes: Relayed) -> None:
    at_lab, at_insurer = nodes.words("lab", "insurer"), nodes.words("insurer", "lab")
    assert at_lab == at_insurer
    assert [len(line.split()) for line in at_lab] == [13, 13]
    assert nodes.client("insurer").manifest(nodes.last)["told"] == [{"name": "lab", "by": "clinic"}]


def test_a_passive_submitter_asks_all_by_the_cards_that_it_was_told(nodes: Relayed) -> None:
    view = nodes.run("lab")
    assert view["state"] == "done", view["error"]
    assert nodes.end("insurer", nodes.last)["state"] == "done"
    assert set(envelopes(nodes, "lab", nodes.last)) == {"clinic", "lab", "insurer"}


def test_an_active_party_that_swaps_a_compared_card_is_refused(nodes: Relayed) -> None:
    before = nodes.words("lab", "insurer")
    nodes.swap()
    assert "it has compared another card of insurer" in refused(nodes.run(), "E_CARD")
    assert "clinic tells another card of insurer" in nodes.log("lab")
    assert nodes.words("lab", "insurer") == before


def test_before_it_is_compared_the_swapped_card_wins_and_the_words_differ(nodes: Relayed) -> None:
    """The control: the lab has forgotten what it had compared, and asks for no card that was compared."""
    before = nodes.words("lab", "insurer")
    nodes.kill("lab")
    nodes.configure("lab", policy=TRUSTING)
    nodes.start("lab")
    assert "is forgotten" in nodes.card("lab", "insurer", "--forget")
    nodes.swap()
    assert nodes.run()["state"] == "done"
    assert nodes.words("lab", "insurer") == before
    nodes.swap()
    view = nodes.run()
    assert view["state"] == "done", view["error"]
    assert set(envelopes(nodes, "lab", nodes.last)) == {"clinic", "lab", "insurer"}
    assert "changed:" in nodes.card("lab", "insurer")
    of_insurer, of_lab = nodes.words("lab", "insurer")
    assert (of_insurer != before[0], of_lab == before[1]) == (True, True)
    assert "another card of a relayed peer was told" in nodes.log("lab")


def test_a_passive_submitter_whose_card_of_another_is_old_gets_the_new_one_with_the_refusal(nodes: Relayed) -> None:
    nodes.swap()
    refused(nodes.run("lab"), "E_CONSENT")
    view = nodes.run("lab")
    assert view["state"] == "done", view["error"]
    assert nodes.words("lab", "insurer") == nodes.words("insurer", "lab")


def test_words_of_others_are_compared_in_the_pairing(nodes: Relayed) -> None:
    for name, option in (("clinic", "--compared"), ("clinic", "--forget"), ("stranger", "--compared")):
        assert "E_CONFIG" in nodes.card("lab", name, option)
