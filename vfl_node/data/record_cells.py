"""What is taken of the rows of each record, column by column (``data.aggregate``)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Literal, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vfl_node.data.cells import numbers_of
from vfl_node.data.dates import DAY_S
from vfl_node.data.row_groups import Floats, RowGroups
from vfl_node.data.tables import CategoricalColumn, Column, DateColumn, values_of
from vfl_node.data.text_columns import TextColumns
from vfl_node.errors import DataError
from vfl_node.settings.aggregate import COUNT_OF, ITEMS_BETWEEN, Taken
from vfl_node.settings.node import Data

_COUNTS = ("values", "top")
_LARGEST = {"sum": 2.0**900, "mean": 2.0**900, "median": 2.0**900, "std": 2.0**400}
"""What is taken of numbers → how large they may be, so that nothing overflows."""


def day_number(day: date) -> int:
    """Days since 1970-01-01."""
    return (day - date(1970, 1, 1)).days


class RecordCells:
    """What is taken of the rows of each record: arrays of Arrow, a cell each record.

    Args:
        text: the input.
        data: of the settings.
        groups: its rows by record.
        when: their places in their order, float64[n], in the order of ``groups``; empty without ``data.aggregate.order``.
    """

    def __init__(self, text: TextColumns, data: Data, groups: RowGroups, when: Floats) -> None:
        assert data.aggregate is not None
        self._text, self._aggregate, self._groups, self._when = text, data.aggregate, groups, when

    def lines(self) -> list[int]:
        """The line where the first row of each record stands; its row, counted over all parts of an input that has parts."""
        first = np.minimum.reduceat(self._groups.rows, self._groups.starts).tolist()
        return [row + 1 for row in first] if self._text.has_parts else [self._text.line(row) for row in first]

    def spelling(self, name: str) -> pa.Array:
        """An id column: of the spellings that the rows of a record have, the first in sorted order."""
        kind = pa.dictionary(pa.int32(), pa.large_string())
        cells = (cells.cast(pa.large_string()).dictionary_encode().cast(kind) for cells in self._text.chunks(name))
        column = pa.chunked_array(list(cells), kind).unify_dictionaries().combine_chunks()
        order = pc.array_sort_indices(column.dictionary).to_numpy()
        rank = np.argsort(order)[column.indices.to_numpy()]
        first = np.minimum.reduceat(rank[self._groups.rows], self._groups.starts)
        return column.dictionary.take(pa.array(order[first]))

    def one(self, name: str, use: str) -> pa.Array:
        """A column of which a record has one value, as text; rows without a value do not count.

        Args:
            name: of the column.
            use: what it is. A label is taken as ``data.aggregate.label`` says; another value must be the same in all rows.
        """
        column, how = self._text.feature(name, "categorical"), self._aggregate.label if use == "label" else "same"
        assert isinstance(column, CategoricalColumn)
        codes, levels = self._sorted(column), pa.array(column.levels, pa.large_string())
        if how == "last":
            return _texts(self._groups.value_at_end(codes, self._when, "last"), levels)
        if how == "max":
            return self._largest_label(name, codes, levels)
        least, largest = self._groups.least(codes), self._groups.largest(codes)
        other = np.flatnonzero(least < largest)
        if len(other):
            rows = self._groups.rows[self._groups.of_row == other[0]]
            line = self._text.place(int(rows.min()))
            raise DataError(
                f"{self._text.source}: the rows of {len(other):,} records have different values in the {use} column {name!r}; "
                f"the first of such rows is in {self._text.unit} {line}",
                code="E_LABEL" if use == "label" else "E_COLUMN",
                hint="a record has one label: say data.aggregate.label: last or max, or correct them"
                if use == "label"
                else f"a record has one {use}: correct them, or make it another column by data.aggregate.columns",
            )
        return _texts(least, levels)

    def _largest_label(self, name: str, codes: Floats, levels: pa.Array) -> pa.Array:
        numbers = numbers_of(levels, self._text.decimal)
        wrong = np.flatnonzero(np.isin(codes, np.flatnonzero(~np.isfinite(numbers))))
        if len(wrong):
            raise DataError(
                f"{self._text.locate(name, int(self._groups.rows[wrong].min()))}: a label is no number, and "
                f"data.aggregate.label is max ({len(wrong):,} such cells)",
                code="E_LABEL",
                hint="say data.aggregate.label: last, or give the classes as numbers",
            )
        by_size = np.argsort(numbers, kind="stable")
        size = np.append(np.argsort(by_size), np.nan)  # the place of each level among all, by size
        largest = self._groups.largest(size[np.where(np.isnan(codes), -1, codes).astype(np.int64)])
        return _texts(largest, levels.take(pa.array(by_size)))

    def nothing(self, name: str) -> dict[str, pa.Array]:
        """The columns that are made of column ``name``, without a value."""
        made = (made for made, (column, _) in self._aggregate.made.items() if column == name)
        return dict.fromkeys(made, pa.nulls(len(self._groups), pa.float64()))

    def taken(self, name: str, taken: Taken, column: Column) -> dict[str, pa.Array]:
        """What is taken of a column of the rows; column of the records → its cells."""
        values = self._sorted(column)
        self._check(name, taken, column, values)
        made = {f"{name}_{each}": self._take(each, taken, column, values) for each in taken.named if each not in _COUNTS}
        return made | (self._counts(name, taken, column, values) if isinstance(column, CategoricalColumn) else {})

    def _sorted(self, column: Column) -> Floats:
        """Numbers, seconds or codes of the rows, float64[n]; NaN: missing."""
        values = values_of(column)[self._groups.rows].astype(np.float64) + 0.0  # no negative zero, which equals zero
        if isinstance(column, CategoricalColumn):
            values[values < 0] = np.nan
        return values

    def _check(self, name: str, taken: Taken, column: Column, values: Floats) -> None:
        if isinstance(column, CategoricalColumn) and (compared := {"min", "max"}.intersection(taken.named)):
            raise DataError(
                f"{self._text.source}: column {name!r} has neither numbers nor dates, and data.aggregate takes its "
                f"{' and '.join(sorted(compared))}",
                code="E_COLUMN",
                hint="take something else, or declare its kind in data.columns; then the error names the cell that is none",
            )
        most = min((bound for each, bound in _LARGEST.items() if each in taken.named), default=np.inf)
        large = np.flatnonzero(np.abs(values) > most)
        if len(large):
            raise DataError(
                f"{self._text.locate(name, int(self._groups.rows[large].min()))}: a number is too large for what "
                f"data.aggregate takes of column {name!r} ({len(large):,} such cells)",
                code="E_NUMERIC",
                hint="correct the cell, or name its word in data.missing if it stands for a missing value",
            )

    def _take(self, each: str, taken: Taken, column: Column, values: Floats) -> pa.Array:
        groups = self._groups
        if each == "first" or each == "last":
            return _cells_like(column, groups.value_at_end(values, self._when, cast(Literal["first", "last"], each)))
        if each == "min" or each == "max":
            return _cells_like(column, groups.least(values) if each == "min" else groups.largest(values))
        if each == "most":
            return _cells_like(column, groups.most(values))
        if each == "list":
            assert isinstance(column, CategoricalColumn)
            assert taken.list
            codes, count = groups.last_ones(values, self._when, taken.list)
            items = pa.array(column.levels, pa.large_string()).take(pa.array(codes))
            starts = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
            return pc.binary_join(
                pa.LargeListArray.from_arrays(pa.array(starts), items), pa.scalar(ITEMS_BETWEEN, pa.large_string())
            )
        if each in ("days_since_first", "days_since_last"):
            assert self._aggregate.as_of is not None
            day = (groups.least if each == "days_since_first" else groups.largest)(values)
            return pa.array(day_number(self._aggregate.as_of) - np.floor(day / DAY_S))
        of_numbers: dict[str, Callable[[Floats], Floats]] = {
            "count": groups.count,
            "distinct": groups.distinct,
            "sum": groups.total,
            "mean": groups.mean,
            "median": groups.median,
            "std": groups.deviation,
        }
        return pa.array(of_numbers[each](values))

    def _counts(self, name: str, taken: Taken, column: CategoricalColumn, codes: Floats) -> dict[str, pa.Array]:
        """How many rows have each of the values that are named, and of those that the most records have."""
        if not (taken.top or taken.values):
            return {}
        record, code, rows = self._groups.kinds(codes)
        place = {level: place for place, level in enumerate(column.levels)}
        wanted = dict.fromkeys(taken.values)
        if taken.top:
            records = np.bincount(code, minlength=len(column.levels))
            common = np.argsort(-records, kind="stable")[: taken.top]
            wanted |= {column.levels[level]: None for level in common.tolist() if records[level]}
        made = {}
        for value in wanted:
            has = code == place.get(value, -1)
            made[COUNT_OF.format(name, value)] = pa.array(
                np.bincount(record[has], weights=rows[has], minlength=len(self._groups)).astype(np.float64)
            )
        return made


def _cells_like(column: Column, values: Floats) -> pa.Array:
    """Numbers, seconds or codes of the records as cells of the same kind as those of the rows."""
    if isinstance(column, CategoricalColumn):
        return _texts(values, pa.array(column.levels, pa.large_string()))
    if isinstance(column, DateColumn):
        missing = np.isnan(values)
        return pa.array(np.where(missing, 0, values).astype(np.int64), pa.timestamp("s"), mask=missing)
    return pa.array(values)


def _texts(codes: Floats, levels: pa.Array) -> pa.Array:
    """The levels of codes, float64[g]; NaN: missing."""
    missing = np.isnan(codes)
    indices = pa.array(np.where(missing, 0, codes).astype(np.int32), mask=missing)
    return pa.DictionaryArray.from_arrays(indices, levels)
