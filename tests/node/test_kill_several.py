"""Four real nodes of one job, each killed (-9) at places spread over the whole of it: it ends as if nothing had been."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from tests.node.killed_jobs import KilledJobs
from tests.node.several import PASSIVE, SeveralTrial

ROLES = {"clinic": "active"} | dict.fromkeys(PASSIVE, "passive")
PLACES = 20
"""For each party: so many parts of a run, of which each has one death in its middle."""

ALIGN = "align: {protocol: psi}\n"
TRAIN = """\
align: {protocol: psu}
train: {bottom: [4], active_bottom: [4], top: [4], epochs: 2, batch_size: 64}
evaluate: {test_fraction: 0.3}
"""


def killed(four: KilledJobs, text: str, victim: str, part: int) -> None:
    """``victim`` dies in the middle of this part of the job."""
    places = four.clean(text)[1][victim]
    four.killed(text, victim, (2 * part + 1) * len(places) // (2 * PLACES) + 1)


@pytest.fixture(scope="module")
def four(federations: Any, forked: Any, several: SeveralTrial, tmp_path_factory: pytest.TempPathFactory) -> KilledJobs:
    return KilledJobs(federations(tmp_path_factory.mktemp("four"), ROLES, several), forked)


def test_killed_in_an_alignment(four: KilledJobs) -> None:
    killed(four, ALIGN, "insurer", PLACES // 2)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PLACES))
@pytest.mark.parametrize("victim", ROLES)
def test_killed_anywhere(four: KilledJobs, victim: str, part: int) -> None:
    """Alignment by union, and training."""
    killed(four, TRAIN, victim, part)


@pytest.mark.slow
def test_two_killed_at_once(four: KilledJobs) -> None:
    expected, places = four.clean(TRAIN)
    numbers = {name: len(places[name]) // 2 for name in ("lab", "shop")}
    job_id = four.submit(TRAIN, **numbers)
    for name in numbers:
        assert four.federation.processes[name].wait(240) == -signal.SIGKILL
    for name in numbers:
        four.federation.start(name)
    assert four.outcome(job_id) == expected
