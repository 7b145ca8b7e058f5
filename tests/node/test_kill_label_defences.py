"""An active node with a defence of labels and a limit on their meter, killed (-9) in training: the same bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.node.killed_jobs import KilledJobs
from tests.node.revealing import make_revealing

ROLES = {"clinic": "active", "lab": "passive"}
TRAIN = """\
align: {protocol: psi}
train: {bottom: [8], active_bottom: [4], top: [4], epochs: 3, batch_size: 40, patience: 3}
evaluate: {test_fraction: 0.2, validation_fraction: 0.1}
"""
DEFENCES = {
    "marvell": {"power": 16},
    "dp": {"max_grad_norm": 0.5, "noise_multiplier": 16},
    "mixpro": {},
    "maxnorm": {},
    "isotropic": {"noise": 2},
    "randomised-labels": {"epsilon": 1},
}


@pytest.fixture(
    scope="module",
    params=[name if name == "marvell" else pytest.param(name, marks=pytest.mark.slow) for name in DEFENCES],
)
def nodes(
    request: pytest.FixtureRequest, federations: Callable[..., Any], forked: Any, tmp_path_factory: pytest.TempPathFactory
) -> KilledJobs:
    tables = make_revealing(tmp_path_factory.mktemp("revealing"))
    settings = {"defences": [{"name": request.param} | DEFENCES[request.param]], "everyone": {"attacks": {"labels": 1.0}}}
    return KilledJobs(federations(tmp_path_factory.mktemp("defended"), ROLES, tables), forked, {"clinic": settings})


@pytest.mark.parametrize(
    ("victim", "place", "share"), [("clinic", "backward", 0.6), pytest.param("lab", "updated", 0.9, marks=pytest.mark.slow)]
)
def test_killed(nodes: KilledJobs, victim: str, place: str, share: float) -> None:
    """At the passing of ``place`` that this share of all of them comes before."""
    passed = [number for number, name in enumerate(nodes.clean(TRAIN)[1][victim], 1) if name == place]
    nodes.killed(TRAIN, victim, passed[round(share * (len(passed) - 1))])


def test_only_the_active_party_has_figures_of_labels_and_its_defence(nodes: KilledJobs) -> None:
    left, _ = nodes.clean(TRAIN)
    reports = {name: report for name, (report, _) in left.items()}
    clinic, lab = (reports[name]["training"] for name in ("clinic", "lab"))
    (own,) = clinic["split"]["defences"]
    assert all(epoch["labels"]["mean_direction"] is not None for epoch in clinic["epochs"])
    assert clinic["max_label_auc"] == 1.0
    assert lab["label_audit"] == {}
    assert lab["split"]["defences"] == []
    assert f'"{own["name"]}"' not in str(reports["lab"])
