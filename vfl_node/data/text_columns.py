"""An input, read: some columns as text, with the place of each row, so that every error can name its place; others as values.

Text is kept in Arrow's buffers and values in arrays. So memory stays near their size, whatever the number of cells.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from typing_extensions import override

from vfl_node.data.accumulators import FeatureCells, FeatureKind, ParsedNumbers, wrong_number
from vfl_node.data.cells import numbers_of, text_of
from vfl_node.data.notation import Wrong
from vfl_node.data.readers.contract import Reader, RowBatch
from vfl_node.data.tables import CategoricalColumn
from vfl_node.errors import DataError


class Beginning(Reader):
    """A :class:`~vfl_node.data.readers.contract.Reader` whose first batch is there already, for a look at its first row.

    Args:
        reader: of the input; closed by whoever opened it.
        columns: those that are needed; None: all.

    Attributes:
        first_row: column → its text in the first row, of the columns that are needed.
        header: the place of the names, for errors.
        types: column → the type of its cells, of the columns that are needed.

    Raises:
        DataError, StateError: as :meth:`vfl_node.data.readers.contract.Reader.batches`.
    """

    def __init__(self, reader: Reader, columns: Collection[str] | None = None) -> None:
        self.source, self.names = reader.source, reader.names
        self.repeatable, self.format = reader.repeatable, reader.format
        self.decimal, self.decimal_known = reader.decimal, reader.decimal_known
        self.unit, self.merged = reader.unit, reader.merged
        self._reader = reader
        self._rest = reader.batches(columns)
        first = next(self._rest, None)
        if first is None:
            raise DataError(f"{self.source}: has no rows", code="E_EMPTY")
        self._first: RowBatch | None = first
        self.types = dict(zip(first.columns.schema.names, first.columns.schema.types, strict=True))
        self.first_row, self.header = _first_row(first), _header(reader, first)

    @override
    def batches(self, columns: Collection[str] | None = None) -> Iterator[RowBatch]:
        """The first time with the columns of the constructor."""
        if self._first is None:
            yield from self._reader.batches(columns)
        else:
            yield self._first
            self._first = None
            yield from self._rest

    def close(self) -> None:
        """Close the other reader."""
        self._reader.close()


class TextColumns:
    """The columns of an input.

    Args:
        reader: read here to its end.
        values: column → how :class:`~vfl_node.data.accumulators.FeatureCells` reads it, of those columns of which the values
            alone are kept.
        text: columns that are kept as text; None: all others.

    Attributes:
        source: party and input, as errors name them.
        names: columns in the order of the input.
        decimal: how cells of text write decimals.
        decimal_known: whether that is sure, and no guess.
        format: what was read, in a few words.
        merged: how many rows became the records; None: each row is one.
        first_row: column → its text in the first row.
        header: the place of the names, for errors.

    Raises:
        DataError, StateError: as :meth:`vfl_node.data.readers.contract.Reader.batches`.
    """

    def __init__(
        self, reader: Reader, values: Mapping[str, FeatureKind | None] | None = None, text: Collection[str] | None = None
    ) -> None:
        values = values or {}
        self.source, self.names = reader.source, reader.names
        self.decimal, self.decimal_known, self.format = reader.decimal, reader.decimal_known, reader.format
        self.merged, self._unit = reader.merged, reader.unit
        kept = [name for name in reader.names if name not in values and (text is None or name in text)]
        self._kept: dict[str, list[pa.Array]] = {name: [] for name in kept}
        self._starts: list[int] = []  # first row of each batch
        self._lines: list[Sequence[int]] | None = []
        self._sources: list[str] = []  # of each batch
        self._rows = 0
        read = {name: FeatureCells(kind, decimal=reader.decimal, repeatable=reader.repeatable) for name, kind in values.items()}
        for batch in reader.batches({*kept, *values}):
            if not self._rows:
                self.first_row, self.header = _first_row(batch), _header(reader, batch)
            self._starts.append(self._rows)
            self._sources.append(batch.source)
            self._rows += batch.columns.num_rows
            if batch.lines is None:
                self._lines = None
            elif self._lines is not None:
                self._lines.append(batch.lines)
            for name, chunks in self._kept.items():
                chunks.append(batch.columns.column(name))
            for name, cells in read.items():
                cells.extend(batch.columns.column(name))
        self._values = self._finish(read, reader)

    def _finish(self, read: dict[str, FeatureCells], reader: Reader) -> dict[str, ParsedNumbers | CategoricalColumn]:
        """The columns of ``read``, which is emptied; those of which some cells are no plain numbers are read again."""
        values: dict[str, ParsedNumbers | CategoricalColumn] = {}
        again: dict[str, FeatureCells] = {}
        for name in list(read):
            column = read.pop(name).column()
            if column is None:
                again[name] = FeatureCells("text", decimal=reader.decimal, repeatable=False)
            else:
                values[name] = column
        rows = 0
        for batch in reader.batches(again) if again else ():
            rows += batch.columns.num_rows
            for name, cells in again.items():
                cells.extend(batch.columns.column(name))
        if again and rows != self._rows:
            raise DataError(f"{self.source}: changed while it was read", code="E_CSV", hint="begin again")
        return values | {name: _require(cells.column()) for name, cells in again.items()}

    def __len__(self) -> int:
        return self._rows

    def blocks(self, name: str) -> Iterator[list[str]]:
        """The cells of column ``name``, a batch of rows at a time; empty where there is no value."""
        for chunk in self._kept[name]:
            cells = text_of(chunk)
            yield (pc.fill_null(cells, "") if cells.null_count else cells).to_pylist()

    def chunks(self, name: str) -> Iterator[pa.Array]:
        """The cells of column ``name`` as text in Arrow's form; null or empty where there is no value."""
        return map(text_of, self._kept[name])

    def cells(self, name: str) -> Iterator[str]:
        """The cells of column ``name``."""
        return chain.from_iterable(self.blocks(name))

    def cell(self, name: str, row: int) -> str:
        """The cell of column ``name`` in row ``row``, counted from 0."""
        batch = bisect_right(self._starts, row) - 1
        return text_of(self._kept[name][batch].slice(row - self._starts[batch], 1))[0].as_py() or ""

    def numbers(self, name: str) -> NDArray[np.float64]:
        """The numbers in column ``name``, float64[n]; NaN: missing, infinity: not a finite number."""
        return np.concatenate([numbers_of(chunk, self.decimal) for chunk in self._kept[name]])

    def values(self, name: str) -> NDArray[np.float64] | None:
        """Column ``name`` as :meth:`numbers`, if only its values are kept and they are numbers; else None."""
        column = self._values.get(name)
        return column.values if isinstance(column, ParsedNumbers) else None

    def wrong_number(self, name: str, row: int) -> Wrong:
        """What a cell is that :meth:`numbers` says is infinite."""
        batch = bisect_right(self._starts, row) - 1
        return wrong_number(self._kept[name][batch].slice(row - self._starts[batch], 1), self.decimal)

    def feature(self, name: str, kind: FeatureKind | None) -> ParsedNumbers | CategoricalColumn:
        """Column ``name`` as numbers or as text, as :class:`~vfl_node.data.accumulators.FeatureCells` reads it."""
        if name in self._values:
            return self._values[name]
        return _feature(self._kept[name], kind, self.decimal)

    @property
    def unit(self) -> Literal["line", "row"]:
        """What :meth:`line` counts: lines of a file, or rows."""
        return "row" if self._lines is None else self._unit

    def line(self, row: int) -> int:
        """The line of the file, from 1, where row ``row`` begins; the number of the row in an input without lines."""
        if self._lines is None:
            return row + 1
        batch = bisect_right(self._starts, row) - 1
        return int(self._lines[batch][row - self._starts[batch]])

    @property
    def has_parts(self) -> bool:
        """Whether the rows are of several files, or may be; then :meth:`line` counts within each."""
        return any(self._sources)

    def place(self, row: int) -> str:
        """What :meth:`line` says, behind the name of the file where there are several."""
        part = self._source(row).rpartition("/")[2]
        return f"{part}:{self.line(row)}" if self.has_parts else str(self.line(row))

    def locate(self, name: str, row: int) -> str:
        """``party: path:line:column`` of one cell."""
        return f"{self._source(row) or self.source}:{'row ' if self.unit == 'row' else ''}{self.line(row)}:{name}"

    def _source(self, row: int) -> str:
        return self._sources[bisect_right(self._starts, row) - 1]


def _feature(chunks: Sequence[pa.Array], kind: FeatureKind | None, decimal: str) -> ParsedNumbers | CategoricalColumn:
    cells = FeatureCells(kind, decimal=decimal, repeatable=True)
    for chunk in chunks:
        cells.extend(chunk)
    return cells.column() or _feature(chunks, "text", decimal)


def _require(column: ParsedNumbers | CategoricalColumn | None) -> ParsedNumbers | CategoricalColumn:
    assert column is not None
    return column


def _first_row(batch: RowBatch) -> dict[str, str]:
    row = batch.columns.slice(0, 1)
    return {name: text_of(column)[0].as_py() or "" for name, column in zip(row.schema.names, row.columns, strict=True)}


def _header(reader: Reader, batch: RowBatch) -> str:
    source = batch.source or reader.source
    return source if batch.lines is None or reader.unit == "row" else f"{source}:1"
