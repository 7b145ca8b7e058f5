"""How a party's table becomes bins that are counted: each column as many, whatever it has."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from vfl_node.configuration import versions
from vfl_node.data import transforms
from vfl_node.data.bins import Bins, Cuts, Sorts
from vfl_node.data.encoded import EncodedColumn
from vfl_node.data.evidence import EvidenceColumns, WeighedColumn
from vfl_node.data.stored import StoredEncoder, notations_of, rows_read
from vfl_node.data.tables import CategoricalColumn, Table, values_of
from vfl_node.settings.declared import Kind
from vfl_node.training.shares.binned import BinnedColumns
from vfl_node.training.shares.candidates import Candidates


class CountedColumns(StoredEncoder):
    """The bins of a party's columns. It contains numbers and levels of its own data, and stays with it.

    Each column has ``bins`` bins, which may be empty, and one more for missing values: so nobody else sees what a column has.

    Attributes:
        bins: of each column, without the one for missing values.
        columns: those that are counted.
    """

    version: ClassVar[int] = 1
    steps: ClassVar[versions.Steps] = {}

    bins: int
    columns: tuple[Bins, ...]

    @property
    def encodings(self) -> tuple[Cuts | Sorts, ...]:
        """What is read of the table."""
        return self.columns

    @property
    def kinds(self) -> dict[str, Kind]:
        """Column → kind, of those that are read."""
        return {each.name: each.holds for each in self.columns}

    @classmethod
    def fit(cls, table: Table, bins: int, least: int) -> CountedColumns:
        """Learn from all rows of a table.

        Args:
            table: the whole one.
            bins: of each column; of categories the most frequent levels have one each, and all others one together.
            least: own records that a column must set apart, as of :meth:`BinnedColumns.fit`.
        """
        found = BinnedColumns.fit(table, bins, least).columns
        kept = tuple(_cut_levels(each, table, bins - 1) if isinstance(each, Sorts) else each for each in found)
        return cls(bins=bins, columns=kept, notations=notations_of(table), rows=rows_read(table))

    def find_bins(self, table: Table) -> NDArray[np.uint16]:
        """The bin of each row in each column, uint16[n, C]; that of missing values is the last one.

        Raises:
            DataError: the table lacks a column, or has one of another kind (``E_COLUMN``).
        """
        found = np.zeros((len(table), len(self.columns)), np.uint16)
        for place, (column, bins) in enumerate(zip(self.columns, self._binned.bins(table).T, strict=False)):
            found[:, place] = np.where(bins == column.count - 1, self.bins, bins)
        return found

    def standardise(self, whole: Table, table: Table) -> NDArray[np.float64]:
        """Numbers of a table in deviations of the ``whole`` one, float64[n, C]; 0 of categories and where one is missing."""
        found = np.zeros((len(table), len(self.columns)))
        for place, column in enumerate(self.columns):
            if isinstance(column, Cuts):
                mean, deviation = transforms.moments(_cut_ends(_present(whole, column.name)))
                values = (values_of(table.columns[column.name]) - mean) / (deviation or 1.0)
                found[:, place] = np.where(np.isnan(values), 0.0, values)
        return found

    def cells(self, table: Table, rows: NDArray[np.int64]) -> Candidates:
        """A cell for each bin over the shared order; ``rows`` of the table, −1 where a row is not this party's."""
        bins = self.find_bins(table)[np.maximum(rows, 0)]
        bins[rows < 0] = 0
        return Candidates(np.asfortranarray(bins), [np.eye(self.bins + 1, dtype=np.bool_)] * len(self.columns))

    def encoded(self, table: Table) -> tuple[EncodedColumn, ...]:
        """What is made of each column of a table."""
        return self._binned.encoded(table)

    def describe(self, column: int) -> tuple[str, ...]:
        """The bins of a column in words; those that it cannot have are empty."""
        *present, missing = self.columns[column].describe_bins()
        return (*present, *[""] * (self.bins - len(present)), missing)

    def weigh(self, job_id: str, weights: NDArray[np.float64]) -> EvidenceColumns:
        """What replaces these columns in a later training.

        Args:
            job_id: of the job that has counted.
            weights: of evidence, float64[C, bins + 1], of each bin.
        """
        columns = []
        for read, own in zip(self.columns, weights.tolist(), strict=True):
            *present, missing = own
            bins = read.model_copy(update={"left": ()})  # no weight is about ways to split
            columns.append(WeighedColumn(bins=bins, weights=(*present[: read.count - 1], missing)))
        return EvidenceColumns(job=job_id, columns=tuple(columns))

    @property
    def _binned(self) -> BinnedColumns:
        return BinnedColumns(columns=self.columns)


def _cut_ends(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same with the smallest and the largest hundredth cut off, so that few values do not decide how all are scaled."""
    return np.clip(values, *np.quantile(values, (0.01, 0.99)))


def _present(table: Table, name: str) -> NDArray[np.float64]:
    values = np.asarray(values_of(table.columns[name]), np.float64)
    return values[~np.isnan(values)]


def _cut_levels(column: Sorts, table: Table, most: int) -> Sorts:
    """The same with its most frequent levels alone."""
    cells = table.columns[column.name]
    assert isinstance(cells, CategoricalColumn)
    count = dict(zip(cells.levels, cells.counts.tolist(), strict=True))
    kept = sorted(sorted(column.levels, key=lambda level: (-count[level], level))[:most])
    return column.model_copy(update={"levels": tuple(kept), "left": ()})
