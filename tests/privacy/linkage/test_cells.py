"""The passive party locates keys of the active one from sets of candidates: nothing is done against it but to refuse all."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.linkage_privacy import SEED, Linkage, made_up
from vfl_node.privacy.linkage import cells

CHANCE_M = 10_000


def error(linkage: Linkage, rows: np.ndarray) -> float:
    guess = cells.locate(rows.astype(np.int64), linkage.points.passive, linkage.space, SEED, most=20_000)
    return linkage.points.error(guess, linkage.points.active)


@pytest.mark.parametrize(("count", "within_m"), [pytest.param(3, 2000, marks=pytest.mark.slow), (20, 800)])
def test_a_set_of_candidates_locates_a_record(count: int, within_m: float) -> None:
    linkage = Linkage(made_up(300, 80), count, 0.1)
    assert error(linkage, linkage.rows) < within_m
    rng = np.random.default_rng(0)
    assert error(linkage, rng.permuted(linkage.rows, axis=1)) == error(linkage, linkage.rows)  # the order tells nothing more
    drawn = rng.permuted(np.tile(np.arange(80), (300, 1)), axis=1)[:, :count]
    assert error(linkage, drawn) > CHANCE_M
    assert error(linkage, rng.permutation(linkage.rows)) > CHANCE_M


def test_missing_candidates_count_as_none(linkage: Linkage) -> None:
    rows = linkage.rows.copy()
    rows[:, 12:] = -1
    assert error(linkage, rows) < 1600


@pytest.mark.data
def test_flats_are_located(schools: Linkage) -> None:
    assert error(schools, schools.rows) < 400
    assert error(schools, np.random.default_rng(0).permutation(schools.rows)) > 6000
