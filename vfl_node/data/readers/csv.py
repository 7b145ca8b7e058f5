"""CSV (RFC 4180): a header line, then one line or more for each row, with a delimiter between the cells."""

from __future__ import annotations

import codecs
import csv
from collections.abc import Collection, Iterator

from typing_extensions import override

from vfl_node.data.readers.contract import Reader, RowBatch
from vfl_node.data.readers.dialect import decimal_of, delimiter_of, find_delimiter, lines_are_quoted
from vfl_node.data.readers.encoding import DecodedFile
from vfl_node.data.readers.input_file import HEAD_BYTES, InputFile
from vfl_node.data.readers.names import ONE_CELL, column_names
from vfl_node.errors import DataError
from vfl_node.settings.declared import DecimalSign, Encoding

BLOCK_BYTES = 1 << 23
"""So many bytes are parsed at once: some megabytes, which the processor's cache still helps with."""

FEW_BYTES = 1 << 10
"""Rows of so few bytes are read one by one: Arrow hands each block to another thread, which takes longer than to read it."""

HEAD_LINES = 200
"""So many lines tell how a CSV is written."""

MOST_BYTES_A_ROW = 1 << 26

_SEEN = {"\t": "tabs", ";": "semicolons", "|": "bars"}
_NUL = b"\0"


class CsvReader(Reader):
    """A :class:`~vfl_node.data.readers.contract.Reader` of a CSV file; empty lines are skipped.

    Args:
        file: at its beginning; closed with this reader.
        delimiter: between the cells; None: as a first line ``sep=;`` tells, or else as the first rows suggest
            (:func:`~vfl_node.data.readers.dialect.delimiter_of`).
        decimal: ``.`` or ``,``; None: as the first rows suggest (:func:`~vfl_node.data.readers.dialect.decimal_of`).
        encoding: of its text.

    Raises:
        DataError: the file cannot be read (``E_FILE``), is not CSV in its encoding with a name for every
            column (``E_CSV``), or is empty (``E_EMPTY``).
        StateError: the machine has a problem, not the file.
    """

    repeatable = True

    def __init__(
        self,
        file: InputFile,
        *,
        delimiter: str | None = None,
        decimal: DecimalSign | None = None,
        encoding: Encoding = "utf-8",
    ) -> None:
        self.source, self._file, self._encoding = file.source, file, encoding
        self._text = file if encoding == "utf-8" else DecodedFile(file, encoding)
        self._rest = _Rest(self._text)
        lines = self._rest.head()
        told = find_delimiter(lines)
        self._before_header = 1 if told else 0
        lines = lines[self._before_header :]
        self.delimiter = delimiter or told or delimiter_of(lines)
        if lines_are_quoted(lines, self.delimiter):
            raise DataError(
                f"{self.source}: every line is one quoted cell",
                code="E_CSV",
                hint="a program has put quotes around whole lines: export the table again, with quotes around single cells",
            )
        self.decimal, self.decimal_known = (decimal, True) if decimal else decimal_of(lines, self.delimiter)
        self.format = self._describe()
        self.names = self._header()

    @override
    def batches(self, columns: Collection[str] | None = None) -> Iterator[RowBatch]:
        """A row must have one cell for each column (``E_CSV``)."""
        from vfl_node.data.readers.csv_blocks import lines_in, parse  # Arrow is loaded when rows are read

        if self._rest.read:
            self._text.rewind()
            self._rest = _Rest(self._text)
            self._header()
        rest, some, size = self._rest, False, HEAD_BYTES
        while block := rest.block(size):
            batch = parse(block, rest.line, self.names, self.delimiter, columns) if len(block) > FEW_BYTES else None
            if batch is None:
                rest.give_back(block)
                batch = self._row_by_row(len(block), columns)
            else:
                rest.line += lines_in(block)
            if batch is not None:
                some = True
                yield batch
            size = BLOCK_BYTES
        if not some:
            raise DataError(f"{self.source}: has a header and no rows", code="E_EMPTY")

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _describe(self) -> str:
        between = "" if self.delimiter == "," else f", cells between {_SEEN.get(self.delimiter, repr(self.delimiter))}"
        decimal = "" if self.decimal == "." else ", decimals with a comma"
        packed = [*([self._encoding] if self._encoding != "utf-8" else []), *filter(None, [self._file.compressed])]
        return f"{' in '.join(['csv', *packed])}{between}{decimal}"

    def _header(self) -> tuple[str, ...]:
        for _ in range(self._before_header):
            self._rest.take_line()
        for line, cells in self._rows():
            if cells:
                return column_names(cells, f"{self.source}:{line}")
        raise DataError(f"{self.source}: is empty", code="E_EMPTY")

    def _row_by_row(self, size: int, columns: Collection[str] | None) -> RowBatch | None:
        """The next rows, of ``size`` bytes or, if the last of them goes on, more; None if there is none."""
        import pyarrow as pa

        rows: list[list[str]] = []
        lines: list[int] = []
        before = self._rest.taken
        for line, cells in self._rows():
            if cells:
                if len(cells) != len(self.names):
                    raise DataError(
                        f"{self.source}:{line}: {len(cells)} cells where the header has {len(self.names)}",
                        code="E_CSV",
                        hint=_cells_hint(len(cells), len(self.names)),
                    )
                rows.append(cells)
                lines.append(line)
            if self._rest.taken - before >= size:
                break
        if not rows:
            return None
        cells_of = zip(self.names, zip(*rows, strict=True), strict=True)
        arrays = {
            name: pa.array(list(map(str.strip, cells)), pa.string())
            for name, cells in cells_of
            if columns is None or name in columns
        }
        return RowBatch(pa.RecordBatch.from_pydict(arrays), lines)

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """The line where each row begins, and its cells; none for an empty line."""
        first = self._rest.line
        reader = csv.reader(self._lines(), strict=True, skipinitialspace=True, delimiter=self.delimiter)
        try:
            for cells in reader:
                yield first, cells
                first = self._rest.line
        except csv.Error as error:
            raise _not_csv(error, f"{self.source}:{first}") from None

    def _lines(self) -> Iterator[str]:
        """The lines of the file as text."""
        while raw := self._rest.take_line():
            line = self._rest.line - 1
            try:
                text = raw.decode()
            except UnicodeDecodeError:
                hint = self._file.other_encoding
                raise DataError(f"{self.source}:{line}: is not UTF-8 text", code="E_CSV", hint=hint) from None
            if _NUL in raw:
                hint = self._file.other_encoding
                raise DataError(f"{self.source}:{line}: holds NUL characters, as UTF-16 does", code="E_CSV", hint=hint)
            yield text


