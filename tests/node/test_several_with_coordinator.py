"""Real nodes of a job with two passive parties and a coordinator: whatever happens to one of them, all four end the job."""

from __future__ import annotations

import pytest

from tests.node.stage import Stage

ROLES = {"clinic": "active", "lab": "passive", "insurer": "passive", "notary": "coordinator"}
JOB = """\
name: trial
parties: {active: clinic, passive: [lab, insurer], coordinator: notary}
align: {protocol: psi}
train: {algorithm: logistic, flow: coordinator-open-scores}
"""
PLACES = ("in a round", "with its report")
SOME = [("notary", "with its report")]


@pytest.mark.parametrize("submitter", ["insurer", pytest.param("clinic", marks=pytest.mark.slow)])
def test_a_job_of_four(stage: Stage, submitter: str) -> None:
    job_id = stage.submit(submitter)
    stage.in_a_round(job_id)
    stage.let_it_end()
    stage.all_done(job_id)


@pytest.mark.parametrize(("victim", "place"), SOME)
def test_killed(stage: Stage, victim: str, place: str) -> None:
    stage.survives(victim, place, victim)


@pytest.mark.slow
@pytest.mark.parametrize(("victim", "place"), [(n, place) for n in ROLES for place in PLACES if (n, place) not in SOME])
def test_killed_anywhere(stage: Stage, victim: str, place: str) -> None:
    test_killed(stage, victim, place)


@pytest.mark.slow
@pytest.mark.parametrize("owner", ROLES)
def test_cancelled_by_any_owner_it_ends_at_all(stage: Stage, owner: str) -> None:
    job_id = stage.submit()
    stage.in_a_round(job_id)
    stage.federation.client(owner).cancel(job_id)
    for name in ROLES.keys() - {owner}:
        assert owner in stage.ends(job_id, **{name: "cancelled"})[name]["message"]
