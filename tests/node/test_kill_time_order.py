"""Real nodes that hold out the last rows, killed (-9) around the message that names them: it ends as if nothing had been."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.node.killed_jobs import KilledJobs
from tests.node.several import SeveralTrial

ROLES = {"clinic": "active", "lab": "passive", "insurer": "passive"}
TRAIN = """\
parties: {active: clinic, passive: [lab, insurer]}
align: {protocol: psi}
train: {bottom: [4], active_bottom: [4], top: [4], epochs: 2, batch_size: 16}
evaluate: {hold_out: {last: 0.3}, validation_fraction: 0.1}
"""


@pytest.fixture(scope="module")
def nodes(
    federations: Callable[..., Any], forked: Any, several: SeveralTrial, tmp_path_factory: pytest.TempPathFactory
) -> KilledJobs:
    ordered = {"clinic": {"data": {"path": str(several.files["clinic"]), "order": "measure-05", "group": "measure-04"}}}
    return KilledJobs(federations(tmp_path_factory.mktemp("ordered"), ROLES, several), forked, ordered)


@pytest.mark.parametrize("victim", [pytest.param("clinic", marks=pytest.mark.slow), "lab"])
@pytest.mark.parametrize("after", [0, *(pytest.param(of, marks=pytest.mark.slow) for of in (-1, 4))])
def test_killed(nodes: KilledJobs, victim: str, after: int) -> None:
    """So many places after the rows are named, or are known."""
    places = nodes.clean(TRAIN)[1][victim]
    nodes.killed(TRAIN, victim, places.index("held-out") + 1 + after)


def test_the_reports_say_it(nodes: KilledJobs) -> None:
    reports = {name: report for name, (report, _) in nodes.clean(TRAIN)[0].items()}
    for name, report in reports.items():
        rows = report["training"]["rows"]
        told = {
            of: [entry for entry in entries if entry["what"] == "held-out rows"] for of, entries in report["learnt"].items()
        }
        assert told["clinic"] == []
        for passive in ("lab", "insurer"):
            assert [entry["count"] for entry in told[passive]] == [rows["test"] + rows["validation"]], (name, passive)
    assert reports["clinic"]["metrics"]["held_out"]
    assert not any("measure-05" in str(report) or "measure-04" in str(report) for report in reports.values())
