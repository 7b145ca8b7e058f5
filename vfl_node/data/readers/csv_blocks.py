"""A block of CSV, parsed by Arrow: many rows at once, and only where Arrow reads exactly what Python's csv module reads.

:func:`parse` looks at the bytes for everything on which the two differ, such as a quote within a cell or a bare carriage
return, and at what is an error. If there is any, it gives nothing, and :mod:`vfl_node.data.readers.csv` reads the block
row by row.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv as arrow_csv

from vfl_node.data.cells import ASCII_SPACE, WHITE_SPACE
from vfl_node.data.readers.contract import RowBatch

_LF, _CR, _QUOTE = b'\n\r"'
_LONGEST = csv.field_size_limit()


def parse(block: bytes, line: int, names: Sequence[str], delimiter: str, columns: Collection[str] | None) -> RowBatch | None:
    """The rows of a block; None if they must be read one by one, or if there are none.

    Args:
        block: whole rows, of which the first begins with the block.
        line: the line of the file where the block begins.
        names: of the columns.
        delimiter: between the cells.
        columns: those that are needed; None: all.
    """
    ascii = block.isascii()
    if b"\0" in block or (not ascii and not _is_utf8(block)):
        return None
    text = np.frombuffer(block, dtype=np.uint8)
    marks = np.flatnonzero(text <= ord(" "))  # ends of lines and white space
    returns = marks[text[marks] == _CR] + 1
    if len(returns) and (returns[-1] == len(text) or (text[returns] != _LF).any()):
        return None
    quotes = np.flatnonzero(text == _QUOTE) if b'"' in block else np.empty(0, dtype=np.int64)
    if not _are_regular(text, quotes, ord(delimiter)):
        return None
    breaks = marks[text[marks] == _LF]
    ends = breaks[np.searchsorted(quotes, breaks) % 2 == 0] if len(quotes) else breaks
    starts = np.concatenate(([0], ends + 1))
    if starts[-1] == len(block):
        starts = starts[:-1]
    if np.diff(starts, append=len(block)).max(initial=0) > _LONGEST:
        return None
    rows = starts[(text[starts] != _LF) & (text[starts] != _CR)]  # the others are empty lines
    try:
        table = arrow_csv.read_csv(
            pa.BufferReader(_arrows_own(text)),
            arrow_csv.ReadOptions(column_names=list(names), block_size=len(block) + 1),
            arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=len(quotes) > 0),
            arrow_csv.ConvertOptions(
                check_utf8=False,
                column_types=dict.fromkeys(names, pa.string()),
                null_values=[""],
                strings_can_be_null=True,
                include_columns=None if columns is None else [name for name in names if name in columns],
            ),
        )
    except pa.ArrowInvalid:
        return None
    if table.num_rows != len(rows) or not len(rows):
        return None
    cells = table.combine_chunks().to_batches()[0]
    if not ascii or len(ends) != len(breaks) or _has_outer_space(text, marks, ord(delimiter)):
        cells = pa.RecordBatch.from_arrays([_trim(column, ascii) for column in cells.columns], schema=cells.schema)
    return RowBatch(cells, _lines(line, rows, breaks, regular=len(rows) == len(starts) and len(ends) == len(breaks)))


def _arrows_own(text: NDArray[np.uint8]) -> pa.Buffer:
    """A copy in Arrow's memory, of which its threads may let go after Python's end; of Python's memory they cannot."""
    buffer = pa.allocate_buffer(len(text))
    np.frombuffer(buffer, dtype=np.uint8)[:] = text
    return buffer


def lines_in(block: bytes) -> int:
    """How many lines end in ``block``."""
    return int(np.count_nonzero(np.frombuffer(block, dtype=np.uint8) == _LF))


def record_end(block: bytes) -> int:
    """Where the last whole row of ``block`` ends, which begins with a row; 0 if no row ends in it."""
    if b'"' not in block:
        return block.rfind(b"\n") + 1
    inside = block.count(b'"') % 2 == 1
    end = len(block)
    while (found := block.rfind(b"\n", 0, end)) >= 0:
        inside ^= block.count(b'"', found, end) % 2 == 1
        if not inside:
            return found + 1
        end = found
    return 0


def _is_utf8(block: bytes) -> bool:
    try:
        pa.scalar(block, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def _are_regular(text: NDArray[np.uint8], quotes: NDArray[np.int64], delimiter: int) -> bool:
    """Whether each quote opens or closes a cell, or is one of two in a quoted cell."""
    if len(quotes) % 2:
        return False
    before, after = quotes[0::2] - 1, quotes[1::2] + 1
    opened, closed = text[before[before >= 0]], text[after[after < len(text)]]
    return bool(np.isin(opened, (delimiter, _LF, _QUOTE)).all() and np.isin(closed, (delimiter, _LF, _CR, _QUOTE)).all())


def _has_outer_space(text: NDArray[np.uint8], marks: NDArray[np.int64], delimiter: int) -> bool:
    """Whether white space may be at an end of a cell."""
    spaces = marks[np.isin(text[marks], [space for space in map(ord, ASCII_SPACE) if space not in (_LF, _CR, delimiter)])]
    if not len(spaces):
        return False
    edges = (delimiter, _LF, _CR, _QUOTE)
    before, after = text[np.maximum(spaces - 1, 0)], text[np.minimum(spaces + 1, len(text) - 1)]
    return bool(spaces[0] == 0 or spaces[-1] == len(text) - 1 or np.isin(before, edges).any() or np.isin(after, edges).any())


def _trim(column: pa.Array, ascii: bool) -> pa.Array:
    if ascii:
        return pc.ascii_trim(column, characters=ASCII_SPACE)
    return pc.utf8_trim(column, characters=WHITE_SPACE)


def _lines(line: int, rows: NDArray[np.int64], breaks: NDArray[np.int64], *, regular: bool) -> Sequence[int]:
    """The line of each row, which begins at ``rows``."""
    if regular:
        return range(line, line + len(rows))
    return (line + np.searchsorted(breaks, rows)).tolist()
