"""Real nodes that train in shares with a coordinator: each may be killed (-9) anywhere, and all end with the same bytes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tests.node.killed_jobs import KilledJobs
from tests.node.several import SeveralTrial

TWO = ("lab",)
THREE = ("lab", "insurer")
PLACES = 12
"""For each party: so many parts of a run, of which each has one death in its middle."""

TEXT = """\
parties: {{active: clinic, passive: [{passive}], coordinator: notary}}
align: {{protocol: psu}}
train: {{algorithm: hidden, hidden: [3], epochs: 3, batch_size: 32, learning_rate: 0.3, shared_fraction: 0.5}}
evaluate: {{test_fraction: 0.3, metrics: [auc, nll, accuracy]}}
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
            for key in TOLD:
                report["training"]["hidden"].pop(key)
        return left

    def phase(self, job: str, victim: str, phase: str) -> int:
        """The number of a place in the middle of a phase."""
        places = self.clean(job)[1][victim]
        end = "dealt" if victim == "notary" else "updated"
        first, last = places.index(end), len(places) - 1 - places[::-1].index(end)
        begins = places.index("batches") if victim == "notary" else places.index("toss")
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
    assert set(weights) == {"weight", "bias", "layer 0", "layer 1"}
    assert set(of_lab) == {"weight"}
    assert nothing == {}
    assert hub["metrics"] is None
    assert [entry["what"] for entry in hub["learnt"]["notary"]] == ["shapes"]
    assert len(active["training"]["epochs"]) == 3
    assert places["clinic"].count("checkpointed") == places["lab"].count("checkpointed") == 3
    assert places["notary"].count("dealt") == 6


CASES = [(victim, phase) for victim in ("clinic", "lab", "notary") for phase in ("setup", "epoch", "measure")]
SOME = [("lab", "setup"), ("notary", "epoch"), ("clinic", "measure")]


@pytest.mark.parametrize(
    ("victim", "phase"), [*SOME, *(pytest.param(*of, marks=pytest.mark.slow) for of in CASES if of not in SOME)]
)
def test_killed_in_a_phase(nodes: Nodes, victim: str, phase: str) -> None:
    nodes.killed(text(TWO), victim, nodes.phase(text(TWO), victim, phase))


@pytest.mark.parametrize("victim", ["lab", *(pytest.param(of, marks=pytest.mark.slow) for of in ("clinic", "notary"))])
@pytest.mark.parametrize("phase", ["epoch", pytest.param("setup", marks=pytest.mark.slow)])
def test_killed_where_the_coordinator_is_checked(nodes: Nodes, victim: str, phase: str) -> None:
    job = text(TWO).replace("epochs: 3", "epochs: 3, dealer_audit: 0.3")
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
    job = text(TWO).replace("hidden: [3]", f"hidden: [3], reveal: {reveal}")
    expected, _ = nodes.clean(job)
    job_id = nodes.submit(job, lab=nodes.phase(job, "lab", "epoch"))
    nodes.federation.dies_in("lab", job_id)
    for name in ("clinic", "notary"):
        nodes.federation.kill(name)
    for name in ("clinic", "lab", "notary"):
        nodes.federation.start(name)
    assert nodes.outcome(job_id) == expected
