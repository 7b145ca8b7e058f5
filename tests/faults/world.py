"""Real nodes whose every job has the same secrets, so that a job that met a fault can be compared with one that did not."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

sys.path += [str(Path(__file__).parents[1] / "node"), str(Path(__file__).parents[2])]

import forked_node
from forked_node import DEVICE
from nodes import GENEROUS_S, THREE, Child, Federation

from vfl_node.configuration.models import parse
from vfl_node.errors import VflError
from vfl_node.job import Job
from vfl_node.models import storage
from vfl_node.settings.retention import Retention

NAMES = tuple(THREE)
PLAIN = "name: trial\nparties: {active: clinic, passive: lab}\n"
HELPED = "name: trial\nparties: {active: clinic, passive: lab, coordinator: notary}\n"
KINDS = {
    "split": PLAIN
    + """\
align: {protocol: psu}
train: {bottom: [8], active_bottom: [4], top: [8], epochs: 12, batch_size: 16, missing: {calibration: test}}
evaluate: {test_fraction: 0.3}
""",
    "two-party": PLAIN
    + """\
align: {protocol: apsi, obfuscation: {size: 144}}
train: {algorithm: logistic, iterations: 3, key_bits: 2048, flow: two-party}
""",
    "coordinator": HELPED
    + """\
align: {protocol: apsi, obfuscation: {size: 144}}
train: {algorithm: logistic, iterations: 3, key_bits: 2048, flow: coordinator, loss: taylor}
""",
    "hidden": HELPED
    + """\
align: {protocol: psu}
train: {algorithm: hidden, epochs: 3}
evaluate: {test_fraction: 0.3}
""",
    "trees": HELPED
    + """\
align: {protocol: psu}
train: {algorithm: trees, trees: 3, depth: 2, bins: 4}
evaluate: {test_fraction: 0.3}
""",
}
"""Kind of job → its text; every phase that a job can have is in one of them."""

TEXTS = KINDS | {"on psi": KINDS["coordinator"].replace("apsi, obfuscation: {size: 144}", "psi")}
"""The same, and a regression that may follow jobs of the kinds that tell how many records are shared."""

EVERYONE = {"min_own_rows": 1, "min_peer_rows": 1, "budgets": {"trainings": None, "alignments": None}}
"""Limits of each of the nodes' policies."""


def parties_of(kind: str) -> tuple[str, ...]:
    """Who takes part."""
    return NAMES if "coordinator:" in TEXTS[kind] else NAMES[:2]


