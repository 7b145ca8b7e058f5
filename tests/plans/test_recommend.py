"""What is recommended for all answers: never what tells more than they allow, by the manifest of the job itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import pytest

from tests.plans.answered import TELL_LABELS, TELL_SHARED
from vfl_node.configuration.models import validate
from vfl_node.errors import UsageError
from vfl_node.job import Job
from vfl_node.plans.answers import ACTIVE, AIMS, LEARNERS, THIRD, Answers
from vfl_node.plans.combinations import list_combinations
from vfl_node.plans.ranking import CRITERIA, LATER, explain_place
from vfl_node.plans.recommend import accepts, recommend
from vfl_node.plans.relax import refuse, relax
from vfl_node.trust.manifest import make_manifest

SIZES = ((200, (200,)), (1_000_000, (1_000_000,)), (3000, (1_000_000,)), (1000, (500, 2000)))

ALL = [
    Answers(active, passive, aim, may, third, same_id=same_id, hide_labels=hide)
    for (active, passive), aim, may, third, same_id, hide in product(
        SIZES, AIMS, LEARNERS, (True, False), (True, False), (True, False)
    )
]


ranked = cache(recommend)
"""The same answers are looked at by several tests."""


def best(**changes: Any) -> str:
    """The name of what is recommended for a million records of two parties."""
    known: dict[str, Any] = {"aim": "binary", "may_learn_shared": "both", "third_party": False, "hide_labels": True}
    return recommend(Answers(1_000_000, (1_000_000,), **{**known, **changes})).fitting[0].combination.name


def told(job: Job) -> Mapping[str, set[str]]:
    """Party → keywords, by the manifest that an owner is shown."""
    manifest = make_manifest(job, "plan-1", federation="test", submitter=ACTIVE, cards={}, trained=None)
    return {name: {each.what for each in manifest.reveals if each.to == name} for name in job.parties.all}


def test_no_way_tells_more_than_the_answers_allow() -> None:
    seen = set()
    for answers in ALL:
        for proposal in ranked(answers).fitting:
            job = validate(proposal.document, Job, source="job")
            seen.add(proposal.combination)
            for name, keywords in told(job).items():
                may = {"none": set(), "active": {ACTIVE}, "both": {*job.parties.data}}[answers.may_learn_shared]
                assert name in may or not keywords & TELL_SHARED, (answers, proposal.combination.name, name)
                assert name == ACTIVE or not answers.hide_labels or not keywords & TELL_LABELS, (answers, proposal, name)
            assert answers.third_party or job.parties.coordinator is None
            assert job.align.spec.by_similarity != answers.same_id
            assert (job.train is None) == (answers.aim == "count")
            assert job.train is None or (job.task == "regression") == (answers.aim == "regression")
    by_filters = {each for each in list_combinations(own=True) if each.spec.by_similarity and not each.align}
    without_answers = {each for each in list_combinations(own=True) if each.spec.by_similarity and not each.trainer}
    possible = {each for each in list_combinations(own=True) if accepts(each)}
    assert seen == possible - by_filters - without_answers, "the answers lead to every way but those that tell a third party"


def test_each_way_is_either_possible_or_ruled_out_in_a_sentence() -> None:
    ways = {each for each in list_combinations() if accepts(each)}
    for answers in ALL:
        found = ranked(answers)
        fitting, ruled = ({each.combination for each in some} for some in (found.fitting, found.ruled))
        assert fitting | ruled == ways
        assert not fitting & ruled
        for each in found.ruled:
            assert each.answer.split()[0] in each.why, each
            assert each.why[0].isupper()
            assert each.why.endswith(".")
            assert len(each.why.split()) <= 30
        assert [each.rank for each in found.fitting] == sorted(each.rank for each in found.fitting)


def test_whoever_allows_more_loses_no_way() -> None:
    for answers in ALL:
        ways = {each.combination for each in ranked(answers).fitting}
        for wider in (
            replace(answers, may_learn_shared=LEARNERS[min(2, LEARNERS.index(answers.may_learn_shared) + 1)]),
            replace(answers, hide_labels=False),
            replace(answers, third_party=True),
        ):
            assert ways <= {each.combination for each in ranked(wider).fitting}


def test_what_is_recommended() -> None:
    assert best() == "logistic over psi"
    assert best(hide_labels=False) == "split over psi"
    assert best(third_party=True) == "hidden over psi"
    assert best(may_learn_shared="active") == "logistic over apsi"
    assert best(may_learn_shared="active", aim="regression") == "linear over apsi"
    assert best(may_learn_shared="none", third_party=True) == "hidden over psu"
    assert best(aim="count") == "psu without training"
    similar = best(same_id=False, third_party=True, hide_labels=False)
    assert similar == "candidates over linkage (comparison: shares)"


def test_few_shared_records_are_not_trained_on_with_noise_if_there_is_another_way() -> None:
    few = Answers(1000, (1000,), "binary", "both", third_party=True)
    assert recommend(few).fitting[0].combination.name == "logistic over psi"
    proposal, trees, alone = recommend(replace(few, may_learn_shared="none")).fitting
    assert trees.combination.name == "trees over psu"
    assert "nothing bounds" in trees.warnings[0]
    assert alone.combination.name == "hidden (randomness: parties) over psu"
    assert "experimental" in alone.warnings[0]
    assert "about 200 records are shared: below about 2,000" in proposal.warnings[0]
    assert not recommend(replace(few, active=10**6, passive=(10**6,), may_learn_shared="none")).fitting[0].warnings


def test_a_regression_over_a_union_is_warned_of_with_what_was_measured() -> None:
    answers = Answers(10**6, (10**6,), "regression", "both", third_party=False, hide_labels=False)
    ways = {each.combination.name: each for each in ranked(answers).fitting}
    assert "R²" in ways["split over psu"].warnings[0]
    assert ways["split over psi"].warnings == ()
    assert "costs accuracy" in explain_place(ways["split over psu"].rank, ways["split over psi"].rank)
    assert explain_place(ways["linear over psi"].rank, ways["split over psi"].rank) == LATER
    assert all(why.endswith(".") for _, why in CRITERIA)


def test_an_obfuscated_set_is_three_times_the_smaller_one_and_never_more_than_all() -> None:
    answers = Answers(3000, (1_000_000,), "binary", "active", third_party=False)
    assert recommend(answers).fitting[0].document["align"]["obfuscation"] == {"fraction": 0.01}
    answers = replace(answers, active=10**7)
    assert recommend(answers).fitting[0].document["align"]["obfuscation"] == {"fraction": 1.0}


def test_a_hidden_training_is_told_which_part_is_shared_where_not_everybody_knows() -> None:
    answers = Answers(10_000, (100_000,), "binary", "active", third_party=True)
    ways = {each.combination.name: each for each in ranked(answers).fitting}
    assert ways["hidden over apsi"].document["train"]["shared_fraction"] == 0.1  # 1.5 · 2,000 of 30,000
    assert "shared_fraction" not in ways["hidden over psu"].document["train"]


@pytest.mark.parametrize(
    ("changes", "said", "learns"),
    [
        ({"passive": (1000, 1000)}, "--third-party yes: then hidden over psu", f"{THIRD} learns how many rows"),
        ({"may_learn_shared": "active", "same_id": False, "third_party": True, "hide_labels": False},
         "--may-learn-shared both: then candidates over linkage", "passive-party learns which records are shared"),
        ({"may_learn_shared": "both", "same_id": False, "third_party": True},
         "--hide-labels no: then candidates over linkage", "passive-party learns the label of a row"),
        ({"aim": "count", "same_id": False}, "--same-id yes: then psu without", "have to make an identifier"),
    ],
)  # fmt: skip
def test_where_nothing_fits_one_sentence_says_what_to_relax(changes: dict[str, Any], said: str, learns: str) -> None:
    answers = replace(Answers(1000, (1000,), "binary", "none", third_party=False), **changes)
    assert recommend(answers).fitting == ()
    error = refuse(answers)
    assert isinstance(error, UsageError)
    assert said in (error.hint or "")
    assert learns in (error.hint or "")


def test_what_is_relaxed_leads_to_a_way_and_no_smaller_change_does() -> None:
    for answers in ALL:
        if ranked(answers).fitting:
            continue
        found = relax(answers)
        assert found is not None
        assert found.proposal.combination == ranked(found.answers).fitting[0].combination
        fields = [name for name in vars(answers) if getattr(answers, name) != getattr(found.answers, name)]
        assert len(fields) == len(found.said)
        for name in fields:  # each of them is needed
            assert ranked(replace(found.answers, **{name: getattr(answers, name)})).fitting == ()
