"""How a CSV is written: what separates its cells, and how its numbers write decimals. Guessed from its first rows."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from contextlib import suppress

from vfl_node.settings.declared import DecimalSign

DELIMITERS = (",", ";", "\t", "|")
"""Those that are recognised, in the order in which they are preferred."""

_COMMA = re.compile(r"[+-]?([0-9]*),([0-9]+)([eE][+-]?[0-9]+)?")
_POINT = re.compile(r"[+-]?[0-9]*\.[0-9]+([eE][+-]?[0-9]+)?")
_WHOLE = re.compile(r"[+-]?[0-9]+")
_THOUSANDS = re.compile(r"[+-]?[1-9][0-9]{0,2}[,.][0-9]{3}")
_NUMERIC_SHARE = 0.95
_TOLD = re.compile(r'"?sep=([\t!#-&*-/:-@^_|~])\1*"?\s*', re.IGNORECASE)


def delimiter_of(lines: Sequence[str]) -> str:
    """The delimiter that splits all rows into as many cells as the header has, the most of them.

    If none does, it is the one that the header has most often; a comma if it has none.

    Args:
        lines: of the file, from its beginning, with their ends; a last row that is cut off within quotes does not count.
    """
    split = {delimiter: _rows(lines, delimiter) for delimiter in DELIMITERS}
    columns = {delimiter: len(rows[0]) if rows else 1 for delimiter, rows in split.items()}
    even = [each for each in DELIMITERS if all(len(row) == columns[each] for row in split[each]) and columns[each] > 1]
    return max(even or DELIMITERS, key=lambda delimiter: columns[delimiter])


def find_delimiter(lines: Sequence[str]) -> str | None:
    """The delimiter that the first of ``lines`` tells, as ``sep=;`` does for spreadsheets; None: it tells none."""
    told = _TOLD.fullmatch(lines[0]) if lines else None
    return told[1] if told else None


def lines_are_quoted(lines: Sequence[str], delimiter: str) -> bool:
    """Whether every line is one cell within quotes, with a delimiter in it: a program has quoted lines instead of cells."""
    rows = _rows(lines, delimiter)
    return (
        len(rows) > 1
        and all(len(row) == 1 for row in rows)
        and any(all(between in row[0] for row in rows) for between in DELIMITERS)
    )


def decimal_of(lines: Sequence[str], delimiter: str) -> tuple[DecimalSign, bool]:
    """A comma if more columns are numbers with a comma than with a point; else a point. And whether that is no mere guess.

    With commas between the cells, decimals have points. Cells such as ``1,234`` or ``1.234`` alone tell nothing, because
    the sign may separate thousands.

    Args:
        lines: as for :func:`delimiter_of`.
        delimiter: between the cells.
    """
    rows = _rows(lines, delimiter)[1:]
    if delimiter == "," or not rows:
        return ".", delimiter == ","
    width = min(map(len, rows))
    columns = [[row[place].strip() for row in rows if row[place].strip()] for place in range(width)]
    commas, points = (sum(_has_decimals(cells, pattern) for cells in columns) for pattern in (_COMMA, _POINT))
    return "," if commas > points else ".", commas != points


def _has_decimals(cells: Sequence[str], pattern: re.Pattern[str]) -> bool:
    written = [cell for cell in cells if pattern.fullmatch(cell)]
    numbers = len(written) + sum(bool(_WHOLE.fullmatch(cell)) for cell in cells)
    return numbers >= _NUMERIC_SHARE * len(cells) and not all(map(_THOUSANDS.fullmatch, written))


def _rows(lines: Sequence[str], delimiter: str) -> list[list[str]]:
    """The rows as far as they are CSV."""
    rows: list[list[str]] = []
    with suppress(csv.Error):
        rows.extend(row for row in csv.reader(lines, delimiter=delimiter, strict=True, skipinitialspace=True) if row)
    return rows
