"""Four real nodes and a coordinator of one regression, killed (-9) in the middle: they end it as if nothing had been."""

from __future__ import annotations

from typing import Any

import pytest

from tests.node.several import PASSIVE, SeveralTrial
from tests.node.test_kill_regression import Nodes

ROLES = {"clinic": "active"} | dict.fromkeys(PASSIVE, "passive") | {"notary": "coordinator"}


@pytest.fixture(scope="module")
def nodes(federations: Any, forked: Any, several: SeveralTrial, tmp_path_factory: pytest.TempPathFactory) -> Nodes:
    made = federations(tmp_path_factory.mktemp("regression"), ROLES, several)
    return Nodes(made, forked, PASSIVE, "{protocol: psi}")


PLACES = {
    "clinic": ("DecryptionPlan", "Encrypted 1", "IterationEnd 2", "checkpoint 1"),
    "insurer": ("DecryptionRequest 1",),
    "shop": ("Features", "DecryptionPlan", "DecryptionRequest 0", "checkpoint 3", "Scores 3", "PhaseEnd decrypt"),
    "notary": ("PaillierKey", "Decrypted 0", "Decrypted 2", "PhaseEnd stored"),
}


@pytest.mark.slow
@pytest.mark.parametrize("flow", ["coordinator", "coordinator-open-scores"])
@pytest.mark.parametrize(("victim", "place"), [(victim, place) for victim, places in PLACES.items() for place in places])
def test_killed_in_training(nodes: Nodes, flow: str, victim: str, place: str) -> None:
    nodes.survives(flow, victim, place)
