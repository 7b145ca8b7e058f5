"""Keys and values of jobs of earlier versions mean the same under their names of today, and whoever writes them hears of it."""

from __future__ import annotations

import json

import pytest

from vfl_node.configuration.models import parse
from vfl_node.errors import UsageError
from vfl_node.job import Job, parse_job
from vfl_node.settings.limits import Limits

PARTIES = "name: j\nparties: {active: a, passive: b}\n"
WITH_COORDINATOR = "name: j\nparties: {active: a, passive: b, coordinator: c}\n"
HIDDEN = f"{WITH_COORDINATOR}align: {{protocol: psi}}\ntrain: {{algorithm: hidden, epsilon: null, "
LINKAGE = f"{WITH_COORDINATOR}align: {{protocol: linkage, keys: {{name: {{kind: text}}}}, noise: {{sigma: 0}}}}\n"
RENAMED = [
    (f"{HIDDEN}%s: [16]}}", "hidden", "layers"),
    (f"{PARTIES}train: {{missing: {{calibration: test, %s: labels}}}}", "calibrate", "calibration_for"),
    (f"{PARTIES}align: {{protocol: psi}}\ntrain: {{}}\nevaluate: {{%s: {{last: 0.3}}}}", "split", "hold_out"),
    (f"{PARTIES}align: {{protocol: %s}}", "psi-star", "psi-pairs"),
    (f"{LINKAGE}train: {{algorithm: %s}}", "linked", "candidates"),
    (
        f"{WITH_COORDINATOR}align: {{protocol: psi}}\ntrain: {{algorithm: logistic, flow: %s}}",
        "coordinator-clear",
        "coordinator-open-scores",
    ),
]


def read(text: str) -> Job:
    return parse(text, Job, source="job.yaml")


@pytest.mark.parametrize(("text", "earlier", "today"), RENAMED, ids=lambda value: str(value)[:12])
def test_an_earlier_name_is_read_with_a_warning(text: str, earlier: str, today: str) -> None:
    """The job is the same to the byte, so that parties with files of different age agree. Control: no warning today."""
    with pytest.warns(FutureWarning, match=f"'{earlier}' is called '{today}' now") as heard:
        ours = read(text % earlier)
    assert len(heard) == 1
    theirs = read(text % today)  # a FutureWarning of this package ends a test
    assert ours.canonical() == theirs.canonical()
    assert f'"{earlier}"' in ours.canonical()  # so its digest is that of an earlier version
    assert f'"{today}"' in json.dumps(ours.model_dump(mode="json"))  # as a page shows it
    assert ours.field_digests() == theirs.field_digests()
    assert parse_job(ours.canonical(), source="offer") == theirs


def test_both_names_at_once_are_refused() -> None:
    with pytest.raises(UsageError, match="hidden is the earlier name of layers: leave hidden out"):
        read(f"{HIDDEN}hidden: [16], layers: [16]}}")


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        ("evaluate: {split: {last: 2}}", "job.yaml:5:26: 'evaluate.split.last': 2 is not 0.9 or less", ""),
        ("evaluate: {split: {lats: 0.2}}", "unknown key 'evaluate.split.lats'", "did you mean 'last'?"),
        ("evaluate: {split: {last: 2}, repeats: 0}", "'evaluate.repeats': 0 is not 1 or more", ""),
    ],
)
@pytest.mark.filterwarnings("ignore:.* is called .* now")
def test_a_mistake_under_an_earlier_name_is_found_where_it_stands(text: str, said: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(f"{PARTIES}align: {{protocol: psi}}\ntrain: {{}}\n{text}")
    assert said in caught.value.message
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize("written", ["PSI-STAR", "psi_star", "Psi_Star"])
def test_an_earlier_name_in_capitals_is_that_of_today(written: str) -> None:
    assert read(f"{PARTIES}align: {{protocol: {written}}}").align.protocol == "psi-pairs"
    assert Limits(protocols=(written,)).protocols == ("psi-pairs",)
