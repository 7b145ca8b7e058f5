"""docs/reference/combinations.md says what a node answers, and a refused combination says what to change."""

from __future__ import annotations

import importlib
import re
from typing import Any

import pytest

from vfl_node.configuration.models import leaves, validate
from vfl_node.job import Job
from vfl_node.plans.combinations import Combination, list_combinations

OWN = list(list_combinations(own=True))
every = pytest.mark.parametrize("combination", OWN, ids=lambda combination: combination.name)


@pytest.fixture(scope="module")
def combinations() -> Any:
    """benchmarks/combinations.py."""
    return importlib.import_module("benchmarks.combinations")


def test_the_page_is_that_of_this_code(combinations: Any) -> None:
    assert combinations.PAGE.read_text() == combinations.page(), "run: make docs"


def test_the_start_page_recommends_what_this_code_does(combinations: Any) -> None:
    assert combinations.START.read_text() == combinations.start(), "run: make docs"


@pytest.mark.parametrize("passive", [1, 2, 8])
@every
def test_a_job_is_accepted_up_to_the_number_of_its_cell(combinations: Any, combination: Combination, passive: int) -> None:
    refusal = combinations.refusal(combinations.job(combination, passive))
    accepted = passive <= combinations.most_passive_parties(combination)
    assert (refusal is None) == accepted
    if refusal is not None:
        assert names_what_to_change(refusal), refusal


@every
def test_an_option_that_is_refused_names_what_to_change(combinations: Any, combination: Combination) -> None:
    for sections in combinations.OPTIONS.values():
        refusal = combinations.refusal(combinations.job(combination, **sections))
        assert refusal is None or names_what_to_change(refusal), refusal


def names_what_to_change(refusal: str) -> bool:
    """Whether it names a key or section of a job, or the passive parties."""
    keys = {name for name, _ in leaves(validate(JOB, Job, source="job"))}
    keys |= {"evaluate.hold_out", "serve", "predict", "align", "train", "passive parties"}
    return any(re.search(rf"\b{re.escape(key)}\b", refusal) for key in keys) and "Input should" not in refusal


JOB = {"name": "t", "parties": {"active": "a", "passive": "b"}, "train": {}}
