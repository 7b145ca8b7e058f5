"""Two real nodes that train in shares without a coordinator: each may be killed (-9) anywhere, with the same end.

The ones that `make test` leaves out take about a minute::

    python -m pytest tests/node/test_kill_paired.py -m slow
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tests.crypto.lattice.variants import compiled
from tests.node.killed_jobs import KilledJobs
from tests.node.several import SeveralTrial

pytestmark = compiled

PLACES = 12
"""For each party: so many parts of a run, of which each has one death in its middle."""

TEXT = """\
parties: {active: clinic, passive: [lab]}
align: {protocol: psu}
train: {algorithm: hidden, randomness: parties, epsilon: 100, epochs: 3, reveal: owners, shared_fraction: 0.5}
evaluate: {test_fraction: 0.3, metrics: [auc, nll, accuracy], epsilon: 100}
"""
BATCHES = TEXT.replace(
    "epsilon: 100, epochs: 3, reveal: owners", "epsilon: null, epochs: 4, batch_size: 16, loss: taylor, reveal: none"
)
"""With several steps an epoch, and so with more sections that are made ahead; weights of several such jobs would be counted."""

ALLOWED = {"budgets": {"epsilon": None, "trainings": None}, "unbounded_models": "any"}
OF_AN_ATTEMPT = ("rounds", "phases", "most_ahead")
"""Of a report's section: of the attempt that ended the job."""


class Nodes(KilledJobs):
    """As its base, with reports compared without what depends on attempts, which :attr:`figures` has."""

    figures: dict[str, Any]

    def outcome(self, job_id: str) -> dict[str, Any]:
        left, self.figures = super().outcome(job_id), {}
        for name, (report, _) in left.items():
            section = report["training"]["hidden"]
            self.figures[name] = {key: section.pop(key) for key in OF_AN_ATTEMPT}
            whole = self.federation.report(name, job_id)["training"]["hidden"]
            self.figures[name]["bytes"] = whole["bytes"], {phase: of["bytes"] for phase, of in whole["phases"].items()}
        return left

    def phase(self, job: str, victim: str, phase: str) -> int:
        """The number of a place in the middle of a phase, from 1."""
        places = self.clean(job)[1][victim]

        def bounds(name: str) -> tuple[int, int]:
            return places.index(name), len(places) - 1 - places[::-1].index(name)

        (first, last), (begins, ends), (update, done) = bounds("columns"), bounds("made-ahead"), bounds("checkpointed")
        between = {
            "columns": (first, last),
            "made-ahead": (begins, ends),
            "epoch": (update, done),
            "measure": (done, places.index("evaluate")),
        }[phase]
        return sum(between) // 2 + 1


@pytest.fixture(scope="module")
def nodes(federations: Any, forked: Any, several: SeveralTrial, tmp_path_factory: pytest.TempPathFactory) -> Nodes:
    federation = federations(tmp_path_factory.mktemp("paired"), {"clinic": "active", "lab": "passive"}, several)
    return Nodes(federation, forked, {name: {"everyone": ALLOWED} for name in ("clinic", "lab")})


def test_two_nodes_train_without_a_third(nodes: Nodes) -> None:
    left, places = nodes.clean(TEXT)
    (active, weights), (passive, of_lab) = left["clinic"], left["lab"]
    assert 0.8 < active["metrics"]["auc"] <= 1
    assert passive["metrics"]["auc"] is None
    shares = {f"share {index}" for index in range(2)}
    assert set(weights) == {"weight", "bias"} | shares
    assert set(of_lab) == {"weight"} | shares
    assert set(active["learnt"]) == {"clinic", "lab"}
    for name in ("clinic", "lab"):
        assert places[name].count("checkpointed") == 3
        assert places[name].count("columns") > 1
        assert places[name].count("made-ahead") == 4  # each epoch, and measuring
        assert places[name].index("columns") < places[name].index("made-ahead") < places[name].index("checkpointed")


CASES = [(victim, phase) for victim in ("clinic", "lab") for phase in ("columns", "made-ahead", "epoch", "measure")]
SOME = [("lab", "columns"), ("clinic", "made-ahead")]


@pytest.mark.parametrize(
    ("victim", "phase"), [*SOME, *(pytest.param(*of, marks=pytest.mark.slow) for of in CASES if of not in SOME)]
)
def test_killed_in_a_phase(nodes: Nodes, victim: str, phase: str) -> None:
    number = nodes.phase(TEXT, victim, phase)
    nodes.outcome(nodes.submit(TEXT))
    undisturbed = nodes.figures
    nodes.killed(TEXT, victim, number)
    if phase == "columns":  # nothing was kept, and all of it came once more
        assert nodes.figures == undisturbed
        return
    (_, before), (_, after) = (of["clinic"]["bytes"] for of in (undisturbed, nodes.figures))
    assert after["offline"] < before["offline"]  # what both had made was not made again
    assert (after["setup"] == before["setup"]) == (phase == "made-ahead")  # and once all was, columns were not sent either
    assert (after["online"] == before["online"]) == (phase == "made-ahead")


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["clinic", "lab"])
@pytest.mark.parametrize("phase", ["made-ahead", "epoch"])
def test_killed_in_a_step_of_several(nodes: Nodes, victim: str, phase: str) -> None:
    nodes.killed(BATCHES, victim, nodes.phase(BATCHES, victim, phase))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PLACES))
@pytest.mark.parametrize("victim", ["clinic", "lab"])
def test_killed_anywhere(nodes: Nodes, victim: str, part: int) -> None:
    bounds = [part * len(nodes.clean(TEXT)[1][victim]) // PLACES for part in range(PLACES + 1)]
    nodes.killed(TEXT, victim, sum(list(pairwise(bounds))[part]) // 2 + 1)


@pytest.mark.slow
def test_both_killed_at_once(nodes: Nodes) -> None:
    expected, _ = nodes.clean(TEXT)
    job_id = nodes.submit(TEXT, lab=nodes.phase(TEXT, "lab", "epoch"))
    nodes.federation.dies_in("lab", job_id)
    nodes.federation.kill("clinic")
    for name in ("clinic", "lab"):
        nodes.federation.start(name)
    assert nodes.outcome(job_id) == expected
