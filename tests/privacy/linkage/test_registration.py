"""The coordinator puts records in their place by the shape of their map alone: no known record, no seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.linkage_privacy import SEED, SQUARE, Linkage, made_up, singapore
from vfl_node.job.keys import Encoding, NumberKey
from vfl_node.privacy.linkage import registration
from vfl_node.privacy.linkage.space import Floats, KeySpace

CHANCE_M = 3000
"""Maps of other places put half of the records farther off than this, whatever the direction of the axes is."""


def error(linkage: Linkage, listed: Floats, records: int = 300) -> float:
    guess = registration.locate(linkage.active[:records], listed, linkage.space)
    assert not np.isnan(guess).any()
    return linkage.points.error(guess, linkage.points.active[:records])


def elsewhere(linkage: Linkage) -> Floats:
    """As many places, spread evenly over what the job's bounds allow."""
    low, high = linkage.space.bounds.T
    return low + np.random.default_rng(0).uniform(size=(600, len(low))) * (high - low)


def test_a_list_of_other_places_in_the_same_towns_is_enough(linkage: Linkage) -> None:
    towns = made_up(2400, 80).active  # the first numbers drawn are the towns
    assert error(linkage, towns) < 1200
    assert error(linkage, elsewhere(linkage)) > CHANCE_M


def test_records_that_stand_in_the_list(linkage: Linkage) -> None:
    assert error(linkage, linkage.points.active) < 800


def test_filters_that_lie_nowhere_find_nothing(linkage: Linkage) -> None:
    """Each axis' bits of another record: the map has the same shape along each axis, and another one in the plane."""
    filters = linkage.active[:300].copy()
    half = filters.shape[1] // 2
    filters[:, half:] = np.random.default_rng(1).permutation(filters[:, half:])
    guess = registration.locate(filters, linkage.points.active, linkage.space)
    assert linkage.points.error(guess, linkage.points.active[:300]) > CHANCE_M


def test_records_beyond_all_chains_are_not_placed() -> None:
    keys = {"x": NumberKey(kind="number", low=0, high=1, reach=0.01)}
    space = KeySpace(keys, Encoding())
    points = np.concatenate([np.linspace(0.1, 0.3, 60), [0.9, 0.905]])[:, None]
    guess = registration.locate(space.filters(points, SEED), points, space)
    assert np.isnan(guess[60:]).all()
    assert np.abs(guess[:60] - points[:60]).max() < 0.03


def test_one_record_is_not_placed() -> None:
    space = KeySpace(dict(SQUARE), Encoding())
    assert np.isnan(registration.locate(space.filters(np.array([[0.5, 0.5]]), SEED), np.zeros((3, 2)), space)).all()


@pytest.mark.data
def test_flats_of_singapore(schools: Linkage, shared_data: Path) -> None:
    """By the addresses of others, and by schools, which are where flats are."""
    others = singapore(shared_data, 2000).active[600:]
    assert error(schools, others) < 300
    assert error(schools, schools.points.passive) < 400
    assert error(schools, elsewhere(schools)) > CHANCE_M


@pytest.mark.data
def test_the_other_party_is_put_in_its_place_too(schools: Linkage) -> None:
    both = np.concatenate([schools.active[:300], schools.passive])
    guess = registration.locate(both, schools.points.active, schools.space)[300:]
    assert schools.points.error(guess, schools.points.passive) < 274
