"""Keys as points, and points by distances."""

from __future__ import annotations

import numpy as np
import pytest

from vfl_node.crypto.filters.encoding import encode
from vfl_node.crypto.nearest.search import hamming
from vfl_node.crypto.randomness import Randomness
from vfl_node.job.keys import DateKey, Encoding, NumberKey, PlaceKey, TextKey
from vfl_node.privacy.linkage.fitting import misfits, place_points
from vfl_node.privacy.linkage.space import KeySpace, grid

KEYS = {
    "when": DateKey(kind="date", low="2020-01-01", high="2020-12-31", reach=20),
    "where": PlaceKey(kind="place", south=59.5, north=60.5, west=9.0, east=11.0, reach=20_000),
    "x": NumberKey(kind="number", low=-3, high=7, reach=2),
}
SPACE, SEED = KeySpace(KEYS, Encoding(epsilon=0.02)), Randomness(b"s" * 32)


def points(count: int, seed: int) -> np.ndarray:
    low, high = SPACE.bounds.T
    drawn = np.random.default_rng(seed).uniform(low, high, (count, 4))
    drawn[:, 0] = np.floor(drawn[:, 0])  # a day
    return drawn


def test_filters_are_those_of_the_columns() -> None:
    drawn = points(20, 0)
    columns = {"when": drawn[:, 0] * 86_400, "where": drawn[:, 1:3], "x": drawn[:, 3]}
    np.testing.assert_array_equal(SPACE.points(columns), drawn)
    (there,) = encode(KEYS, SPACE.encoding, columns, SEED)
    np.testing.assert_array_equal(SPACE.filters(drawn, SEED), there)


def test_expected_distances_are_those_of_filters_on_average() -> None:
    one, other = points(30, 1), points(40, 2)
    measured = hamming(SPACE.filters(one, SEED), SPACE.filters(other, SEED))
    expected = SPACE.expected_distances(one, other)
    assert np.abs(measured / expected - 1).max() < 0.1
    assert np.abs((measured / expected).mean() - 1) < 0.02
    np.testing.assert_array_equal(SPACE.expected_distances(one, one).diagonal(), 0)


def test_texts_are_no_points() -> None:
    for keys in ({"name": TextKey(kind="text")}, {}):
        with pytest.raises(ValueError, match="are points"):
            KeySpace(keys, Encoding())


def test_a_grid_has_its_limits_and_no_more_points_than_asked() -> None:
    made = grid(np.array([[0.0, 1.0], [5.0, 7.0]]), 30)
    assert len(made) == 25
    np.testing.assert_array_equal([made.min(axis=0), made.max(axis=0)], [[0, 5], [1, 7]])


def test_misfits_leave_out_what_is_unknown() -> None:
    measured, predicted = np.array([[1.0, np.nan, 3.0]]), np.array([[1.0, 9.0, 3.0], [2.0, 0.0, 1.0]])
    np.testing.assert_allclose(misfits(measured, predicted), [[0, (1 + 4) / 2]], atol=1e-9)


def test_a_point_is_where_its_distances_say() -> None:
    others, truth = np.random.default_rng(3).uniform(0, 1, (12, 2)), np.random.default_rng(4).uniform(0, 1, (9, 2))

    def predict(at: np.ndarray, which: np.ndarray) -> np.ndarray:
        return np.linalg.norm(at[:, None] - others[None, which], axis=2)

    found = place_points(predict(truth, np.arange(12)), predict, np.array([[0.0, 1.0], [0.0, 1.0]]))
    assert np.abs(found - truth).max() < 1e-3
