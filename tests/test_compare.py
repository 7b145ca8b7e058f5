"""Runs side by side: which differences have an interval, and which run is chosen."""

from __future__ import annotations

from typing import Any

import pytest

from tests.compared_runs import HIGH, LOW, SOME, a_report
from vfl_node.api import run
from vfl_node.errors import UsageError
from vfl_node.report.choice import choose, describe_rows
from vfl_node.report.compare import Runs, compare_reports, name_runs
from vfl_node.report.side_by_side import equal_settings, parts
from vfl_node.training.intervals import repeats_interval

JOB: dict[str, Any] = {
    "train": {"bottom": [4], "active_bottom": [4], "top": [4], "epochs": 1, "batch_size": 64},
    "align": {"protocol": "psi"},
    "evaluate": {"test_fraction": 0.3, "repeats": 2},
}


def compared(**reports: dict[str, Any]) -> Runs:
    return compare_reports(reports)


def cells(runs: Runs, part: str, line: str) -> list[str]:
    """What the table says of each run."""
    (found,) = [row for one in parts(runs) if one.title == part for row in one.lines if line in (row.title, row.code)]
    return [cell.words for cell in found.cells]


# Which rows are the same.


def held_out(trial: Any, train: dict[str, Any]) -> tuple[dict[str, Any], set[str]]:
    """The report of a run with a seed, and the ids that its first split held out."""
    job = JOB | {"train": JOB["train"] | train}
    result = run(job, active=trial.clinic, passive=trial.lab, seed=1, predictions=True, progress=False)
    rows = result.predictions.to_pandas()
    return result.report.figures, set(rows[rows["rows"] == "held_out"]["id"])


def test_rows_are_the_same_exactly_where_the_same_ids_were_held_out(trial: Any) -> None:
    first, ids = held_out(trial, {})
    for same, train in ((True, {"epochs": 2}), (False, {"seed": 5})):
        report, others = held_out(trial, train)
        assert (others == ids) is same
        second = compared(first=first, second=report).runs[1]
        assert second.same_rows is same
        assert set(second.differences) == ({"auc", "ace", "nll", "accuracy"} if same else set())


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({}, True),
        ({"epochs": 9}, True),
        ({"seed": 3}, False),
        ({"seeded": False}, False),  # two jobs of nodes: each draws its own rows
        ({"job_id": "trial-2"}, False),  # another seed
        ({"constant": 0.61}, False),  # another table
        ({"population": "common"}, False),
        ({"auc": (0.9, 0.8)}, False),  # another number of splits
    ],
)
def test_what_cannot_be_known_to_be_the_same_is_other_rows(changes: dict[str, Any], same: bool) -> None:
    runs = compared(a=a_report(seeded=True), b=a_report(**({"seeded": True} | changes)))
    assert runs.runs[1].same_rows is same
    assert (describe_rows(runs) is None) is same
    against = {cell for part in parts(runs) if part.title == "Against “a”" for line in part.lines for cell in line.cells}
    assert any(cell.tag == "other rows" for cell in against) is not same


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({}, True),
        ({"epochs": 9}, True),
        ({"split": "cd"}, False),  # over another alignment
        ({"split": None}, False),  # of an earlier version, which does not say it
        ({"seed": 3}, False),
        ({"constant": 0.61}, False),
        ({"auc": (0.9, 0.8)}, False),
    ],
)
def test_jobs_of_nodes_over_one_alignment_met_the_same_rows(changes: dict[str, Any], same: bool) -> None:
    second = a_report(**({"split": "ab", "reuse": "trial-1", "job_id": "trial-2"} | changes))
    runs = compared(a=a_report(split="ab"), b=second)
    assert runs.runs[1].same_rows is same
    assert (describe_rows(runs) is None) is same


def test_without_a_figure_of_the_rows_alone_nothing_is_known() -> None:
    report = a_report(seeded=True)
    report["metrics"]["constant_nll"] = None
    assert not compared(a=report, b=report).runs[1].same_rows
    report["metrics"]["constant_nll"] = 0.6  # control: with one it is
    assert compared(a=report, b=report).runs[1].same_rows


