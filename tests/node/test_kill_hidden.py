"""Real nodes that train in shares with a coordinator, and predict: each may be killed (-9) anywhere, with the same end."""

from __future__ import annotations

import csv
import signal
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
from nodes import command

from tests.node.halves import together
from tests.node.killed_jobs import KilledJobs
from tests.node.several import ROWS, SeveralTrial

TWO = ("lab",)
THREE = ("lab", "insurer")
PLACES = 12
"""For each party: so many parts of a run, of which each has one death in its middle."""

TEXT = """\
parties: {{active: clinic, passive: [{passive}], coordinator: notary}}
align: {{protocol: psu}}
train: {{algorithm: hidden, epsilon: 100, epochs: 3, reveal: owners, shared_fraction: 0.5}}
evaluate: {{test_fraction: 0.3, metrics: [auc, nll, accuracy], epsilon: 100}}
"""
TOLD = ("rounds", "dealer_bytes")
"""Of a report's section: of the attempt that ended the job."""


def text(passive: tuple[str, ...]) -> str:
    return TEXT.format(passive=", ".join(passive))


class Nodes(KilledJobs):
    """As its base, with reports compared without what depends on attempts."""

    def outcome(self, job_id: str) -> dict[str, Any]:
        left = super().outcome(job_id)
        for report, _ in left.values():
            training = report["training"]
            for key in TOLD:
                training[training["algorithm"]].pop(key)
        return left

    def phase(self, job: str, victim: str, phase: str) -> int:
        """The number of a place in the middle of a phase."""
        places = self.clean(job)[1][victim]
        end = "dealt" if victim == "notary" else "updated"
        first, last = places.index(end), len(places) - 1 - places[::-1].index(end)
        begins = places.index("toss") if victim != "notary" else places.index("batches") if "batches" in places else 0
        ends = places.index("keep")
        bounds = {"setup": (begins, first), "epoch": (first, last), "measure": (last, ends)}[phase]
        return sum(bounds) // 2 + 1


def made(federations: Any, forked: Any, several: SeveralTrial, folder: Any, passive: tuple[str, ...]) -> Nodes:
    roles = {"clinic": "active"} | dict.fromkeys(passive, "passive") | {"notary": "coordinator"}
    return Nodes(federations(folder, roles, several), forked)


@pytest.fixture(scope="module")
def nodes(federations: Any, forked: Any, several: SeveralTrial, tmp_path_factory: pytest.TempPathFactory) -> Nodes:
    return made(federations, forked, several, tmp_path_factory.mktemp("hidden"), TWO)


@pytest.fixture(scope="module")
def four(federations: Any, forked: Any, several: SeveralTrial, tmp_path_factory: pytest.TempPathFactory) -> Nodes:
    return made(federations, forked, several, tmp_path_factory.mktemp("four"), THREE)


def test_three_nodes_train_in_shares(nodes: Nodes) -> None:
    left, places = nodes.clean(text(TWO))
    (active, weights), (passive, of_lab), (hub, nothing) = (left[name] for name in ("clinic", "lab", "notary"))
    assert 0.8 < active["metrics"]["auc"] <= 1
    assert active["metrics"]["nll"] < 0.6
    assert (active["metrics"]["population"], active["local_metrics"]["population"]) == ("common", "owned")
    assert 20 < active["metrics"]["rows"] < active["local_metrics"]["rows"]
    assert passive["metrics"]["auc"] is passive["metrics"]["rows"] is None
    assert active["local_metrics"]["auc"] > 0.8
    shares = {f"share {index}" for index in range(2)}
    assert set(weights) == {"weight", "bias"} | shares
    assert set(of_lab) == {"weight"} | shares
    assert nothing == {}
    assert hub["metrics"] is None
    assert [entry["what"] for entry in hub["learnt"]["notary"]] == ["shapes"]
    assert len(active["training"]["epochs"]) == 3
    assert places["clinic"].count("checkpointed") == places["lab"].count("checkpointed") == 3
    assert places["notary"].count("dealt") == 6
    counted = {name: list((nodes.federation.folder / name / "state" / "partners").glob("*/ledger.log")) for name in left}
    assert [len(counted[name]) for name in ("clinic", "lab", "notary")] == [1, 1, 0]
    assert b'"kind":"spend"' in counted["clinic"][0].read_bytes()


CASES = [(victim, phase) for victim in ("clinic", "lab", "notary") for phase in ("setup", "epoch", "measure")]
SOME = [("lab", "setup"), ("notary", "epoch")]