class World:
    """A clinic, a lab and a notary, over many jobs.

    Args:
        folder: of everything they have; in memory, where a disk makes whoever writes durably wait.
        trial: two small tables (``tests/conftest.py``).
    """

    def __init__(self, folder: Path, trial: Any) -> None:
        self.trial = trial
        self.federation = made = Federation(folder, trial, THREE)
        for name in NAMES:
            made.programs[name] = partial(self._fork, name)
        made.start_three(everyone=EVERYONE)
        self._hides: bool | None = None
        self._clean: dict[str, Any] = {}
        self._passings: dict[str, dict[str, Counter[str]]] = {}

    @staticmethod
    def _fork(name: str, arguments: list[str], log: Path) -> Child:
        return Child(forked_node.run, dict(os.environ), arguments, log, name)

    def close(self) -> None:
        """End every process."""
        self.federation.end_all()

    # Processes.

    def all_up(self, **settings: Any) -> None:
        """Start who is not running, and wait for their links."""
        for name in NAMES:
            if self.federation.processes[name].poll() is not None:
                self.federation.start(name, **settings)
        self.federation.wait_until(lambda: all(self.federation.connected(name) for name in NAMES))

    def again(self, name: str, failpoint: str = "", **settings: Any) -> None:
        """Stop ``name`` in order and start it, with a failpoint."""
        if self.federation.processes[name].poll() is None:
            self.federation.kill(name, signal.SIGTERM)
        self.federation.failpoints[name] = failpoint
        self.federation.start(name, **settings)
        self.all_up()

    def wait_dead(self, name: str, status: int = -signal.SIGKILL) -> None:
        """Wait for the end of a process; another status than this is an error."""
        ended = self.federation.processes[name].wait(GENEROUS_S)
        if ended != status:
            raise AssertionError(f"{name} ended with {ended}, expected {status}: {self.federation.log(name)[-500:]}")

    def dies(self, name: str, kind: str, job_id: str) -> bool:
        """Wait until ``name`` has been killed (True), or the job has ended at all others without that."""
        process, others = self.federation.processes[name], [other for other in parties_of(kind) if other != name]

        def over() -> bool:
            return all(self.federation.view(other, job_id).get("state") == "done" for other in others)

        self.federation.wait_until(lambda: process.poll() is not None or over())
        if process.poll() is None and over():
            process.wait(2)  # its last moments come after those of the others
        return process.poll() is not None

    def wait_said(self, name: str, text: str, *, after: int = 0) -> None:
        """Wait until the log of ``name`` holds ``text`` behind its first ``after`` characters."""
        self.federation.wait_until(lambda: text in self.federation.log(name)[after:])

    # Jobs.

    def submit(self, kind: str) -> str:
        """A job of ``kind``, submitted at the clinic; also where that dies while it takes it, and is started again."""
        known = {view["id"] for view in self.federation.client("clinic").jobs()}
        text = parse(TEXTS[kind], Job, source="job").canonical()
        try:
            return str(self.federation.client("clinic").submit(text)["id"])
        except VflError as error:
            if error.code != "E_NOT_RUNNING":  # it lives, and refuses
                raise
            self.wait_dead("clinic")
            self.federation.start("clinic")
            stored = [view["id"] for view in self.federation.client("clinic").jobs() if view["id"] not in known]
            return stored[0] if stored else str(self.federation.client("clinic").submit(text)["id"])

    def ends(self, kind: str, job_id: str) -> dict[str, dict[str, Any]]:
        """The last view of the job at each of its parties."""
        for name in parties_of(kind):
            self.federation.wait_until(lambda name=name: self.federation.view(name, job_id))
        return {name: self.federation.end(name, job_id) for name in parties_of(kind)}

    def outcome(self, kind: str, job_id: str) -> Any:
        """What must not depend on any fault: models, metrics, losses and the ledger. Raises VflError where the job failed."""
        found: dict[str, Any] = {}
        for name, view in self.ends(kind, job_id).items():
            if view["state"] != "done":
                error = view["error"] or {"message": view["state"], "code": "E_INTERNAL"}
                raise VflError(f"{name}: {error['message']}", code=error["code"])
            report = self.federation.report(name, job_id)
            losses = [(epoch["loss"], epoch["auc"]) for epoch in report["training"]["epochs"]]
            learnt = {party: [(of["what"], of["count"]) for of in entries] for party, entries in report["learnt"].items()}
            found[name] = [report["metrics"], losses, report["alignment"] and report["alignment"]["intersection"], learnt]
            model = self.federation.job_folder(name, job_id) / "artefacts" / "model.safetensors"
            if model.exists():
                weights, _ = storage.load(model)
                found[name] += [{key: value.numpy().tobytes() for key, value in weights.items()}]
        return json.dumps(found, sort_keys=True, default=lambda data: data.hex())

    def clean(self, kind: str) -> Any:
        """The outcome of a job that nothing disturbs; from here on, jobs of this kind are no breach of a promise."""
        self._promise("obfuscation" in TEXTS[kind])
        if kind not in self._clean:
            self.all_up()
            self._clean[kind] = self.outcome(kind, self.submit(kind))
        return self._clean[kind]

    def _promise(self, hides: bool) -> None:
        """Partners begin anew where earlier jobs hid how many records are shared and these tell it, or the other way."""
        if self._hides not in (None, hides):
            for name in NAMES:
                if self.federation.processes[name].poll() is None:
                    self.federation.kill(name, signal.SIGTERM)
                shutil.rmtree(self.federation.folder / name / "state" / "partners", ignore_errors=True)
            self.all_up()
        self._hides = hides

    def same(self, kind: str, job_id: str) -> None:
        """The job ended with the bytes of an undisturbed one."""
        expected, found = self.clean(kind), self.outcome(kind, job_id)
        if found != expected:
            raise AssertionError("another result than that of a job that nothing disturbed")

    def passings(self, kind: str) -> dict[str, dict[str, range]]:
        """Party → failpoint → at which of its passings a job of this kind is, counted from a fresh start of the process."""
        if kind not in self._passings:
            self.clean(kind)
            found = {}
            for name in parties_of(kind):
                before = len(self.federation.log(name))
                self.prune(name)
                self.again(name, "*=tell")
                started = self._told(name, before)
                job_id = self.submit(kind)
                self.outcome(kind, job_id)
                folder = self.federation.job_folder(name, job_id)
                self.federation.wait_until(lambda folder=folder: self.federation.is_cleared(folder))
                told = self._told(name, before)
                found[name] = {point: range(started[point] + 1, told[point] + 1) for point in told}
                self.again(name)
            self._passings[kind] = {
                name: {point: places for point, places in points.items() if places} for name, points in found.items()
            }
        return self._passings[kind]

    def prune(self, name: str) -> None:
        """Remove the jobs that have ended there: each passes a failpoint at every start."""
        if self.federation.processes[name].poll() is None:
            self.federation.client(name).prune(Retention(jobs_keep=0), models=True, dry=False)

    def _told(self, name: str, after: int) -> Counter[str]:
        words = (line.split() for line in self.federation.log(name)[after:].splitlines())
        return Counter(line[1] for line in words if len(line) == 3 and line[0] == "failpoint")


__all__ = ["DEVICE", "KINDS", "NAMES", "World", "parties_of"]
