"""Real nodes killed (-9) in the middle of a logistic regression: started again, they end it as if nothing had been."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.node.nodes import at_least
from vfl_node.configuration.models import parse
from vfl_node.job import Job
from vfl_node.models import storage

NAMES = ("clinic", "lab", "notary")
ITERATIONS = 3
FLOWS = {
    "two-party": "flow: two-party",
    "coordinator-open-scores": "flow: coordinator-open-scores",
    "coordinator": "flow: coordinator, loss: taylor, tolerance: 1.0e-9",
}
SENT = {  # who sends what in an iteration
    "two-party": {"clinic": ("Encrypted", "Decrypted", "IterationEnd"), "lab": ("Scores", "DecryptionRequest")},
    "coordinator-open-scores": {
        "clinic": ("Encrypted", "IterationEnd"),
        "lab": ("Scores", "DecryptionRequest"),
        "notary": ("Decrypted",),
    },
    "coordinator": {
        "clinic": ("Encrypted", "DecryptionRequest", "IterationEnd"),
        "lab": ("Encrypted", "DecryptionRequest"),
        "notary": ("Decrypted",),
    },
}
ONCE = {  # and what before and after
    "two-party": {"clinic": ("PaillierKey",), "lab": ("Features", "DecryptionPlan")},
    "coordinator-open-scores": {
        "clinic": ("DecryptionPlan",),
        "lab": ("Features", "DecryptionPlan"),
        "notary": ("PaillierKey",),
    },
    "coordinator": {"clinic": ("DecryptionPlan",), "lab": ("Features", "DecryptionPlan"), "notary": ("PaillierKey",)},
}
LAST = f"Scores {ITERATIONS}"  # of the rows measured on
MATRIX = [
    *(
        (flow, name, f"{what} {step}")
        for flow in FLOWS
        for name in SENT[flow]
        for what in SENT[flow][name]
        for step in range(3)
    ),
    *((flow, name, f"checkpoint {step}") for flow in FLOWS for name in ("clinic", "lab") for step in range(1, ITERATIONS + 1)),
    *((flow, name, what) for flow in FLOWS for name in ONCE[flow] for what in ONCE[flow][name]),
    *((flow, "lab", LAST) for flow in FLOWS),
    *(
        (flow, name, f"PhaseEnd {phase}")
        for flow in ("coordinator-open-scores", "coordinator")
        for name in NAMES
        for phase in ("decrypt", "stored", "confirm")
    ),
]
SOME = [("two-party", "clinic", "Decrypted 1")]
MORE = [  # with the notary killed, and all, and coordinator-open-scores, below
    ("coordinator", "lab", "checkpoint 1"),
    ("two-party", "lab", "DecryptionRequest 1"),
    ("coordinator-open-scores", "lab", LAST),
    ("coordinator", "notary", "Decrypted 2"),
    ("coordinator-open-scores", "notary", "Decrypted 1"),
    ("coordinator", "clinic", "DecryptionRequest 1"),
    ("coordinator", "notary", "PaillierKey"),
]


class Nodes:
    """Nodes that may be killed anywhere, over many jobs; and what a job leaves that nothing disturbed.

    ``passive``: the passive parties, and ``align`` the job's section.
    """

    def __init__(
        self,
        federation: Any,
        forked: Any,
        passive: Sequence[str] = ("lab",),
        align: str = "{protocol: apsi, obfuscation: {size: 144}}",
    ) -> None:
        import killed_trainer

        self.federation, self.data, self.align = federation, ("clinic", *passive), align
        for name in self.names:
            self.folder(name).mkdir()
            federation.programs[name] = partial(forked, killed_trainer.run, self.folder(name))
        (federation.start_three if len(passive) == 1 else federation.start_several)(everyone=at_least(1))
        self._clean: dict[str, Any] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """All nodes."""
        return (*self.data, "notary")

    def folder(self, name: str) -> Path:
        """Where ``name`` is told to die."""
        return self.federation.folder / f"{name}-deaths"

    def submit(self, flow: str, **deaths: str) -> str:
        """A job in which the parties named die where they are told."""
        for name in self.names:
            if self.federation.processes[name].poll() is not None:
                self.federation.start(name)
        for name, place in deaths.items():
            (self.folder(name) / "death").write_text(place)
        self.federation.wait_until(lambda: all(self.federation.connected(name) for name in self.names))
        third = "" if flow == "two-party" else ", coordinator: notary"
        text = f"""\
