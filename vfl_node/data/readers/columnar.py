"""Parquet files, and Arrow's own: files (Feather) and streams."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterator

import pyarrow as pa
import pyarrow.parquet as pq
from typing_extensions import override

from vfl_node.data.readers.contract import Reader, RowBatch
from vfl_node.data.readers.input_file import InputFile
from vfl_node.data.readers.names import column_names
from vfl_node.data.readers.typed import BATCH_ROWS, typed_batches
from vfl_node.errors import DataError, StateError

_AGAIN = "write or copy the file again"

_ASKED_BYTES = 1 << 28
"""Row groups of so many bytes are asked for at once over a network; of larger ones, each column."""

_REPETITIVE_BYTES = 4
"""A column of text that takes at most so many bytes a cell has few cells that differ."""


class _FileReader(Reader):
    """A :class:`~vfl_node.data.readers.contract.Reader` of a file that has a schema.

    Args:
        file: closed with this reader.

    Raises:
        DataError: the file is damaged or cut off, or a column has no name of its own (``E_CSV``).
        StateError: the machine has a problem, not the file.
    """

    repeatable = True
    unit = "row"

    def __init__(self, file: InputFile) -> None:
        self.source = file.source
        self._file = file
        try:
            self._fields = tuple(self._schema(self._content()).names)
        except (pa.ArrowException, OSError) as error:
            raise self._unusable(error) from None
        self.names = column_names(self._fields, self.source)

    @override
    def batches(self, columns: Collection[str] | None = None) -> Iterator[RowBatch]:
        chosen = [place for place, name in enumerate(self.names) if columns is None or name in columns]
        names = [self.names[place] for place in chosen]
        try:
            yield from typed_batches(self._read(self._content(), chosen), names, None, self.source)
            self._file.check()
        except (pa.ArrowException, OSError) as error:
            raise self._unusable(error) from None

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @abstractmethod
    def _schema(self, content: pa.NativeFile) -> pa.Schema:
        """The schema of the file."""

    @abstractmethod
    def _read(self, content: pa.NativeFile, chosen: list[int]) -> Iterator[pa.RecordBatch]:
        """All rows, of the columns at the places ``chosen``."""

    def _content(self) -> pa.NativeFile:
        self._file.rewind()
        return self._file.native()

    def _unusable(self, error: Exception) -> DataError | StateError:
        if isinstance(error, OSError) and (refused := self._file.refusal(error)):
            return refused
        return DataError(f"{self.source}: is damaged or cut off", code="E_CSV", hint=_AGAIN)  # Arrow's text may show a cell


class ParquetReader(_FileReader):
    """A reader of a Parquet file."""

    format = "parquet"

    def _schema(self, content: pa.NativeFile) -> pa.Schema:
        return pq.read_schema(content)

    def _read(self, content: pa.NativeFile, chosen: list[int]) -> Iterator[pa.RecordBatch]:
        known = pq.read_metadata(content)
        text, names = _repetitive_text(known), [self._fields[place] for place in chosen]
        for groups, size in _runs(known):
            whole = self._file.is_remote and size <= _ASKED_BYTES  # else it would hold what it has read, and needs not
            file = pq.ParquetFile(content, metadata=known, read_dictionary=text, pre_buffer=whole)
            yield from file.iter_batches(BATCH_ROWS, columns=names, row_groups=groups)


def _runs(file: pq.FileMetaData) -> Iterator[tuple[list[int], int]]:
    """Row groups that follow each other and fill a batch together, and their bytes in the file."""
    groups: list[int] = []
    rows = size = 0
    for number in range(file.num_row_groups):
        group = file.row_group(number)
        groups.append(number)
        rows += group.num_rows
        size += sum(group.column(place).total_compressed_size for place in range(file.num_columns))
        if rows >= BATCH_ROWS or number == file.num_row_groups - 1:
            yield groups, size
            groups, rows, size = [], 0, 0


def _repetitive_text(file: pq.FileMetaData) -> list[str]:
    """Columns of text that take few bytes a cell in the file, since few cells differ: each different one is read once."""
    groups = [file.row_group(number) for number in range(file.num_row_groups)]
    names: list[str] = []
    for place in range(file.num_columns):
        column = file.schema.column(place)
        if column.logical_type.type == "STRING" and not column.max_repetition_level:
            size = sum(group.column(place).total_uncompressed_size for group in groups)
            if size <= _REPETITIVE_BYTES * file.num_rows:
                names.append(column.path)
    return names


class IpcReader(_FileReader):
    """A reader of an Arrow file (Feather) or an Arrow stream."""

    format = "arrow"

    def _schema(self, content: pa.NativeFile) -> pa.Schema:
        return self._open(content).schema

    def _read(self, content: pa.NativeFile, chosen: list[int]) -> Iterator[pa.RecordBatch]:
        opened = self._open(content, chosen)
        if isinstance(opened, pa.RecordBatchFileReader):
            yield from map(opened.get_batch, range(opened.num_record_batches))
        else:
            yield from opened

    def _open(
        self, content: pa.NativeFile, chosen: list[int] | None = None
    ) -> pa.RecordBatchFileReader | pa.RecordBatchStreamReader:
        options = pa.ipc.IpcReadOptions(included_fields=chosen)
        if self._file.starts_with(b"ARROW1"):
            return pa.ipc.open_file(content, options=options)
        return pa.ipc.open_stream(content, options=options)
