"""Nodes that learn from rows outside of the alignment, killed (-9) in each phase over mTLS: the same bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.node.killed_jobs import KilledJobs

ROLES = {"clinic": "active", "lab": "passive"}
JOB = """\
align: {align}
train: {{bottom: [4], active_bottom: [4], top: [], epochs: 3, batch_size: 8, unaligned: {method}}}
evaluate: {{test_fraction: 0.4}}
"""
PLAIN = "{protocol: psi}"
ASYMMETRIC = "{protocol: apsi, obfuscation: {fraction: 0.9}}"

METHODS = {
    "diffusion": "{method: diffusion, steps: 10, sampler_steps: 5, updates: 20}",
    "jpl": "{method: jpl, updates: 20}",
    "fedcvt": "{method: fedcvt, candidates: 8}",
    "ssl": "{method: ssl, pretrain_epochs: 2}",
    "mpd": "{method: mpd, pretrain_epochs: 2}",
    "fedhssl": "{method: fedhssl, pretrain_epochs: 2}",
}
FILLED = [("clinic", "updated", 0.2), ("clinic", "fill", 0.0), ("clinic", "local-batch", 0.5), ("lab", "forward", 0.8)]
BEFORE = [("clinic", "pretrained", 0.0), ("clinic", "pretrained", 1.0), ("lab", "pretrained", 1.0), ("clinic", "updated", 0.5)]
ESTIMATED = [("clinic", "local-batch", 0.5), ("lab", "forward", 0.6), ("clinic", "evaluate", 0.0)]
PLACES = {
    **dict.fromkeys(("diffusion", "jpl"), FILLED),
    "fedcvt": ESTIMATED,
    "ssl": BEFORE,
    "mpd": [*BEFORE, ("lab", "pretrain", 0.7), ("clinic", "pretrain", 0.4)],
    "fedhssl": [*BEFORE, ("lab", "projection", 0.7), ("clinic", "projection", 0.4)],
}
FIRST = ("diffusion", "clinic", "local-batch", 0.5)
CASES = [(method, *place) for method, places in PLACES.items() for place in places]
OVER_ASYMMETRIC = [*(("jpl", *place) for place in FILLED[1:]), ("fedcvt", *ESTIMATED[0])]


@pytest.fixture(scope="module")
def nodes(federations: Callable[..., Any], forked: Any, tmp_path_factory: pytest.TempPathFactory) -> KilledJobs:
    return started(federations, forked, tmp_path_factory)


@pytest.fixture(scope="module")
def asymmetric(federations: Callable[..., Any], forked: Any, tmp_path_factory: pytest.TempPathFactory) -> KilledJobs:
    """Other nodes, with an obfuscated set that each job takes again: the lab must not see an intersection of these records."""
    nodes = started(federations, forked, tmp_path_factory)
    nodes.clean(f"align: {ASYMMETRIC}\n")
    return nodes


def started(federations: Callable[..., Any], forked: Any, tmp_path_factory: pytest.TempPathFactory) -> KilledJobs:
    limits = {"everyone": {"unaligned": "any"}}
    return KilledJobs(federations(tmp_path_factory.mktemp("unaligned"), ROLES), forked, dict.fromkeys(ROLES, limits))


@pytest.mark.parametrize(
    ("method", "victim", "place", "share"),
    [case if case == FIRST else pytest.param(*case, marks=pytest.mark.slow) for case in CASES],
)
def test_killed(nodes: KilledJobs, method: str, victim: str, place: str, share: float) -> None:
    killed(nodes, PLAIN, method, victim, place, share)


@pytest.mark.slow
@pytest.mark.parametrize(("method", "victim", "place", "share"), OVER_ASYMMETRIC)
def test_killed_over_an_asymmetric_intersection(
    asymmetric: KilledJobs, method: str, victim: str, place: str, share: float
) -> None:
    killed(asymmetric, ASYMMETRIC, method, victim, place, share)


def killed(nodes: KilledJobs, align: str, method: str, victim: str, place: str, share: float) -> None:
    """At the passing of ``place`` that this share of all of them comes before."""
    job = JOB.format(align=align, method=METHODS[method])
    passed = [number for number, name in enumerate(nodes.clean(job)[1][victim], 1) if name == place]
    nodes.killed(job, victim, passed[round(share * (len(passed) - 1))])
