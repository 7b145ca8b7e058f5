"""What is computed of each record's rows: exact sums, and nothing that depends on the order of the rows."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from vfl_node.data.row_groups import Floats, RowGroups


def groups_of(records: list[int]) -> RowGroups:
    """Rows that are sorted already."""
    return RowGroups(np.arange(len(records)), np.diff(np.array(records), prepend=-1) != 0)


def wide(rng: np.random.Generator, rows: int) -> Floats:
    """Numbers of very different sizes, of which many nearly cancel."""
    values = rng.normal(size=rows) * 10.0 ** rng.integers(-300, 260, rows)
    values[1::3] = -values[::3][: len(values[1::3])] * (1 + 1e-15)
    return values


@pytest.mark.parametrize("seed", range(5))
def test_sums_are_those_of_exact_numbers_rounded_once(seed: int) -> None:
    rng = np.random.default_rng(seed)
    records = np.sort(rng.integers(0, 40, 2000))
    values = wide(rng, len(records))
    found = groups_of(records.tolist()).total(values)
    for place, record in enumerate(np.unique(records)):
        own = values[records == record].tolist()
        assert found[place] == math.fsum(own) == float(sum(map(Fraction, own)))


def test_the_smallest_numbers_are_not_lost() -> None:
    tiny = math.ulp(0.0)
    assert groups_of([0, 0, 0, 1]).total(np.array([tiny, tiny, 2.0**-1000, -tiny])).tolist() == [2.0**-1000 + 2 * tiny, -tiny]


def test_plain_sums_would_depend_on_the_order() -> None:
    """Three numbers, of which a sum from the left loses one."""
    groups = groups_of([0, 0, 0])
    assert [groups.total(np.array(order)).tolist() for order in ([1e16, 1.0, -1e16], [1e16, -1e16, 1.0])] == [[1.0], [1.0]]
    assert 1e16 + 1.0 - 1e16 != 1e16 - 1e16 + 1.0


@pytest.mark.parametrize("name", ["sum", "mean", "std", "min", "max", "median", "count", "nunique"])
@pytest.mark.parametrize("seed", range(4))
def test_numbers_are_those_of_pandas(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    records = np.sort(rng.integers(0, 200, 900))
    values = np.where(rng.random(900) < 0.3, np.nan, np.round(rng.normal(size=900) * 100, 2))
    values[records % 17 == 3] = np.nan
    grouped = pd.Series(values).groupby(records)
    expected = grouped.sum(min_count=1) if name == "sum" else getattr(grouped, name)()
    groups = groups_of(records.tolist())
    own = {"sum": "total", "std": "deviation", "min": "least", "max": "largest", "nunique": "distinct"}.get(name, name)
    np.testing.assert_allclose(getattr(groups, own)(values), expected.to_numpy(), rtol=1e-12, atol=1e-12)
    assert np.isnan(expected).any() == (name not in ("count", "nunique"))


@pytest.mark.parametrize("name", ["total", "mean", "deviation", "median", "distinct", "most", "first", "last"])
def test_the_order_of_the_rows_of_a_record_changes_no_bit(name: str) -> None:
    rng = np.random.default_rng(8)
    records = np.sort(rng.integers(0, 30, 500))
    values, when = rng.integers(0, 6, 500).astype(float), rng.integers(0, 4, 500).astype(float)
    if name in ("total", "mean", "deviation", "median"):
        values = rng.normal(size=500) * 10.0 ** rng.integers(-9, 9, 500)
    other = np.lexsort((rng.random(500), records))
    groups = groups_of(records.tolist())
    if name in ("first", "last"):
        found = [groups.value_at_end(values[rows], when[rows], name) for rows in (np.arange(500), other)]
    else:
        found = [getattr(groups, name)(values[rows]) for rows in (np.arange(500), other)]
    assert found[0].tobytes() == found[1].tobytes()


def test_the_first_and_the_last_value_are_those_of_rows_that_have_one() -> None:
    groups = groups_of([0, 0, 0, 1, 1, 2])
    values, when = np.array([np.nan, 7, 5, 3, 4, np.nan]), np.array([1.0, 2, 3, 5, 5, 0])
    np.testing.assert_array_equal(groups.value_at_end(values, when, "first"), [7, 3, np.nan])
    np.testing.assert_array_equal(groups.value_at_end(values, when, "last"), [5, 4, np.nan])


def test_the_commonest_code_and_the_last_ones() -> None:
    groups = groups_of([0, 0, 0, 0, 1, 2, 2])
    codes, when = np.array([2, 1, 1, 2, np.nan, 0, 3]), np.array([3.0, 1, 2, 0, 9, 1, 0])
    np.testing.assert_array_equal(groups.most(codes), [1, np.nan, 0])  # of two commonest ones the smaller
    last, count = groups.last_ones(codes, when, 3)
    assert (last.tolist(), count.tolist()) == ([1, 1, 2, 3, 0], [3, 0, 2])