@pytest.mark.parametrize(
    ("victim", "phase"), [*SOME, *(pytest.param(*of, marks=pytest.mark.slow) for of in CASES if of not in SOME)]
)
def test_killed_in_a_phase(nodes: Nodes, victim: str, phase: str) -> None:
    nodes.killed(text(TWO), victim, nodes.phase(text(TWO), victim, phase))


@pytest.mark.parametrize("victim", ["lab", *(pytest.param(of, marks=pytest.mark.slow) for of in ("clinic", "notary"))])
@pytest.mark.parametrize("phase", ["epoch", pytest.param("setup", marks=pytest.mark.slow)])
def test_killed_where_the_coordinator_is_checked(nodes: Nodes, victim: str, phase: str) -> None:
    job = text(TWO).replace("epochs: 3", "epochs: 9, dealer_audit: 0.5")  # none of 9 steps is checked once in 512 jobs
    left, _ = nodes.clean(job)
    (report, _), (other, _) = left["clinic"], left["lab"]
    assert report["training"]["hidden"]["audited"] == other["training"]["hidden"]["audited"] > 0
    nodes.killed(job, victim, nodes.phase(job, victim, phase))


def spread(nodes: Nodes, job: str, victim: str, part: int) -> int:
    bounds = [part * len(nodes.clean(job)[1][victim]) // PLACES for part in range(PLACES + 1)]
    return sum(list(pairwise(bounds))[part]) // 2 + 1


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PLACES))
@pytest.mark.parametrize("victim", ["clinic", "lab", "notary"])
def test_killed_anywhere(nodes: Nodes, victim: str, part: int) -> None:
    nodes.killed(text(TWO), victim, spread(nodes, text(TWO), victim, part))


@pytest.mark.slow
@pytest.mark.parametrize(("victim", "phase"), [("insurer", "epoch"), ("notary", "measure"), ("clinic", "setup")])
def test_killed_where_three_have_data(four: Nodes, victim: str, phase: str) -> None:
    four.killed(text(THREE), victim, four.phase(text(THREE), victim, phase))


@pytest.mark.slow
@pytest.mark.parametrize("reveal", ["owners", "none"])
def test_all_killed_at_once(nodes: Nodes, reveal: str) -> None:
    job = text(TWO).replace("reveal: owners", f"reveal: {reveal}")
    expected, _ = nodes.clean(job)
    job_id = nodes.submit(job, lab=nodes.phase(job, "lab", "epoch"))
    nodes.federation.dies_in("lab", job_id)
    for name in ("clinic", "notary"):
        nodes.federation.kill(name)
    for name in ("clinic", "lab", "notary"):
        nodes.federation.start(name)
    assert nodes.outcome(job_id) == expected


# Predictions.

SERVED = "serve: {to: both, batch_size: 16}\n"
KNOWN = {"clinic": (119, 20, 60, 75), "lab": (33, 118)}
"""Records of each party, all of which the other has, too."""


def ids(rows: Any) -> list[str]:
    return [f"canary-{row:04d}-patient" for row in rows]


class Predicting:
    """Nodes that have trained a model in shares over one alignment, and kept it for predictions."""

    def __init__(self, nodes: Nodes, job: str, passive: tuple[str, ...] = TWO) -> None:
        self.nodes, self.federation, self.data = nodes, nodes.federation, ("clinic", *passive)
        self.text = job + SERVED
        self.model = nodes.submit(self.text)
        for name in nodes.names:
            assert self.federation.end(name, self.model)["state"] == "done", self.federation.log(name)[-3000:]

    def ask(self, name: str, folder: Path, content: str, *words: str) -> tuple[Any, list[list[str]]]:
        """What ``vfl-node predict`` at ``name`` says, and the rows of its answer."""
        (folder / "asked.csv").write_text(content)
        config = self.federation.folder / name / "node.yaml"
        files = ("--data", folder / "asked.csv", "--out", folder / "said.csv")
        ended = command("predict", self.model, *files, *words, "--config", config)
        if ended.returncode:
            return ended, []
        with (folder / "said.csv").open(newline="") as file:
            return ended, list(csv.reader(file))

    def known(self, name: str, folder: Path) -> list[list[str]]:
        ended, rows = self.ask(name, folder, "\n".join(["id", *ids(KNOWN[name])]))
        assert ended.returncode == 0, ended.stderr
        return rows

    def service(self, name: str) -> str:
        """The newest service that ``name`` asks."""
        wanted = {"model": self.model, "to": self.federation.roles[name], "rows": "known"}
        views = self.federation.client(name).jobs()
        return next(view["id"] for view in views if view["predict"] == wanted)

    def cancel(self, name: str) -> str:
        """End the service of ``name``."""
        service = self.service(name)
        self.federation.client(name).cancel(service)
        for party in self.nodes.names:
            assert self.federation.end(party, service)["state"] == "done"
        return service

    def together(self, folder: Path) -> dict[str, float]:
        """Id → what ``vfl-node run --predictions`` writes of the shares that these nodes have kept."""
        return together(self.federation, self.federation.trial.job(self.text), self.model, self.data, folder)


