"""Real nodes with a coordinator that deals wrong numbers: both data parties are told, and what to do."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import pytest
import spoiling_node

JOB = """\
parties: {active: clinic, passive: [lab], coordinator: notary}
align: {protocol: psu}
train: {algorithm: hidden, epochs: 40, dealer_audit: AUDIT, shared_fraction: 0.5}
evaluate: {test_fraction: 0.3, metrics: [auc]}
"""
WRONG = "numbers that notary dealt for training are wrong"


@pytest.fixture(scope="module")
def nodes(federations: Any, forked: Any, several: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    roles = {"clinic": "active", "lab": "passive", "notary": "coordinator"}
    made = federations(tmp_path_factory.mktemp("spoilt"), roles, several)
    made.programs["notary"] = partial(forked, spoiling_node.run, made.folder / "victim", dict(os.environ))
    for name in roles:
        made.configure(name)
    made.start_several()
    made.wait_until(lambda: all(map(made.connected, roles)))
    return made


@pytest.mark.parametrize(
    ("place", "finder", "other"), [(0, "clinic", "lab"), pytest.param(1, "lab", "clinic", marks=pytest.mark.slow)]
)
def test_a_wrong_number_ends_the_job_at_all(nodes: Any, place: int, finder: str, other: str) -> None:
    (nodes.folder / "victim").write_text(str(place))
    job_id = nodes.submit(JOB.replace("AUDIT", "0.3"))
    views = {name: nodes.end(name, job_id) for name in (finder, other, "notary")}
    assert {view["state"] for view in views.values()} == {"failed"}
    error = views[finder]["error"]
    assert error["code"] == "E_DEALER"
    assert "of epoch" in error["message"]
    assert "another coordinator" in error["hint"]
    for name in (other, "notary"):
        assert f"{WRONG}: submit a new job with another coordinator (E_DEALER)" in views[name]["error"]["message"]


def test_without_a_check_it_is_not_noticed(nodes: Any) -> None:
    (nodes.folder / "victim").write_text("0")
    job_id = nodes.submit(JOB.replace("AUDIT", "0"))
    for name in ("clinic", "lab", "notary"):
        assert nodes.end(name, job_id)["state"] == "done"
