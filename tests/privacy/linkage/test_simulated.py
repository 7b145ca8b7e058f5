"""What a party says of itself, without the peer's records, is about what the peer's attack finds."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.linkage_privacy import SEED, SQUARE, Linkage, Points
from experiments.linkage import membership
from vfl_node.job.keys import Encoding, PlaceKey
from vfl_node.privacy.linkage import cells, multilateration
from vfl_node.privacy.linkage.simulated import active_errors, passive_errors
from vfl_node.privacy.linkage.space import KeySpace


def check_active(linkage: Linkage) -> None:
    points, candidates = linkage.points, linkage.rows.shape[1]
    said = active_errors(points.active, len(points.passive), candidates, linkage.space)
    guess = cells.locate(linkage.rows.astype(np.int64), points.passive, linkage.space, SEED, most=20_000)
    check(said, linkage.space.errors(guess, points.active))


def check_passive(linkage: Linkage, sigma: float = 0.4) -> None:
    points, release = linkage.points, linkage.release(sigma)
    known = ~np.isnan(release.similarities)
    used = known.any(axis=1)
    uses, candidates = int(np.median(known[used].sum(axis=1))), linkage.rows.shape[1]
    said = passive_errors(points.passive, uses, candidates, sigma, linkage.space)
    found = release.similarities[used]
    guess = multilateration.locate(found, linkage.active, release.mean, release.deviation, linkage.space, SEED)
    by_members = linkage.space.errors(membership.locate(known[used], points.active), points.passive[used])
    errors = linkage.space.errors(guess, points.passive[used])
    check(said, {name: min(error, by_members[name]) for name, error in errors.items()})


def check(said: object, true: dict[str, float]) -> None:
    assert isinstance(said, dict)
    assert said.keys() == true.keys()
    for name, error in true.items():
        assert error / 2 < said[name] < 2 * error, (name, said, true)


def test_made_up_points(linkage: Linkage) -> None:
    check_active(linkage)
    check_passive(linkage)
    check_passive(linkage, 50.0)


@pytest.mark.slow
@pytest.mark.data
def test_flats_and_schools(schools: Linkage) -> None:
    check_active(schools)
    check_passive(schools)
    check_passive(Linkage(schools.points, 5), 50.0)


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [0.4, 50.0])
def test_large_tables_are_as_dense_as_they_are(sigma: float) -> None:
    """20,000 records each: a part of the square has about as many neighbours of each as the whole has."""
    rng = np.random.default_rng(0)
    middle = rng.uniform(0.4, 0.6, (2, 800, 2))  # a twenty-fifth of the square
    linkage = Linkage(Points(dict(SQUARE), np.ones(2), *middle, np.ones(800, dtype=int)), 10, 0.1)
    everywhere, inner = rng.uniform(0, 1, (20_000, 2)), (np.abs(middle - 0.5) < 0.06).all(axis=2)
    own, theirs = (np.flatnonzero(of) for of in inner)

    window = np.array([[0.42, 0.58], [0.42, 0.58]])
    guess = cells.locate(linkage.rows[own].astype(np.int64), middle[1], linkage.space, SEED, most=10_000, within=window)
    check(active_errors(everywhere, 20_000, 10, linkage.space), linkage.space.errors(guess, middle[0][own]))

    release = linkage.release(sigma)
    found = release.similarities[theirs[:60]]
    uses = int(np.median((~np.isnan(found)).sum(axis=1)))
    guess = multilateration.locate(found, linkage.active, release.mean, release.deviation, linkage.space, SEED)
    by_members = membership.locate(~np.isnan(found), middle[0])
    errors = [linkage.space.errors(of, middle[1][theirs[:60]]) for of in (guess, by_members)]
    said = passive_errors(everywhere, uses, 10, sigma, linkage.space)
    check(said, {name: min(error[name] for error in errors) for name in said})


def test_more_noise_says_more_error_until_members_tell_more(linkage: Linkage) -> None:
    def said(uses: int, sigma: float) -> float:
        return passive_errors(linkage.points.passive, uses, 20, sigma, linkage.space)["x"]

    assert said(10, 0.4) > 1.5 * said(100, 0.4)
    assert said(100, 4.0) > 3 * said(100, 0.4)
    assert said(100, 500.0) == said(100, 50.0) < 0.1  # of a square with sides of 1: by members alone


def test_places_are_told_in_metres(linkage: Linkage) -> None:
    key = PlaceKey(kind="place", south=1.2, north=1.5, west=103.6, east=104.1, reach=5000)
    space = KeySpace({"home": key}, Encoding(epsilon=0.1))
    own = space.bounds[:, 0] + linkage.points.active * (space.bounds[:, 1] - space.bounds[:, 0])
    (error,) = active_errors(own, 80, 20, space).values()
    assert 50 < error < 2000
    truth = space.bounds.mean(axis=1)[None]
    assert space.errors(truth + np.array([0.01, 0]), truth) == pytest.approx({"home": 1112}, rel=0.01)