TWO_WITH_DATA = ("clinic", *TWO)


@pytest.fixture(scope="module")
def intersection(nodes: Nodes) -> Predicting:
    return Predicting(nodes, text(TWO).replace("psu", "psi"))


@pytest.fixture(scope="module")
def union(nodes: Nodes) -> Predicting:
    return Predicting(nodes, text(TWO))


def near(said: list[str], expected: list[float]) -> bool:
    """Whether scores differ by a step and a half at most: here they are cut by coins, in a trial rounded to the nearest."""
    scores = [np.log(p) - np.log1p(-p) for p in (np.array(said, float), np.array(expected))]
    return bool(np.abs(scores[0] - scores[1]).max() < 1.5 / 16 + 1e-4)


@pytest.mark.parametrize("name", TWO_WITH_DATA)
def test_known_records_are_predicted_by_all_shares(intersection: Predicting, tmp_path: Path, name: str) -> None:
    head, *rows = intersection.known(name, tmp_path)
    assert head == ["id", "probability"]
    assert [row[0] for row in rows] == ids(KNOWN[name])
    expected = intersection.together(tmp_path)
    assert near([row[1] for row in rows], [expected[row[0]] for row in rows])
    service = intersection.cancel(name)
    (other,) = set(TWO_WITH_DATA) - {name}
    for party, requests in ((name, 1), (other, None)):
        report = intersection.federation.report(party, service)
        assert (report["predictions"]["to"], report["predictions"]["requests"]) == (name, requests)
        assert 1 <= report["predictions"]["batches"] <= len(rows)
        whats = {of: [entry["what"] for entry in entries] for of, entries in report["learnt"].items()}
        masked = "masked values"
        assert whats == {name: [masked, "scores"], other: [masked, "requests"], "notary": ["shapes"]}
    report = intersection.federation.report("notary", service)
    assert [entry["what"] for entry in report["learnt"]["notary"]] == ["shapes"]
    assert report["predictions"]["batches"] >= 1
    assert report["learnt"]["notary"][0]["count"] == 16 * report["predictions"]["batches"]


@pytest.mark.parametrize(
    ("name", "victim"),
    [
        ("lab", "notary"),
        *(
            pytest.param(*of, marks=pytest.mark.slow)
            for of in (("clinic", "lab"), ("lab", "clinic"), ("clinic", "notary"), ("clinic", "clinic"), ("lab", "lab"))
        ),
    ],
)
def test_a_node_killed_in_a_request_is_asked_again(intersection: Predicting, tmp_path: Path, name: str, victim: str) -> None:
    deaths, federation = intersection.nodes.folder(victim), intersection.federation
    expected = intersection.known(name, tmp_path)
    intersection.cancel(name)
    (deaths / "places").unlink(missing_ok=True)
    (deaths / "death").write_text("0")
    assert intersection.known(name, tmp_path) == expected
    place = (deaths / "places").read_text().split().index("dealt" if victim == "notary" else "predict") + 1
    (deaths / "death").unlink()
    intersection.cancel(name)
    (deaths / "places").unlink()
    (deaths / "death").write_text(str(place))
    answers: list[list[list[str]]] = []
    asking = Thread(target=lambda: answers.append(intersection.known(name, tmp_path)))
    asking.start()
    assert federation.processes[victim].wait(240) == -signal.SIGKILL
    federation.start(victim)
    asking.join()
    assert answers == [expected]
    intersection.cancel(name)


