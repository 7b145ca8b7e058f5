"""How a party's table becomes candidates for splits."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from vfl_node.configuration import versions
from vfl_node.data.bins import Bins, Cuts, Sorts, column_of, describe_column
from vfl_node.data.encoded import EncodedColumn
from vfl_node.data.stored import StoredEncoder, notations_of, rows_read
from vfl_node.data.tables import CategoricalColumn, Column, DateColumn, NumericColumn, Table
from vfl_node.settings.declared import Kind
from vfl_node.training.shares.candidates import Candidates

LEAST_SHARE = 0.01
"""Part of a party's own records on each side of a candidate, at least."""


class BinnedColumns(StoredEncoder):
    """What a party's candidates are. It contains numbers and levels of its own data, and stays with it.

    Attributes:
        columns: those that have candidates.
    """

    version: ClassVar[int] = 1
    steps: ClassVar[versions.Steps] = {}

    columns: tuple[Bins, ...]

    @property
    def encodings(self) -> tuple[Cuts | Sorts, ...]:
        """What is read of the table."""
        return self.columns

    @classmethod
    def fit(cls, table: Table, most: int, least: int) -> BinnedColumns:
        """Learn from all rows of a table.

        Args:
            table: the whole one.
            most: intervals of a column of numbers.
            least: own records on each side of a candidate, at least; as many as :data:`LEAST_SHARE` says, if that is more.
        """
        least = max(least, int(np.ceil(LEAST_SHARE * len(table))))
        found = [_fit_column(name, column, most, least) for name, column in table.columns.items()]
        kept = tuple(each for each in found if each is not None and each.left)
        return cls(columns=kept, notations=notations_of(table), rows=rows_read(table))

    @property
    def kinds(self) -> dict[str, Kind]:
        """Column → kind, of those that are read."""
        return {each.name: each.holds for each in self.columns}

    @property
    def matrices(self) -> list[NDArray[np.bool_]]:
        """Which bins go left under each candidate, for each column; without columns one candidate that splits nothing."""
        return [_matrix_of(each) for each in self.columns] or [np.zeros((1, 1), np.bool_)]

    def bins(self, table: Table) -> NDArray[np.uint16]:
        """The bin of each row of a table in each column, uint16[n, C].

        Raises:
            DataError: the table lacks a column, or has one of another kind (``E_COLUMN``).
        """
        found = [each.bins_of(column_of(each, table)) for each in self.columns]
        return np.stack(found, axis=1) if found else np.zeros((len(table), 1), np.uint16)

    def candidates(self, table: Table, rows: NDArray[np.int64]) -> Candidates:
        """The candidates over the shared order; ``rows`` of the table, −1 where a row is not this party's."""
        bins = self.bins(table)[np.maximum(rows, 0)]
        bins[rows < 0] = 0
        return Candidates(np.asfortranarray(bins), self.matrices)  # read a column at a time

    def encoded(self, table: Table) -> tuple[EncodedColumn, ...]:
        """What is made of each column of a table."""
        read = {each.name: each for each in self.columns}
        return tuple(describe_column(name, column, read.get(name)) for name, column in table.columns.items())

    def describe(self, candidate: int) -> str:
        """A candidate in words, by its number."""
        for each in self.columns:
            if candidate < len(each.left):
                return each.describe(candidate)
            candidate -= len(each.left)
        raise IndexError(candidate)


def _matrix_of(column: Cuts | Sorts) -> NDArray[np.bool_]:
    matrix = np.zeros((column.count, len(column.left)), np.bool_)
    for number, bins in enumerate(column.left):
        matrix[list(bins), number] = True
    return matrix


def _fit_column(name: str, column: Column, most: int, least: int) -> Cuts | Sorts | None:
    if isinstance(column, CategoricalColumn):
        return _fit_sorts(name, column, least)
    if isinstance(column, NumericColumn | DateColumn):
        values = column.values if isinstance(column, NumericColumn) else column.seconds
        return _fit_cuts(name, "date" if isinstance(column, DateColumn) else "numeric", values, most, least)
    return None


def _fit_cuts(name: str, holds: Literal["numeric", "date"], values: NDArray[np.float64], most: int, least: int) -> Cuts | None:
    present = values[~np.isnan(values)]
    distinct = np.unique(present)
    if len(distinct) <= most:
        cuts = (distinct[1:] + distinct[:-1]) / 2
    else:
        cuts = np.unique(np.quantile(present, np.arange(1, most) / most, method="midpoint"))
    missing = len(values) - len(present)
    below = np.searchsorted(np.sort(present), cuts, side="right")
    last, count = len(cuts) + 1, len(values)
    left = [tuple(range(k + 1)) for k, low in enumerate(below.tolist()) if _fits(low, count, least)]
    if missing:
        left += [(*range(k + 1), last) for k, low in enumerate(below.tolist()) if _fits(low + missing, count, least)]
        left += [(last,)] if _fits(missing, count, least) else []
    return Cuts(name=name, holds=holds, cuts=tuple(cuts.tolist()), left=tuple(left))


def _fit_sorts(name: str, column: CategoricalColumn, least: int) -> Sorts:
    counts, total = column.counts, len(column.codes)
    kept = [place for place, count in enumerate(counts.tolist()) if count >= least]
    levels = tuple(column.levels[place] for place in kept)
    of_bins = [*counts[kept].tolist(), int(counts.sum() - counts[kept].sum()), total - int(counts.sum())]
    left = [(place,) for place, count in enumerate(of_bins) if _fits(count, total, least)]
    if sum(count > 0 for count in of_bins) == 2:  # one candidate says as much as both
        left = left[:1]
    return Sorts(name=name, levels=levels, left=tuple(left))


def _fits(left: int, count: int, least: int) -> bool:
    return least <= left <= count - least
