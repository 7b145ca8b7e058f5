"""Three real nodes link records and train over candidates; killed (-9) anywhere they end with the same bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import linking_node
import numpy as np
import pytest

from vfl_node.configuration.models import parse
from vfl_node.job import Job
from vfl_node.models import storage

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
TRAINS = (
    LINKS
    + """\
train:
  {algorithm: candidates, task: regression, bottom: [8, 4], active_bottom: [4], top: [8], pair_outputs: 2, channels: 2,
   kernel: 3, merge_hidden: [8], epochs: 2, batch_size: 8}
evaluate: {test_fraction: 0.2, validation_fraction: 0.1, metrics: [rmse, r2]}
"""
)
"""With 14 steps an epoch."""

IN_SHARES = LINKS + "  comparison: shares\n"

AT_DATA = {
    "align-store": 2,
    "align-list": 1,
    "align-synced": 1,
    "align-stored": 1,
    "align-keep": 1,
    "aligned": 1,
    "kept": 1,
    "send": 12,
}
PLACES = {  # point → how often it is passed in a job before the end, at most
    "clinic": AT_DATA,
    "lab": AT_DATA,
    "notary": {"align-store": 3, "align-list": 2, "align-synced": 2, "align-stored": 2, "kept": 1, "store": 2, "send": 12},
}
CASES = [
    (name, f"{point}=kill@{at + 1}") for name, points in PLACES.items() for point, most in points.items() for at in range(most)
]
SOME = [("notary", "align-store=kill@3")]  # in the search, with the filters of both

DEALS = [
    *((name, f"{point}=kill@{at}") for name in ("clinic", "lab") for point, at in (("align-list", 1), ("align-stored", 1))),
    *((name, f"{point}=kill@{at}") for name in ("clinic", "lab") for point, at in (("align-store", 1), ("send", 60))),
    *(("notary", death) for death in ("dealt=kill@1", "dealt=kill@2", "kept=kill@1", "send=kill@9")),
]
DEALT = [("lab", "align-store=kill@2")]  # between candidates and similarities

ENDS = dict.fromkeys(("keep", "kept", "store", "confirm", "confirmed"), (1,))
LEARNS = {  # the same in a training
    "clinic": {"toss": (1,), "backward": (1, 18), "updated": (1, 14, 18), "validated": (1, 2), "checkpoint": (1, 2)}
    | {"checkpointed": (1, 2), "evaluate": (1,)}
    | ENDS,
    "lab": {"toss": (1,), "forward": (1, 18), "updated": (1, 14, 18), "validated": (1, 2), "checkpoint": (1, 2)}
    | {"checkpointed": (1, 2), "evaluate": (1,)}
    | ENDS,
    "notary": {"align-synced": (1, 2), "align-store": (1, 3), "align-list": (1, 2)} | ENDS,
}
TRAININGS = [
    (name, f"{point}=kill@{at}") for name, points in LEARNS.items() for point, passings in points.items() for at in passings
] + [
    ("clinic", "align-store=kill@1"),
    ("lab", "align-store=kill@1"),
    ("clinic", "align-store=kill@2"),
    ("lab", "align-keep=kill@1"),
]
ONE = [("lab", "forward=kill@18")]  # after a checkpoint


class Tables:
    """Two tables with a number and a name, and jobs over them."""

    def __init__(self, folder: Path) -> None:
        self.files = {}
        for seed, (name, rows) in enumerate(ROWS.items()):
            rng = np.random.default_rng(seed)
            self.files[name] = folder / f"{name}.csv"
            lines = [f"{name}-{i},{rng.random():.5f},person {rng.integers(40)},{rng.normal():.4f}" for i in range(rows)]
            head = "id,u,called,x"
            if name == "clinic":
                head, lines = f"{head},label", [f"{line},{rng.normal():.4f}" for line in lines]
            self.files[name].write_text("\n".join([head, *lines, ""]))

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
        limits = {"protocols": ["psi", "linkage"], "reveal": ["candidates"], "linkage": {"max_reuse": 160}}
        self.federation.start_three(everyone=limits)
        self._expected: dict[str, Any] = {}

    def expected(self, text: str) -> Any:
        """What such a job leaves that nothing disturbs."""
        if text not in self._expected:
            self._expected[text] = self.outcome(self.submit(text))
        return self._expected[text]

    def submit(self, text: str) -> str:
        """A job of which all nodes begin to hear when they are all there."""
        self.federation.wait_until(lambda: all(map(self.federation.connected, ROLES)))
        return str(self.federation.submit(text))

    def outcome(self, job_id: str) -> Any:
        found: dict[str, Any] = {}
        for name in ROLES:
            view = self.federation.end(name, job_id)
            assert view["state"] == "done", (name, view, self.federation.log(name)[-3000:])
            report = self.federation.report(name, job_id)
            alignment = report["alignment"] or {}
            for figure in ("seconds", "bytes_sent", "bytes_received"):
                alignment.pop(figure, None)
            found[name] = alignment, report["learnt"], self._aligned(name, job_id), self._trained(name, job_id, report)
        return found

    def _aligned(self, name: str, job_id: str) -> set[str]:
        noted = self.federation.folder / f"{name}-aligned"
        lines = [line.split() for line in noted.read_text().splitlines()] if noted.exists() else []
        return {digest for job, digest in lines if job == job_id}

    def _trained(self, name: str, job_id: str, report: Any) -> Any:
        model, training = self.federation.job_folder(name, job_id) / "artefacts" / "model.safetensors", report["training"]
        if not model.exists():
            return training
        losses = [(epoch["loss"], epoch["validation_loss"]) for epoch in training["epochs"]]
        weights = {key: value.numpy().tobytes() for key, value in storage.load(model)[0].items()}
        return weights, losses, training["linked"], report["metrics"], report["local_metrics"]

    def survives(self, victim: str, death: str, text: str = LINKS) -> None:
        expected, federation = self.expected(text), self.federation
        federation.kill(victim)
        federation.failpoints[victim] = death
        federation.start(victim)
        job_id = self.submit(text)
        federation.dies_in(victim, job_id)
        federation.start(victim)
        assert self.outcome(job_id) == expected


@pytest.fixture(scope="module")
def nodes(federations: Any, tmp_path_factory: pytest.TempPathFactory) -> Nodes:
    return Nodes(federations, tmp_path_factory.mktemp("linked"))


def test_three_nodes_link_their_records(nodes: Nodes) -> None:
    (active, learnt, of_active, _), (passive, _, of_passive, _), (coordinator, _, of_coordinator, _) = nodes.expected(
        LINKS
    ).values()
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


def test_three_nodes_link_their_records_in_shares(nodes: Nodes) -> None:
    (active, learnt, of_active, _), (passive, *_), _ = nodes.expected(IN_SHARES).values()
    plain = nodes.expected(LINKS)["clinic"]
    assert (active["comparison"], plain[0]["comparison"]) == ("shares", "filters")
    assert (active["tau"], active["without_candidate"]) == (plain[0]["tau"], plain[0]["without_candidate"])
    assert passive["reuse"] >= active["candidates"]
    assert len(of_active) == 1
    assert [entry["what"] for entry in learnt["notary"]] == ["set sizes"]


@pytest.mark.parametrize(
    ("victim", "death"), [*DEALT, *(pytest.param(*of, marks=pytest.mark.slow) for of in DEALS if of not in DEALT)]
)
def test_killed_in_a_linkage_in_shares(nodes: Nodes, victim: str, death: str) -> None:
    nodes.survives(victim, death, IN_SHARES)


def test_two_of_them_train_over_candidates(nodes: Nodes) -> None:
    active, passive, coordinator = (of[-1] for of in nodes.expected(TRAINS).values())
    weights, losses, linked, metrics, _ = active
    assert len(losses) == 2
    assert linked["method"] == "fedsim"
    assert metrics["r2"] < 1
    assert any(key.startswith("gate.") for key in weights)
    assert {key.partition(".")[0] for key in passive[0]} == {"bottom"}
    assert coordinator is None
    linkages = [of[:3] for of in nodes.expected(TRAINS).values()]
    assert [of[2] for of in linkages] == [of[2] for of in nodes.expected(LINKS).values()]  # the same candidates


@pytest.mark.parametrize(
    ("victim", "death"), [*ONE, *(pytest.param(*of, marks=pytest.mark.slow) for of in TRAININGS if of not in ONE)]
)
def test_killed_in_a_job_that_trains(nodes: Nodes, victim: str, death: str) -> None:
    nodes.survives(victim, death, TRAINS)


@pytest.mark.slow
@pytest.mark.parametrize("victims", [["notary"], list(ROLES)], ids=["the coordinator", "all"])
def test_killed_while_the_data_parties_train(nodes: Nodes, victims: list[str]) -> None:
    """The coordinator waits to hear that both are done, and is not needed meanwhile."""
    expected = nodes.expected(TRAINS)
    nodes.federation.kill("lab")
    nodes.federation.failpoints["lab"] = "forward=slow"
    nodes.federation.start("lab")
    job_id = nodes.submit(TRAINS)
    nodes.federation.wait_until(lambda: nodes.federation.in_training("lab", job_id))
    for name in victims:
        nodes.federation.kill(name)
    for name in victims:
        nodes.federation.start(name)
    assert nodes.outcome(job_id) == expected
