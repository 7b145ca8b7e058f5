"""Real nodes that grow trees or count in shares with a coordinator: each may be killed (-9) anywhere, with the same end."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.node.several import SeveralTrial
from tests.node.test_kill_hidden import KNOWN, Nodes, Predicting

TEXT = """\
parties: {active: clinic, passive: [lab], coordinator: notary}
align: {protocol: psu}
train: {algorithm: trees, trees: 3, depth: 2, bins: 4, learning_rate: 0.5}
evaluate: {test_fraction: 0.3, metrics: [auc], epsilon: 100}
"""


LOOK = """\
parties: {active: clinic, passive: [lab], coordinator: notary}
align: {protocol: psu}
statistics: {bins: 4, epsilon: 100, correlations: true}
"""
LOOK_EXACTLY = LOOK.replace("epsilon: 100, correlations", "epsilon: null, worth")


class TreesNodes(Nodes):
    """As its base, without how many trainings over these records there have been: each case is one more."""

    def outcome(self, job_id: str) -> dict[str, Any]:
        left = super().outcome(job_id)
        for report, _ in left.values():
            for entries in report["learnt"].values():
                for entry in entries:
                    entry["text"] = re.sub("; this is training [0-9]+ .* more than one", "", entry["text"])
        return left


@pytest.fixture(scope="module")
def nodes(federations: Any, forked: Any, several: SeveralTrial, tmp_path_factory: pytest.TempPathFactory) -> TreesNodes:
    roles = {"clinic": "active", "lab": "passive", "notary": "coordinator"}
    return TreesNodes(federations(tmp_path_factory.mktemp("trees"), roles, several), forked)


def test_each_owner_gets_its_own_splits_and_nobody_else_does(nodes: TreesNodes) -> None:
    left, places = nodes.clean(TEXT)
    reports = {name: report["training"]["trees"] for name, (report, _) in left.items()}
    of_clinic, of_lab = ({(each["tree"], each["node"]) for each in reports[name]["splits"]} for name in ("clinic", "lab"))
    assert of_clinic or of_lab
    assert not of_clinic & of_lab
    assert len(of_clinic | of_lab) <= 3 * 3
    assert [len(reports[name]["leaves"]) for name in ("clinic", "lab", "notary")] == [3, 0, 0]
    assert left["clinic"][0]["metrics"]["auc"] > 0.7
    assert left["lab"][0]["metrics"]["auc"] is None
    assert [entry["what"] for entry in left["notary"][0]["learnt"]["notary"]] == ["shapes"]
    assert places["clinic"].count("checkpointed") == places["lab"].count("checkpointed") == 3


CASES = [(victim, phase) for victim in ("clinic", "lab", "notary") for phase in ("setup", "epoch", "measure")]
SOME = [("lab", "epoch"), ("notary", "setup")]


@pytest.mark.parametrize(
    ("victim", "phase"), [*SOME, *(pytest.param(*of, marks=pytest.mark.slow) for of in CASES if of not in SOME)]
)
def test_killed_in_a_phase(nodes: TreesNodes, victim: str, phase: str) -> None:
    nodes.killed(TEXT, victim, nodes.phase(TEXT, victim, phase))


def test_statistics_leave_figures_and_each_owner_has_its_own_bins(nodes: TreesNodes) -> None:
    left, places = nodes.clean(LOOK)
    sections = {name: report["training"]["statistics"] for name, (report, _) in left.items()}
    assert [len(sections[name]["columns"]) for name in ("clinic", "lab", "notary")] == [8, 4, 0]
    for name in ("clinic", "lab"):
        assert {each["party"] for each in sections[name]["columns"] if each["bins"]} == {name}
        assert len(sections[name]["compared"]["correlations"]) == 8
    assert [entry["what"] for entry in left["notary"][0]["learnt"]["notary"]] == ["shapes"]
    assert places["clinic"].count("checkpointed") == places["lab"].count("checkpointed") == 2


@pytest.mark.slow
@pytest.mark.parametrize("job", [LOOK, LOOK_EXACTLY], ids=["noise", "exact"])
@pytest.mark.parametrize(("victim", "phase"), CASES)
def test_killed_in_a_phase_of_statistics(nodes: TreesNodes, job: str, victim: str, phase: str) -> None:
    nodes.killed(job, victim, nodes.phase(job, victim, phase))


@pytest.fixture(scope="module")
def predicting(nodes: TreesNodes) -> Predicting:
    return Predicting(nodes, TEXT.replace("psu", "psi"))


@pytest.mark.parametrize("name", ["clinic", "lab"])
def test_predictions_are_those_of_all_halves_in_one_place(predicting: Predicting, name: str, tmp_path: Path) -> None:
    """To a step of 1/16 in the score, and half a step for the secret offset of the other party."""
    _, *rows = predicting.known(name, tmp_path)
    said = predicting.together(tmp_path)
    assert len(rows) == len(KNOWN[name])
    scores = [[np.log(p / (1 - p)) for p in (float(row[1]), said[row[0]])] for row in rows]
    assert np.abs(np.diff(scores, axis=1)).max() <= 2.5 / 16
    assert len(set(said.values())) > 4
    assert predicting.known(name, tmp_path)[1:] == rows, "the same however often it is asked"
