"""An estimate in words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.estimate.plans import estimate, job, plan, training
from vfl_node.alignment.alignment import Alignment, PeerFacts
from vfl_node.estimate.words import _duration, _format_range, describe_alignment, describe_start, table
from vfl_node.job import Evaluate
from vfl_node.job.alignment import ALIGNMENTS


def test_the_table_has_lines_of_training_where_there_is_one() -> None:
    titles = [line[0] for line in table(plan(job=training()), estimate(plan(job=training())))]
    assert titles[-4:] == ["training, rows per epoch", "  in batches", "  sent by both, in all", "  at 1e+09 Mbit/s and 0 ms"]
    assert [line[0] for line in table(plan(), estimate(plan()))] == titles[:-4]


def test_two_lines_before_the_start() -> None:
    known = describe_start(training(), {"clinic": 100, "lab": 1000}, (30, 30))
    assert known == [
        "this job trains on the union: 856 rows per epoch, 18 batches, 286.6 KiB in all",
        "the intersection would take 24 rows per epoch, 1 batch, 8.4 KiB in all",
    ]
    other_way = describe_start(training("protocol: psi"), {"clinic": 100, "lab": 1000}, (30, 30))
    assert other_way[0].startswith("this job trains on the intersection: 24 rows")
    assert other_way[1].startswith("the union would take 856 rows")
    any_number = describe_start(training(), {"clinic": 100, "lab": 1000})
    assert any_number[1].startswith("the intersection would take 0 – 80 rows per epoch, 0 – 2 batches")
    asymmetric = describe_start(training("protocol: apsi, obfuscation: {size: 200}"), {"clinic": 100, "lab": 1000}, (30, 30))
    assert [line.split(" rows")[0] for line in asymmetric] == [
        "this job trains on the obfuscated set: 160",
        "the intersection would take 24",
    ]
    assert describe_start(job(), {"clinic": 100, "lab": 1000}, (30, 30)) == []


def test_a_training_that_may_stop_early_takes_so_much_at_most() -> None:
    validated = training().model_copy(update={"evaluate": Evaluate(validation_fraction=0.2)})
    own, _ = describe_start(validated, {"clinic": 100, "lab": 1000}, (30, 30))
    assert own.startswith("this job trains on the union: 642 rows per epoch, 13 batches, at most ")
    assert "at most" not in describe_start(validated, {"clinic": 100})[0]  # how many rows at least, and so no most


def test_a_node_that_knows_its_own_records_only() -> None:
    union, common = describe_start(training(), {"clinic": 100})
    assert union.startswith("this job trains on the union: at least 80 rows per epoch, at least 2 batches, at least")
    assert common.startswith("the intersection would take 0 – 80 rows per epoch")
    bounded, common = describe_start(training("protocol: psu, at_most: 50"), {"lab": 1000})
    assert bounded.startswith("this job trains on the union: 40 – 80 rows per epoch")
    assert common.startswith("the intersection would take 0 – 40 rows")
    hidden = describe_start(training("protocol: apsi, obfuscation: {size: 200}"), {"clinic": 100})
    assert [line.split(":")[0].split(" 0")[0] for line in hidden] == ["the intersection would take"]


def aligned(protocol: str, rows: int, **changes: Any) -> Alignment:
    return Alignment(
        **{
            "spec": ALIGNMENTS[protocol],
            "group": "curve25519",
            "rows": np.arange(rows),
            "ours": 100,
            "peers": {"lab": PeerFacts(1000, intersection=30)},
            "union": 1070,
        }
        | changes
    )


HIDDEN = {"peers": {"lab": PeerFacts(1000)}, "union": None}


@pytest.mark.parametrize(
    ("alignment", "said"),
    [
        (
            aligned("psu", 1070),
            "training on the union: 856 rows per epoch, 18 batches, 286.6 KiB in all; "
            "the intersection would take 24 rows per epoch, 1 batch, 8.4 KiB in all",
        ),
        (aligned("psu", 1090, **HIDDEN), "; how many the intersection would take is hidden"),
        (aligned("psi", 30), "training on the intersection: 24 rows per epoch"),
        (aligned("psi", 30), "; the union would take 856 rows per epoch"),
        (aligned("psi", 30, union=None), "; how many the union would take is hidden"),
        (aligned("apsi", 200), "training on the obfuscated set: 160 rows per epoch"),
        (aligned("apsi", 200), "; the intersection would take 24 rows"),
        (aligned("apsi", 200, **HIDDEN), "; how many the intersection would take is hidden"),
    ],
)
def test_one_line_after_the_alignment(alignment: Alignment, said: str) -> None:
    assert said in describe_alignment(training(), alignment)
    assert describe_alignment(job(), alignment) == ""


def test_the_table_marks_the_job_and_fits() -> None:
    large = plan("protocol: psi", records={"clinic": 90_000_000, "lab": 100_000_000}, shared=(0, 90_000_000))
    lines = table(large, estimate(large))
    assert lines[0] == ("", "PSU", "PSI (this job)", "APSI")
    assert all(len(line) == 4 for line in lines)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    assert sum(widths) + 2 * 3 <= 100


@pytest.mark.parametrize(
    ("least", "most", "text"),
    [(0.01, 0.01, "0.1 s"), (3, 3, "3.0 s"), (3, 90, "3.0 – 90.0 s"), (90, 150, "90.0 s – 2.5 min"), (1e6, 1e6, "11.6 days")],
)
def test_ranges_in_words(least: float, most: float, text: str) -> None:
    assert _format_range(least, most, _duration) == text


def test_a_protocol_without_figures_has_a_dash_and_no_sentence() -> None:
    logistic = training("protocol: psi", "\ntrain: {algorithm: logistic}")
    lines = table(plan(job=logistic), estimate(plan(job=logistic)))
    assert [line[:3] for line in lines if line[0].startswith("training")] == [("training, rows per iteration", "–", "24")]
    assert describe_start(logistic, {"clinic": 100, "lab": 1000}, (30, 30)) == [
        "this job trains on the intersection: 24 rows per iteration, 1 batch, 545.7 KiB in all"
    ]
    assert describe_alignment(logistic, aligned("psi", 30)) == (
        "training on the intersection: 24 rows per iteration, 1 batch, 545.7 KiB in all"
    )
