"""Which candidates a table has, and which rows each of them sends left: as comparisons of the cells say."""

from __future__ import annotations

import numpy as np
import pytest

from vfl_node.crypto.shares.ring import matmul
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import CategoricalColumn, Column, DateColumn, NumericColumn, Table
from vfl_node.training.shares.binned import BinnedColumns

ROWS = 400
RNG = np.random.default_rng(0)
NUMBERS = RNG.normal(size=ROWS)
SOME = np.where(RNG.random(ROWS) < 0.2, np.nan, NUMBERS)
FEW = RNG.integers(0, 3, ROWS).astype(np.float64)
CODES = np.minimum(RNG.integers(-1, 6, ROWS), 3 + (np.arange(ROWS) < 3))
LEVELS = ("a", "b", "c", "d", "rare")


def fit(most: int = 4, least: int = 5, **columns: Column) -> tuple[BinnedColumns, Table]:
    table = Table(Identifiers.from_items(str(row).encode() for row in range(ROWS)), columns)
    return BinnedColumns.fit(table, most, least), table


def cells(found: BinnedColumns, table: Table) -> np.ndarray:
    return found.candidates(table, np.arange(ROWS)).block(0, ROWS).astype(bool)


def words(found: BinnedColumns) -> list[str]:
    width = sum(len(of.left) for of in found.columns)
    return [found.describe(number) for number in range(width)]


def test_numbers_without_missing_ones_have_a_candidate_for_each_cut() -> None:
    found, table = fit(x=NumericColumn(NUMBERS))
    (column,) = found.columns
    assert len(column.left) == 3  # type: ignore[union-attr]
    for number, cut in enumerate(column.cuts):  # type: ignore[union-attr]
        np.testing.assert_array_equal(cells(found, table)[:, number], cut >= NUMBERS)
    assert [round(ROWS * share) for share in (0.25, 0.5, 0.75)] == pytest.approx(cells(found, table).sum(axis=0), abs=1)
    with pytest.raises(IndexError):
        found.describe(3)


def test_missing_numbers_go_left_or_right_or_alone() -> None:
    found, table = fit(x=NumericColumn(SOME))
    (column,) = found.columns
    cuts, missing = np.array(column.cuts), np.isnan(SOME)  # type: ignore[union-attr]
    below = SOME[:, None] <= cuts
    np.testing.assert_array_equal(cells(found, table), np.column_stack([below, below | missing[:, None], missing]))
    said = [f"x ≤ {cut:.6g}" for cut in cuts]
    assert words(found) == [*said, *(f"{each}, or missing" for each in said), "x is missing"]


def test_few_different_numbers_are_cut_between_them_and_dates_are_numbers() -> None:
    found, table = fit(most=16, x=NumericColumn(FEW), day=DateColumn(FEW * 86_400))
    expected = np.column_stack([FEW <= 0.5, FEW <= 1.5])
    np.testing.assert_array_equal(cells(found, table), np.hstack([expected, expected]))


def test_each_category_of_enough_rows_against_the_rest() -> None:
    found, table = fit(least=5, x=CategoricalColumn(CODES, LEVELS))
    expected = [code == CODES for code in range(4)] + [CODES == -1]  # the rare level has too few rows, as others too
    np.testing.assert_array_equal(cells(found, table), np.column_stack(expected))
    assert words(found) == ["x = a", "x = b", "x = c", "x = d", "x is missing"]
    two, table = fit(x=CategoricalColumn(CODES % 2, ("a", "b")))
    assert words(two) == ["x = a"]
    many = np.where(np.arange(ROWS) % 5 == 0, -1, np.arange(ROWS) % 8 * (np.arange(ROWS) % 3 > 0))
    assert words(fit(least=60, x=CategoricalColumn(many, tuple("abcdefgh")))[0]) == [
        "x = a",
        "x is another level",
        "x is missing",
    ]


@pytest.mark.parametrize("least", [1, 5, 60, 150, 201])
def test_every_candidate_has_enough_own_rows_on_both_sides(least: int) -> None:
    """As many as asked for, and one in a hundred."""
    columns = {"x": NumericColumn(SOME), "y": NumericColumn(FEW), "z": CategoricalColumn(CODES, LEVELS)}
    found, table = fit(16, least, **columns)
    if least == 201:
        assert not found.columns
        return
    counts = cells(found, table).sum(axis=0)
    assert np.minimum(counts, ROWS - counts).min() >= max(least, ROWS // 100)


def test_columns_without_candidates_have_none_and_a_table_without_any_one_that_splits_nothing() -> None:
    found, table = fit(x=NumericColumn(np.ones(ROWS)), y=NumericColumn(np.full(ROWS, np.nan)), z=NumericColumn(NUMBERS))
    assert [of.name for of in found.columns] == ["z"]
    found, table = fit(x=NumericColumn(np.ones(ROWS)))
    assert not found.columns
    assert not cells(found, table).any()
    assert cells(found, table).shape == (ROWS, 1)


def test_sums_and_picks_are_those_of_the_matrix_and_rows_of_others_are_in_any_bin() -> None:
    found, table = fit(x=NumericColumn(SOME), z=CategoricalColumn(CODES, LEVELS))
    rows = np.where(RNG.random(ROWS) < 0.5, RNG.permutation(ROWS), -1)
    of = found.candidates(table, rows)
    matrix = of.block(0, ROWS)
    np.testing.assert_array_equal(matrix[rows >= 0], cells(found, table)[rows[rows >= 0]])
    np.testing.assert_array_equal(of.block(30, 50), matrix[30:50])
    values = RNG.integers(0, 1 << 63, (3, ROWS)).astype(np.uint64) * np.uint64(2)
    np.testing.assert_array_equal(of.sums(values), matmul(values, matrix.astype(np.uint64)))
    chosen = RNG.integers(0, 2, (7, of.width)).astype(np.uint8)
    np.testing.assert_array_equal(of.pick(chosen), chosen.astype(int) @ matrix.T % 2)


def test_stored_columns_make_the_same_candidates_and_levels_that_were_not_there_are_others() -> None:
    found, table = fit(x=NumericColumn(SOME), z=CategoricalColumn(CODES, LEVELS))
    again = BinnedColumns.from_json(found.to_json())
    assert again == found
    later = Table(table.ids, {**table.columns, "z": CategoricalColumn(np.zeros(ROWS, np.int64), ("new",))})
    assert not again.candidates(later, np.arange(ROWS)).block(0, ROWS)[:, -5:].any()
