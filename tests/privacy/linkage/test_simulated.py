"""What a party says of itself, without the peer's records, is about what the peer's attack finds."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.linkage_privacy import SEED, Linkage
from vfl_node.job.keys import Encoding, PlaceKey
from vfl_node.privacy.linkage import cells, multilateration
from vfl_node.privacy.linkage.simulated import active_errors, passive_errors
from vfl_node.privacy.linkage.space import KeySpace


def check_active(linkage: Linkage) -> None:
    points, candidates = linkage.points, linkage.rows.shape[1]
    said = active_errors(points.active, len(points.passive), candidates, linkage.space)
    guess = cells.located(linkage.rows.astype(np.int64), points.passive, linkage.space, SEED, most=20_000)
    check(said, linkage.space.errors(guess, points.active))


def check_passive(linkage: Linkage) -> None:
    points, release = linkage.points, linkage.release(0.4)
    counts = (~np.isnan(release.similarities)).sum(axis=1)
    used = counts > 0
    said = passive_errors(points.passive, len(points.active), int(np.median(counts[used])), 0.4, linkage.space)
    found = release.similarities[used]
    guess = multilateration.located(found, linkage.active, release.mean, release.deviation, linkage.space, SEED)
    check(said, linkage.space.errors(guess, points.passive[used]))


def check(said: object, true: dict[str, float]) -> None:
    assert isinstance(said, dict)
    assert said.keys() == true.keys()
    for name, error in true.items():
        assert error / 2 < said[name] < 2 * error, (name, said, true)


def test_made_up_points(linkage: Linkage) -> None:
    check_active(linkage)
    check_passive(linkage)


@pytest.mark.data
def test_flats_and_schools(schools: Linkage) -> None:
    check_active(schools)
    check_passive(schools)


def test_more_noise_and_fewer_uses_say_more_error(linkage: Linkage) -> None:
    def said(others: int, uses: int, sigma: float) -> float:
        return passive_errors(linkage.points.passive, others, uses, sigma, linkage.space)["x"]

    assert said(40, 10, 0.4) > 2 * said(400, 100, 0.4)
    assert said(400, 100, 4.0) > 3 * said(400, 100, 0.4)


def test_places_are_told_in_metres(linkage: Linkage) -> None:
    key = PlaceKey(kind="place", south=1.2, north=1.5, west=103.6, east=104.1, reach=5000)
    space = KeySpace({"home": key}, Encoding(epsilon=0.1))
    own = space.bounds[:, 0] + linkage.points.active * (space.bounds[:, 1] - space.bounds[:, 0])
    (error,) = active_errors(own, 80, 20, space).values()
    assert 50 < error < 2000
    truth = space.bounds.mean(axis=1)[None]
    assert space.errors(truth + np.array([0.01, 0]), truth) == pytest.approx({"home": 1112}, rel=0.01)
