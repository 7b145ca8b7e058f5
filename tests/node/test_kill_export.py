"""Real nodes that hand halves over, killed (-9) around that: the same bytes arrive, and are kept, as if nothing had been."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.export.needs import needs_onnx
from tests.node.killed_jobs import KilledJobs
from tests.node.several import SeveralTrial

pytestmark = needs_onnx

ROLES = {"clinic": "active", "lab": "passive", "insurer": "passive"}
TRAIN = """\
parties: {active: clinic, passive: [lab, insurer]}
align: {protocol: psi}
train: {bottom: [4], active_bottom: [4], top: [4], epochs: 1, batch_size: 16}
export: {joint: active}
"""


@pytest.fixture(scope="module")
def nodes(
    federations: Callable[..., Any], forked: Any, several: SeveralTrial, tmp_path_factory: pytest.TempPathFactory
) -> KilledJobs:
    allowed = federations(tmp_path_factory.mktemp("handed"), ROLES, several)
    for name in ROLES:
        allowed.configure(name, everyone={"allow_joint_export": True})
    return KilledJobs(allowed, forked)


def test_the_receiver_has_all_halves_and_the_others_have_none(nodes: KilledJobs) -> None:
    left = {name: {key for key in kept if key.startswith("half-")} for name, (_, kept) in nodes.clean(TRAIN)[0].items()}
    assert left == {"clinic": {"half-lab.onnx", "half-insurer.onnx"}, "lab": set(), "insurer": set()}


PLACES = {
    "lab": (("half", 0), ("half", 1), ("half", 4), ("half", 12), ("keep", 0), ("kept", 0)),
    "clinic": (("halves", -2), ("halves", 0), ("keep", 0), ("kept", 0)),
}
"""Party → places, so many after the one that is named: before its half is sent, amid that, after; before halves are stored."""

QUICK = {("lab", "half", 4), ("clinic", "halves", 0)}


@pytest.mark.parametrize(
    ("victim", "place", "after"),
    [
        pytest.param(victim, place, after, marks=[] if (victim, place, after) in QUICK else pytest.mark.slow)
        for victim, places in PLACES.items()
        for place, after in places
    ],
)
def test_killed(nodes: KilledJobs, victim: str, place: str, after: int) -> None:
    passed = nodes.clean(TRAIN)[1][victim]
    nodes.killed(TRAIN, victim, passed.index(place) + 1 + after)
