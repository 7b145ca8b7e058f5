"""The coordinator recognises texts in a public list by distances alone: no known record, no seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.linkage_lists import FIXED, NAME, encoded, lengths_told, made_up_names, mixed_up, names, recognised
from vfl_node.privacy.linkage import graph_matching


@pytest.fixture(scope="module")
def febrl(shared_data: Path) -> list[str]:
    if not (shared_data / "febrl").is_dir():
        pytest.skip("no febrl among the shared data sets")
    return names(shared_data)


@pytest.mark.data
@pytest.mark.parametrize(
    ("records", "entries", "least"), [(150, 150, 0.97), (150, 210, 0.95), (300, 600, 0.95), (500, 600, 0.95)]
)
def test_names_are_recognised_in_a_list(records: int, entries: int, least: float, febrl: list[str]) -> None:
    assert recognised(febrl, records, entries, 0) >= least


@pytest.mark.data
def test_half_of_the_records_are_enough_in_the_list(febrl: list[str]) -> None:
    assert recognised(febrl, 200, 250, 0, listed=0.5) > 0.5


@pytest.mark.data
def test_without_distances_nobody_is_recognised(febrl: list[str]) -> None:
    """Where all have as many ones nothing is left: 1 of 150 is right on average, more than 9 with probability 10⁻⁷ (Poisson).

    Otherwise ones still tell lengths, of which there are about 15, so some guesses are right.
    """
    assert recognised(febrl, 150, 150, 0, change=mixed_up) < 0.2
    assert recognised(febrl, 150, 150, 0, key=FIXED, change=mixed_up) <= 9 / 150


def test_made_up_names() -> None:
    every = made_up_names(400)
    assert recognised(every, 150, 150, 0) > 0.95
    assert recognised(every, 150, 200, 1) > 0.9
    assert recognised(every, 150, 150, 0, key=FIXED) > 0.95
    assert recognised(every, 150, 150, 0, key=FIXED, change=mixed_up) <= 9 / 150


def test_a_list_of_other_names_finds_nobody() -> None:
    """Guesses are then entries that the records are not: right ones are those that stand at the same place by chance, 1 of 150.

    Their number has mean 1: more than 9 of 150 have the probability 10⁻⁷ (Poisson).
    """
    every = np.random.default_rng(2).permutation(made_up_names(400)).tolist()
    found = graph_matching.recognise(encoded(every[:150], "records"), encoded(every[150:300], "list"))
    assert (found == np.arange(150)).sum() <= 9


def test_equal_records_have_the_same_entry_and_some_have_none() -> None:
    texts = made_up_names(40)
    filters = encoded([*texts, *texts[:5]], "records")
    found = graph_matching.recognise(filters, encoded(texts[:30], "list"))
    assert (found[:5] == found[40:]).all()
    assert (found[:40] == -1).sum() == 10
    assert len(set(found[found >= 0].tolist())) == 30


@pytest.mark.data
def test_fixed_ones_hide_lengths_and_nothing_else(febrl: list[str]) -> None:
    """A guess without ones is right within one letter for 47 %; the names are recognised as before."""
    free, fixed = (dict(lengths_told(febrl[::8], key)) for key in (NAME, FIXED))
    assert free["ones: length within one letter"] > 0.9
    assert free["length within one letter, guessed"] < 0.5
    assert not any(what.startswith("ones") for what in fixed)
    assert max(figure for what, figure in fixed.items() if what.endswith("letter")) < 0.55
    assert recognised(febrl, 150, 150, 0, key=FIXED) > 0.95
