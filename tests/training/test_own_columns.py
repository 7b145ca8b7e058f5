"""Columns that a few values spoil, and columns left out, are named to their owner."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from vfl_node.data.dates import date_column
from vfl_node.data.design import LinearEncoder
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import CategoricalColumn, Column, NumericColumn, Table
from vfl_node.training.own_columns import drop_warnings, find_squeezed, make_robust, name_columns, scaling_warnings, select_used

ROWS = 400
X = np.random.default_rng(0).normal(size=ROWS)
SPOILT = np.where(np.arange(ROWS) == 3, 999999999.0, X)
LEVELS = CategoricalColumn(np.arange(ROWS) % 3, ("red", "green", "blue"))


def table(**columns: Column) -> Table:
    return Table(Identifiers.from_items(str(row).encode() for row in range(ROWS)), columns)


def test_a_spoilt_column_is_scaled_by_ranks_and_new_records_are_treated_alike() -> None:
    given = table(x=NumericColumn(X), spoilt=NumericColumn(SPOILT), visit=date_column(np.where(SPOILT > 9, 2_900_000, X * 300)))
    assert find_squeezed(given, "standard") == ("spoilt", "visit")
    assert find_squeezed(given, "auto") == find_squeezed(given, "unit") == ()
    encoder = LinearEncoder.fit(make_robust(given, "standard"), "standard")
    methods = {of.name: of.method for of in encoder.columns if of.part in (None, "days")}  # type: ignore[union-attr]
    assert methods == {"x": "standard", "spoilt": "quantile", "visit": "quantile"}
    values = encoder.transform(given).values
    assert np.corrcoef(values[4:, 0], values[4:, 1])[0, 1] > 0.99
    assert np.abs(values[:, 1]).max() < 5
    later = table(x=NumericColumn(X), spoilt=NumericColumn(-10 * SPOILT), visit=given.columns["visit"])
    assert LinearEncoder.from_json(encoder.to_json()).transform(later).values[3, 1] == values[:, 1].min()


def test_the_owners_own_wish_stays_and_is_doubted() -> None:
    given = table(spoilt=NumericColumn(SPOILT, scaling="standard"), other=NumericColumn(SPOILT))
    encoder = LinearEncoder.fit(make_robust(given, "standard"), "standard")
    alike, rescaled = scaling_warnings(find_squeezed(given, "standard"), encoder.columns)
    assert alike.startswith("Column 'spoilt': a few values")
    assert "scaling: auto" in alike
    assert rescaled.startswith("Column 'other': a few values")
    assert "instead of the standard deviation" in rescaled
    assert not any("999" in said for said in (alike, rescaled))
    assert find_squeezed(replace(given, columns={"x": NumericColumn(X)}), "standard") == ()


@pytest.mark.parametrize(("used", "names"), [("1111", ["x", "y", "c"]), ("0101", ["y", "c"]), ("1000", ["x"]), ("0000", [])])
def test_which_columns_enter_a_model(used: str, names: list[str]) -> None:
    encoder = LinearEncoder.fit(table(x=NumericColumn(X), y=NumericColumn(-X), c=LEVELS), "standard")
    assert encoder.width == len(used)
    assert [of.name for of in select_used(encoder, np.array([mark == "1" for mark in used]))] == names
    assert select_used(LinearEncoder.fit(table(), "standard"), np.empty(0, np.bool_)) == ()


def test_names_in_sentences() -> None:
    assert drop_warnings(["c: a level", "c: a level", "x"], "rare") == ("Columns 'c: a level', 'x' left out: rare.",)
    assert drop_warnings([], "rare") == ()
    assert name_columns(list("abcdefg")) == "Columns 'a', 'b', 'c', 'd', 'e' and 2 more"


def test_large_numbers_that_stay_as_they_are_are_cut_off() -> None:
    """So ``scaling: none`` refuses none, and whether it does tells nothing."""
    encoder = LinearEncoder.fit(make_robust(table(x=NumericColumn(SPOILT), y=NumericColumn(-SPOILT)), "none"), "none")
    new = encoder.transform(table(x=NumericColumn(SPOILT), y=NumericColumn(-SPOILT))).values
    np.testing.assert_allclose(new[:, 0], np.minimum(SPOILT, 16), atol=2**-17)
    assert np.array_equal(new[:, 1], -new[:, 0])
