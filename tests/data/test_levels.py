from __future__ import annotations

import numpy as np
import pytest

from vfl_node.data.encoded import encoded_columns
from vfl_node.data.features import Encoder
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.levels import MOST_UNREAD, Levels, check_categories
from vfl_node.data.tables import CategoricalColumn, DateColumn, NumericColumn, Table
from vfl_node.errors import DataError


def text(rows: int, distinct: int, *, detected: bool = True) -> Table:
    codes = np.minimum(np.arange(rows), distinct - 1)
    levels = tuple(f"canary {code:05}" for code in range(distinct))
    return Table(
        Identifiers.from_items(str(row).encode() for row in range(rows)),
        {"comment": CategoricalColumn(codes, levels, detected)},
    )


def test_text_without_categories_is_refused_by_its_name() -> None:
    with pytest.raises(DataError) as caught:
        check_categories(text(2000, 1700), "lab")
    assert caught.value.code == "E_TEXT_COLUMN"
    assert caught.value.message == "lab: column 'comment' is text without categories: 1,700 of its 2,000 values are distinct"
    assert "comment: ignore" in caught.value.hint
    assert "canary" not in str(caught.value) + caught.value.for_peer


@pytest.mark.parametrize(
    "table",
    [text(2000, 1700, detected=False), text(2000, 1600), text(MOST_UNREAD, MOST_UNREAD), text(5, 5)],
    ids=["declared", "often enough the same", "a small table", "a tiny one"],
)
def test_other_columns_are_categories(table: Table) -> None:
    check_categories(table, "lab")


def test_only_levels_that_occur_count() -> None:
    table = text(2000, 1700)
    part = CategoricalColumn(np.zeros(2000, np.int64), table.columns["comment"].levels, detected=True)
    check_categories(Table(table.ids, {"comment": part}), "lab")


@pytest.mark.parametrize(("codes", "other"), [([0, 0, 1, 1], False), ([0, 0, 1, -1], True), ([0, 0, 0, 1], True)])
def test_a_code_for_rare_levels_exists_where_something_was_met_that_is_not_a_level(codes: list[int], other: bool) -> None:
    column = CategoricalColumn(np.array(codes), ("a", "b"))
    fitted = Levels.fit("c", column, np.arange(4), least_rows=1 if codes[-1] else 2)
    if codes == [0, 0, 0, 1]:
        fitted = Levels.fit("c", column, np.arange(4), least_rows=2)
    assert fitted.other is other
    assert fitted.cardinality == len(fitted.levels) + 1 + other
    assert fitted.apply(column).max() < fitted.cardinality


def test_what_was_done_is_said_in_counts_and_without_any_cell() -> None:
    columns = {
        "age": NumericColumn(np.array([1.0, np.nan, 3, 4])),
        "town": CategoricalColumn(np.array([0, 0, 1, -1]), ("canary", "other", "unused")),
        "at": DateColumn(np.array([0, 1e9, 2e9, np.nan])),
    }
    table = Table(Identifiers.from_items(str(row).encode() for row in range(4)), columns)
    found = encoded_columns(table, Encoder.fit(table, np.arange(4), "log", least_rows=2).columns)
    assert [str(column) for column in found] == [
        "numeric, log, 1 missing",
        "categorical, 1 levels, 1 rare or unseen ones merged, 1 missing",
        "date, log, month, weekday, hour, 1 missing",
    ]
    left_out = encoded_columns(table, ())
    assert [str(column).split(",")[1] for column in left_out] == [" left out", " 0 levels", " left out"]
    assert "canary" not in str(found)
