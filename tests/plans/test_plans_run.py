"""Recommended jobs run on two small tables, and their reports say that no party learnt more than the answers allow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.plans.answered import TELL_LABELS, TELL_SHARED
from vfl_node import run
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.job.training import TRAINERS
from vfl_node.plans.answers import ACTIVE, Aim, Answers, MayLearn
from vfl_node.plans.recommend import recommend

ROWS, OWN = 200, 160

HIDDEN, SEEN = True, False


def answer(aim: Aim, may: MayLearn, hide_labels: bool, *, third: bool = False, same_id: bool = True) -> Answers:
    return Answers(OWN, (OWN,), aim, may, third, same_id=same_id, hide_labels=hide_labels, shared_guess=0.75)


QUICK = {
    "split over psi": answer("binary", "both", SEEN),
    "psu without training": answer("count", "none", HIDDEN),
}

SLOW = {
    "hidden over psu": answer("binary", "none", HIDDEN, third=True),
    "hidden over apsi": answer("regression", "active", HIDDEN, third=True),
    "logistic over apsi": answer("multiclass", "active", HIDDEN),
    "logistic (flow: coordinator, loss: taylor) over psi": answer("binary", "both", HIDDEN, third=True),
    "trees over psu": answer("binary", "none", HIDDEN, third=True),
    "linear over psi": answer("regression", "both", HIDDEN),
    "linear (flow: coordinator-open-scores) over apsi": answer("regression", "active", HIDDEN, third=True),
    "split over psu": answer("regression", "both", SEEN),
    "split over apsi": answer("multiclass", "both", SEEN),
    "split over upsi": answer("binary", "both", SEEN),
    "split over psi-pairs": answer("binary", "both", SEEN),
    "candidates over linkage (comparison: shares)": answer("regression", "both", SEEN, third=True, same_id=False),
}
"""Name of a way → answers that allow it."""


def make_tables(aim: Aim) -> tuple[pa.Table, pa.Table]:
    """The tables of both parties, with 120 people in common, whose names are in both."""
    rng = np.random.default_rng(0)
    columns = {name: rng.normal(size=ROWS) for name in ("a", "b", "c", "d", "e")}
    score = columns["a"] + 2 * columns["d"] + 0.1 * rng.normal(size=ROWS)
    classes = 3 if aim == "multiclass" else 2
    label = score if aim == "regression" else np.argsort(np.argsort(score)) * classes // ROWS
    people = {"id": [f"p{row:04d}" for row in range(ROWS)], "name": [f"person number {row * 7919}" for row in range(ROWS)]}
    table = pa.table({**people, **columns, "label": label})
    return table.select(["id", "name", "a", "b", "label"])[:OWN], table.select(["id", "name", "c", "d", "e"])[ROWS - OWN :]


def check_run(way: str, answers: Answers, folder: Path) -> None:
    """Run it, and look at what the reports of all parties say that they learnt."""
    (proposal,) = (each for each in recommend(answers).fitting if each.combination.name == way)
    active, passive = make_tables(answers.aim)
    keys: dict[str, Any] = {"data": {"keys": {"name": "name"}}}
    settings = {} if answers.same_id else {"active": keys, "passive": keys}
    if answers.same_id:
        active, passive = active.drop_columns("name"), passive.drop_columns("name")
    run(proposal.document, active=active, passive=passive, settings=settings, out=folder, progress=False, seed=1)
    declared = {(each.to, each.what) for each in proposal.declared}
    for name in proposal.job.parties.all:
        report = json.loads((folder / ("" if name == ACTIVE else name) / "report.json").read_text())
        keywords = {each["what"] for each in report["learnt"][name]}
        assert keywords
        assert {(name, what) for what in keywords} <= declared
        assert name in answers.learners or not keywords & TELL_SHARED
        assert name == ACTIVE or not answers.hide_labels or not keywords & TELL_LABELS


@pytest.mark.parametrize(("way", "answers"), QUICK.items(), ids=QUICK)
def test_a_recommended_job_runs(way: str, answers: Answers, tmp_path: Path) -> None:
    check_run(way, answers, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("way", "answers"), SLOW.items(), ids=SLOW)
def test_further_recommended_jobs_run(way: str, answers: Answers, tmp_path: Path) -> None:
    check_run(way, answers, tmp_path)


def test_each_trainer_and_each_alignment_is_run() -> None:
    ways = [
        each for way, answers in (QUICK | SLOW).items() for each in recommend(answers).fitting if each.combination.name == way
    ]
    assert len(ways) == len(QUICK | SLOW)
    assert {each.combination.alignment for each in ways} >= {*ALIGNMENTS.own}, "run a way over it in SLOW"
    assert {each.combination.trainer for each in ways} >= {
        name for name, config in TRAINERS.usable(TRAINERS.own) if config.ways
    }, "run a way with it in SLOW"
