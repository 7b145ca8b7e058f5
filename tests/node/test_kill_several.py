"""Four real nodes of one job, each killed (-9) at places spread over the whole of it: it ends as if nothing had been."""

from __future__ import annotations

import os
import signal
from functools import partial
from typing import Any

import pytest

from tests.node.several import PASSIVE, SeveralTrial, job_text
from vfl_node.configuration import parse
from vfl_node.job import Job
from vfl_node.models import storage

ROLES = {"clinic": "active"} | dict.fromkeys(PASSIVE, "passive")
PLACES = 20
"""For each party: so many parts of a run, of which each has one death in its middle."""

ALIGN = "align: {protocol: psi}\n"
TRAIN = """\
align: {protocol: psu}
train: {bottom: [4], active_bottom: [4], top: [4], epochs: 2, batch_size: 64}
evaluate: {test_fraction: 0.3}
"""
TIMES = ("started", "finished", "phases")
"""Of a report: what depends on when attempts broke off."""


class Four:
    """Four nodes that may be killed anywhere, over many jobs; and what a job leaves that nothing disturbed."""

    def __init__(self, federation: Any, forked: Any) -> None:
        import dying_node

        self.federation = federation
        for name in ROLES:
            self.folder(name).mkdir()
            federation.programs[name] = partial(forked, dying_node.run, self.folder(name), dict(os.environ))
        federation.start_several()
        self._clean: dict[str, Any] = {}

    def folder(self, name: str) -> Any:
        """Where ``name`` is told to die; it names the seed, too."""
        return self.federation.folder / f"{name}-deaths"

    def submit(self, text: str, **deaths: int) -> str:
        """A job in which the parties named die at the numbers of places given."""
        for name in ROLES:
            if self.federation.processes[name].poll() is not None:
                self.federation.start(name)
            for file in ("death", "places"):
                (self.folder(name) / file).unlink(missing_ok=True)
            for counted in (self.federation.folder / name / "state" / "partners").glob("*/trainings"):
                counted.unlink()  # each case is the first training over these records: reports say how many there were
        for name, number in deaths.items():
            (self.folder(name) / "death").write_text(str(number))
        self.federation.wait_until(lambda: all(map(self.federation.connected, ROLES)))
        job = parse(job_text(text), Job, source="job")
        return str(self.federation.client("clinic").submit(job.canonical())["id"])

    def outcome(self, job_id: str) -> dict[str, Any]:
        """What must not depend on how often a node was killed: the models, and the reports but for times and traffic."""
        left = {}
        for name in ROLES:
            view = self.federation.end(name, job_id)
            assert view["state"] == "done", (name, view, self.federation.log(name)[-3000:])
            report = self.federation.report(name, job_id)
            del report["job"]["id"]
            for key in TIMES:
                del report[key]
            for key in ("seconds", "bytes_sent", "bytes_received"):
                del report["alignment"][key]
            for epoch in (report["training"] or {"epochs": ()})["epochs"]:
                del epoch["seconds"], epoch["bytes"]
            model, weights = self.federation.job_folder(name, job_id) / "artefacts" / "model.safetensors", {}
            if model.exists():
                weights = {key: value.numpy().tobytes() for key, value in storage.load(model)[0].items()}
            left[name] = report, weights
        return left

    def clean(self, text: str) -> tuple[dict[str, Any], dict[str, list[str]]]:
        """What such a job leaves that nothing disturbs, and the places that each party passed."""
        if text not in self._clean:
            left = self.outcome(self.submit(text, **dict.fromkeys(ROLES, 0)))
            places = {name: (self.folder(name) / "places").read_text().split() for name in ROLES}
            self._clean[text] = left, places
        left, places = self._clean[text]
        return left, places

    def killed(self, text: str, victim: str, part: int) -> None:
        """The job ends with the same bytes though ``victim`` dies in the middle of this part of it."""
        expected, places = self.clean(text)
        number = (2 * part + 1) * len(places[victim]) // (2 * PLACES) + 1
        job_id = self.submit(text, **{victim: number})
        self.federation.dies_in(victim, job_id)
        self.federation.start(victim)
        left = self.outcome(job_id)
        for name in ROLES:
            assert left[name] == expected[name], (name, victim, number, places[victim][number - 1])


@pytest.fixture(scope="module")
def four(federations: Any, forked: Any, several: SeveralTrial, tmp_path_factory: pytest.TempPathFactory) -> Four:
    return Four(federations(tmp_path_factory.mktemp("four"), ROLES, several), forked)


def test_killed_in_an_alignment(four: Four) -> None:
    four.killed(ALIGN, "insurer", PLACES // 2)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PLACES))
@pytest.mark.parametrize("victim", ROLES)
def test_killed_anywhere(four: Four, victim: str, part: int) -> None:
    """Alignment by union, and training."""
    four.killed(TRAIN, victim, part)


@pytest.mark.slow
def test_two_killed_at_once(four: Four) -> None:
    expected, places = four.clean(TRAIN)
    numbers = {name: len(places[name]) // 2 for name in ("lab", "shop")}
    job_id = four.submit(TRAIN, **numbers)
    for name in numbers:
        assert four.federation.processes[name].wait(240) == -signal.SIGKILL
    for name in numbers:
        four.federation.start(name)
    assert four.outcome(job_id) == expected
