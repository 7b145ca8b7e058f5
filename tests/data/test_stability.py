"""How far a table has moved: the index of each column, by hand, and what is noted comes back."""

from __future__ import annotations

import numpy as np
import pytest

from vfl_node.data.identifiers import Identifiers
from vfl_node.data.stability import LEAST_ROWS, NotedTable, stability_index
from vfl_node.data.tables import CategoricalColumn, Column, DateColumn, NumericColumn, Table
from vfl_node.errors import StateError

RNG = np.random.default_rng(7)
ROWS = 4_000


def table(**columns: Column) -> Table:
    rows = len(next(iter(columns.values())).codes if "colour" in columns else columns["x"].values)  # type: ignore[union-attr]
    return Table(Identifiers.from_items(b"r%d" % row for row in range(rows)), columns)


def numbers(values: object) -> Table:
    return table(x=NumericColumn(np.asarray(values, dtype=np.float64)))


def test_the_index_is_that_of_the_formula() -> None:
    then, now = np.array([100, 300, 600]), np.array([200, 300, 500])
    p, q = (then + 0.5) / (then + 0.5).sum(), (now + 0.5) / (now + 0.5).sum()
    assert stability_index(then, now) == pytest.approx(sum((b - a) * np.log(b / a) for a, b in zip(p, q, strict=True)))
    assert stability_index(then, then) == 0
    assert stability_index(then, 3 * then) < 1e-5


def test_the_same_distribution_is_stable_and_another_one_is_not() -> None:
    """One deviation further, all values in the last part, and half a deviation."""
    noted = NotedTable.from_table(numbers(RNG.normal(size=ROWS)))
    found = {mean: noted.compare(numbers(RNG.normal(mean, 1, ROWS)))[0] for mean in (0.0, 0.4, 1.0, 50.0)}
    assert [shift.word for shift in found.values()] == ["stable", "moved", "shifted", "shifted"]
    indices = [shift.index or 0 for shift in found.values()]
    assert indices == sorted(indices)
    assert indices[0] < 0.02
    assert indices[1] == pytest.approx(0.4**2, rel=0.35)  # of two normal distributions it is the square, in parts a little less
    assert len(noted.columns[0].counts) == 10
    assert min(noted.columns[0].counts) == max(noted.columns[0].counts) == ROWS // 10


def test_many_equal_values_are_one_part() -> None:
    noted = NotedTable.from_table(numbers(np.r_[np.zeros(3_500), np.arange(1, 501)]))
    assert sum(noted.columns[0].counts) == ROWS
    assert len(noted.columns[0].counts) == 3
    assert noted.compare(numbers(np.r_[np.zeros(3_500), np.arange(1, 501)]))[0].index == 0
    assert noted.compare(numbers(np.r_[np.zeros(2_000), np.arange(1, 2_001)]))[0].word == "shifted"


def test_missing_values_are_shares_of_their_own() -> None:
    values = RNG.normal(size=ROWS)
    noted = NotedTable.from_table(numbers(np.where(np.arange(ROWS) % 4 == 0, np.nan, values)))
    (shift,) = noted.compare(numbers(np.where(np.arange(ROWS) % 2 == 0, np.nan, values)))
    assert (shift.missing_then, shift.missing, shift.unseen) == (0.25, 0.5, None)
    assert shift.word == "stable"


def test_levels_that_nobody_had_are_counted() -> None:
    codes = RNG.integers(0, 3, ROWS)
    noted = NotedTable.from_table(table(colour=CategoricalColumn(codes, ("blue", "green", "red"))))
    (same,) = noted.compare(table(colour=CategoricalColumn(2 - codes, ("red", "green", "blue"))))  # other codes, equal cells
    assert (same.index, same.unseen, same.word) == (0, 0, "stable")
    later = np.where(np.arange(ROWS) % 5 == 0, 3, codes)
    (shift,) = noted.compare(table(colour=CategoricalColumn(later, ("blue", "green", "red", "violet"))))
    assert (shift.unseen, shift.word) == (0.2, "shifted")
    (gone,) = noted.compare(table(colour=CategoricalColumn(np.full(ROWS, -1), ("blue",))))
    assert (gone.index, gone.missing, gone.word) == (None, 1, "too few rows")


def test_of_very_many_levels_the_frequent_ones_are_noted() -> None:
    codes = np.r_[np.zeros(3_000, np.int64), np.arange(1, 1_501)]
    levels = tuple(f"v{code:05}" for code in range(1_501))
    noted = NotedTable.from_table(table(colour=CategoricalColumn(codes, levels)))
    assert len(noted.columns[0].levels or ()) == 1_000
    (shift,) = noted.compare(table(colour=CategoricalColumn(codes, levels)))
    assert (shift.index, shift.unseen) == (0, None)


@pytest.mark.parametrize(("then", "now"), [(LEAST_ROWS - 1, ROWS), (ROWS, LEAST_ROWS - 1)])
def test_few_rows_have_no_index(then: int, now: int) -> None:
    (shift,) = NotedTable.from_table(numbers(RNG.normal(size=then))).compare(numbers(RNG.normal(size=now)))
    assert (shift.index, shift.word) == (None, "too few rows")
    (enough,) = NotedTable.from_table(numbers(RNG.normal(size=LEAST_ROWS))).compare(numbers(RNG.normal(size=LEAST_ROWS)))
    assert enough.index is not None


def test_what_is_noted_comes_back() -> None:
    days = DateColumn(np.where(np.arange(ROWS) % 9 == 0, np.nan, 86_400.0 * np.arange(ROWS)))
    given = Table(numbers(np.zeros(ROWS)).ids, {"day": days, "n": NumericColumn(RNG.normal(size=ROWS))})
    noted = NotedTable.from_table(given)
    assert NotedTable.from_json(noted.to_json()) == noted
    assert [shift.index for shift in noted.compare(given)] == [0, 0]
    assert noted.columns[0].missing == -(-ROWS // 9)
    empty = NotedTable.from_table(given.take(np.arange(0)))
    assert [shift.word for shift in empty.compare(given)] == ["too few rows"] * 2
    for damaged in (noted.to_json()[:-9], b"{}", b"\xff", noted.to_json().replace(b'"missing": ', b'"missin": ')):
        with pytest.raises(StateError):
            NotedTable.from_json(damaged)
