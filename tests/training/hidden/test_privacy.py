"""What a report says of noise, in numbers and in words."""

from __future__ import annotations

import pytest

from vfl_node.configuration.models import parse
from vfl_node.gdp import auc_bound, epsilon_of, mu_of
from vfl_node.job import Job
from vfl_node.session.spent import Spent
from vfl_node.training.hidden.config import Hidden
from vfl_node.training.hidden.section import HiddenSection
from vfl_node.training.shares.privacy import MIXED, Privacy, privacy_of
from vfl_node.training.words import ReportedTraining


def said(
    spent: Spent,
    limit: float | None = 4,
    *,
    train: str = "epsilon: 1",
    align: str = "psu",
    columns: int = 10,
    trainings: int = 1,
) -> Privacy:
    text = f"name: t\nparties: {{active: clinic, passive: lab, coordinator: hub}}\nalign: {{protocol: {align}}}\n"
    job = parse(f"{text}train: {{algorithm: hidden, {train}}}", Job, source="job")
    return privacy_of(job, spent, limit, columns=columns, records=1000, trainings=trainings)


def test_what_a_job_spends_and_what_that_leaves_to_tell() -> None:
    spent = Spent(mu_of(2.1), about=frozenset({"psu"}))
    of = said(spent)
    assert of.text == (
        "Of 4.0 this job spends 1.0; with earlier ones 2.1. Whoever has all that was opened, and knows everything else, tells "
        "which of two records is the shared one, or the label of one, at an AUC of at most .63."
    )
    assert (of.epsilon, of.mu, of.delta, of.limit) == (epsilon_of(mu_of(1)), mu_of(1), 1e-6, 4)
    assert of.spent == pytest.approx(2.1, abs=1e-3)
    assert of.auc_bound == pytest.approx(0.6292, abs=1e-3)


@pytest.mark.parametrize(
    ("align", "protected"),
    [
        ("psi", "tells the label of one record at"),
        ("psu", "tells which of two records is the shared one, or the label of one, at"),
        ("psu, dummies: 50", "tells whether one record is shared, or its label, at"),
        ("apsi, obfuscation: {size: 100}", "tells whether one record is shared, or its label, at"),
    ],
)
def test_what_alignment_has_told_is_not_said_to_be_protected(align: str, protected: str) -> None:
    train = "epsilon: 1, metrics_by: none" if "dummies" in align else "epsilon: 1"
    assert protected in said(Spent(mu_of(1)), align=align, train=train).text


def test_without_a_limit_none_is_named() -> None:
    assert said(Spent(mu_of(1)), None).text.startswith("This job spends 1.0; with earlier ones 1.0. Whoever")


def test_a_job_without_a_bound_says_so_and_what_its_weights_tell() -> None:
    of = said(Spent(mu_of(1), 1), train="epsilon: null, reveal: owners")
    assert (of.epsilon, of.auc_bound, of.mu) == (None, None, mu_of(1))
    assert of.text == (
        "NO BOUND: by 10 columns and 1,000 shared records trained on weights without noise tell their labels at an AUC of "
        "about .56."
    )
    loud = said(Spent(mu_of(1), 1), train="epsilon: null, reveal: owners", trainings=20).text
    assert loud == loud.upper()
    assert "IN 20 TRAININGS, WEIGHTS WITHOUT NOISE TELL THEIR LABELS AT AN AUC OF ABOUT .76" in loud
    assert said(Spent(mu_of(1), 1), train="epsilon: null, reveal: none").text.startswith("NO BOUND: nothing bounds")


def test_after_a_job_without_a_bound_there_is_none() -> None:
    of = said(Spent(mu_of(2), unbounded=1))
    assert (of.auc_bound, of.epsilon) == (None, epsilon_of(mu_of(1)))
    assert "NO BOUND: an earlier job over this table opened a model without one." in of.text


@pytest.mark.parametrize("others", [{"apsi"}, {"psu-scaled"}, {"psi", "psu"}, {"-"}])
def test_jobs_about_different_things_have_no_sentence_together(others: set[str]) -> None:
    """The negative control is the first test: of one kind all jobs are in one sentence."""
    of = said(Spent(mu_of(2.1), about=frozenset({"psu"} | others)))
    assert "all that this job opened" in of.text
    assert of.text.endswith(MIXED)
    assert of.auc_bound == auc_bound(mu_of(1))
    assert of.spent == pytest.approx(2.1, abs=1e-3)


def test_the_page_says_it_below_the_result() -> None:
    privacy = said(Spent(mu_of(1)))
    of = ReportedTraining(
        train=Hidden(algorithm="hidden"),
        party="lab",
        role="passive",
        peer="clinic",
        active="clinic",
        passive="lab",
        coordinator="hub",
        epochs=1,
        steps=1,
        repeats=1,
    )
    assert HiddenSection(rounds=1, privacy=privacy).words(of).remarks == (privacy.text,)
    assert HiddenSection(rounds=1).words(of).remarks == ()
