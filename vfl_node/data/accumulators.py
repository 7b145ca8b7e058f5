"""Columns that grow batch by batch, without a Python object for each cell."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from vfl_node.data.cells import absent, is_number, numbers_of, text_of, write_points, zero_led
from vfl_node.data.missing_words import ABSENT, MISSING
from vfl_node.data.notation import Wrong
from vfl_node.data.shapes import are_parts_of_dates, may_have_thousands
from vfl_node.data.tables import CategoricalColumn

_LOOKED_AT = 100
_POINT = ord(".")

FeatureKind = Literal["text", "categorical"]


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

    def take(self) -> NDArray[np.float64]:
        """The values; nothing can be added afterwards."""
        self._values.resize(self._used, refcheck=False)
        return self._values


@dataclass(frozen=True, eq=False)
class ParsedNumbers:
    """A column as numbers.

    Attributes:
        values: float64[n]; NaN: missing, infinity: an infinite number, of a column that has a type.
        zero_led: how many cells of text have a zero before other digits; 0 where some numbers have a fraction, or they are
            parts of dates.
    """

    values: NDArray[np.float64] = field(repr=False)
    zero_led: int = 0


class FeatureCells:
    """A column as numbers or as text.

    Args:
        kind: ``categorical``: as text; ``text``: as numbers if its type says so; None: also if it is text and every cell is
            missing or a plain number.
        decimal: how cells of text write decimals.
        repeatable: whether the cells can be added to another one again. Then numbers are kept as numbers alone.
    """

    def __init__(self, kind: FeatureKind | None, *, decimal: str, repeatable: bool) -> None:
        self._kind = kind
        self._decimal, self._repeatable = decimal, repeatable
        self._cells: _NumberCells | _LevelCells | None = None

    def extend(self, cells: pa.Array) -> None:
        """Add cells, one at least, of any type that has a text."""
        if self._cells is None:
            self._cells = _NumberCells(self._decimal) if self._holds_numbers(cells) else _LevelCells()
        self._cells.extend(cells)

    def _holds_numbers(self, cells: pa.Array) -> bool:
        if is_number(cells.type) or self._kind:
            return is_number(cells.type) and self._kind != "categorical"
        return self._repeatable and not np.isinf(numbers_of(cells, self._decimal)).any()

    def column(self) -> ParsedNumbers | CategoricalColumn | None:
        """The column; None: some of its text is no plain number, and must be read again. Called once."""
        assert self._cells is not None
        return self._cells.column()


class _NumberCells:
    """A column as numbers; ``decimal`` is how cells of text write decimals."""

    def __init__(self, decimal: str) -> None:
        self._decimal = decimal
        self._values = _Growing()
        self._zero_led = self._longer = 0
        self._plain, self._grouped = True, decimal == "."  # whether points may separate thousands, if there are any
        self._points = False
        self._some = self._words = False  # whether there are numbers, and cells that are missing only beside numbers

    def extend(self, cells: pa.Array) -> None:
        values = numbers_of(cells, self._decimal)
        if not is_number(cells.type):
            self._plain = self._plain and not np.isinf(values).any()
            self._some = self._some or not np.isnan(values).all()
            self._words = self._words or (not self._some and bool(absent(text_of(cells), ABSENT).any()))
            if self._plain and _are_whole(values[:_LOOKED_AT]):
                self._zero_led += zero_led(text_of(cells))
                self._longer += zero_led(text_of(cells), digits=2) if self._zero_led else 0
            self._grouped = self._grouped and self._is_grouped(text_of(cells), values)
        self._values.extend(values)

    def column(self) -> ParsedNumbers | None:
        values = self._values.take()
        if not self._plain or (self._words and not self._some) or (self._grouped and self._points):
            return None
        led = self._zero_led if self._zero_led and _are_whole(values) else 0
        return ParsedNumbers(values, 0 if led and are_parts_of_dates(values, longer=self._longer > 0) else led)

    def _is_grouped(self, text: pa.Array, values: NDArray[np.float64]) -> bool:
        """Whether points may separate thousands in all cells; quick where the first ones or the absence of points tell."""
        if not may_have_thousands(text[:_LOOKED_AT], values[:_LOOKED_AT]):
            return False
        _, _, content = text.buffers()
        if content is None or not (np.frombuffer(content, np.uint8) == _POINT).any():
            return True
        self._points = True
        return may_have_thousands(text, values)


def _are_whole(values: NDArray[np.float64]) -> bool:
    values = values[~np.isnan(values)]
    return bool((np.trunc(values) == values).all())


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


def wrong_number(cell: pa.Array, decimal: str) -> Wrong:
    """What a cell is that is neither missing nor a finite number."""
    try:
        infinite = np.isinf(float(write_points(text_of(cell), decimal)[0].as_py()))
    except ValueError:
        infinite = False
    return "an infinite number" if infinite else "text"