name: trial
parties: {{active: clinic, passive: [{", ".join(self.data[1:])}]{third}}}
align: {self.align}
train: {{algorithm: logistic, iterations: {ITERATIONS}, key_bits: 2048, {FLOWS[flow]}}}
"""
        self.job_id = self.federation.client("clinic").submit(parse(text, Job, source="job").canonical())["id"]
        return self.job_id

    def wait_dead(self, name: str) -> None:
        self.federation.dies_in(name, self.job_id)

    def outcome(self, flow: str, job_id: str) -> Any:
        """What must not depend on how often a node was killed: models, metrics, losses and the ledger."""
        found: dict[str, Any] = {}
        for name in self.names if flow != "two-party" else self.data:
            view = self.federation.end(name, job_id)
            assert view["state"] == "done", (view, self.federation.log(name)[-3000:])
            report = self.federation.report(name, job_id)
            losses = [epoch["loss"] for epoch in report["training"]["epochs"]]
            found[name] = [report["metrics"], losses, report["training"]["logistic"]["rounds"]]
            if name != "notary":  # which counts a value that it decrypted again
                weights, _ = storage.load(self.federation.job_folder(name, job_id) / "artefacts" / "model.safetensors")
                learnt = [entry | {"text": re.sub(r", \d+ in all", "", entry["text"])} for entry in report["learnt"][name]]
                found[name] += [{key: value.numpy().tobytes() for key, value in weights.items()}, learnt]
        return found

    def clean(self, flow: str) -> Any:
        if flow not in self._clean:
            self._clean[flow] = self.outcome(flow, self.submit(flow))
        return self._clean[flow]

    def survives(self, flow: str, victim: str, place: str) -> None:
        expected = self.clean(flow)
        job_id = self.submit(flow, **{victim: place})
        self.wait_dead(victim)
        self.federation.start(victim)
        assert self.outcome(flow, job_id) == expected


@pytest.fixture(scope="module")
def nodes(federations: Any, forked: Any, trial: Any, tmp_path_factory: pytest.TempPathFactory) -> Nodes:
    roles, folder = {"clinic": "active", "lab": "passive", "notary": "coordinator"}, tmp_path_factory.mktemp("regression")
    return Nodes(federations(folder, roles, replace(trial, lab=trial.few_columns(folder / "few.csv"))), forked)


@pytest.mark.parametrize(("flow", "victim", "place"), [*SOME, *(pytest.param(*of, marks=pytest.mark.slow) for of in MORE)])
def test_killed_in_training(nodes: Nodes, flow: str, victim: str, place: str) -> None:
    nodes.survives(flow, victim, place)


def test_the_key_is_kept_until_both_have_done_and_forgotten_with_the_job(nodes: Nodes) -> None:
    """The coordinator's report says that nobody needs the key any more."""
    expected = nodes.clean("coordinator-open-scores")
    job_id = nodes.submit("coordinator-open-scores", lab="PhaseEnd decrypt")
    nodes.wait_dead("lab")
    folder = nodes.federation.job_folder("notary", job_id)
    nodes.federation.wait_until(lambda: "lab" in nodes.federation.view("notary", job_id)["note"])  # for which it waits
    assert not (folder / "artefacts" / "report.json").exists()
    assert (folder / "seed").exists()
    nodes.federation.start("lab")
    assert nodes.outcome("coordinator-open-scores", job_id) == expected
    nodes.federation.wait_until(lambda: nodes.federation.is_cleared(folder))
    assert {path.name for path in (folder / "artefacts").iterdir()} == {
        "report.html",
        "report.json",
        "trace.json",
        "SHA256SUMS",
    }


def test_all_killed_at_once(nodes: Nodes) -> None:
    expected = nodes.clean("coordinator")
    job_id = nodes.submit("coordinator", notary="Decrypted 1")
    nodes.wait_dead("notary")
    for name in ("clinic", "lab"):
        nodes.federation.kill(name)
    for name in NAMES:
        nodes.federation.start(name)
    assert nodes.outcome("coordinator", job_id) == expected


@pytest.mark.slow
@pytest.mark.parametrize(("flow", "victim", "place"), MATRIX)
def test_killed_at_every_message(nodes: Nodes, flow: str, victim: str, place: str) -> None:
    nodes.survives(flow, victim, place)
