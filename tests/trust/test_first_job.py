"""Two owners type what the guide on two nodes says, command by command, until their first job has run at both."""

from __future__ import annotations

import re
import shlex
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.node.nodes import GENEROUS_S, Child
from tests.test_readme import blocks, serve_in, shorter
from tests.trust.talks import Talk

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "set-up-two-nodes.md"


class Desk:
    """One folder in which both owners type, each at a node of its own.

    Attributes:
        known: what stands in the guide → what an owner has instead.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.known: dict[str, str] = {}
        self.services: list[Child] = []
        text, _, _ = GUIDE.read_text().partition("## Later")
        self.lines = [
            line.strip().partition("  #")[0].strip()
            for block in re.findall(r"^ *```sh\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE)
            for line in block.splitlines()
        ]

    def typed(self, *words: str) -> list[str]:
        """The next line of the guide, which begins so, as its words."""
        line = self.lines.pop(0)
        assert shlex.split(line)[1:][: len(words)] == [*words], line
        for written, own in self.known.items():
            line = line.replace(written, own)
        return shlex.split(line)[1:]

    def begin(self, *words: str) -> Talk:
        """Type that line."""
        return Talk(*self.typed(*words), folder=self.folder)

    def say(self, *words: str) -> str:
        """The same to its end: what it has printed."""
        return self.answer(self.begin(*words), "")

    def answer(self, command: Talk, text: str) -> str:
        said = "".join(command.communicate(text))
        assert command.returncode == 0, said
        return said

    def edit(self, name: str, **settings: Any) -> None:
        """As an owner edits node.yaml; None takes a key away."""
        path = self.folder / name / "node.yaml"
        edited = yaml.safe_load(path.read_text()) | settings
        path.write_text(yaml.safe_dump({key: value for key, value in edited.items() if value is not None}))

    def serve(self, name: str, role: str) -> None:
        self.services.append(Child(serve_in, self.folder, self.typed("--role", role), self.folder / f"{name}.log"))
        running = self.folder / name / "state" / "running.json"
        limit = time.monotonic() + GENEROUS_S
        while not running.exists():
            assert self.services[-1].poll() is None
            assert time.monotonic() < limit
            time.sleep(0.05)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    for service in made.services:
        service.send_signal(signal.SIGTERM)
    assert [service.wait(GENEROUS_S) for service in made.services] == [0, 0]


def test_two_owners_get_from_nothing_to_a_job_that_has_run(desk: Desk, trial: Any) -> None:
    began = time.monotonic()
    for name, role in (("clinic", "active"), ("lab", "passive")):
        desk.say("init", name, "--role", role)
        desk.edit(name, data={"path": str(trial.files[name])}, http="127.0.0.1:0")
    desk.edit("clinic", listen="127.0.0.1:0")
    desk.edit("lab", listen=None)
    desk.serve("clinic", "active")
    desk.serve("lab", "passive")
    desk.known["clinic.example:7443"] = yaml.safe_load((desk.folder / "clinic/state/running.json").read_text())["listen"]
    inviting = desk.begin("invite")
    desk.known[f"{desk.known['clinic.example:7443']}/7KQ4-M2XP"] = inviting.stdout.readline().strip()
    joining = desk.begin("join")
    said = [desk.answer(each, "y\n") for each in (joining, inviting)]
    words = [re.findall(r"Your words: (.+)", text) for text in said]
    assert words[0] == words[1] != []

    (desk.folder / "job.yaml").write_text(shorter(blocks("yaml")[0]))
    desk.known["JOB"] = job = desk.say("submit", "job.yaml", "--purpose").strip()
    deadline = time.monotonic() + GENEROUS_S
    while job not in (asks := desk.say("asks")):
        assert time.monotonic() < deadline
        desk.lines.insert(0, "vfl-node asks --config lab/node.yaml")
    shown = desk.say("show")
    assert "Does the lab help?" in asks
    assert "Does the lab help?" in shown
    desk.known["DIGEST"] = re.findall(r"approve \S+ ([0-9a-f]{8})", shown)[0]
    desk.say("approve")
    assert "federated: auc 0." in desk.say("watch")
    assert " done " in desk.say("jobs")
    assert desk.lines == []
    reports = [path for name in ("clinic", "lab") for path in (desk.folder / name).rglob("report.html")]
    assert len(reports) == 2
    print(f"from init to the report: {time.monotonic() - began:.0f} s")
