"""``evaluate.hold_out`` in a job: what it is, and where it is refused."""

from __future__ import annotations

from typing import Any

import pytest

from vfl_node.configuration.models import parse
from vfl_node.errors import UsageError
from vfl_node.job import Evaluate, Job, parse_job

PSI = "align: {protocol: psi}\n"
SPLIT = "evaluate: {hold_out: {last: 0.3}}\n"


def job(text: str) -> Job:
    return parse(f"name: j\nparties: {{active: a, passive: b}}\ntrain: {{epochs: 1}}\n{text}", Job, source="job")


def test_it_says_how_many_rows_are_held_out() -> None:
    evaluate = job(PSI + SPLIT).evaluate
    assert evaluate.hold_out is not None
    assert (evaluate.hold_out.last, evaluate.test_fraction) == (0.3, 0.3)
    assert Evaluate(hold_out={"last": 0.4}).test_fraction == 0.4  # type: ignore[arg-type]
    assert job(PSI).evaluate.hold_out is None


def test_a_peer_reads_the_same_job() -> None:
    """With all defaults written out, the share among them. Control: another share is another field."""
    ours = job(PSI + SPLIT)
    theirs = parse_job(ours.canonical(), source="offer")
    assert theirs == ours
    assert theirs.field_digests() == ours.field_digests()
    other = job(PSI + SPLIT.replace("0.3", "0.2"))
    assert other.field_digests()["evaluate.split.last"] != ours.field_digests()["evaluate.split.last"]


@pytest.mark.parametrize(
    ("evaluate", "said"),
    [
        ("{hold_out: {last: 0.3}, test_fraction: 0.2}", "leave test_fraction out"),
        ("{hold_out: {last: 0.3}, repeats: 2}", "repeats above 1 need splits that differ"),
        ("{hold_out: {last: 0.6}, validation_fraction: 0.4}", "together may be 0.9 at most"),
        ("{hold_out: {last: 0}}", "is not more than 0"),
        ("{hold_out: {last: 0.95}}", "is not 0.9 or less"),
        ("{hold_out: {}}", "'evaluate.hold_out.last' is missing"),
        ("{hold_out: {first: 0.2}}", "unknown key 'evaluate.hold_out.first'"),
        ("{hold_out: last}", "is not keys and values"),
    ],
)
def test_what_does_not_go_with_it_is_refused(evaluate: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        job(f"{PSI}evaluate: {evaluate}\n")
    assert said in refused.value.message


@pytest.mark.parametrize(
    "align",
    ["{protocol: psu}", "{protocol: psu, dummies: 10}", "{protocol: apsi, obfuscation: private}"],
)
def test_it_needs_rows_that_all_own_and_know(align: str) -> None:
    with pytest.raises(
        UsageError, match=r"evaluate.hold_out needs an alignment whose rows all parties own and know, such as psi"
    ):
        job(f"align: {align}\n{SPLIT}")


@pytest.mark.parametrize("train", ["{algorithm: logistic}", "{algorithm: linear, task: regression}"])
def test_it_needs_a_trainer_that_can(train: str) -> None:
    algorithm = train[1:-1].split(",")[0].removeprefix("algorithm: ")
    with pytest.raises(UsageError, match=f"evaluate.hold_out .* train.algorithm: {algorithm} has none for that"):
        parse(f"name: j\nparties: {{active: a, passive: b}}\ntrain: {train}\n{PSI}{SPLIT}", Job, source="job")


def test_a_job_that_only_aligns_has_nothing_to_hold_out() -> None:
    with pytest.raises(UsageError, match="the job trains none"):
        parse(f"name: j\nparties: {{active: a, passive: b}}\n{PSI}{SPLIT}", Job, source="job")


@pytest.mark.parametrize("extra", [{}, {"validation_fraction": 0.2}])
def test_validation_rows_go_with_it(extra: dict[str, Any]) -> None:
    assert Evaluate(hold_out={"last": 0.2}, **extra).validation_fraction == extra.get("validation_fraction", 0)  # type: ignore[arg-type]
