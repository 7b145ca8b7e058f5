"""Three real nodes link records; killed (-9) anywhere and started again, they end with the same candidates and similarities."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import linking_node
import numpy as np
import pytest

from vfl_node.configuration import parse
from vfl_node.job import Job

ROLES = {"clinic": "active", "lab": "passive", "notary": "coordinator"}
ROWS = {"clinic": 160, "lab": 120}
LINKS = """\
name: trial
parties: {active: clinic, passive: lab, coordinator: notary}
align:
  protocol: linkage
  keys: {u: {kind: number, low: 0, high: 1, reach: 0.2}, name: {kind: text}}
  encoding: {epsilon: 0.2, delta: 0.1}
  candidates: 5
  noise: {sigma: 0.4}
"""
PLACES = {  # point → how often it is passed in a job before the end, at most
    "clinic": {
        "align-store": 2,
        "align-list": 1,
        "align-synced": 1,
        "align-stored": 1,
        "align-keep": 1,
        "aligned": 1,
        "kept": 1,
        "send": 12,
    },
    "lab": {
        "align-store": 2,
        "align-list": 1,
        "align-synced": 1,
        "align-stored": 1,
        "align-keep": 1,
        "aligned": 1,
        "kept": 1,
        "send": 12,
    },
    "notary": {"align-store": 3, "align-list": 2, "align-synced": 2, "align-stored": 2, "kept": 1, "finish": 2, "send": 12},
}
CASES = [
    (name, f"{point}=kill@{at + 1}") for name, points in PLACES.items() for point, most in points.items() for at in range(most)
]
SOME = [("notary", "align-store=kill@3")]  # in the search, with the filters of both


class Tables:
    """Two tables with a number and a name, and jobs over them."""

    def __init__(self, folder: Path) -> None:
        self.files = {}
        for seed, (name, rows) in enumerate(ROWS.items()):
            rng = np.random.default_rng(seed)
            self.files[name] = folder / f"{name}.csv"
            lines = [f"{name}-{i},{rng.random():.5f},person {rng.integers(40)},{rng.normal():.4f}\n" for i in range(rows)]
            self.files[name].write_text("id,u,called,x\n" + "".join(lines))

    def job(self, text: str = LINKS) -> Job:
        return parse(text, Job, source="job")


class Nodes:
    """Three nodes that may be killed anywhere, over many jobs."""

    def __init__(self, federations: Any, folder: Path) -> None:
        self.federation = federations(folder, ROLES, Tables(folder))
        for name in ROLES:
            self.federation.programs[name] = linking_node.program(folder / f"{name}-aligned")
            if name in ROWS:
                data = {"path": str(self.federation.trial.files[name]), "keys": {"name": "called"}}
                self.federation.configure(name, data=data)
        limits = {"protocols": ["psi", "linkage"], "max_reuse": 160}
        self.federation.start_three(limits=limits)
        self.expected = self.outcome(self.federation.submit(LINKS))

    def outcome(self, job_id: str) -> Any:
        found: dict[str, Any] = {}
        for name in ROLES:
            view = self.federation.end(name, job_id)
            assert view["state"] == "done", (name, view, self.federation.log(name)[-3000:])
            report = self.federation.report(name, job_id)
            alignment = report["alignment"] or {}
            for figure in ("seconds", "bytes_sent", "bytes_received"):
                alignment.pop(figure, None)
            found[name] = alignment, report["learnt"], self._aligned(name, job_id)
        return found

    def _aligned(self, name: str, job_id: str) -> set[str]:
        noted = self.federation.folder / f"{name}-aligned"
        lines = [line.split() for line in noted.read_text().splitlines()] if noted.exists() else []
        return {digest for job, digest in lines if job == job_id}

    def survives(self, victim: str, death: str) -> None:
        federation = self.federation
        federation.kill(victim)
        federation.failpoints[victim] = death
        federation.start(victim)
        federation.wait_until(lambda: all(map(federation.connected, ROLES)))
        job_id = federation.submit(LINKS)
        federation.dies_in(victim, job_id)
        federation.start(victim)
        assert self.outcome(job_id) == self.expected


@pytest.fixture(scope="module")
def nodes(federations: Any, tmp_path_factory: pytest.TempPathFactory) -> Nodes:
    return Nodes(federations, tmp_path_factory.mktemp("linked"))


def test_three_nodes_link_their_records(nodes: Nodes) -> None:
    (active, learnt, of_active), (passive, _, of_passive), (coordinator, _, of_coordinator) = nodes.expected.values()
    assert (active["rows"], active["candidates"], active["sigma"]) == (160, 5, 0.4)
    assert passive["reuse"] >= active["candidates"]
    assert active["tau"] == passive["tau"] > active["tau_min"] > 0
    assert (len(of_active), len(of_passive), coordinator, of_coordinator) == (1, 1, {}, set())
    assert [entry["what"] for entry in learnt["lab"]] == ["set size", "candidate rows"]
    assert [entry["what"] for entry in learnt["notary"]] == ["encodings", "distances"]


@pytest.mark.parametrize(
    ("victim", "death"), [*SOME, *(pytest.param(*of, marks=pytest.mark.slow) for of in CASES if of not in SOME)]
)
def test_killed_in_a_linkage(nodes: Nodes, victim: str, death: str) -> None:
    nodes.survives(victim, death)
