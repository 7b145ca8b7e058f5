"""The first sentences of a report: whether it helped, and what others can tell."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from vfl_node.gdp import Exposure
from vfl_node.job import Job
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.job.evaluate import METRICS as METRICS_OF
from vfl_node.report import meters as meters_module
from vfl_node.report import results
from vfl_node.report.meters import Meter, Meters, level_of
from vfl_node.report.sections import Interval, Metrics
from vfl_node.report.verdict import Verdict, leaks_of, verdict_of
from vfl_node.settings.protection import Protection

BETTER, WORSE, UNCLEAR = (0.01, 0.03), (-0.03, -0.01), (-0.01, 0.03)


def a_job(*, repeats: int = 1, metrics: tuple[str, ...] = ("auc", "accuracy", "nll"), **parties: Any) -> Job:
    parties = {"active": "clinic", "passive": "lab"} | parties
    evaluate = {"repeats": repeats, "metrics": metrics}
    return Job.model_validate({"name": "trial", "parties": parties, "train": {"epochs": 1}, "evaluate": evaluate})


def measured(*, rows: int = 152, population: str = "owned", held_out: bool = True, **values: float) -> Metrics:
    figures: dict[str, Any] = {"auc": 0.9, "accuracy": 0.8, "nll": 0.4} | values
    figures |= dict.fromkeys(("repeats", "confusion", "real_share", "intervals"))
    return Metrics(**figures, rows=rows, population=population, held_out=held_out, calibration=())


def by_gains(job: Job | None = None, *, alone: Metrics | None = None, **ends: tuple[float, float]) -> Verdict:
    """The verdict where the intervals of the differences have these ends."""
    gains = {
        name: Interval(mean=(low + high) / 2, sd=0.01, low=low, high=high, repeats=1, method="bootstrap")
        for name, (low, high) in ends.items()
    }
    alone = alone or measured()
    return verdict_of(job or a_job(), "clinic", metrics=measured(), alone=alone, gains=gains, meters=None)


@pytest.mark.parametrize(
    ("ends", "helped", "words"),
    [
        ({"auc": BETTER, "accuracy": BETTER, "nll": WORSE}, "yes", "Yes: better than clinic alone on all three measures."),
        ({"auc": BETTER, "accuracy": UNCLEAR, "nll": WORSE}, "yes", "Yes: better than clinic alone on two of three measures."),
        ({"auc": UNCLEAR, "accuracy": UNCLEAR, "nll": UNCLEAR}, "unclear", "Unclear: no measure shows a difference"),
        ({}, "unclear", "Unclear"),
        ({"auc": BETTER, "nll": BETTER}, "mixed", "Mixed: better than clinic alone on one of three measures, worse on one."),
        ({"auc": WORSE, "nll": UNCLEAR}, "no", "No: worse than clinic alone on one of three measures."),
        ({"auc": WORSE, "accuracy": WORSE, "nll": BETTER}, "no", "No: worse than clinic alone on all three measures."),
        ({"auc": (0.0, 0.02)}, "unclear", "Unclear"),  # zero is not left out
    ],
)
def test_each_outcome_by_the_direction_of_each_metric(ends: dict[str, Any], helped: str, words: str) -> None:
    verdict = by_gains(**ends)
    assert verdict.helped == helped
    assert verdict.words.startswith(words)


def test_every_metric_has_a_direction_that_its_reading_says() -> None:
    for name in (*METRICS_OF["classification"], *METRICS_OF["regression"]):
        reading = results.METRICS[name][1]
        lower = "lower is better" in reading
        assert lower or "higher is better" in reading or "1 is perfect" in reading
        assert results.change_of(name, -0.03, -0.01) == ("better" if lower else "worse")
        assert results.change_of(name, 0.01, 0.03) == ("worse" if lower else "better")


def test_the_reason_names_metrics_rows_and_splits() -> None:
    assert by_gains(a_job(repeats=10), auc=BETTER, accuracy=BETTER, nll=UNCLEAR).reason == (
        "Better: AUC and Accuracy. No clear difference: NLL. "
        "Measured on 152 held-out rows that clinic owns, in each of 10 splits."
    )


def test_a_better_boosted_tree_of_the_active_party_is_named() -> None:
    low, high = -0.03, -0.01  # federated minus tree
    gain = Interval(mean=0.02, sd=0.01, low=0.01, high=0.03, repeats=1, method="bootstrap")
    said = verdict_of(
        a_job(metrics=("auc",)),
        "clinic",
        metrics=measured(),
        alone=measured(),
        gains={"auc": gain},
        tree={"auc": gain.model_copy(update={"low": low, "high": high})},
        meters=None,
    )
    assert said.helped == "yes"
    assert said.reason.endswith("But a boosted tree of clinic alone is better in: AUC.")


def test_differences_without_a_width_say_nothing() -> None:
    assert by_gains(a_job(metrics=("accuracy",)), accuracy=(0.01, 0.01)).helped == "unclear"


@pytest.mark.parametrize(
    ("protocol", "party", "level"),
    [
        ("psi", "clinic", "open"),
        ("psi", "lab", "open"),
        ("apsi", "lab", "open"),
        ("apsi", "clinic", None),
        ("psu", "lab", None),
    ],
)
def test_membership_is_open_where_the_alignment_tells_it(protocol: str, party: str, level: str | None) -> None:
    facts = SimpleNamespace(spec=ALIGNMENTS[protocol], protocol=protocol)
    told = meters_module._told_members(facts, "active" if party == "clinic" else "passive")  # type: ignore[arg-type]
    assert (told and told.level) == level


def test_hidden_training_is_low_by_its_bound_and_not_measured_without_one() -> None:
    assert meters_module._closed(Exposure(mu=0.2), "why").level == "low"
    assert meters_module._closed(Exposure(mu=3.0), "why").level == "high"
    assert meters_module._closed(Exposure(unbounded="networks"), "why").level == "not_measured"


def test_one_measure_is_no_plural() -> None:
    assert by_gains(a_job(metrics=("auc",)), auc=BETTER).words == "Yes: better than clinic alone on the only measure."


@pytest.mark.parametrize("alone", [measured(rows=151), measured(population="common")])
def test_models_on_different_rows_are_not_compared(alone: Metrics) -> None:
    verdict = by_gains(alone=alone, auc=BETTER)
    assert (verdict.helped, verdict.changes) == ("not_comparable", {})


def test_rows_that_were_trained_on_give_no_verdict() -> None:
    trained_on = measured(held_out=False)
    verdict = verdict_of(a_job(), "clinic", metrics=trained_on, alone=trained_on, gains=None, meters=None)
    assert verdict.helped == "not_comparable"
    assert "every model looks better than it is" in verdict.reason


@pytest.mark.parametrize("metrics", [None, measured()])
def test_a_party_that_does_not_know_both_models_is_told_nothing_of_them(metrics: Metrics | None) -> None:
    verdict = verdict_of(a_job(), "lab", metrics=metrics, alone=None, gains=None, meters=None)
    assert (verdict.helped, verdict.changes) == ("not_measured", {})
    assert "clinic" not in verdict.words + verdict.reason


@pytest.mark.parametrize(("value", "level"), [(0.5, "low"), (0.599, "low"), (0.6, "some"), (0.799, "some"), (0.8, "high")])
def test_levels_begin_at_their_bounds(value: float, level: str) -> None:
    assert level_of(value) == level


def meters(**changes: Meter) -> Meters:
    quiet = Meter(level="low", value=0.51, attack="norm", knows="nothing", over=1)
    return Meters.model_validate({"labels": quiet, "membership": quiet, "columns": None} | changes)


@pytest.mark.parametrize(
    ("level", "value", "words"),
    [
        ("low", 0.55, "lab can hardly infer the labels."),
        ("some", 0.7, "lab can infer the labels in part."),
        ("high", 0.9, "lab can infer the labels well."),
        ("high", 0.96, "lab can infer the labels almost without error."),
        ("high", 1.0, "lab can read the labels."),
        ("not_measured", None, "It was not measured whether lab can infer the labels."),
    ],
)
def test_labels_in_words(level: Any, value: float | None, words: str) -> None:
    meter = Meter(level=level, value=value, attack=None if value is None else "mean_direction", knows="16 rows", over=2)
    leak = leaks_of(a_job(), "clinic", meters(labels=meter))["labels"]
    assert (leak.level, leak.words) == (level, words)
    assert (leak.advice is None) == (level in ("low", "not_measured"))
    if value is None:
        assert leak.evidence == "Not measured: no attack ran."
    else:
        assert f"is right for {100 * value:.0f} of 100 pairs of rows with different labels; guessing" in leak.evidence
        assert "(mean direction, by a peer that knows 16 rows, over 2 trainings)" in leak.evidence


def test_what_the_alignment_tells_is_open_and_says_what_would_hide_it() -> None:
    told = Meter(level="open", why="psi shows all parties which of their records are shared")
    leak = leaks_of(a_job(), "clinic", meters(membership=told))["membership"]
    assert leak.words == "lab can see which records of clinic are shared."
    assert leak.evidence == "By design: psi shows all parties which of their records are shared."
    assert "align by psu" in str(leak.advice)


@pytest.mark.parametrize(
    ("role", "secret", "words"),
    [
        ("active", "labels", "lab can read the labels: this training sends them."),
        ("passive", "columns", "clinic can read columns of lab: this training sends them."),
    ],
)
def test_what_the_training_sends_as_it_is_is_open_whatever_attacks_find(
    monkeypatch: pytest.MonkeyPatch, role: Any, secret: str, words: str
) -> None:
    """Without the trait the same figures of attacks decide."""
    job, party = a_job(), "clinic" if role == "active" else "lab"
    facts = SimpleNamespace(spec=ALIGNMENTS["psu"], protocol="psu", missing=0)
    judged = {"norm": 0.51}
    columns = {"age": {"worst": 0.1, "constant": 0.1, "attack": "linear", "known": 5}}
    audits = SimpleNamespace(labels=judged, trainings=1, features=columns, membership={}, joint=None)

    def leak() -> Any:
        found = meters_module.meters_of(job, role, facts, Protection(), SimpleNamespace(audits=audits))  # type: ignore[arg-type]
        return leaks_of(job, party, found)[secret]

    assert leak().level == "low"
    assert job.train is not None
    monkeypatch.setattr(type(job.train), "traits", replace(job.train.traits, opens=frozenset({secret})))
    assert (leak().level, leak().words) == ("open", words)
    assert leak().evidence == "By design: algorithm split sends them as they are."
    assert "use hidden training" in leak().advice


def test_columns_and_several_peers_in_words() -> None:
    worst = Meter(level="high", value=0.62, attack="linear", knows="5 rows", over=1, estimate=True)
    job = a_job(passive=["lab", "shop"])
    assert leaks_of(job, "lab", meters(columns=worst))["columns"].words == "clinic can rebuild a column of lab."
    assert "closes 62 % of the gap" in leaks_of(job, "lab", meters(columns=worst))["columns"].evidence
    assert "estimate" in leaks_of(job, "lab", meters(columns=worst))["columns"].evidence
    assert leaks_of(job, "clinic", meters())["labels"].words == "lab and shop, alone or together, can hardly infer the labels."
    assert "columns" not in leaks_of(job, "clinic", meters())