def test_a_paired_interval_is_that_of_the_differences_split_by_split() -> None:
    first, second = (0.90, 0.92, 0.91), (0.93, 0.95, 0.941)
    runs = compared(a=a_report(seeded=True, auc=first), b=a_report(seeded=True, auc=second))
    found = runs.runs[1].differences["auc"]
    each = [b - a for a, b in zip(first, second, strict=True)]
    expected = repeats_interval(each, 160, 40, lowest=-1, highest=1)
    assert (found.value, found.low, found.high) == (expected["mean"], expected["low"], expected["high"])
    assert found.change == "better"
    assert cells(runs, "Against “a”", "AUC")[1].startswith("+0.030 better (+0.028 to")


def test_one_split_gives_a_difference_without_an_interval() -> None:
    runs = compared(a=a_report(seeded=True, auc=(0.9,)), b=a_report(seeded=True, auc=(0.95,)))
    found = runs.runs[1].differences["auc"]
    assert (round(found.value, 9), found.low, found.change) == (0.05, None, None)
    assert cells(runs, "Against “a”", "AUC")[1] == "+0.050 no interval"


# The table.


def test_settings_that_differ_are_told_from_those_that_are_equal() -> None:
    own = a_report(epochs=9, optimizer="adam")
    own["training"]["split"]["defences"] = [{"name": "noise", "sigma": 0.1}]
    runs = compared(a=a_report(), b=own)
    assert cells(runs, "Settings that differ", "train.epochs") == ["2", "9"]
    assert cells(runs, "Settings that differ", "defences") == ["none", "noise 0.1"]
    assert {"train.epochs", "name"}.isdisjoint(dict(equal_settings(runs)))
    assert dict(equal_settings(runs))["parties.passive"] == "lab"


def test_a_key_has_its_name_of_today() -> None:
    report = a_report()
    report["job"]["spec"]["evaluate"]["split"] = report["job"]["spec"]["evaluate"].pop("hold_out", None)  # its first name
    assert "evaluate.hold_out" in dict(equal_settings(compared(a=report, b=report)))


def test_the_table_has_leaks_and_cost_of_each_run() -> None:
    runs = compared(a=a_report(labels=HIGH), b=a_report(labels=LOW, sent=2_000_000))
    assert cells(runs, "What others could tell", "Labels") == ["high 0.99 (clusters)", "low (no row is sent in the open)"]
    assert cells(runs, "Cost", "Sent and received") == ["2 kB", "4 MB"]
    assert cells(runs, "Cost", "Took") == ["90 s", "90 s"]
    assert cells(runs, "Against clinic alone", "AUC")[0].startswith("+0.030 better (+0.010 to +0.050)")
    assert runs.runs[0].losses == ((1, 0.5), (3, 0.25))


def test_a_model_alone_that_met_other_rows_is_not_compared() -> None:
    report = a_report()
    report["local_metrics"]["rows"] = 39
    assert cells(compared(a=report, b=a_report()), "Against clinic alone", "AUC")[0] == "other rows"


# The choice.

WORSE, UNCLEAR = (-0.05, -0.01), (-0.02, 0.03)


@pytest.mark.parametrize(
    ("runs", "chosen", "words"),
    [
        # among equals the one that tells less, whatever its figure
        (
            {"a": {"auc": (0.99, 0.99)}, "b": {"labels": SOME}},
            "b",
            "clearly better than clinic alone in AUC, and of such runs it tells",
        ),
        # then the one that sends least
        ({"a": {"sent": 9}, "b": {"sent": 8}}, "b", "and of those that tell others least it sends the fewest bytes"),
        # what tells nothing but is not shown to help does not come before what helps
        ({"a": {"labels": LOW, "gain": UNCLEAR}, "b": {}}, "b", "it is the only one of which that is shown"),
        ({"a": {"labels": LOW, "gain": WORSE}, "b": {"gain": UNCLEAR}}, "b", "If any, choose “b”: no run is clearly better"),
        ({"a": {"gain": UNCLEAR}, "b": {"gain": UNCLEAR, "labels": LOW}}, "b", "and it tells others least"),
        ({"a": {"gain": None}, "b": {"gain": None, "labels": LOW}}, "b", "If any, choose “b”"),
        ({"a": {"gain": WORSE}, "b": {"gain": WORSE}}, None, "Choose none"),
        ({"a": {"auc": None}, "b": {"auc": None}}, None, "clinic knows no metrics of them"),
        ({"a": {"auc": None, "labels": LOW}, "b": {}}, "b", "it is the only one of which that is shown"),
        # not measured counts as high
        ({"a": {"labels": {**LOW, "level": "not_measured"}}, "b": {"labels": SOME}}, "b", "tells others least"),
        # on the same rows the one that is clearly worse is out, although it tells less
        (
            {"a": {"seeded": True, "labels": LOW}, "b": {"seeded": True, "auc": (0.95, 0.97, 0.961)}},
            "b",
            "better than clinic alone in AUC, and it is the only one of which that is shown",
        ),
        # on other rows it is not
        ({"a": {"labels": LOW}, "b": {"auc": (0.95, 0.97, 0.961)}}, "a", "of such runs it tells others least"),
    ],
)
def test_the_rule_of_the_choice(runs: dict[str, dict[str, Any]], chosen: str | None, words: str) -> None:
    choice = choose(compared(**{name: a_report(**changes) for name, changes in runs.items()}))
    assert choice.run == chosen
    assert words in choice.words


