"""Columns that grow batch by batch, without a Python object for each cell."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from vfl_node.data.cells import MISSING, is_number, numbers_of, text_of, written
from vfl_node.data.tables import CategoricalColumn

NUMERIC_SHARE = 0.95
"""A column that is not declared is numeric if at least this share of its values are finite numbers."""

Wrong = Literal["text", "an infinite number"]


class _Growing:
    """Numbers to which others are added. The system moves no memory when a long array grows by a part of its length."""

    def __init__(self) -> None:
        self._values = np.empty(0, dtype=np.float64)
        self._used = 0

    def extend(self, values: NDArray[np.float64]) -> None:
        end = self._used + len(values)
        if end > len(self._values):
            self._values.resize(end + end // 16, refcheck=False)
        self._values[self._used : end] = values
        self._used = end

    def taken(self) -> NDArray[np.float64]:
        """The values; nothing can be added afterwards."""
        self._values.resize(self._used, refcheck=False)
        return self._values


@dataclass(frozen=True, eq=False)
class ParsedNumbers:
    """A column as numbers.

    Attributes:
        values: float64[n]; NaN: missing, infinity: not a finite number.
        wrong: what the first of those is that are no finite numbers; None if there is none.
    """

    values: NDArray[np.float64] = field(repr=False)
    wrong: Wrong | None = None

    @property
    def enough(self) -> bool:
        """Whether so many values are finite numbers that an undeclared column is numeric."""
        present = len(self.values) - int(np.count_nonzero(np.isnan(self.values)))
        return present - int(np.count_nonzero(np.isinf(self.values))) >= NUMERIC_SHARE * present


class FeatureCells:
    """A column in its declared kind; if none is declared, in the kind that its type or its values suggest.

    Args:
        kind: declared in the settings.
        decimal: how cells of text write decimals.
        repeatable: whether the cells can be added to another one again. Then numbers are kept as numbers alone.
    """

    def __init__(self, kind: Literal["numeric", "categorical"] | None, *, decimal: str, repeatable: bool) -> None:
        self._kind = kind
        self._decimal, self._repeatable = decimal, repeatable
        self._cells: _NumberCells | _LevelCells | None = None

    def extend(self, cells: pa.Array) -> None:
        """Add cells, one at least, of any type that has a text."""
        if self._cells is None:
            if self._kind is None and is_number(cells.type):
                self._kind = "numeric"
            self._cells = _NumberCells(self._decimal) if self._as_numbers(cells) else _LevelCells()
        self._cells.extend(cells)

    def _as_numbers(self, cells: pa.Array) -> bool:
        if self._kind is None:
            return self._repeatable and ParsedNumbers(numbers_of(cells, self._decimal)).enough
        return self._kind == "numeric"

    def column(self) -> ParsedNumbers | CategoricalColumn | None:
        """The column; None: it is categorical, and must be read again as such. Called once."""
        assert self._cells is not None
        if isinstance(self._cells, _NumberCells):
            numbers = self._cells.numbers()
            return numbers if self._kind or numbers.enough else None
        column = self._cells.column()
        if self._kind:
            return column
        of_levels = numbers_of(pa.array(column.levels, pa.string()), self._decimal)
        rows = np.bincount(column.codes[column.codes >= 0], minlength=len(column.levels))
        if rows[np.isfinite(of_levels)].sum() < NUMERIC_SHARE * rows.sum():
            return column
        return ParsedNumbers(np.append(of_levels, np.nan)[column.codes], self._cells.wrong(self._decimal))


class _NumberCells:
    """A column as numbers; ``decimal`` is how cells of text write decimals."""

    def __init__(self, decimal: str) -> None:
        self._wrong: Wrong | None = None
        self._decimal = decimal
        self._values = _Growing()

    def extend(self, cells: pa.Array) -> None:
        values = numbers_of(cells, self._decimal)
        if self._wrong is None and np.isinf(values).any():
            self._wrong = _wrong(cells.slice(int(np.argmax(np.isinf(values))), 1), self._decimal)
        self._values.extend(values)

    def numbers(self) -> ParsedNumbers:
        return ParsedNumbers(self._values.taken(), self._wrong)


class _LevelCells:
    """A column as text, each different one stored once for a batch."""

    def __init__(self) -> None:
        self._batches: list[pa.DictionaryArray] = []

    def extend(self, cells: pa.Array) -> None:
        encoded = cells.dictionary_encode()
        texts = text_of(encoded.dictionary)
        if texts.null_count:  # such as NaN
            encoded = text_of(cells).dictionary_encode()
            texts = encoded.dictionary
        self._batches.append(pa.DictionaryArray.from_arrays(encoded.indices.cast(pa.int32()), texts.cast(pa.large_string())))

    def column(self) -> CategoricalColumn:
        column = pa.chunked_array(self._batches, pa.dictionary(pa.int32(), pa.large_string())).unify_dictionaries()
        texts = column.chunk(0).dictionary.to_pylist()
        levels = tuple(sorted(set(texts) - MISSING - {None}))
        code_of = {level: code for code, level in enumerate(levels)}
        codes = np.array([*(code_of.get(text, -1) for text in texts), -1], dtype=np.int64)  # null takes the last
        every = np.empty(len(column), dtype=np.int64)
        start = 0
        for chunk in column.chunks:
            indices = chunk.indices.fill_null(len(texts)).to_numpy()
            np.take(codes, indices, out=every[start : start + len(chunk)])
            start += len(chunk)
        return CategoricalColumn(every, levels)

    def wrong(self, decimal: str) -> Wrong | None:
        for batch in self._batches:
            values = numbers_of(batch, decimal)
            if np.isinf(values).any():
                return _wrong(batch.slice(int(np.argmax(np.isinf(values))), 1), decimal)
        return None


def _wrong(cell: pa.Array, decimal: str) -> Wrong:
    """What a cell is that is neither missing nor a finite number."""
    try:
        infinite = np.isinf(float(written(text_of(cell), decimal)[0].as_py()))
    except ValueError:
        infinite = False
    return "an infinite number" if infinite else "text"
