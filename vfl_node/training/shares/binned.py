"""How a party's table becomes candidates for splits."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from vfl_node.configuration import versions
from vfl_node.configuration.models import Frozen
from vfl_node.data.encoded import EncodedColumn
from vfl_node.data.stored import StoredEncoder, notations_of, rows_read
from vfl_node.data.tables import CategoricalColumn, Column, DateColumn, ListColumn, NumericColumn, Table, values_of
from vfl_node.data.transforms import Finite
from vfl_node.errors import DataError
from vfl_node.settings.declared import Kind
from vfl_node.training.shares.candidates import Candidates

LEAST_SHARE = 0.01
"""Part of a party's own records on each side of a candidate, at least."""


class Cuts(Frozen):
    """A column of numbers, or of dates in seconds.

    Bin k has those above ``cuts[k − 1]`` and up to ``cuts[k]``; the last one has missing ones. A candidate is "up to a cut",
    and where some are missing also "up to it, or missing", and "missing".

    Attributes:
        holds: what the column has.
        cuts: ascending.
        left: the bins that go left under each candidate.
    """

    kind: Literal["cuts"] = "cuts"
    name: str
    holds: Literal["numeric", "date"]
    cuts: tuple[Finite, ...]
    left: tuple[tuple[Annotated[int, Field(ge=0)], ...], ...]

    method: ClassVar[None] = None
    part: ClassVar[None] = None

    @property
    def count(self) -> int:
        """Bins, the one of missing numbers included."""
        return len(self.cuts) + 2

    def bins_of(self, column: Column) -> NDArray[np.uint16]:
        """The bin of each row, uint16[n]."""
        assert isinstance(column, NumericColumn | DateColumn)
        values = column.values if isinstance(column, NumericColumn) else column.seconds
        found = np.searchsorted(np.array(self.cuts), values, side="left")
        return np.where(np.isnan(values), len(self.cuts) + 1, found).astype(np.uint16)

    def describe(self, candidate: int) -> str:
        """The candidate in words."""
        bins, missing = set(self.left[candidate]), len(self.cuts) + 1
        if bins == {missing}:
            return f"{self.name} is missing"
        below = f"{self.name} ≤ {self.cuts[max(bins - {missing})]:.6g}"
        return f"{below}, or missing" if missing in bins else below

    def describe_bins(self) -> tuple[str, ...]:
        """All bins in words."""
        ends = [f"{cut:.4g}" for cut in self.cuts]
        between = [f"{low} to {high}" for low, high in pairwise(ends)]
        return (f"≤ {ends[0]}", *between, f"> {ends[-1]}", "missing") if ends else ("any", "missing")


class Sorts(Frozen):
    """A column of categories.

    Bin k has ``levels[k]``, the next one all others, and the last one missing ones. A candidate is one bin against the rest.

    Attributes:
        levels: sorted.
        left: as of :class:`Cuts`.
    """

    kind: Literal["sorts"] = "sorts"
    name: str
    levels: tuple[str, ...]
    left: tuple[tuple[Annotated[int, Field(ge=0)], ...], ...]

    holds: ClassVar[Literal["categorical"]] = "categorical"
    method: ClassVar[None] = None
    part: ClassVar[None] = None

    @property
    def count(self) -> int:
        """Bins."""
        return len(self.levels) + 2

    def bins_of(self, column: Column) -> NDArray[np.uint16]:
        """The bin of each row, uint16[n]."""
        assert isinstance(column, CategoricalColumn)
        place = {level: number for number, level in enumerate(self.levels)}
        table = np.array([*(place.get(level, len(self.levels)) for level in column.levels), len(self.levels) + 1], np.uint16)
        return table[column.codes]  # −1 is the last one

    def describe(self, candidate: int) -> str:
        """The candidate in words."""
        (place,) = self.left[candidate]
        if place == len(self.levels) + 1:
            return f"{self.name} is missing"
        return f"{self.name} = {self.levels[place]}" if place < len(self.levels) else f"{self.name} is another level"

    def describe_bins(self) -> tuple[str, ...]:
        """All bins in words."""
        return (*self.levels, "another level", "missing")


Splitter = Annotated[Cuts | Sorts, Field(discriminator="kind")]


class BinnedColumns(StoredEncoder):
    """What a party's candidates are. It contains numbers and levels of its own data, and stays with it.

    Attributes:
        columns: those that have candidates.
    """

    version: ClassVar[int] = 1
    steps: ClassVar[versions.Steps] = {}

    columns: tuple[Splitter, ...]

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
        found = [each.bins_of(_column_for(each, table)) for each in self.columns]
        return np.stack(found, axis=1) if found else np.zeros((len(table), 1), np.uint16)

    def candidates(self, table: Table, rows: NDArray[np.int64]) -> Candidates:
        """The candidates over the shared order; ``rows`` of the table, −1 where a row is not this party's."""
        bins = self.bins(table)[np.maximum(rows, 0)]
        bins[rows < 0] = 0
        return Candidates(np.asfortranarray(bins), self.matrices)  # read a column at a time

    def encoded(self, table: Table) -> tuple[EncodedColumn, ...]:
        """What is made of each column of a table."""
        read = {each.name: each for each in self.columns}
        return tuple(_describe_column(name, column, read.get(name)) for name, column in table.columns.items())

    def describe(self, candidate: int) -> str:
        """A candidate in words, by its number."""
        for each in self.columns:
            if candidate < len(each.left):
                return each.describe(candidate)
            candidate -= len(each.left)
        raise IndexError(candidate)


def _describe_column(name: str, column: Column, read: Cuts | Sorts | None) -> EncodedColumn:
    if isinstance(column, ListColumn):
        return EncodedColumn(name, "list", None, 0, 0, (), int(np.count_nonzero(column.lengths == 0)))
    if isinstance(column, CategoricalColumn):
        own, present = len(read.levels) if isinstance(read, Sorts) else 0, int(np.count_nonzero(column.counts))
        return EncodedColumn(name, "categorical", None, own, present - own, (), int(np.count_nonzero(column.codes < 0)))
    kind: Literal["date", "numeric"] = "date" if isinstance(column, DateColumn) else "numeric"
    missing = int(np.count_nonzero(np.isnan(values_of(column))))
    return EncodedColumn(name, kind, "cuts" if read else None, None, None, (), missing)


def _column_for(read: Cuts | Sorts, table: Table) -> Column:
    column = table.columns.get(read.name)
    kinds = {"numeric": NumericColumn, "date": DateColumn, "categorical": CategoricalColumn}
    if column is not None and isinstance(column, kinds[read.holds]):
        return column
    raise DataError(
        f"the model reads a {read.holds} column {read.name!r}, and this table has none",
        code="E_COLUMN",
        hint="give a table with the columns the model was trained on; declare their kinds in data.columns",
    )


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