def test_lower_can_be_better() -> None:
    """The best one is known by the metric's direction."""
    reports = {}
    for name, values in (("a", (0.3, 0.31, 0.32)), ("b", (0.4, 0.42, 0.41))):
        report = reports[name] = a_report(seeded=True, gain=None)
        report["metrics"] |= {"auc": None, "nll": values[1], "repeats": {"nll": list(values)}, "intervals": None}
    choice = choose(compared(**reports))
    assert (choice.run, choice.metric) == ("a", "nll")
    assert any(reason.startswith("“b” is clearly worse than “a” on the same rows (NLL +0.100, ") for reason in choice.reasons)


def test_the_reasons_say_what_the_choice_rests_on_and_why_not_the_others() -> None:
    low = a_report(auc=(0.9,), gain=UNCLEAR, labels=LOW)
    choice = choose(compared(a=a_report(), b=low, c=a_report(gain=WORSE), d=a_report(auc=None)))
    assert choice.reasons == (
        "AUC 0.910 (0.890 to 0.930) on 40 held-out rows that clinic owns, in each of 3 splits.",
        "“c” is clearly worse than clinic alone on its own rows (AUC −0.030, −0.050 to −0.010).",
        "“b” tells others less, but it is not shown to be better than clinic alone in AUC.",
        "“d” has no metrics of held-out rows here.",
    )
    choice = choose(compared(a=low, b=a_report(auc=(0.9,), gain=WORSE)))
    assert "in one split, without an interval." in choice.reasons[0]


# What is refused.


@pytest.mark.parametrize("count", [0, 1, 7])
def test_two_to_six_runs_are_compared(count: int) -> None:
    with pytest.raises(UsageError, match="two to six runs can be compared") as caught:
        compare_reports({str(number): a_report() for number in range(count)})
    assert caught.value.code == "E_REQUEST"


@pytest.mark.parametrize(
    "damage",
    [
        {"format": 5},
        {"job": {"id": "x", "name": "x", "spec": []}},
        {"job": {"id": "x", "name": "x"}},
        {"phases": {"train": {}}},
        {"training": {"rows": 3}},
        {"started": "yesterday"},
        {"meters": {"labels": {"level": "low"}}},
    ],
)
def test_what_is_no_report_ends_in_one_sentence(damage: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="second"):
        compared(first=a_report(), second=a_report() | damage)


def test_reports_of_two_parties_are_not_compared() -> None:
    with pytest.raises(UsageError, match="several parties: clinic, lab"):
        compared(a=a_report(), b=a_report() | {"party": "lab"})
    other = a_report()
    other["job"]["spec"]["parties"]["active"] = "shop"
    with pytest.raises(UsageError, match="several active parties: clinic, shop"):
        compared(a=a_report(), b=other)


def test_runs_are_called_as_their_jobs_or_as_they_were_given() -> None:
    one, two = a_report("one"), a_report("two")
    assert list(name_runs([one, two], ["x", "y"])) == ["one", "two"]
    assert list(name_runs([one, one], ["x", "y"])) == ["x", "y"]
    again = one | {"job": one["job"] | {"id": "one-2"}}
    assert list(name_runs([one, again], ["x", "y"])) == [one["job"]["id"], "one-2"]
    assert len(name_runs([one, one, one], ["a", "a", "a (2)"])) == 3
    assert list(name_runs([one, one, two], ["x", "x", "y"])) == ["x (1)", "x (2)", "y"]
