"""CSV in UTF-8 (RFC 4180): a header line, then one line or more for each row, with commas between the cells."""

from __future__ import annotations

import codecs
import csv
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path

from vfl_node.data.readers.contract import RowBatch
from vfl_node.errors import DataError, StateError
from vfl_node.files import fault

BATCH_ROWS = 1 << 14

_NUL = "\0"
_WIDE_BOMS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)  # that of UTF-32-LE begins as UTF-16's
_SAVE_AS_UTF8 = "save the file as UTF-8"


class CsvReader:
    """A :class:`~vfl_node.data.readers.contract.Reader` of a CSV file; empty lines are skipped.

    Args:
        path: of the file.
        party: this party's name, for errors.

    Raises:
        DataError: the file cannot be read (``E_FILE``), is not CSV in UTF-8 with a name for every
            column (``E_CSV``), or is empty (``E_EMPTY``).
        StateError: the machine has a problem, not the file.
    """

    def __init__(self, path: Path, *, party: str) -> None:
        self.source = f"{party}: {path}"
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise _unreadable(error, self.source) from None
        self._reader = csv.reader(_decoded(self._file, self.source), strict=True, skipinitialspace=True)
        self.names: tuple[str, ...] = ()
        try:
            self._read_names()
        except BaseException:
            self.close()
            raise

    def batches(self) -> Iterator[RowBatch]:
        """As in the contract. A row must have one cell for each column (``E_CSV``)."""
        reader, rows, places, batches = self._reader, [], array("q"), 0
        first = reader.line_num + 1
        try:
            for cells in reader:
                if cells:
                    if len(cells) != len(self.names):
                        raise DataError(
                            f"{self.source}:{first}: {len(cells)} cells where the header has {len(self.names)}",
                            code="E_CSV",
                            hint="give every row one cell a column; a cell with a comma in it goes into double quotes",
                        )
                    rows.append(cells)
                    places.append(first)
                    if len(rows) == BATCH_ROWS:
                        yield _taken(rows, places)
                        batches += 1
                first = reader.line_num + 1
        except csv.Error as error:
            raise _not_csv(error, f"{self.source}:{first}") from None
        except OSError as error:
            raise _unreadable(error, self.source) from None
        if rows:
            yield _taken(rows, places)
        elif not batches:
            raise DataError(f"{self.source}: has a header and no rows", code="E_EMPTY")

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _read_names(self) -> None:
        first = 1
        try:
            for cells in self._reader:
                if cells:
                    self.names = _names(cells, f"{self.source}:{first}")
                    return
                first = self._reader.line_num + 1
        except csv.Error as error:
            raise _not_csv(error, f"{self.source}:{first}") from None
        except OSError as error:
            raise _unreadable(error, self.source) from None
        raise DataError(f"{self.source}: is empty", code="E_EMPTY")


def _taken(rows: list[list[str]], places: array[int]) -> RowBatch:
    """A batch of ``rows``, both emptied for the next one."""
    batch = RowBatch([list(map(str.strip, cells)) for cells in zip(*rows, strict=True)], places[:])
    rows.clear()
    del places[:]
    return batch


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
        if _NUL in text:
            raise DataError(f"{source}:{line}: holds NUL characters, as UTF-16 does", code="E_CSV", hint=_SAVE_AS_UTF8)
        yield text


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


def _not_csv(error: csv.Error, where: str) -> DataError:
    reason = str(error).split(" - ")[0]  # the rest is advice for programmers
    return DataError(
        f"{where}: is not valid CSV ({reason})",
        code="E_CSV",
        hint="a quote within a quoted cell is doubled, every quote is closed, and lines end with LF or CRLF",
    )


def _unreadable(error: OSError, source: str) -> DataError | StateError:
    """What it means that the system refused to open or read the file: a wrong path, or a problem of the machine."""
    if isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError | NotADirectoryError):
        hint = "set data.path to a CSV file this user can read"
        return DataError(f"{source}: cannot be read ({error.strerror})", code="E_FILE", hint=hint)
    return fault(error)
