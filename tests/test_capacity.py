"""The capacity page is what its figures give, and an estimate counts what its jobs compute."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from benchmarks.capacity import CORES, DATA, KINDS, LINKS, SIZES, TRAINERS, JobKind, figures
from benchmarks.capacity_page import FIGURES, GATE, WITHIN, errors, page, share_within
from vfl_node.estimate.machine import Machine
from vfl_node.job import Job
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.job.costs import Operations, Passes

PAGE = DATA.with_suffix(".md")
ONE_A_POWER = Machine(cores=2, hash_s=0, power_s=1, decode_s=0, find_s=0, sha256_s=0, disk_bytes_per_s=1e15)


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    return json.loads(DATA.read_text())


def test_the_page_is_that_of_its_figures(data: dict[str, Any]) -> None:
    assert PAGE.read_text() == page(data)


def test_there_is_a_figure_for_each_kind_and_size_and_a_tenth_is_measured(data: dict[str, Any]) -> None:
    def key(cell: dict[str, Any]) -> tuple[Any, ...]:
        return cell["protocol"], cell["trainer"], cell["passive"], cell["rows"]

    cells, measured = [key(cell) for cell in data["cells"]], [key(job) for job in data["measured"]]
    assert cells == [(kind.protocol, kind.trainer, kind.passive, rows) for kind in KINDS for rows in SIZES]
    assert set(measured) == {(kind.protocol, kind.trainer, kind.passive, rows) for kind in KINDS for rows in kind.measured}
    assert len(measured) >= len(cells) / 10
    assert data["jobs"] == TRAINERS
    assert all(len(cell[f"{link}_wall_s"]) == len(CORES) for cell in data["cells"] for link in LINKS)
    for cell in data["cells"]:
        assert cell["slow_wall_s"] == sorted(cell["slow_wall_s"], reverse=True)  # more cores are never slower
        assert cell["fast_wall_s"] <= cell["slow_wall_s"]


def test_the_page_names_nothing_that_is_not_in_the_data(data: dict[str, Any]) -> None:
    known = {cell["protocol"] for cell in data["cells"]} | {cell["trainer"] or "–" for cell in data["cells"]}
    named = set(re.findall(r"^\| ([a-z][a-z-]*) \|", PAGE.read_text(), re.MULTILINE)) - {
        "protocol",
        "what",
        "ledger",
        "reports",
        "all",
    }
    assert named == {cell["protocol"] for cell in data["cells"]}
    assert named <= set(ALIGNMENTS)
    assert {kind.trainer or "–" for kind in KINDS} <= known


def test_the_page_says_how_many_measured_jobs_are_estimated_well(data: dict[str, Any]) -> None:
    off = errors(data, "cpu_s")
    good, text = sum(abs(error) <= WITHIN for error in off), " ".join(PAGE.read_text().split())
    assert share_within(data, "cpu_s") == good / len(off)
    assert f"{good} of {len(off)} are" in text
    assert ("It is met" in text) == (good / len(off) >= GATE)
    worse = json.loads(json.dumps(data))
    for job in worse["measured"]:
        job["measured"]["cpu_s"] *= 3
    assert "It is missed: 0 of" in " ".join(page(worse).split())


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.protocol}-{kind.trainer}-{kind.passive}")
def test_each_kind_has_an_estimate_that_counts_what_training_computes(kind: JobKind) -> None:
    job = Job.model_validate(kind.job())

    def pace(work: Passes | Operations) -> float:
        return work.rows if isinstance(work, Passes) else work.count

    small, large = (figures(kind, rows, ONE_A_POWER, pace) for rows in (1000, 2000))
    assert set(small) == set(FIGURES)
    assert all(small[name] < large[name] for name in FIGURES)
    if job.train:
        alone = figures(JobKind(kind.protocol, "", kind.passive), 1000, ONE_A_POWER, None)
        assert small["cpu_s"] > alone["cpu_s"] + 1000


def test_encryptions_are_counted_as_they_are_sent() -> None:
    """Two iterations over 70 of 100 rows, a ciphertext for each; six columns of the receiver."""
    text = JobKind("psi", "logistic", 1).job()
    text["train"] = {"algorithm": "logistic", "iterations": 2}
    job = Job.model_validate(text)
    assert job.train
    plan = job.train.make_plan(1, job.beside.__class__(columns=(4, 6)))
    found = plan.computing(job.evaluate, 100, "psi", {"active": 100, "passive": 100})
    assert found
    counts = {(work.at, work.kind): work.count for work in found.work if isinstance(work, Operations) and work.count}
    assert counts == {
        ("active", "key"): 1,
        ("active", "own encryption"): 140,
        ("passive", "check"): 140,
        ("passive", "entry"): 840,
    }


def test_rows_through_the_networks_of_split_training() -> None:
    text = JobKind("psu", "split", 2).job()
    text["train"] = {"bottom": [8], "active_bottom": [4], "top": [5], "epochs": 3, "batch_size": 10}
    job = Job.model_validate(text)
    assert job.train
    found = job.train.make_plan(2).computing(job.evaluate, 100, "psu", {"active": 130})
    assert found
    learnt = [(work.at, work.network.dense, work.rows) for work in found.work if isinstance(work, Passes) and work.learns]
    assert learnt == [("active", (4 + 2 * 8, 5, 1), 210), ("active", (4, 5, 1), 390), ("passive", (), 210)]
    counts = {(work.at, work.kind): work.count for work in found.work if isinstance(work, Operations)}
    assert counts[("active", "message")] == 2 * counts[("passive", "message")] == 2 * 2 * 3 * 7
    assert counts[("passive", "joint attack")] == 1  # rows that one party lacks are made up