@pytest.mark.parametrize("name", ["lab", pytest.param("clinic", marks=pytest.mark.slow)])
def test_records_that_a_union_hides_are_predicted_as_new_ones_alone(
    union: Predicting, several: SeveralTrial, tmp_path: Path, name: str
) -> None:
    ended, _ = union.ask(name, tmp_path, "\n".join(["id", *ids(KNOWN[name])]))
    assert ended.returncode != 0
    assert "predicts no known records" in ended.stderr
    assert "--align" in ended.stderr
    head, *lines = several.files[name].read_text().splitlines()
    ended, (_, *rows) = union.ask(name, tmp_path, "\n".join([head, *lines[::-1]]), "--align")
    assert ended.returncode == 0, ended.stderr
    assert [row[0] for row in rows] == [line.split(",")[0] for line in lines[::-1]]
    both, expected = set(ids(set(ROWS["clinic"]) & set(ROWS["lab"]))), union.together(tmp_path)
    assert {row[0] for row in rows if row[1]} == both
    assert all("canary" not in union.federation.log(party) for party in union.nodes.names)
    there = [row for row in rows if row[1]]
    assert near([row[1] for row in there], [expected[row[0]] for row in there])


def test_without_the_coordinator_nothing_is_predicted(intersection: Predicting, tmp_path: Path) -> None:
    federation = intersection.federation
    federation.kill("notary")
    federation.wait_until(lambda: not federation.connected("clinic"))
    for words in ((), ("--align",)):
        ended, _ = intersection.ask("clinic", tmp_path, "\n".join(["id", *ids(KNOWN["clinic"])]), *words)
        assert ended.returncode != 0
        if not words:
            assert "E_COORDINATOR" in ended.stderr
            assert "notary" in ended.stderr
    federation.start("notary")
    federation.wait_until(lambda: federation.connected("clinic") and federation.connected("lab"))
    assert len(intersection.known("clinic", tmp_path)) == 1 + len(KNOWN["clinic"])
    intersection.cancel("clinic")


def part_of_lab(asked: Predicting) -> Path:
    return Path(asked.federation.job_folder("lab", asked.model)) / "artefacts" / "model.safetensors"


def failed_at_lab(asked: Predicting) -> list[dict[str, Any]]:
    return [view for view in asked.federation.client("lab").jobs() if view["predict"] and view["state"] == "failed"]


def test_a_party_whose_shares_have_changed_says_so(intersection: Predicting, tmp_path: Path) -> None:
    path = part_of_lab(intersection)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    try:
        ended, _ = intersection.ask("clinic", tmp_path, "\n".join(["id", *ids(KNOWN["clinic"])]))
    finally:
        path.write_bytes(whole)
    assert ended.returncode != 0
    assert "lab" in ended.stderr
    (view,) = failed_at_lab(intersection)
    assert view["error"]["code"] == "E_STATE_CORRUPT"
    assert "restore it from a backup, or train again" in view["error"]["hint"]
    assert len(intersection.known("clinic", tmp_path)) == 1 + len(KNOWN["clinic"])
    intersection.cancel("clinic")


def test_shares_that_are_lost_may_be_put_back(intersection: Predicting, tmp_path: Path) -> None:
    federation, path = intersection.federation, part_of_lab(intersection)
    whole, before = path.read_bytes(), len(failed_at_lab(intersection))
    path.unlink()
    answers: list[list[list[str]]] = []
    asking = Thread(target=lambda: answers.append(intersection.known("clinic", tmp_path)))
    asking.start()
    try:
        federation.wait_until(lambda: len(failed_at_lab(intersection)) > before)
    finally:
        path.write_bytes(whole)
    view = failed_at_lab(intersection)[0]
    assert (view["error"]["code"], view["resumable"]) == ("E_STATE_LOST", True)
    federation.client("lab").resume(view["id"])
    asking.join()
    assert len(answers[0]) == 1 + len(KNOWN["clinic"])
    intersection.cancel("clinic")


@pytest.mark.slow
def test_predictions_of_three_parties_with_data(four: Nodes, several: SeveralTrial, tmp_path: Path) -> None:
    asked = Predicting(four, text(THREE).replace("psu", "psi"), THREE)
    expected = asked.together(tmp_path)
    for name in asked.data:
        ended, (_, *known) = asked.ask(name, tmp_path, "\n".join(["id", *ids((20, 119, 60))]))
        assert ended.returncode == 0, ended.stderr
        ended, (_, *new) = asked.ask(name, tmp_path, several.files[name].read_text(), "--align")
        assert ended.returncode == 0, ended.stderr
        assert {row[0] for row in new if row[1]} == set(expected) == set(ids(range(20, 120)))
        for rows in (known, [row for row in new if row[1]]):
            assert near([row[1] for row in rows], [expected[row[0]] for row in rows])
