"""What filters of numbers, dates and places tell, and what they do not."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import spearmanr

from vfl_node.crypto.filters.encoding import encode
from vfl_node.crypto.filters.pivots import PivotFilter
from vfl_node.crypto.randomness import Randomness
from vfl_node.job.keys import DateKey, Encoding, NumberKey, PlaceKey

SEED = Randomness(bytes(range(32)))
LOW, HIGH, REACH = -3.0, 7.0, 0.5


def ones(filters: NDArray[np.uint8]) -> NDArray[np.int64]:
    return np.unpackbits(filters, axis=1).sum(axis=1, dtype=np.int64)


def apart(filters: NDArray[np.uint8], of: int = 0) -> NDArray[np.int64]:
    """Hamming distances to one of the rows."""
    return ones(filters ^ filters[of])


def at(values: Iterable[float]) -> NDArray[np.uint8]:
    key = NumberKey(kind="number", low=LOW, high=HIGH, reach=REACH)
    column = np.array(list(values))
    return np.concatenate(list(encode({"x": key}, Encoding(epsilon=0.05), {"x": column}, SEED)))


def mean_of_seeds(beyond: float, values: NDArray[np.float64], seeds: int = 60) -> tuple[float, NDArray[np.float64]]:
    """Mean over the pivots of Spearman(ω, |x − centre|), and mean ω of each value, where pivots lie on [low − b, high + b]."""
    low, high = LOW + REACH - beyond, HIGH - REACH + beyond  # pivots are drawn on [low − t, high + t]
    counts = [ones(PivotFilter(low, high, REACH, 4000, SEED.derive(str(seed))).encode(values)) for seed in range(seeds)]
    centre = np.abs(values - (LOW + HIGH) / 2)
    return float(np.mean([spearmanr(count, centre).statistic for count in counts])), np.mean(counts, axis=0)


def test_the_number_of_ones_does_not_tell_extreme_values() -> None:
    """The control is the paper's filter, with pivots within the bounds: at a border it has half of the ones."""
    values = np.linspace(LOW, HIGH, 101)
    correlation, counts = mean_of_seeds(REACH, values)
    assert abs(correlation) < 0.1
    assert np.all(np.abs(counts / counts.mean() - 1) < 0.03)
    correlation, counts = mean_of_seeds(0, values)
    assert correlation < -0.15
    assert np.all(np.abs(counts[[0, -1]] / np.median(counts) - 0.5) < 0.03)


def test_whoever_counts_ones_finds_extreme_values_in_the_control_only() -> None:
    """The tenth of filters with the fewest ones: how many of them are within half a reach of a border, by one seed."""
    values = np.linspace(LOW, HIGH, 1001)
    extreme = np.minimum(values - LOW, HIGH - values) < REACH / 2
    found = {}
    for beyond, low, high in ((True, LOW, HIGH), (False, LOW + REACH, HIGH - REACH)):
        count = ones(PivotFilter(low, high, REACH, 40_000, SEED).encode(values))
        fewest = np.argsort(count, kind="stable")[: extreme.sum()]
        found[beyond] = extreme[fewest].mean()
    assert found[False] > 0.9
    assert found[True] < 0.3


@pytest.mark.parametrize("encoding", [Encoding(), Encoding(epsilon=0.05), Encoding(epsilon=0.2, delta=0.2)])
def test_few_filters_have_too_few_ones(encoding: Encoding) -> None:
    """Pr[ω ≤ (1 − ε)·E ω] < δ over the pivots, and so does it with far smaller filters not hold."""
    key = NumberKey(kind="number", low=LOW, high=HIGH, reach=REACH)
    expected = key.bits(encoding) * 2 * REACH / (HIGH - LOW + 2 * REACH)
    drawn = 500

    def short(bits: int) -> float:
        filters = [PivotFilter(LOW, HIGH, REACH, bits, SEED.derive(str(n))).encode(np.array([LOW])) for n in range(drawn)]
        mean = expected * bits / key.bits(encoding)
        return float(np.mean(ones(np.concatenate(filters)) <= (1 - encoding.epsilon) * mean))

    assert short(key.bits(encoding)) < encoding.delta
    assert short(key.bits(encoding) // 64 // 8 * 8 or 8) > encoding.delta


def test_the_distance_grows_up_to_twice_the_reach_and_no_further() -> None:
    steps = np.array([0, 0.25, 0.5, 1, 1.5, 2, 3, 8]) * REACH
    distances = apart(at(LOW + 1 + steps))
    most = distances[-1]
    assert distances[0] == 0
    assert np.all(np.diff(distances[:6]) > 0.05 * most)
    assert np.all(np.abs(distances[:6] / most - steps[:6] / (2 * REACH)) < 0.08)
    assert np.all(np.abs(distances[5:] / most - 1) < 0.08)


def test_values_beyond_reach_have_no_common_one() -> None:
    filters = at([0, 2 * REACH + 1e-9, 2 * REACH - 0.02])
    assert not (filters[0] & filters[1]).any()
    assert (filters[0] & filters[2]).any()


def test_days_count_and_times_of_day_do_not() -> None:
    key = DateKey(kind="date", low="2020-01-01", high="2020-12-31", reach=20)
    days = np.array(["2020-03-01", "2020-03-01T23:59:59", "2020-03-02", "2020-03-21", "2020-12-31T12:00", "2020-01-01"])
    seconds = days.astype("datetime64[s]").astype(np.float64)
    (filters,) = encode({"day": key}, Encoding(epsilon=0.03), {"day": seconds}, SEED)
    distances = apart(filters)
    assert distances[1] == 0
    assert 0 < distances[2] < distances[3] < distances[4]
    assert abs(distances[5] / distances[4] - 1) < 0.1


def test_places_are_as_far_apart_as_their_metres_along_each_axis() -> None:
    """At 60 degrees north a degree of longitude is half of one of latitude."""
    key = PlaceKey(kind="place", south=59.5, north=60.5, west=9.0, east=11.0, reach=10_000)
    metres = np.array([[0, 0], [4000, 0], [0, 4000], [4000, 4000], [16_000, 0], [0, 16_000], [50_000, 50_000]])
    degree = 111_195.08
    places = np.array([59.6, 9.1]) + metres / [degree, degree / 2]
    (filters,) = encode({"p": key}, Encoding(epsilon=0.02), {"p": places}, SEED)
    none, north, east, both, far_north, far_east, farthest = apart(filters)
    assert none == 0
    assert both == north + east
    assert abs(east / north - 1) < 0.1
    assert abs(far_north / far_east - 1) < 0.1
    assert abs(far_north / north - 4) < 0.4
    assert abs(farthest / (far_north + far_east) - 20 / 16) < 0.1
    assert key.spans == pytest.approx((degree, degree), rel=1e-6)
