"""The table of ways: every registered trainer and protocol is in it, and so is what each of them tells."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import get_args

import pytest

from vfl_node.job import Job
from vfl_node.job.alignment import ALIGNMENTS, AlignmentSpec
from vfl_node.job.training import TRAINERS
from vfl_node.ledger import UNDECLARED
from vfl_node.plans.answers import ACTIVE, PASSIVE, THIRD, Answers
from vfl_node.plans.combinations import Combination, job_of, list_combinations
from vfl_node.plans.meaning import MEANINGS, SECRETS, list_told
from vfl_node.plans.recommend import accepts, recommend
from vfl_node.trust.manifest import declare

SHARED = Answers(1000, (100_000,), "binary", "both", third_party=True, hide_labels=False)


def made(combination: Combination, passive: int) -> Iterator[Job]:
    """The jobs of a combination that a node accepts, one for each task."""
    names = [f"{PASSIVE}-{number}" for number in range(passive)]
    for task in combination.config.traits.tasks if combination.config else ("",):
        document = combination.document({"active": ACTIVE, "passive": names, "coordinator": THIRD}, {"task": task})
        if isinstance(job := job_of(document), Job):
            yield job


def test_each_protocol_and_trainer_has_a_row_that_runs() -> None:
    running = [combination for combination in list_combinations(own=True) if accepts(combination)]
    absent = {*ALIGNMENTS.own} - {each.alignment for each in running}
    assert not absent, f"no job aligns by {absent} here: say in `ways` of its spec which keys of `align` it needs"
    absent = {name for name, config in TRAINERS.usable(TRAINERS.own) if config.ways} - {
        each.trainer for each in running if each.trainer
    }
    assert not absent, f"no job trains by {absent} here: say in `ways` of its config which keys of `train` it needs"


@pytest.mark.parametrize("passive", [1, 3])
@pytest.mark.parametrize("combination", [*list_combinations(own=True)], ids=lambda combination: combination.name)
def test_the_table_knows_each_word_by_which_a_way_tells_something(combination: Combination, passive: int) -> None:
    for job in made(combination, passive):
        unknown = {each.what for each in declare(job, None)} - {*MEANINGS}
        assert not unknown, f"{combination.name} tells {unknown}: say in MEANINGS of vfl_node/plans/meaning.py what that tells"


def test_all_flows_of_a_trainer_are_ways() -> None:
    """A flow is who takes part, so each one tells something else."""
    for name, config in TRAINERS.usable(TRAINERS.own):
        if field := config.model_fields.get("flow"):
            flows = {way.get("flow", field.default) for way in config.ways}
            assert flows == set(get_args(field.annotation)), f"add the flow to `ways` of {name}"


@pytest.fixture
def another(monkeypatch: pytest.MonkeyPatch) -> Iterator[AlignmentSpec]:
    """A protocol that nobody has thought of here, off by default."""
    spec = replace(ALIGNMENTS["psi"], name="another", allowed_by_default=False)
    monkeypatch.setitem(ALIGNMENTS._own, "another", f"{__name__}:ANOTHER")
    monkeypatch.delitem(ALIGNMENTS.__dict__, "_places", raising=False)
    monkeypatch.setitem(ALIGNMENTS._loaded, "another", spec)
    yield spec
    ALIGNMENTS.__dict__.pop("_places", None)


@pytest.mark.usefixtures("another")
def test_a_new_protocol_is_in_the_table_at_once() -> None:
    ways = {each.combination.name: each for each in recommend(SHARED).fitting}
    assert "split over another" in ways
    assert "each owner must first allow another" in ways["split over another"].warnings[0]
    assert list(ways).index("split over another") > list(ways).index("split over psi")
    strict = recommend(replace(SHARED, may_learn_shared="active"))
    assert "split over another" in {each.combination.name for each in strict.ruled}


def test_what_does_not_say_what_it_tells_is_never_recommended(another: AlignmentSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ALIGNMENTS._loaded, "another", replace(another, reveals=""))
    ranked = recommend(SHARED)
    assert "another" not in {each.combination.alignment for each in ranked.fitting}
    (ruled,) = {each.why for each in ranked.ruled if each.combination.name == "split over another"}
    assert "does not say enough" in ruled
    (job,) = made(Combination(None, "another"), 1)
    assert {each.what for each in declare(job, None)} == {UNDECLARED}
    assert all(list_told(declare(job, None), secret).keys() == {*job.parties.all} for secret in SECRETS)