class _Rest:
    """What is not yet read of a file, in blocks or line by line.

    Attributes:
        line: of the file, where the rest begins; from 1.
        taken: bytes that were taken line by line.
        read: whether a block was taken.
    """

    def __init__(self, file: InputFile | DecodedFile) -> None:
        self.line, self.taken, self.read = 1, 0, False
        self._file = file
        self._source = file.source
        self._buffer = file.read(HEAD_BYTES).removeprefix(codecs.BOM_UTF8)
        self._at = 0  # where the rest begins in the buffer
        self._ended = len(self._buffer) == 0

    def head(self) -> list[str]:
        """The first lines, for a guess how they are written."""
        lines = self._buffer.decode(errors="replace").replace("\0", "").split("\n")
        return [f"{line}\n" for line in (lines[:-1] or lines)[:HEAD_LINES]]

    def block(self, size: int) -> bytes:
        """The next rows, of about ``size`` bytes; empty at the end. They end where a row ends, as far as quotes tell."""
        from vfl_node.data.readers.csv_blocks import record_end

        self.read = True
        block = self._buffer[self._at :]
        while not self._ended and (len(block) < size or b"\n" not in block):
            more = self._read_more(size, len(block))
            block += more
        end = len(block) if self._ended else record_end(block) or block.rfind(b"\n") + 1
        self._buffer, self._at = block[end:], 0
        return block if end == len(block) else block[:end]

    def give_back(self, block: bytes) -> None:
        """``block`` is not read after all."""
        self._buffer = block + self._buffer[self._at :]
        self._at = 0

    def take_line(self) -> bytes:
        """The next line; empty at the end."""
        while (end := self._buffer.find(b"\n", self._at) + 1) == 0 and not self._ended:
            self._buffer = self._buffer[self._at :]
            self._at = 0
            self._buffer += self._read_more(HEAD_BYTES, len(self._buffer))
        line = self._buffer[self._at : end or len(self._buffer)]
        self._at += len(line)
        self.line += bool(line)
        self.taken += len(line)
        return line

    def _read_more(self, size: int, held: int) -> bytes:
        if held > MOST_BYTES_A_ROW:
            raise DataError(
                f"{self._source}:{self.line}: a line is longer than {MOST_BYTES_A_ROW >> 20} MiB",
                code="E_CSV",
                hint="lines end with LF or CRLF; set data.path to a CSV file",
            )
        more = self._file.read(size)
        self._ended = len(more) == 0
        return more


def _cells_hint(cells: int, names: int) -> str:
    if names == 1:
        return ONE_CELL
    more = (
        "row names of R (row.names=FALSE), or a delimiter at the end, give rows one cell more; " if cells == names + 1 else ""
    )
    return f"{more}give every row one cell a column; a cell with the delimiter in it goes into double quotes"


def _not_csv(error: csv.Error, where: str) -> DataError:
    reason = str(error).split(" - ")[0]  # the rest is advice for programmers
    return DataError(
        f"{where}: is not valid CSV ({reason})",
        code="E_CSV",
        hint="a quote within a quoted cell is doubled, every quote is closed, and lines end with LF or CRLF",
    )
