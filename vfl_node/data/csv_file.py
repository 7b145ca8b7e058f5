"""A CSV file as columns of text, with the line number of each row, so that every error can name its place.

Rows are read in blocks, and a block of a column is stored as one string. So memory stays near the
size of the file, whatever the number of cells.
"""

from __future__ import annotations

import codecs
import csv
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path

from vfl_node.errors import DataError
from vfl_node.files import fault

BLOCK_ROWS = 1 << 14

_SEPARATOR = "\0"  # refused in the file, so it cannot be part of a cell
_WIDE_BOMS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)  # that of UTF-32-LE begins as UTF-16's
_SAVE_AS_UTF8 = "save the file as UTF-8"


class TextColumns:
    """The cells of a table as text, without white space at their ends.

    Attributes:
        source: party and file, as errors name them.
        names: columns in the order of the file.
    """

    def __init__(self, source: str, names: tuple[str, ...], lines: array[int], packed: list[list[str]]) -> None:
        """``lines`` holds the line where each row begins; ``packed`` the joined blocks of each column."""
        self.source = source
        self.names = names
        self._lines = lines
        self._packed = dict(zip(names, packed, strict=True))

    def __len__(self) -> int:
        return len(self._lines)

    def blocks(self, name: str) -> Iterator[list[str]]:
        """The cells of column ``name``, a block of rows at a time."""
        for block in self._packed[name]:
            yield block.split(_SEPARATOR)

    def cell(self, name: str, row: int) -> str:
        """The cell of column ``name`` in row ``row``, counted from 0."""
        return self._packed[name][row // BLOCK_ROWS].split(_SEPARATOR)[row % BLOCK_ROWS]

    def line(self, row: int) -> int:
        """The line of the file, from 1, where row ``row`` begins."""
        return self._lines[row]

    def where(self, name: str, row: int) -> str:
        """``party: path:line:column`` of one cell."""
        return f"{self.source}:{self.line(row)}:{name}"


def read_columns(path: Path, *, party: str) -> TextColumns:
    """Read a UTF-8 CSV file (RFC 4180, header line, commas); empty lines are skipped.

    Raises:
        DataError: it cannot be read (``E_FILE``), is not CSV in UTF-8 with a name for every
            column and one cell for each column in every row (``E_CSV``), or has no rows (``E_EMPTY``).
            The text names file and line, and never contains a cell.
        StateError: the machine has a problem, not the file (:func:`vfl_node.files.fault`).
    """
    source = f"{party}: {path}"
    try:
        with path.open("rb") as file:
            return _columns(_decoded(file, source), source)
    except (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError) as error:
        raise DataError(
            f"{source}: cannot be read ({error.strerror})", code="E_FILE", hint="set data.path to a CSV file this user can read"
        ) from None
    except OSError as error:
        raise fault(error) from None


def _decoded(file: Iterable[bytes], source: str) -> Iterator[str]:
    """The lines of the file as text."""
    for line, raw in enumerate(file, start=1):
        if line == 1:
            if raw.startswith(_WIDE_BOMS):
                raise DataError(f"{source}: is UTF-16 or UTF-32, not UTF-8", code="E_CSV", hint=_SAVE_AS_UTF8)
            raw = raw.removeprefix(codecs.BOM_UTF8)
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            raise DataError(f"{source}:{line}: is not UTF-8 text", code="E_CSV", hint=_SAVE_AS_UTF8) from None
        if _SEPARATOR in text:
            raise DataError(f"{source}:{line}: holds NUL characters, as UTF-16 does", code="E_CSV", hint=_SAVE_AS_UTF8)
        yield text


def _columns(text: Iterator[str], source: str) -> TextColumns:
    reader = csv.reader(text, strict=True, skipinitialspace=True)
    names: tuple[str, ...] = ()
    lines = array("q")
    packed: list[list[str]] = []
    block: list[list[str]] = []
    first = 1
    try:
        for cells in reader:
            if not names:
                names = _names(cells, f"{source}:{first}") if cells else ()
                packed = [[] for _ in names]
            elif cells:
                if len(cells) != len(names):
                    raise DataError(
                        f"{source}:{first}: {len(cells)} cells where the header has {len(names)}",
                        code="E_CSV",
                        hint="give every row one cell a column; a cell with a comma in it goes into double quotes",
                    )
                lines.append(first)
                block.append(cells)
                if len(block) == BLOCK_ROWS:
                    _pack(block, packed)
            first = reader.line_num + 1
    except csv.Error as error:
        reason = str(error).split(" - ")[0]  # the rest is advice for programmers
        raise DataError(
            f"{source}:{first}: is not valid CSV ({reason})",
            code="E_CSV",
            hint="a quote within a quoted cell is doubled, every quote is closed, and lines end with LF or CRLF",
        ) from None
    if not lines:
        raise DataError(f"{source}: {'has a header and no rows' if names else 'is empty'}", code="E_EMPTY")
    _pack(block, packed)
    return TextColumns(source, names, lines, packed)


def _pack(block: list[list[str]], packed: list[list[str]]) -> None:
    """Move the rows of ``block``, if any, to the ends of the columns."""
    for column, cells in zip(packed, zip(*block, strict=True), strict=bool(block)):
        column.append(_SEPARATOR.join(map(str.strip, cells)))
    block.clear()


def _names(header: list[str], where: str) -> tuple[str, ...]:
    """The column names. Errors number columns instead of naming them, because the first line may be a record."""
    names = tuple(map(str.strip, header))
    seen: dict[str, int] = {}
    for number, name in enumerate(names, start=1):
        if not name:
            raise DataError(
                f"{where}: column {number} has no name",
                code="E_CSV",
                hint="name every column in the first line, or remove the column",
            )
        if name in seen:
            raise DataError(
                f"{where}: columns {seen[name]} and {number} have the same name",
                code="E_CSV",
                hint="the first line must give every column a name of its own",
            )
        seen[name] = number
    return names
